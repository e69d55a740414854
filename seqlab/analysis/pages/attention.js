let layer = data.layers[0], head = 0, marked = [0, null];
const weight = (t, s) => layer.weights[head][t][s];
// The square root makes weights of 1/T visible beside those of 1.
const strength = (w) => Math.sqrt(w);

const told = make("output");
const cut = make("p", { className: "faint" });
const lines = make("div");
const map = makeMap("weights: each row is a step that looks, each column one that is looked at", (t, s) => mark(t, s));
const heads = makeButtons("Head", (n) => { head = n; showHead(); });
let looking, seen;

function showLayer(n) {
  layer = data.layers[n];
  head = Math.min(head, layer.heads.length - 1);
  marked = [Math.min(marked[0], layer.rows.length - 1), null];
  heads.show(layer.heads, head);
  cut.textContent = layer.cut;
  cut.hidden = !layer.cut;
  seen = makeLine(layer.columns, layer.self ? (t) => mark(t, null) : (s) => markSeen(s));
  looking = layer.self ? null : makeLine(layer.rows, (t) => mark(t, null));
  const title = (text) => make("p", { className: "faint", textContent: text });
  lines.replaceChildren(...(layer.self
    ? [title("Point at a token: what it looks at stands out."), seen.box]
    : [title("What is written: point at a token, and what it looks at stands out below."), looking.box,
      title("What is read: point at a token, and what looks at it stands out above."), seen.box]));
  showHead();
}

function showHead() {
  map.show({
    rows: layer.rows, columns: layer.columns, strength: (t, s) => strength(weight(t, s)),
  });
  mark(...marked);
}

function mark(t, s) {
  marked = [t, s];
  map.mark(t, s);
  const row = layer.columns.map((_, k) => weight(t, k));
  seen.paint(row.map(strength), layer.self ? t : s);
  if (looking) looking.paint(null, t);
  const most = row.map((w, k) => [w, k]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([w]) => w > 0);
  const list = most.map(([w, k]) => `${name(layer.columns, k)} ${w.toFixed(3)}`).join(", ");
  told.textContent = s === null
    ? `${name(layer.rows, t)} looks most at ${list || "nothing"}`
    : `${name(layer.rows, t)} looks at ${name(layer.columns, s)}: ${weight(t, s).toFixed(4)}`;
}

function markSeen(s) {
  const column = layer.rows.map((_, t) => weight(t, s));
  looking.paint(column.map(strength), null);
  seen.paint(null, s);
  const t = column.indexOf(Math.max(...column));
  told.textContent = `${name(layer.columns, s)} is looked at most by ${name(layer.rows, t)}: ${column[t].toFixed(4)}`;
}

main.append(
  makeSelect("Layer", data.layers.map((each) => each.name), showLayer), heads.box, cut, told,
  make("h2", { textContent: "Tokens" }), lines, make("h2", { textContent: "Weights" }), map.box,
);
main.middle = map.middle;
showLayer(0);
