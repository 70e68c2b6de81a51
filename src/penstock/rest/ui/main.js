// Frame of all pages: loads data, shows errors while the service does not answer, and navigates between pages.

import { get, Problem, queryPath, setToken, token } from "./api.js";
import { h, morph } from "./dom.js";
import { time } from "./format.js";
import { adopt, operationNotices } from "./operations.js";
import { loading, notice } from "./parts.js";
import * as checkpoints from "./page-checkpoints.js";
import * as configuration from "./page-configuration.js";
import * as exceptions from "./page-exceptions.js";
import * as graph from "./page-graph.js";
import * as logs from "./page-logs.js";
import * as queries from "./page-queries.js";
import * as snapshots from "./page-snapshots.js";
import { Poller } from "./poller.js";
import { queryHead } from "./query-head.js";
import { parse } from "./router.js";
import { signIn } from "./sign-in.js";
import { themeButton } from "./theme-button.js";

const ICON = new URL("icon.svg", import.meta.url).href;
const PAGES = { queries, graph, checkpoints, snapshots, exceptions, logs, configuration };

const state = {
  route: null,
  poller: null,
  data: null, // data of this page
  query: null, // query of this page; `etag` and `last` are the tag of its spec and its last complete checkpoint
  etag: null,
  last: null,
  error: null,
  answeredAt: null,
  locked: null, // a text while the sign-in form is shown, else null
  local: {}, // local state of a page, kept while it is shown
};
let root = document.getElementById("app");
let rendering = false;

/** Functions that pages may call. */
const ctx = {
  render() {
    if (rendering) return;
    rendering = true;
    queueMicrotask(() => {
      rendering = false;
      show();
    });
  },
  refresh: () => state.poller?.poke(),
  lock,
};

/** Move the token from the address into the tab's storage. */
function takeToken() {
  const given = /^#token=([!-~]+)$/.exec(location.hash);
  if (!given) return;
  setToken(given[1]);
  state.locked = null;
  history.replaceState(null, "", "#/");
}

function go() {
  takeToken();
  const route = parse(location.hash);
  const before = state.route;
  const samePage = state.route && route.page === state.route.page && route.query === state.route.query;
  if (!samePage) Object.assign(state, { data: null, local: {}, error: null });
  if (!state.route || route.query !== state.route.query) Object.assign(state, { query: null, etag: null, last: null });
  // Another vertex of the drawing is the same page, so that keyboard users keep their position.
  const moved = before !== null && (!samePage || (route.item !== before.item && route.page !== "graph"));
  state.route = route;
  state.poller?.stop();
  state.poller = null;
  const page = PAGES[route.page];
  if (page && state.locked === null) {
    state.poller = new Poller((signal) => load(page, route, signal), page.EVERY_MS, answered, failed);
  }
  show();
  showTab();
  if (moved) {
    window.scrollTo(0, 0);
    document.querySelector("h1")?.focus({ preventScroll: true });
  } else if (before && route.item !== before.item) {
    page?.arrived?.(route);
  }
}

