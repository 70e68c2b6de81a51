// Table of all options of the query, those with other values than their defaults first, and when changes take effect.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { section, table } from "./parts.js";

const CHANGES = {
  now: "now, on this page",
  next_start: "at its next start",
  never: "never at this location",
};

/** Section of all options. `over`: the query has ended, so nothing can be changed on this page. */
export function optionsSection(options, over) {
  const columns = [
    { head: "Option", cell: (one) => h("span", { class: "mono" }, one.name) },
    { head: "Value", cell: value },
    { head: "Default", cell: (one) => said(one.default) },
    { head: "Can be changed", cell: (one) => CHANGES[over && one.changes === "now" ? "next_start" : one.changes] },
  ];
  const own = options.filter((one) => !one.is_default);
  const others = options.filter((one) => one.is_default);
  return section("Options",
    h("p", { class: "hint" }, "Names stand behind ", h("code", {}, "spark.penstock."),
      " in the session, or are given to the query itself when it starts."),
    table("Options that differ from their defaults", columns, own, (one) => one.name),
    h("details", { key: "defaults" }, h("summary", {}, `${plural(others.length, "option")} at their defaults`),
      table("Options at their defaults", columns.filter((one) => one.head !== "Default"), others, (one) => one.name)));
}

function value(one) {
  const changed = one.value !== one.at_start;
  return [said(one.value), changed && h("p", { class: "hint" }, "started with ", said(one.at_start))];
}

function said(text) {
  return text === null ? "none" : h("span", { class: "mono" }, text);
}
