// Actions on snapshots. Each begins with a dialog that explains the action and asks for its parameters. The buttons only
// open the dialog. A page has one dialog, for the action in `local.action`.

import { changeQuery, copySnapshot, deleteSnapshot, get, labelSnapshot, Problem, queryPath, takeSnapshot } from "./api.js";
import { h } from "./dom.js";
import { CONTENTS } from "./snapshot-dialogs.js";
import { follow } from "./operations.js";
import { notice } from "./parts.js";
import { address } from "./router.js";

const DIALOG = "snapshot-dialog";

/** Button to take a snapshot. `at`: `{query, etag, local, ctx}` of the page. */
export function takeButton(at) {
  return at.query.status.state === "running"
    && h("button", { type: "button", class: "main", onclick: () => open("take", null, at) }, "Take a snapshot…");
}

/** Buttons for one snapshot of the listing. */
export function actionButtons(one, at) {
  const copies = Boolean(at.query.service?.export_root);
  const suspended = at.query.spec.state === "suspended";
  const offered = [
    suspended && !one.problem && one.in_lineage && ["resume", "Resume from here…"],
    ["label", "Label…"],
    copies && !one.problem && ["exports", "Export…"],
    copies && !one.problem && ["forks", "Fork…"],
    !one.not_deletable && ["delete", "Delete…"],
  ];
  return h("div", { class: "row-buttons" }, offered.filter(Boolean).map(([kind, word]) => h("button", {
    type: "button", key: kind, class: "small", onclick: () => open(kind, one, at), "aria-label": `${word.replace("…", "")} ${one.id}`,
  }, word)));
}

function open(kind, one, at) {
  const { local, ctx, query } = at;
  const key = crypto.getRandomValues(new Uint32Array(4)).join("-"); // idempotency key: repeated attempts are one request
  local.action = { kind, one, key, etag: at.etag, plan: null, problem: null, sending: false };
  if (kind === "delete") plan(query, local.action, ctx);
  ctx.render();
  queueMicrotask(() => document.getElementById(DIALOG)?.showModal()); // after the rendering
}

async function plan(query, action, ctx) {
  try {
    action.plan = (await get(queryPath(query.id, "snapshots", action.one.id, "deletion"))).body;
  } catch (error) {
    fail(error, action, ctx);
  }
  ctx.render();
}

function fail(error, action, ctx) {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) ctx.lock("The driver does not take this token.");
  action.problem = error;
}

/** The dialog. It always exists, so that it can be opened; it is empty while closed. */
export function actionDialog(at) {
  const { local, ctx } = at;
  const { action } = local;
  const close = () => document.getElementById(DIALOG).close();
  const closed = () => {
    local.action = null;
    ctx.render();
  };
  const dialog = (...content) =>
    h("dialog", { id: DIALOG, key: DIALOG, "aria-labelledby": "snapshot-dialog-title", onclose: closed }, content);
  if (!action) return dialog(h("h2", { id: "snapshot-dialog-title" }, "Snapshot"));
  const { title, explained, fields, word, danger, keep = "Cancel" } = CONTENTS[action.kind](action, at.query);
  const submit = (event) => {
    event.preventDefault();
    act(action, new FormData(event.target), at, close);
  };
  const { problem } = action;
  return dialog(
    h("h2", { id: "snapshot-dialog-title" }, title),
    explained,
    problem && notice("bad", problem.status === 0 ? "Not known whether it was done" : problem.title, problem.message),
    h("form", { key: `${action.kind}/${action.one?.id}`, class: "form", onsubmit: submit },
      fields,
      h("div", { class: "buttons" },
        word && h("button", { type: "submit", class: danger ? "danger" : "main", disabled: action.sending }, action.sending ? "Under way…" : word),
        h("button", { type: "button", onclick: close }, word ? keep : "Close"))));
}

async function act(action, form, at, close) {
  const { query, ctx } = at;
  if (action.sending) return;
  Object.assign(action, { sending: true, problem: null });
  ctx.render();
  try {
    const { body, status } = await SENT[action.kind](query, action, form);
    const deletedHere = action.kind === "delete" && location.hash !== address(query.id, "snapshots");
    if (status === 202) follow(body, words(action, form), ctx);
    if (at.local.action === action) close();
    if (deletedHere) location.hash = address(query.id, "snapshots"); // the snapshot of this page is being deleted
    ctx.refresh();
  } catch (error) {
    fail(error, action, ctx);
  }
  action.sending = false;
  ctx.render();
}

const SENT = {
  take: (query, action, form) => takeSnapshot(query.id, taken(form), action.key),
  label: (query, { one }, form) => {
    const names = { label: form.get("label").trim(), note: form.get("note").trim() };
    if (names.note === (one.note ?? "")) delete names.note;
    return labelSnapshot(query.id, one.id, names);
  },
  delete: (query, { one }) => deleteSnapshot(query.id, one.id),
  exports: (query, { one }, form) => copySnapshot(query.id, one.id, "exports", form.get("name")),
  forks: (query, { one }, form) => copySnapshot(query.id, one.id, "forks", form.get("name")),
  resume: (query, { one, etag }, form) =>
    changeQuery(query.id, { state: "running" }, etag, { resume_from: { snapshot: one.id, output: form.get("output") } }),
};

function taken(form) {
  const wanted = { label: form.get("label").trim(), note: form.get("note").trim() };
  if (form.get("format")) wanted.format = form.get("format");
  if (form.get("alignment")) wanted.alignment = form.get("alignment");
  return wanted;
}

function words({ kind, one }, form) {
  const label = form.get("label")?.trim();
  if (kind === "take") return label ? `Snapshot “${label}”` : "Snapshot";
  if (kind === "delete") return `Delete ${one.id}`;
  if (kind === "resume") return `Resume from ${one.id}`;
  return `${kind === "exports" ? "Export" : "Fork"} ${one.id}`;
}
