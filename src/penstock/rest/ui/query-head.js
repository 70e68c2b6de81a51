// Head of a query's pages: its summary and the tabs.

import { h } from "./dom.js";
import { ago, bytes, clock, count, duration } from "./format.js";
import { badge, facts, notice, slots } from "./parts.js";
import { address, TABS } from "./router.js";

export function queryHead({ query, last, route }) {
  return h("div", { key: "head", class: "query-head" },
    h("p", { class: "crumb" }, h("a", { href: "#/" }, "Queries"), " / ", h("span", { class: "mono" }, route.query.slice(0, 8))),
    h("h1", { tabindex: "-1" }, query?.name ?? "Query", " ", query && badge(query.status.state)),
    query && (ended(query) ?? onItsWay(query)),
    query && summary(query, last),
    h("nav", { key: "tabs", class: "tabs", "aria-label": "Pages of this query" }, TABS.map(([page, word]) =>
      h("a", { href: address(route.query, page), "aria-current": route.page === page ? "page" : null }, word,
        page === "exceptions" && query?.status.error ? " ✕" : null))));
}

function onItsWay({ status }) {
  return status.converged ? null : notice("warn", "On its way", status.message);
}

/** Notice of a query that has failed or stopped; null for others. */
function ended({ status, id }) {
  if (status.state === "failed") {
    return notice("bad", `It failed: ${status.error}`, status.message,
      h("a", { href: address(id, "exceptions") }, "Why it failed"));
  }
  const text = "These are its last figures. It is started again in its program.";
  return status.state === "stopped" ? notice("calm", "It has ended", text) : null;
}

function summary(query, last) {
  const { status } = query;
  const failed = status.checkpoints_failed ? `, ${count(status.checkpoints_failed)} failed` : "";
  const at = last && last.triggered_at_ms + last.duration_ms;
  return facts([
    ["Last safe", last ? `${ago(at)} (${duration(last.duration_ms)})` : "not yet",
      last ? `Checkpoint ${last.checkpoint} was complete at ${clock(at)}` : null],
    ["Checkpoints", `${count(status.checkpoints_completed)} complete${failed}`],
    ["Parallelism", slots(query), `of at most ${status.max_parallelism}`],
    ["In flight", bytes(status.inflight_bytes), "Queued in all channels now"],
    ["Recoveries", count(status.restarts), "In this run"],
    ["Generation", count(status.generation), "The execution attempt"],
    ["Doing", status.message],
  ]);
}
