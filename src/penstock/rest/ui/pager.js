// Pages of a list whose newest entries come first. `next` of an answer is the `before` of the next, older page.

import { h } from "./dom.js";

/** Return `before` of the request for the current page; undefined for the newest page. */
export function pageBefore(local) {
  return local.before?.at(-1);
}

export function firstPage(local) {
  local.before = [];
}

/** Buttons to change the page; null if there is only one. `next`: value of the current page; null on the last page. */
export function pager(next, local, ctx) {
  const to = (change) => () => {
    local.before ??= [];
    change(local.before);
    ctx.refresh();
  };
  const newest = to((before) => before.splice(0));
  const newer = to((before) => before.pop());
  const older = to((before) => before.at(-1) !== next && before.push(next)); // a double click counts once
  const first = pageBefore(local) === undefined;
  if (first && next === null) return null;
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: first, onclick: newest }, "Newest"),
    h("button", { type: "button", disabled: first, onclick: newer }, "Newer"),
    h("button", { type: "button", disabled: next === null, onclick: older }, "Older"));
}
