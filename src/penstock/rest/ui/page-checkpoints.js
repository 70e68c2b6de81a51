// Page of the checkpoint history over all runs at the location, and of one checkpoint with all subtasks.

import { get, queryPath } from "./api.js";
import { checkpointCharts } from "./charts.js";
import { h } from "./dom.js";
import { bytes, clock, count, duration } from "./format.js";
import { pageBefore, pager } from "./pager.js";
import { badge, clamped, empty, loading, section, table } from "./parts.js";
import { address } from "./router.js";
import { alignment, checkpointView, generation } from "./checkpoint-view.js";

export const EVERY_MS = 2000;
const PAGE = 50;

export async function load(route, signal, local) {
  const path = queryPath(route.query, "checkpoints");
  if (route.item !== null) {
    const [one, graph] = await Promise.all([
      get(queryPath(route.query, "checkpoints", route.item), signal),
      get(queryPath(route.query, "graph"), signal),
    ]);
    return { one: one.body, names: new Map(graph.body.vertices.map((vertex) => [vertex.id, vertex.name])) };
  }
  const before = pageBefore(local);
  const { body } = await get(`${path}?limit=${PAGE}${before ? `&before=${before}` : ""}`, signal);
  return { page: body };
}

export function view({ data, query, route, local, ctx }) {
  const one = data.one ? String(data.one.checkpoint) : null;
  if (one !== route.item) return loading(); // the data is of the previous address
  if (one !== null) return checkpointView(data, query, local, ctx);
  const { checkpoints } = data.page;
  if (!checkpoints.length) return section("Checkpoints", empty("None yet at this checkpoint location."));
  return [
    section("Duration and size", checkpointCharts(checkpoints, query.id)),
    section("History",
      table("Checkpoints, newest first", columns(query), checkpoints, (one) => one.checkpoint),
      pager(data.page.next, local, ctx),
      h("p", { class: "hint" }, "The 20,000 newest of all runs at this checkpoint location. ",
        "What can be restored of them is under ", h("a", { href: address(query.id, "snapshots") }, "Snapshots"), ".")),
  ];
}

function columns(query) {
  const link = (one) => address(query.id, "checkpoints", one.checkpoint);
  return [
    { head: "Number", number: true, cell: (one) => h("a", { href: link(one) }, one.checkpoint) },
    { head: "State", cell: (one) => badge(one.state) },
    { head: "Triggered", cell: (one) => clock(one.triggered_at_ms) },
    { head: "Took", number: true, cell: (one) => duration(one.duration_ms) },
    { head: "Alignment", cell: alignment },
    { head: "State written", number: true, cell: (one) => complete(one, bytes(one.state_bytes)) },
    { head: "State size", number: true, cell: (one) => complete(one, bytes(one.state_total_bytes)) },
    { head: "Rows in flight", number: true, cell: (one) => complete(one, count(one.inflight_rows)) },
    { head: "Captured", number: true, cell: (one) => complete(one, bytes(one.inflight_bytes)) },
    { head: "Generation", cell: (one) => generation(one, query) },
    { head: "Remarks", wide: true, cell: remarks },
  ];
}

const complete = (one, words) => (one.state === "complete" ? words : "–");

function remarks(one) {
  const said = [one.requested && "asked for by a user", one.label && `“${one.label}”`, one.reason].filter(Boolean).join(" · ");
  return said && clamped(said); // the page of the checkpoint has the full text
}
