// Elements that several pages use.

import { h, s } from "./dom.js";
import { count, percent } from "./format.js";

const LOOKS = {
  running: ["ok", "●"],
  complete: ["ok", "✓"],
  succeeded: ["ok", "✓"],
  starting: ["warn", "◐"],
  restarting: ["warn", "◐"],
  pending: ["warn", "◌"],
  suspended: ["calm", "❚❚"],
  stopped: ["calm", "■"],
  failed: ["bad", "✕"],
  damaged: ["bad", "✕"],
  warning: ["warn", "▲"],
  error: ["bad", "✕"],
  critical: ["bad", "✕"],
};

/** Badge of a state. It has a word and a shape, not only a color. */
export function badge(state) {
  const [look, shape] = LOOKS[state] ?? ["calm", "○"];
  return h("span", { class: `badge ${look}` }, h("span", { "aria-hidden": "true" }, shape), " ", state);
}

/** Text of a query's number of slots, and of the requested number if it differs. */
export function slots({ spec, status }) {
  const [now, wanted] = [status.parallelism, spec.parallelism];
  return now === wanted ? count(now) : `${count(now)} → ${count(wanted)}`;
}

/** Notice. `kind`: ok, warn, bad or calm. */
export function notice(kind, title, text, ...more) {
  return h("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "status" },
    h("strong", {}, title), text && h("p", {}, text), more);
}

/** Frame that scrolls wide content, also by keys. */
export function scroller(label, ...children) {
  return h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": label }, children);
}

/** Table. `columns`: `[{head, cell(row), number, wide}]`. `keyOf(row)` identifies rows over updates. */
export function table(label, columns, rows, keyOf) {
  return scroller(label, h("table", {},
    h("caption", { class: "unseen" }, label),
    h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: one.number && "number" }, one.head)))),
    h("tbody", {}, rows.map((row, n) => h("tr", { key: keyOf ? keyOf(row) : n },
      columns.map((one) => h("td", { class: one.number ? "number" : one.wide && "wide" }, one.cell(row))))))));
}

/** List of terms and values. `entries`: `[term, value, title]`; null entries are left out. */
export function facts(entries, kind = "facts") {
  return h("dl", { class: kind }, entries.filter(Boolean).map(([term, value, title]) =>
    h("div", { key: term, title }, h("dt", {}, term), h("dd", {}, value))));
}

/** Bar of the parts of a whole. `parts`: `[[class, share, word]]`. */
export function shareBar(parts) {
  let from = 0;
  const said = parts.filter(([, share]) => share >= 0.005).map(([, share, word]) => word ?? percent(share)).join(", ");
  return s("svg", { class: "share-bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": said },
    s("title", {}, said),
    parts.map(([look, share]) => {
      const width = Math.max(0, share * 100);
      const part = s("rect", { class: `fill-${look}`, x: from.toFixed(2), y: 0, width: width.toFixed(2), height: 10 });
      from += width;
      return part;
    }));
}

export function activity({ busy, backpressured, idle }) {
  return [
    ["busy", busy, `busy ${percent(busy)}`],
    ["blocked", backpressured, `backpressured ${percent(backpressured)}`],
    ["idle", idle, `idle ${percent(idle)}`],
  ];
}

export function legend(entries) {
  return h("ul", { class: "legend" }, entries.map(([look, word]) => h("li", {},
    s("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" },
      s("rect", { class: `fill-${look}`, width: 12, height: 12, rx: 2 })),
    word)));
}

export function section(title, ...children) {
  return h("section", { key: title, class: "panel" }, h("h2", {}, title), children);
}

/** Text that is cut to two lines. Its title has the full text. */
export function clamped(text, look = "") {
  return h("p", { class: look ? `clamped ${look}` : "clamped", title: text }, text);
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

export function loading() {
  return h("p", { class: "empty", role: "status" }, "Asking the driver…");
}
