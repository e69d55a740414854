const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A row of buttons, of which one is pressed; picked(k) is told of the k-th.
function makeButtons(label, picked) {
  const box = make("div", { className: "choices" });
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  return {
    box,
    show(names, k) {
      const buttons = names.map((name) => make("button", { type: "button", textContent: name }));
      buttons.forEach((button, n) => {
        button.setAttribute("aria-pressed", String(n === k));
        button.addEventListener("click", () => {
          for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
          picked(n);
        });
      });
      box.replaceChildren(make("label", { textContent: label }), ...buttons);
    },
  };
}

function makeSelect(label, names, picked) {
  const select = make("select", {}, ...names.map((name, n) => make("option", { value: String(n), textContent: name })));
  select.setAttribute("aria-label", label);
  select.addEventListener("change", () => picked(Number(select.value)));
  return make("div", { className: "choices" }, make("label", { textContent: label }), select);
}

// A line of tokens; pointed(t) is told of the one that is pointed at.
function makeLine(tokens, pointed) {
  const spans = tokens.map((token, t) => {
    const span = make("span", { className: "token", textContent: token, tabIndex: 0 });
    for (const event of ["pointerenter", "focus", "click"]) span.addEventListener(event, () => pointed(t));
    return span;
  });
  return {
    box: make("div", { className: "line" }, ...spans.flatMap((span) => [span, " "])),
    // Strengths, of which −1 and 1 are the greatest, and which token is marked.
    paint(strengths, marked) {
      spans.forEach((span, t) => {
        const strength = strengths ? strengths[t] : 0;
        span.style.setProperty("--weight", String(Math.min(1, Math.abs(strength))));
        span.classList.toggle("below", strength < 0);
        span.classList.toggle("marked", t === marked);
      });
    },
  };
}

// A map on a canvas, of square cells unless rows have a height: rows and columns with names, cells of strengths, of which −1 and 1 are the greatest; pointed(row, column) is told of the
// cell that is pointed at, by a mouse, a finger or the arrow keys.
function makeMap(label, pointed) {
  const canvas = make("canvas", { tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const box = make("div", { className: "box" }, canvas);
  let shown = null, marked = null, place = null;
  const shorten = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

  function draw() {
    if (!shown) return;
    const { rows, columns, strength } = shown;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const pen = canvas.getContext("2d");
    const font = `11px ${colour("--font")}`;
    pen.font = font;
    const widest = (names) => Math.max(...names.map((name) => pen.measureText(shorten(name)).width));
    const left = Math.ceil(widest(rows)) + 8;
    const upright = columns.every((name) => [...name].length < 2);
    const top = upright ? 20 : Math.ceil(widest(columns)) + 8;
    const room = main.clientWidth - left - 4;
    const width = Math.min(26, Math.max(13, Math.floor(room / columns.length)));
    const height = shown.height ?? Math.min(18, width);
    const size = [left + width * columns.length + 1, top + height * rows.length + 1];
    const scale = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = size.map((n) => Math.round(n * scale));
    [canvas.style.width, canvas.style.height] = size.map((n) => `${n}px`);
    pen.scale(scale, scale);
    pen.font = font;
    pen.fillStyle = colour("--text");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    rows.forEach((name, r) => {
      pen.fillText(shorten(name), left - 4, top + height * (r + 0.5));
    });
    columns.forEach((name, c) => {
      pen.save();
      pen.translate(left + width * (c + 0.5), top - 5);
      if (!upright) pen.rotate(-Math.PI / 2);
      pen.textAlign = upright ? "center" : "left";
      pen.textBaseline = upright ? "alphabetic" : "middle";
      pen.fillText(shorten(name), 0, 0);
      pen.restore();
    });
    const colours = [colour("--series-1"), colour("--series-0")];
    rows.forEach((_, r) => columns.forEach((_, c) => {
      const a = strength(r, c);
      pen.globalAlpha = Math.min(1, Math.abs(a));
      pen.fillStyle = colours[a < 0 ? 0 : 1];
      pen.fillRect(left + width * c, top + height * r, width, height);
    }));
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("--lines");
    pen.strokeRect(left + 0.5, top + 0.5, width * columns.length, height * rows.length);
    if (marked) {
      pen.strokeStyle = colour("--text");
      pen.strokeRect(left + 0.5, top + height * marked[0] + 0.5, width * columns.length, height);
      pen.lineWidth = 2;
      if (marked[1] !== null) pen.strokeRect(left + width * marked[1], top + height * marked[0], width, height);
      pen.lineWidth = 1;
    }
    place = { left, top, width, height };
  }

  for (const event of ["pointermove", "pointerdown"]) {
    canvas.addEventListener(event, ({ offsetX, offsetY }) => {
      const row = Math.floor((offsetY - place.top) / place.height);
      const column = Math.floor((offsetX - place.left) / place.width);
      if (row < 0 || column < 0 || row >= shown.rows.length || column >= shown.columns.length) return;
      if (!marked || marked[0] !== row || marked[1] !== column) pointed(row, column);
    });
  }
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const [row, column] = marked ? [marked[0] + move[0], (marked[1] ?? 0) + move[1]] : [0, 0];
    const within = (k, names) => Math.min(Math.max(k, 0), names.length - 1);
    pointed(within(row, shown.rows), within(column, shown.columns));
  });
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return {
    box,
    show(what) { shown = what; draw(); },
    mark(row, column) { marked = row === null ? null : [row, column]; draw(); },
    // Where the middle of a cell is, from the canvas's corner.
    middle: (row, column) => [place.left + place.width * (column + 0.5), place.top + place.height * (row + 0.5)],
  };
}

function name(tokens, t) {
  return tokens[t] === String(t) ? `step ${t}` : `“${tokens[t]}” (${t})`;
}
