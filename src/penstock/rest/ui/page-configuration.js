// Page of the query's spec and its changes. A change carries the tag of the spec that the user saw, so that it never
// overwrites the change of another client.

import { changeQuery, get, Problem, queryPath } from "./api.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { follow } from "./operations.js";
import { optionsSection } from "./option-tables.js";
import { empty, facts, notice, section } from "./parts.js";
import { address } from "./router.js";

export const EVERY_MS = 2000;
const LEAST_INTERVAL_MS = 10;
const MOST_INTERVAL_MS = 7 * 24 * 3_600_000;
const ALIGNMENTS = [
  ["auto", "auto: unaligned if aligning is slow"],
  ["aligned", "aligned: captures nothing in flight"],
  ["unaligned", "unaligned: barriers overtake rows"],
];

export async function load(route, signal) {
  return (await get(queryPath(route.query, "configuration"), signal)).body;
}

export function view(state) {
  const { data, query } = state;
  const over = query.spec.state === "stopped";
  return [
    over
      ? section("Change", h("p", {}, "The query has ended or is about to: it is started again in its program."))
      : h("div", { key: "changes", class: "columns" },
        changes(state), h("div", { class: "stack" }, pausing(state), stopping(state))),
    section("Spec", facts(specEntries(query), "facts wide")),
    optionsSection(data.options, over),
    section("Workers", query.status.slots.length
      ? facts(query.status.slots.map(worker), "facts wide")
      : empty("No slot runs now.")),
  ];
}

function worker({ slot, host, pid, running }) {
  return [`Slot ${slot}`, `${host}, pid ${pid}${running ? "" : ", not running yet"}`];
}

function specEntries({ spec, status, location, id, run_id: run }) {
  return [
    ["State", spec.state],
    ["Parallelism", `${spec.parallelism} (runs at ${status.parallelism}; at most ${status.max_parallelism}, for good)`],
    ["Checkpoint interval", duration(spec.checkpoint.interval_ms)],
    ["Alignment", spec.checkpoint.alignment],
    ["Checkpoint location", h("span", { class: "mono where" }, location)],
    ["Query", h("span", { class: "mono where" }, id)],
    ["Run", h("span", { class: "mono where" }, run)],
  ];
}

/** Form for changes. Edited fields keep their values during updates; other fields show the query's current values. */
function changes({ query, etag, local, ctx }) {
  const { checkpoint, parallelism } = query.spec;
  const now = { interval: String(checkpoint.interval_ms), alignment: checkpoint.alignment, parallelism: String(parallelism) };
  const most = query.status.max_parallelism;
  const draft = (local.draft ??= {});
  const value = (name) => draft[name] ?? now[name];
  const type = (name) => (event) => {
    if (!Object.keys(draft).length) local.seen = etag; // the change is based on the spec at the first edit
    draft[name] = event.target.value;
    if (draft[name] === now[name]) delete draft[name];
    ctx.render();
  };
  const touched = Object.keys(draft).length > 0;
  const field = (name, label, hint, least, most) => [
    h("label", { for: name }, label),
    h("input", {
      id: name, name, type: "number", min: least, max: most, step: 1, required: true, inputmode: "numeric",
      value: value(name), oninput: type(name), "aria-describedby": `${name}-hint`,
    }),
    h("p", { id: `${name}-hint`, class: "hint" }, hint),
  ];
  const submit = (event) => {
    event.preventDefault();
    apply(query, draft, local, ctx);
  };
  return section("Change",
    local.answer?.(),
    h("form", { class: "form", onsubmit: submit },
      field("interval", "Checkpoint interval in milliseconds",
        `${duration(Number(value("interval")))}: how often results are committed`, LEAST_INTERVAL_MS, MOST_INTERVAL_MS),
      h("label", { for: "alignment" }, "Alignment"),
      h("select", { id: "alignment", name: "alignment", value: value("alignment"), onchange: type("alignment") },
        ALIGNMENTS.map(([name, words]) => h("option", { value: name, key: name }, words))),
      h("p", { class: "hint" }, "From the next checkpoint on."),
      field("parallelism", "Parallelism",
        `From 1 to ${most}. The query takes a snapshot and goes on from it at the new parallelism.`, 1, most),
      h("div", { class: "buttons" },
        h("button", { type: "submit", class: "main", disabled: !touched || local.sending }, "Apply"),
        h("button", { type: "button", disabled: !touched || local.sending, onclick: () => discard(local, ctx) }, "Discard"))));
}

