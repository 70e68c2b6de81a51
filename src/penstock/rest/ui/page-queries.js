// Page of all queries of this driver.

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, rate } from "./format.js";
import { badge, empty, facts, slots } from "./parts.js";
import { address } from "./router.js";

export const EVERY_MS = 2000;
const NONE = "No query runs in this driver, and none has ended lately. Those that are started later appear here by themselves.";

export async function load(route, signal) {
  return (await get("/api/v1/queries", signal)).body.queries;
}

export function view({ data }) {
  return data.length ? h("ul", { class: "cards" }, data.map(card)) : empty(NONE);
}

function card(query) {
  const { status, last_progress: progress } = query;
  const failed = status.checkpoints_failed ? ` (${count(status.checkpoints_failed)} failed)` : "";
  return h("li", { key: query.id, class: "panel card" },
    h("div", { class: "card-head" },
      h("h2", {}, h("a", { class: "card-link", href: address(query.id, "graph") }, query.name ?? "Query without a name")),
      badge(status.state)),
    h("p", { class: "message" }, status.error ? `${status.error}: ${status.message}` : status.message),
    facts([
      ["Input", progress ? rate(progress.processedRowsPerSecond) : rate(null), "Rows a second in the newest epoch that had rows"],
      ["In flight", bytes(status.inflight_bytes)],
      ["Parallelism", slots(query)],
      ["Checkpoints", count(status.checkpoints_completed) + failed],
      ["Recoveries", count(status.restarts)],
    ]),
    facts([
      ["Checkpoint location", h("span", { class: "where mono" }, query.location)],
      ["Query", h("span", { class: "where mono" }, query.id)],
    ], "facts wide"));
}
