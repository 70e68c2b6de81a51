// Panel of one vertex: its operators and its subtasks.

import { h } from "./dom.js";
import { bytes, count, eventTime, percent, rate } from "./format.js";
import { activity, empty, shareBar, table } from "./parts.js";
import { address } from "./router.js";

export function vertexPanel(vertex, now, graph, query) {
  const slots = new Map(query.status.slots.map((slot) => [slot.slot, slot]));
  return h("section", { key: `panel-${vertex.id}`, class: "panel vertex-panel", "aria-label": `Vertex ${vertex.name}` },
    h("div", { class: "panel-head" },
      h("h2", {}, vertex.name),
      h("a", { class: "button quiet", href: address(query.id, "graph") }, "Close")),
    h("ol", { class: "operators" }, vertex.operators.map((one) => h("li", { key: one.operator_id },
      h("strong", {}, one.name), " ", h("span", { class: "role" }, one.role), " ",
      h("span", { class: "mono where" }, one.operator_id),
      one.text && h("p", { class: "where" }, one.text)))),
    now.subtasks.length ? subtaskTable(now, graph, slots) : empty("No subtask runs now."));
}

function subtaskTable(now, graph, slots) {
  const queue = (queued, limit) => (limit ? `${bytes(queued)} (${percent(queued / limit)})` : bytes(queued));
  const recovering = now.subtasks.some((one) => one.figures.recovered_rows_left > 0);
  const columns = [
    { head: "Subtask", number: true, cell: (one) => one.figures.index },
    { head: "Time", cell: (one) => shareBar(activity(one)) },
    { head: "Busy", number: true, cell: (one) => percent(one.busy) },
    { head: "Backpressured", number: true, cell: (one) => percent(one.backpressured) },
    { head: "Rows in", number: true, cell: (one) => rate(one.rowsIn) },
    { head: "Rows out", number: true, cell: (one) => rate(one.rowsOut) },
    { head: "Input queue", number: true, cell: (one) => queue(one.figures.input_queued_bytes, graph.input_limit_bytes) },
    { head: "Output queue", number: true, cell: (one) => queue(one.figures.output_queued_bytes, graph.output_limit_bytes) },
    recovering && { head: "Recovered rows left", number: true, cell: (one) => count(one.figures.recovered_rows_left) },
    { head: "Watermark (UTC)", cell: (one) => eventTime(one.figures.watermark_us) },
    { head: "Rows in since start", number: true, cell: (one) => count(one.figures.rows_in) },
    { head: "Worker", cell: (one) => worker(slots.get(one.figures.index)) },
  ];
  return table("Subtasks", columns.filter(Boolean), now.subtasks, (one) => one.figures.index);
}

/** Text of a subtask's worker. Subtask i of every vertex is in slot i. */
function worker(slot) {
  return slot ? `${slot.host}, pid ${slot.pid}` : "–";
}