function discard(local, ctx) {
  local.draft = {};
  local.answer = null;
  ctx.render();
}

async function apply(query, draft, local, ctx) {
  const checkpoint = {};
  if (draft.interval !== undefined) checkpoint.interval_ms = Number(draft.interval);
  if (draft.alignment !== undefined) checkpoint.alignment = draft.alignment;
  const spec = {};
  if (Object.keys(checkpoint).length) spec.checkpoint = checkpoint;
  if (draft.parallelism !== undefined) spec.parallelism = Number(draft.parallelism);
  await send(query, spec, local.seen, draft.parallelism === undefined ? "Change" : `Rescale to ${draft.parallelism}`, local, ctx);
}

async function send(query, spec, etag, words, local, ctx) {
  Object.assign(local, { sending: true, answer: null });
  ctx.render();
  try {
    const { body, status } = await changeQuery(query.id, spec, etag);
    if (status === 202) follow(body, words, ctx);
    else local.answer = () => notice("ok", "Changed", "It counts from the next checkpoint on.");
    local.draft = {};
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) return ctx.lock("The driver does not take this token.");
    local.answer = () => refused(error, local, ctx);
  } finally {
    local.sending = false;
  }
  return ctx.refresh();
}

function refused(error, local, ctx) {
  if (error.status !== 412) return notice("bad", error.status === 0 ? "Not sent" : error.title, error.message);
  const text = "Nothing of yours was applied. Below under Spec is what it is now.";
  return notice("warn", "Somebody else has changed it meanwhile", text,
    h("button", { type: "button", onclick: () => discard(local, ctx) }, "Start from what it is now"));
}

/** Button to suspend or resume. It can be undone, so it needs no confirmation. */
function pausing({ query, etag, local, ctx }) {
  const suspended = query.spec.state === "suspended";
  const verb = suspended ? "Resume" : "Suspend";
  const change = () => send(query, { state: suspended ? "running" : "suspended" }, etag, verb, local, ctx);
  return section(verb,
    h("p", {}, suspended
      ? "It is suspended: nothing is read or written, and it has no slots. It goes on exactly where it was."
      : "The query takes a snapshot, commits what that covers, and gives its slots back until it is resumed."),
    h("button", { type: "button", disabled: local.sending, onclick: change }, `${verb} the query`),
    suspended && h("p", {}, "Or from an older snapshot: ", h("a", { href: address(query.id, "snapshots") }, "choose it under Snapshots"), "."));
}

function stopping({ query, etag, local, ctx }) {
  const ask = () => document.getElementById("stop-dialog").showModal();
  const close = () => document.getElementById("stop-dialog").close();
  const stop = () => {
    close();
    send(query, { state: "stopped" }, etag, "Stop", local, ctx);
  };
  const name = query.name ?? query.id;
  return section("Stop",
    h("p", {}, "The query ends and its slots are given back. ",
      "It goes on from its newest snapshot when it is started again in its program."),
    h("button", { type: "button", class: "danger", onclick: ask }, "Stop the query…"),
    h("dialog", { id: "stop-dialog", "aria-labelledby": "stop-title" },
      h("h2", { id: "stop-title" }, `Stop ${name}?`),
      h("p", {}, "It cannot be started again from this page."),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "danger", onclick: stop }, "Stop it"),
        h("button", { type: "button", onclick: close }, "Keep it running"))));
}