/** Scroll to the current tab on phones. After scrollIntoView, the Tab key would continue from there. */
function showTab() {
  const tab = document.querySelector(".tabs [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 16;
}

async function load(page, route, signal) {
  const own = page.load(route, signal, state.local);
  if (!route.query) return { own: await own };
  const asked = [get(queryPath(route.query), signal), get(`${queryPath(route.query, "checkpoints")}?limit=5`, signal), own];
  const [query, newest, data] = await Promise.allSettled(asked);
  for (const one of [query, newest]) if (one.status === "rejected") throw one.reason;
  // The object of this page, for example a snapshot, may no longer exist although the query does.
  if (data.status === "rejected" && !(data.reason instanceof Problem && data.reason.status >= 404)) throw data.reason;
  return { query: query.value, newest: newest.value.body.checkpoints, own: data.value, problem: data.reason ?? null };
}

function answered({ query, newest, own, problem = null }) {
  const first = state.data === null;
  Object.assign(state, { data: own ?? state.data, error: problem, answeredAt: Date.now() });
  if (query) {
    if (state.query === null) adopt(query.body, ctx);
    Object.assign(state, { query: query.body, etag: query.etag });
    state.last = newest.find((one) => one.state === "complete") ?? state.last;
  }
  show();
  if (first) PAGES[state.route.page].arrived?.(state.route);
}

function failed(error) {
  if (!(error instanceof Problem)) {
    console.error(error);
    state.error = new Problem(-1, "This page has a fault", `${error}.`);
    show();
    return;
  }
  if (error.status === 401) {
    lock(token() ? "The driver does not take this token." : "");
    return;
  }
  state.error = error;
  show();
}

/** Ask the user for the token. `why`: what was wrong with the previous one. */
function lock(why) {
  setToken(null);
  state.poller?.stop();
  Object.assign(state, { locked: why, data: null, query: null, error: null, poller: null });
  show();
}

function unlock(given) {
  setToken(given);
  state.locked = null;
  state.route = null;
  go();
}

function show() {
  root = morph(root, h("div", { id: "app" },
    h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the content"),
    header(),
    h("main", { id: "main", tabindex: "-1" }, content())));
  const named = state.query ? `${state.query.name ?? state.query.id} · Penstock` : "Penstock";
  if (document.title !== named) document.title = named;
}

function skip(event) {
  event.preventDefault(); // the fragment is the address of a page
  document.getElementById("main").focus();
}

function header() {
  return h("header", { class: "top" },
    h("a", { class: "brand", href: "#/" }, h("img", { src: ICON, alt: "", width: 24, height: 24 }), "Penstock"),
    h("div", { class: "top-tools" },
      connection(),
      token() && h("button", { type: "button", class: "quiet", onclick: () => lock("") }, "Forget token"),
      themeButton(ctx)));
}

function connection() {
  if (state.locked !== null || state.route?.page === null) return null;
  const dead = state.error?.status === 0;
  if (!dead && state.answeredAt === null) return null;
  const [look, shape, word] = dead ? ["bad", "✕ ", "No answer"] : ["ok", "● ", "Live"];
  return h("span", { class: `connection ${look}` }, h("span", { "aria-hidden": "true" }, shape), word);
}

function content() {
  if (state.locked !== null) return signIn(state.locked, unlock);
  const page = PAGES[state.route.page];
  if (!page) return nowhere("There is no such page", "The address leads to nothing here.");
  if (state.error?.status === 404 && state.data === null && state.query === null) {
    return nowhere("Not here", state.error.message);
  }
  const shown = { ...state, ctx };
  return [
    state.route.query ? queryHead(shown) : h("h1", { tabindex: "-1" }, "Queries"),
    state.route.query && operationNotices(state.query, ctx),
    trouble(),
    state.data === null ? !state.error && loading() : drawn(page, shown),
  ];
}

/** Draw a page. An exception in a page affects neither the frame nor the other pages. */
function drawn(page, shown) {
  try {
    return page.view(shown);
  } catch (error) {
    console.error(error);
    return notice("bad", "This page could not be drawn", `${error}. What it was to show is at /api/v1 as well.`);
  }
}

/** Notice while the service does not answer. The last known data stays visible below. */
function trouble() {
  const error = state.error;
  if (!error) return null;
  const since = state.answeredAt ? ` What is shown is from ${time(state.answeredAt)}.` : "";
  const title = error.status === 0 ? "The driver does not answer" : error.title;
  const kind = error.status === 0 ? "warn" : "bad";
  return notice(kind, title, `${error.message}${since} It is asked again by itself.`,
    h("button", { type: "button", onclick: ctx.refresh }, "Ask now"));
}

function nowhere(title, text) {
  return h("div", { class: "panel" }, h("h1", { tabindex: "-1" }, title), h("p", {}, text),
    h("p", {}, h("a", { href: "#/" }, "All queries of this driver")));
}

window.addEventListener("hashchange", go);
window.addEventListener("resize", ctx.render);
go();
