let layer = data.layers[0], head = 0, marked = [0, null];
const weight = (t, s) => layer.weights[head][t][s];
// The square root makes weights of 1/T visible beside those of 1.
const strength = (w) => Math.sqrt(w);

const told = make("output");
const cut = make("p", { className: "faint" });
const lines = make("div");
const map = makeMap("weights: each row is a step that looks, each column one that is looked at", (t, s) => mark(t, s));
const heads = makeButtons("Head", (n) => { head = n; showHead(); });
let rows, columns, looking, seen;

function showLayer(n) {
  layer = data.layers[n];
  head = Math.min(head, layer.heads.length - 1);
  rows = layer.rows.slice(0, layer.shown[0]);
  columns = layer.columns.slice(0, layer.shown[1]);
  marked = [Math.min(marked[0], rows.length - 1), null];
  heads.show(layer.heads, head);
  cut.textContent = layer.cut;
  cut.hidden = !layer.cut;
  seen = makeLine(columns, layer.self ? (t) => mark(t, null) : (s) => markSeen(s));
  looking = layer.self ? null : makeLine(rows, (t) => mark(t, null));
  const title = (text) => make("p", { className: "faint", textContent: text });
  lines.replaceChildren(...(layer.self
    ? [title("Point at a token: what it looks at stands out."), seen.box]
    : [title("What is written: point at a token, and what it looks at stands out below."), looking.box,
      title("What is read: point at a token, and what looks at it stands out above."), seen.box]));
  showHead();
}

function showHead() {
  map.show({ rows, columns, strength: (t, s) => strength(weight(t, s)) });
  mark(...marked);
}

function mark(t, s) {
  marked = [t, s];
  map.mark(t, s);
  const row = columns.map((_, k) => weight(t, k));
  seen.paint(row.map(strength), layer.self ? t : s);
  if (looking) looking.paint(null, t);
  told.textContent = s === null
    ? `${name(rows, t)} looks most at ${list(layer.looks[head][t], layer.columns, columns.length)}`
    : `${name(rows, t)} looks at ${name(columns, s)}: ${weight(t, s).toFixed(4)}`;
}

// The greatest of a whole row, of which the first `shown` are drawn.
function list(most, names, shown) {
  const told = most.map(([k, w]) => `${name(names, k)} ${w.toFixed(3)}${k < shown ? "" : " (not shown)"}`);
  return told.join(", ") || "nothing";
}

function markSeen(s) {
  const column = rows.map((_, t) => weight(t, s));
  looking.paint(column.map(strength), null);
  seen.paint(null, s);
  told.textContent = `${name(columns, s)} is looked at most by ${list(layer.looked[head][s], layer.rows, rows.length)}`;
}

main.append(
  makeSelect("Layer", data.layers.map((each) => each.name), showLayer), heads.box, cut, told,
  make("h2", { textContent: "Tokens" }), lines, make("h2", { textContent: "Weights" }), map.box,
);
main.middle = map.middle;
showLayer(0);
