// From page to page of a list whose newest entries come first: `next` of an answer is the `before` of the page behind it.

import { h } from "./dom.js";

/** Of the request for the page that is looked at; undefined for the newest. */
export function pageBefore(local) {
  return local.before?.at(-1);
}

export function firstPage(local) {
  local.before = [];
}

/** `next`: of the page that is shown; null where there is none behind it. Of a single page there is nothing to turn. */
export function pager(next, local, ctx) {
  const to = (change) => () => {
    local.before ??= [];
    change(local.before);
    ctx.refresh();
  };
  const newest = to((before) => before.splice(0));
  const newer = to((before) => before.pop());
  const older = to((before) => before.at(-1) !== next && before.push(next)); // clicked twice is once
  const first = pageBefore(local) === undefined;
  if (first && next === null) return null;
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: first, onclick: newest }, "Newest"),
    h("button", { type: "button", disabled: first, onclick: newer }, "Newer"),
    h("button", { type: "button", disabled: next === null, onclick: older }, "Older"));
}
