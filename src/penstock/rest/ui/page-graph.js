// Page of the running dataflow: shares of time, queues, and all subtasks of the selected vertex.

import { get, queryPath } from "./api.js";
import { h } from "./dom.js";
import { drawing } from "./graph-drawing.js";
import { count, percent, rate } from "./format.js";
import { activity, empty, legend, notice, section, shareBar, table } from "./parts.js";
import { bottleneck, RateMeter } from "./rates.js";
import { address } from "./router.js";
import { vertexPanel } from "./vertex-panel.js";

export const EVERY_MS = 1500;
const PHONE_PX = 720;
const BESIDE_PX = 1200; // as in drawings.css: from this width on the panel is to the right of the drawing
const DRAWING = "Drawing of the dataflow; the table of vertices below says the same";
const ZOOMS = [0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.5];

export async function load(route, signal, local) {
  const { body } = await get(queryPath(route.query, "graph"), signal);
  local.meter ??= new RateMeter();
  return { graph: body, rates: local.meter.read(body) };
}

/** Scroll to the selected vertex, and to its panel if the panel is below the drawing. */
export function arrived(route) {
  if (route.item === null) return;
  document.querySelector(".vertex.selected")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (document.documentElement.clientWidth >= BESIDE_PX) return;
  document.querySelector(".vertex-panel")?.scrollIntoView({ block: "start" });
}

export function view({ data, query, route, local, ctx }) {
  const { graph, rates } = data;
  const selected = graph.vertices.find((vertex) => String(vertex.id) === route.item) ?? null;
  return [
    diagnosis(graph, rates, query),
    h("div", { key: "both", class: selected ? "split" : null },
      h("section", { key: "dataflow", class: "panel" },
        h("h2", {}, "Dataflow"),
        picture(graph, rates, route, local, ctx)),
      selected && vertexPanel(selected, rates.get(selected.id), graph, query)),
    section("Vertices", vertexTable(graph, rates, route.query)),
  ];
}

function diagnosis(graph, rates, query) {
  if (query.status.state !== "running") return null;
  const found = bottleneck(graph, rates);
  if (!found) return null;
  const where = found.even ? "" : ` (subtask ${found.index})`;
  const waiting = `${found.producers.join(", ")} ${found.producers.length === 1 ? "waits" : "wait"}`;
  return notice("warn", `${found.name} is what the query waits for`,
    `It is busy ${percent(found.busy)} of its time${where}, and ${waiting} for room in front of it.`,
    h("a", { href: address(query.id, "graph", found.vertex) }, "Its subtasks"));
}

function picture(graph, rates, route, local, ctx) {
  const width = document.documentElement.clientWidth;
  const drawn = drawing(graph, rates, { down: width < PHONE_PX, query: route.query, selected: route.item });
  const room = Math.max(240, Math.min(width, 1680) - 82) * (route.item !== null && width >= BESIDE_PX ? 0.58 : 1);
  const fitting = Math.min(1, room / drawn.width);
  const zoom = local.zoom ?? Math.max(0.8, fitting);
  const set = (value) => () => {
    local.zoom = value;
    ctx.render();
  };
  const smaller = [...ZOOMS].reverse().find((one) => one < zoom - 0.01);
  const larger = ZOOMS.find((one) => one > zoom + 0.01);
  return [
    h("div", { class: "picture-head" },
      legend([["busy", "busy"], ["blocked", "backpressured: waits for room"], ["idle", "idle"]]),
      h("div", { class: "zoom", role: "group", "aria-label": "Size of the drawing" },
        h("button", { type: "button", disabled: smaller === undefined, onclick: set(smaller), "aria-label": "Smaller" }, "−"),
        h("span", { class: "zoom-now" }, percent(zoom)),
        h("button", { type: "button", disabled: larger === undefined, onclick: set(larger), "aria-label": "Larger" }, "+"),
        h("button", { type: "button", onclick: set(Math.max(0.1, fitting)) }, "Fit"))),
    h("div", { class: "scroller picture", tabindex: "0", role: "region", "aria-label": DRAWING }, drawn.node(zoom)),
  ];
}

function vertexTable(graph, rates, query) {
  if (!graph.vertices.length) return empty("The dataflow is not known yet.");
  const now = (vertex) => rates.get(vertex.id);
  return table("Vertices, from the sources to the sinks", [
    { head: "Vertex", wide: true, cell: (one) => h("a", { href: address(query, "graph", one.id) }, one.name) },
    { head: "Time", cell: (one) => (one.subtasks.length ? shareBar(activity(now(one))) : "–") },
    { head: "Busy", number: true, cell: (one) => percent(now(one).busy) },
    { head: "Busiest subtask", number: true, cell: (one) => percent(now(one).busiest?.busy) },
    { head: "Backpressured", number: true, cell: (one) => percent(now(one).backpressured) },
    { head: "Rows in", number: true, cell: (one) => rate(now(one).rowsIn) },
    { head: "Rows out", number: true, cell: (one) => rate(now(one).rowsOut) },
    { head: "Subtasks", number: true, cell: (one) => count(one.subtasks.length) },
  ], graph.vertices, (one) => one.id);
}
