// Page of Penstock's log lines about the query, from its driver and slots.

import { get, queryPath } from "./api.js";
import { h } from "./dom.js";
import { clock } from "./format.js";
import { firstPage, pageBefore, pager } from "./pager.js";
import { badge, empty, section } from "./parts.js";

export const EVERY_MS = 3000;
const PAGE = 100;
const LEVELS = [
  ["debug", "everything"],
  ["info", "info and above"],
  ["warning", "warnings and errors"],
  ["error", "errors"],
];

export async function load(route, signal, local) {
  const before = pageBefore(local);
  const level = local.level ?? "debug";
  const { body } = await get(`${queryPath(route.query, "logs")}?level=${level}&limit=${PAGE}${before ? `&before=${before}` : ""}`, signal);
  return { page: body, level, newest: before === undefined };
}

export function view({ data, local, ctx }) {
  const { records, next } = data.page;
  const choose = (event) => {
    local.level = event.target.value;
    firstPage(local);
    ctx.refresh();
  };
  return section("Logs",
    h("div", { class: "log-head" },
      h("label", { for: "level" }, "Show"),
      h("select", { id: "level", value: local.level ?? "debug", onchange: choose },
        LEVELS.map(([level, words]) => h("option", { key: level, value: level }, words)))),
    records.length
      ? h("ol", { class: "log", "aria-label": "Log lines, newest first" }, records.map(line))
      : empty(nothing(data)),
    pager(next, local, ctx),
    h("p", { class: "hint" }, "The newest 1,000 lines of driver and slots, as far as Python’s logging lets them through. What user code prints is in the executors’ logs, in Spark’s UI."));
}

function nothing({ level, newest }) {
  if (!newest) return "There is nothing older.";
  return level === "debug" ? "Nothing has been logged about this query." : "Nothing of this level has been logged.";
}

function line(one) {
  const where = [
    one.generation === null ? null : `Generation ${one.generation}`,
    one.slot === null ? null : `slot ${one.slot}`,
  ].filter(Boolean);
  return h("li", { key: one.number, class: `log-line ${one.level}` },
    h("p", { class: "log-where" },
      h("span", {}, clock(one.at_ms)), badge(one.level), where.map((text) => h("span", { key: text }, text)), h("span", { class: "mono" }, one.logger)),
    h("p", { class: "cause" }, one.message),
    one.exception && h("details", {}, h("summary", {}, lastLine(one.exception)),
      h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": `Traceback of line ${one.number}` }, h("pre", {}, one.exception))));
}

/** Return the last line of a traceback, which has the exception. */
function lastLine(traceback) {
  return traceback.trimEnd().split("\n").at(-1);
}
