// Drawing of a dataflow: a box for each vertex, with a column for each subtask; a line for each edge, with its queued
// bytes.

import { s } from "./dom.js";
import { bytes, clip, eventTime, percent, plural, rate } from "./format.js";
import { layered } from "./layout.js";
import { address } from "./router.js";

const BOX = { width: 236, height: 132 };
const GAP_RIGHT = { along: 158, across: 28 };
const GAP_DOWN = { along: 74, across: 20 };
const MARGIN = 14;
const COLUMNS_WIDE = BOX.width - 24;
const COLUMNS_HIGH = 26;
const MOST_COLUMNS = 64;
const LABEL = { width: 112, height: 34 };

const places = new Map(); // layout of the last drawn graph; reused while only metrics change

/** Return `{width, node(zoom)}`: the natural width in pixels, and a function that draws at a zoom factor. */
export function drawing(graph, rates, { down, query, selected }) {
  const plan = planned(graph, down);
  const width = plan.width + 2 * MARGIN;
  const height = plan.height + 2 * MARGIN;
  const loads = new Map(graph.edges.map((edge) => [edge.id, loadOf(edge, graph, rates)]));
  const node = (zoom) => s("svg", {
    class: "graph", viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}`,
    width: Math.round(width * zoom), height: Math.round(height * zoom), role: "group", "aria-label": "Dataflow",
  },
  s("defs", {}, arrow(), hatching()),
  graph.edges.map((edge) => line(edge, plan.lines.get(edge.id), down, loads.get(edge.id))),
  graph.edges.map((edge) => label(edge, plan.lines.get(edge.id), loads.get(edge.id))), // on top of the lines
  graph.vertices.map((vertex) =>
    box(vertex, plan.boxes.get(vertex.id), rates.get(vertex.id), query, String(vertex.id) === selected)));
  return { width, node };
}

function planned(graph, down) {
  const edges = graph.edges.map((one) => [one.id, one.producer, one.consumer]);
  const shape = JSON.stringify([down, graph.vertices.map((one) => one.id), edges]);
  if (!places.has(shape)) {
    places.clear();
    places.set(shape, layered(graph.vertices, graph.edges, BOX, down ? GAP_DOWN : GAP_RIGHT, down));
  }
  return places.get(shape);
}

function arrow() {
  return s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" },
    s("path", { class: "arrow", d: "M0 0L8 4L0 8Z" }));
}

/** Hatching for backpressured shares, so that users who do not see colors can distinguish them from busy shares. */
function hatching() {
  return s("pattern", { id: "hatching", width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("rect", { class: "hatch-ground", width: 4, height: 4 }), s("rect", { class: "hatch-line", width: 1.4, height: 4 }));
}

function box(vertex, at, now, query, selected) {
  const look = mood(now);
  const said = vertexWords(vertex, now);
  return s("a", {
    key: `vertex-${vertex.id}`, class: `vertex ${look}${selected ? " selected" : ""}`,
    href: address(query, "graph", vertex.id), transform: `translate(${at.x} ${at.y})`,
    "aria-label": said, "aria-current": selected ? "true" : null,
  },
  s("title", {}, said),
  s("rect", { class: "vertex-box", width: BOX.width, height: BOX.height, rx: 8 }),
  s("rect", { class: "vertex-mood", width: 5, height: BOX.height - 16, x: 0, y: 8, rx: 2 }),
  s("text", { class: "vertex-name", x: 14, y: 22 }, clip(vertex.name, 25)),
  s("text", { class: "vertex-what", x: 14, y: 38 }, clip(roles(vertex), 34)),
  columns(now),
  s("text", { class: "vertex-figures", x: 14, y: 90 }, shares(now)),
  s("text", { class: "vertex-figures", x: 14, y: 106 }, `in ${rate(now.rowsIn)}   out ${rate(now.rowsOut)}`),
  s("text", { class: "vertex-what", x: 14, y: 122 }, watermark(vertex)));
}

function roles(vertex) {
  const known = vertex.operators.filter((one) => one.role !== "operator").map((one) => one.role);
  return [...known, plural(vertex.operators.length, "operator")].join(" · ");
}

function shares(now) {
  if (!now.subtasks.length) return "not running";
  const skewed = now.busiest.busy > now.busy + 0.15 ? ` (most ${percent(now.busiest.busy)})` : "";
  const blocked = now.backpressured >= 0.005 ? ` · blocked ${percent(now.backpressured)}` : "";
  return `busy ${percent(now.busy)}${skewed}${blocked}`;
}

function mood(now) {
  if (!now.subtasks.length) return "off";
  if (now.backpressured > 0.3 && now.backpressured >= now.busy) return "blocked";
  return now.busiest.busy > 0.6 ? "busy" : "calm";
}

/** Return the watermark of a vertex: the lowest one of its subtasks; null if a subtask has none. */
export function watermarkOf(vertex) {
  const all = vertex.subtasks.map((one) => one.watermark_us);
  return all.length && all.every((one) => one !== null) ? Math.min(...all) : null;
}

function watermark(vertex) {
  const least = watermarkOf(vertex);
  return least === null ? "no watermark" : `watermark ${eventTime(least)}`;
}

function vertexWords(vertex, now) {
  return `${vertex.name}: ${shares(now)}, in ${rate(now.rowsIn)}, out ${rate(now.rowsOut)}, ${watermark(vertex)}`;
}

/** Draw a column for each subtask: busy at the bottom, then backpressured, then idle. Many subtasks share columns. */
function columns(now) {
  const subtasks = binned(now.subtasks);
  const wide = COLUMNS_WIDE / Math.max(1, subtasks.length);
  const gap = wide > 5 ? 1.5 : 0;
  const place = (number) => number.toFixed(1);
  const column = (n, top, high) =>
    `M${place(n * wide)} ${place(top)}h${place(wide - gap)}v${place(high)}h${place(gap - wide)}z`;
  const path = (from, to) => subtasks.map((one, n) => {
    const [low, high] = [from(one) * COLUMNS_HIGH, Math.min(1, to(one)) * COLUMNS_HIGH];
    return high - low < 0.2 ? "" : column(n, COLUMNS_HIGH - high, high - low);
  }).join("");
  const ground = subtasks.map((one, n) => column(n, 0, COLUMNS_HIGH)).join("");
  return s("g", { transform: "translate(14 48)" },
    s("path", { class: "fill-idle", d: ground }),
    s("path", { class: "fill-busy", d: path(() => 0, (one) => one.busy) }),
    s("path", { class: "fill-blocked", d: path((one) => one.busy, (one) => one.busy + one.backpressured) }));
}

function binned(subtasks) {
  if (subtasks.length <= MOST_COLUMNS) return subtasks;
  const size = Math.ceil(subtasks.length / MOST_COLUMNS);
  const bins = [];
  for (let n = 0; n < subtasks.length; n += size) {
    const some = subtasks.slice(n, n + size);
    const mean = (name) => some.reduce((sum, one) => sum + one[name], 0) / some.length;
    bins.push({ busy: mean("busy"), backpressured: mean("backpressured") });
  }
  return bins;
}

/** Return the queued bytes of an edge. Queues are measured per subtask, so the edges of a vertex share them. */
function loadOf(edge, graph, rates) {
  const producer = rates.get(edge.producer)?.subtasks ?? [];
  const consumer = rates.get(edge.consumer)?.subtasks ?? [];
  const of = (list, name) => list.map((one) => one.figures[name]);
  const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const [out, input] = [of(producer, "output_queued_bytes"), of(consumer, "input_queued_bytes")];
  const most = (numbers, limit) => (numbers.length && limit ? Math.min(1, Math.max(...numbers) / limit) : 0);
  const shared = (side, end) => graph.edges.filter((one) => one[end] === side).length > 1;
  return {
    known: producer.length > 0,
    queued: total(out) + total(input),
    fill: Math.max(most(out, graph.output_limit_bytes), most(input, graph.input_limit_bytes)),
    out: total(out),
    input: total(input),
    sharedOut: shared(edge.producer, "producer"),
    sharedIn: shared(edge.consumer, "consumer"),
  };
}

function fullness(load) {
  return load.fill >= 0.8 ? "full" : load.fill >= 0.4 ? "filling" : "free";
}

function line(edge, points, down, load) {
  const drawn = s("path", { class: "edge-line", d: curve(points, down), "marker-end": "url(#arrow)" });
  return s("g", { key: `line-${edge.id}`, class: fullness(load), "aria-hidden": "true" }, drawn);
}

function label(edge, points, load) {
  const [a, b] = points.slice(-2);
  const [x, y] = [(a.x + b.x - LABEL.width) / 2, (a.y + b.y - LABEL.height) / 2];
  const said = edgeWords(edge, load);
  const place = { transform: `translate(${x} ${y})`, role: "img", "aria-label": said };
  return s("g", { key: `edge-${edge.id}`, class: `edge ${fullness(load)}`, ...place },
    s("title", {}, said),
    s("rect", { class: "edge-label", width: LABEL.width, height: LABEL.height, rx: 6 }),
    s("text", { class: "edge-kind", x: LABEL.width / 2, y: 13 }, clip(kind(edge), 18)),
    s("rect", { class: "gauge", x: 8, y: 20, width: 34, height: 7, rx: 2 }),
    s("rect", { class: "gauge-fill", x: 8, y: 20, width: (34 * load.fill).toFixed(1), height: 7, rx: 2 }),
    s("text", { class: "edge-queue", x: 48, y: 28 }, load.known ? bytes(load.queued) : "–"));
}

function kind(edge) {
  const keys = edge.keys.length ? ` ${edge.keys.join(", ")}` : "";
  return edge.port ? `${edge.port} (${edge.kind})` : `${edge.kind}${keys}`;
}

function edgeWords(edge, load) {
  const together = (shared, words) => (shared ? ` (${words})` : "");
  return `${kind(edge)}: the fullest queue is at ${percent(load.fill)}; `
    + `${bytes(load.out)} wait to be sent${together(load.sharedOut, "on all its outputs")}, `
    + `${bytes(load.input)} wait to be processed${together(load.sharedIn, "on all its inputs")}`;
}

function curve(points, down) {
  let path = `M${points[0].x} ${points[0].y}`;
  for (let n = 1; n < points.length; n += 1) {
    const [a, b] = [points[n - 1], points[n]];
    const [x, y] = [(a.x + b.x) / 2, (a.y + b.y) / 2];
    path += down ? `C${a.x} ${y} ${b.x} ${y} ${b.x} ${b.y}` : `C${x} ${a.y} ${x} ${b.y} ${b.x} ${b.y}`;
  }
  return path;
}
