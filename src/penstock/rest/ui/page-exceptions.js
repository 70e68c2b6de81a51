// Page of the query's failure, if it failed, and of its recoveries.

import { get, queryPath } from "./api.js";
import { h } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { empty, scroller, section, table } from "./parts.js";

export const EVERY_MS = 4000;

export async function load(route, signal) {
  return (await get(queryPath(route.query, "exceptions"), signal)).body;
}

export function view({ data, query }) {
  return [
    section("Failure", data.failure
      ? [h("p", {}, h("strong", {}, data.failure.kind)), scroller("What the failure said", h("pre", {}, data.failure.text))]
      : empty(query.status.state === "stopped" ? "It ended without one." : "None: the query has not failed.")),
    section("Recoveries of this run", data.restarts.length
      ? table("Recoveries, newest first", COLUMNS, data.restarts, (one) => one.failed_generation)
      : empty("None: no Generation of this run has been lost.")),
  ];
}

const COLUMNS = [
  { head: "Noticed", cell: (one) => clock(one.detected_at_ms) },
  { head: "Generation", cell: (one) => `${one.failed_generation} → ${one.generation}` },
  { head: "Cause", wide: true, cell: (one) => h("span", { class: "cause" }, one.cause) },
  { head: "Took", number: true, cell: (one) => (one.duration_ms !== null ? duration(one.duration_ms) : one.given_up ? "given up" : "under way") },
  { head: "Went on from", cell: (one) => one.restored_from || "the beginning" },
  { head: "Rows in flight restored", number: true, cell: (one) => count(one.restored_inflight_rows) },
];
