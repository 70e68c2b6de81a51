// Operations: they are followed until they end, and shown above every page of their query.

import { get, operationPath, Problem } from "./api.js";
import { h } from "./dom.js";
import { bytes, percent, plural } from "./format.js";
import { notice } from "./parts.js";
import { pauseMs, seen } from "./poller.js";
import { address } from "./router.js";

const EVERY_MS = 500;
const QUERY_VERBS = ["rescale", "suspend", "resume", "stop"]; // their messages already contain the progress
const WORDS = {
  rescale: "Rescale",
  suspend: "Suspend",
  resume: "Resume",
  stop: "Stop",
  snapshot: "Take a snapshot",
  "delete-snapshot": "Delete snapshots",
  "export-snapshot": "Export a snapshot",
  "fork-snapshot": "Fork a snapshot",
  "copy-snapshot": "Copy a snapshot",
  "verify-snapshots": "Verify snapshots",
  "compare-snapshots": "Compare snapshots",
  "collect-files": "Remove what no snapshot needs",
};
const followed = [];

/** Follow the operation of a 202 response. `words`: its description, for example "Rescale to 8". */
export function follow(operation, words, ctx) {
  if (followed.some((one) => one.operation.id === operation.id)) return; // a repeated request
  const one = { operation, words, lost: null };
  followed.unshift(one);
  ask(one, ctx);
}

/** Follow the operations that are already running on a query when its page is opened. */
export function adopt({ id: query, status }, ctx) {
  for (const { id, verb } of status.operations) follow({ id, verb, query_id: query, state: "running" }, WORDS[verb] ?? verb, ctx);
}

async function ask(one, ctx) {
  let failures = 0;
  while (one.operation.state === "running" && followed.includes(one)) {
    await new Promise((done) => setTimeout(done, pauseMs(EVERY_MS, failures)));
    await seen();
    try {
      one.operation = (await get(operationPath(one.operation.id))).body;
      one.lost = null;
      failures = 0;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      one.lost = error.message; // the operation continues in the driver
      failures += 1;
      if (error.status === 404 || error.status === 401) break;
    }
    ctx.render();
  }
  ctx.refresh();
}

export function operationNotices(query, ctx) {
  const own = followed.filter((one) => query && one.operation.query_id === query.id);
  return own.map((one) => h("div", { key: `operation-${one.operation.id}` }, shown(one, ctx)));
}

function shown(one, ctx) {
  const { state, error, progress } = one.operation;
  const forget = () => {
    followed.splice(followed.indexOf(one), 1);
    ctx.render();
  };
  const away = h("button", { type: "button", class: "quiet", onclick: forget, "aria-label": `Dismiss: ${one.words}` }, "Dismiss");
  if (one.lost !== null) return notice("warn", one.words, `${one.lost} Whether it succeeded is not known here.`, away);
  if (state === "succeeded") return notice("ok", `${one.words}: done`, outcome(one.operation), away);
  if (state === "failed") return notice("bad", `${one.words}: failed`, `${error.kind}: ${error.text}`, away);
  return notice("calm", `${one.words}…`, progress ? soFar(one.operation) : "Under way",
    h("progress", { value: progress?.total > 1 ? progress.done : null, max: Math.max(1, progress?.total ?? 1), "aria-label": one.words }));
}

/** Describe the result of an operation, if there is more than its success. */
function outcome({ query_id: query, snapshot, freed_files: files, freed_bytes: freed, location }) {
  if (location) return ["It is at ", h("span", { class: "mono where" }, location)];
  if (files !== null && files !== undefined) return `${plural(files, "file")} went with it: ${bytes(freed)}.`;
  return snapshot ? ["It is ", h("a", { href: address(query, "snapshots", snapshot) }, snapshot), "."] : null;
}

function soFar({ verb, progress: { message, done, total } }) {
  return total > 1 && !QUERY_VERBS.includes(verb) ? `${message} (${percent(done / total)})` : message;
}
