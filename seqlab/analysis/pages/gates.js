let layer = data.layers[0], at = 0, marked = [0, 0];
const strength = (u, t) => layer.maps[at].values[u][t] / layer.maps[at].limit;

const told = make("output");
const reading = make("p", { className: "faint" }), which = make("p", { className: "faint" });
const deepest = make("p", { className: "faint" });
const map = makeMap("values: each row is a unit, each column a step", (u, t) => mark(u, t));
const values = makeButtons("Value", (n) => { at = n; showValues(); });
const box = make("div");
let line = null;

function showLayer(n) {
  const before = layer.maps[at].name;
  layer = data.layers[n];
  at = Math.max(0, layer.maps.findIndex((each) => each.name === before));
  marked = [Math.min(marked[0], layer.units.length - 1), Math.min(marked[1], layer.tokens.length - 1)];
  line = makeLine(layer.tokens, (t) => mark(marked[0], t));
  box.replaceChildren(line.box);
  reading.textContent = layer.reading;
  which.textContent = layer.which;
  values.show(layer.maps.map((each) => each.name), at);
  showValues();
}

function showValues() {
  const { name: what, limit } = layer.maps[at];
  deepest.textContent = `The deepest colour is that of |${what}| = ${limit.toFixed(2)} and of all beyond.`;
  map.show({ rows: layer.units.map(String), columns: layer.tokens, strength, height: 13 });
  mark(...marked);
}

function mark(u, t) {
  marked = [u, t];
  map.mark(u, t);
  line.paint(layer.tokens.map((_, k) => strength(u, k)), t);
  const { name: what, values } = layer.maps[at];
  told.textContent = `unit ${layer.units[u]} at ${name(layer.tokens, t)}: ${what} = ${values[u][t].toFixed(4)}`;
}

main.append(
  makeSelect("Layer", data.layers.map((each) => each.name), showLayer), values.box, told,
  make("h2", { textContent: "Tokens, by the marked unit" }), reading, box, make("h2", { textContent: "Units" }),
  which, deepest, map.box,
);
main.middle = map.middle;
showLayer(0);
