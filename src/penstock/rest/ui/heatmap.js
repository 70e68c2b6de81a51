// Heat map of the in-flight rows from each producer (down) to each consumer (across).

import { h, s } from "./dom.js";
import { count } from "./format.js";

const MOST_CELLS = 48; // per side; with more subtasks, several share a row or column
const LEFT = 28;
const WORDS = 160;
const TOP = 30;

export function heatMap(edge) {
  const side = 1 + edge.channels.reduce((most, one) => Math.max(most, one.producer, one.consumer), 0);
  const bin = Math.ceil(side / MOST_CELLS);
  const cells = binned(edge.channels, bin);
  const rows = Math.ceil(side / bin);
  const most = Math.max(...cells.map((one) => one.rows));
  const cell = Math.max(6, Math.min(40, Math.floor(310 / rows)));
  const wide = Math.max(LEFT + rows * cell + 1, WORDS); // the text above the map needs this width
  const names = (n) => (bin === 1 ? `${n}` : `${n * bin} to ${Math.min(side, (n + 1) * bin) - 1}`);
  const fullest = cells.reduce((a, b) => (b.rows > a.rows ? b : a));
  const where = `from ${names(fullest.row)} to ${names(fullest.column)}`;
  const said = `Rows in flight, ${side} producers by ${side} consumers; most, ${count(most)}, ${where}`;
  const size = { width: wide, height: TOP + rows * cell + 1, viewBox: `0 0 ${wide} ${TOP + rows * cell + 1}` };
  const ticks = [0, rows - 1].filter((n, at, all) => all.indexOf(n) === at);
  return h("div", { class: "heat-frame" },
    s("svg", { class: "heat", ...size, role: "img", "aria-label": said },
      s("text", { class: "axis", x: 0, y: 12 }, "producer ↓  consumer →"),
      ticks.map((n) => [
        s("text", { class: "axis", x: LEFT + (n + 0.5) * cell, y: TOP - 4, "text-anchor": "middle" }, n * bin),
        s("text", { class: "axis", x: LEFT - 4, y: TOP + (n + 0.5) * cell + 4, "text-anchor": "end" }, n * bin),
      ]),
      s("rect", { class: "heat-ground", x: LEFT, y: TOP, width: rows * cell, height: rows * cell }),
      cells.filter((one) => one.rows).map((one) => s("rect", {
        class: "heat-cell", x: LEFT + one.column * cell + 0.5, y: TOP + one.row * cell + 0.5, width: cell - 1, height: cell - 1,
        "fill-opacity": (0.12 + 0.88 * (one.rows / most)).toFixed(2),
      }, s("title", {}, `producer ${names(one.row)} → consumer ${names(one.column)}: ${count(one.rows)} rows`)))),
    h("p", { class: "hint" }, `Darkest: ${count(most)} rows`));
}

function binned(channels, bin) {
  const cells = new Map();
  for (const one of channels) {
    const [row, column] = [Math.floor(one.producer / bin), Math.floor(one.consumer / bin)];
    const key = `${row}/${column}`;
    const known = cells.get(key) ?? { row, column, rows: 0 };
    known.rows += one.rows;
    cells.set(key, known);
  }
  return [...cells.values()];
}
