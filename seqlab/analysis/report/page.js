"use strict";

// A click on a heading sorts by its column, a second one turns the order round; what is unknown stays last.
for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.querySelectorAll("th[data-column]")) {
    heading.querySelector("button").addEventListener("click", () => {
      const column = Number(heading.dataset.column);
      const ascends = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", ascends ? "ascending" : "descending");
      const isNumber = heading.classList.contains("number");
      const key = (row) => row.cells[column].dataset.value;
      const compare = (a, b) => {
        if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
        const order = isNumber ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
        return ascends ? order : -order;
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b)));
      table.tBodies[0].append(...rows);
    });
  }
}

// A run that is pointed at in the legend stands out in all its curves.
for (const section of document.querySelectorAll(".curves")) {
  for (const button of section.querySelectorAll("button[data-series]")) {
    const pick = (picked) => {
      section.classList.toggle("picking", picked);
      for (const line of section.querySelectorAll(`g[data-series="${button.dataset.series}"]`)) {
        line.classList.toggle("picked", picked);
      }
    };
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => pick(true));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => pick(false));
  }
}
