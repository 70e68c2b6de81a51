// View of one checkpoint: its phases by vertex and subtask, or the reason of its failure.

import { h } from "./dom.js";
import { bytes, clock, count, duration } from "./format.js";
import { badge, empty, facts, legend, notice, section, shareBar, table } from "./parts.js";
import { address } from "./router.js";

const PARTS = [
  ["delay", "start_delay_ms", "start delay"],
  ["align", "alignment_ms", "alignment"],
  ["sync", "sync_ms", "sync"],
  ["async", "async_ms", "async"],
];
const LEGEND = [
  ["delay", "start delay: trigger to first barrier"],
  ["align", "alignment: first barrier to last"],
  ["sync", "sync: it stood still"],
  ["async", "async: writing beside its work"],
];

/** Text of the actual alignment; of the requested one until the checkpoint is complete. */
export function alignment(one) {
  if (one.state !== "complete") return `asked for: ${one.alignment}`;
  return one.unaligned_subtasks ? `unaligned (${count(one.unaligned_subtasks)} subtasks)` : "aligned";
}

/** Text of the checkpoint's generation. Generations before the first one of this run belong to an earlier run. */
export function generation(one, query) {
  return `${count(one.generation)}${ofThisRun(one, query) ? "" : " (earlier run)"}`;
}

function ofThisRun(one, query) {
  const first = query.status.first_generation; // 0 until the first generation starts
  return first > 0 && one.generation >= first;
}

export function checkpointView({ one, names }, query, local, ctx) {
  const known = ofThisRun(one, query);
  return [
    h("p", { key: "back" }, h("a", { href: address(query.id, "checkpoints") }, "← All checkpoints")),
    section(`Checkpoint ${one.checkpoint}`,
      one.reason && (one.state === "failed" ? notice("bad", "Why it failed", one.reason) : notice("calm", "Remark", one.reason)),
      facts([
        ["State", badge(one.state)],
        ["Triggered", clock(one.triggered_at_ms)],
        ["Took", duration(one.duration_ms)],
        ["Alignment", alignment(one)],
        ["State written", bytes(one.state_bytes)],
        ["State size", bytes(one.state_total_bytes)],
        ["In flight", `${count(one.inflight_rows)} rows, ${bytes(one.inflight_bytes)} captured`],
        ["Generation", generation(one, query)],
        ["Slots that acknowledged", one.acknowledged],
        ["Asked for", one.requested ? "by a user" : "by its interval"],
        one.label && ["Label", one.label],
        one.snapshot_id && ["Snapshot", h("a", { href: address(query.id, "snapshots", one.snapshot_id) }, one.snapshot_id)],
      ])),
    section("Subtasks", one.subtasks.length
      ? [!known && h("p", { class: "hint" }, "Vertices are called by number: the plan of that run may have been another one."),
        breakdown(one.subtasks, known ? names : new Map(), local, ctx)]
      : empty("Their figures are known once a checkpoint is complete.")),
  ];
}

/** Breakdown by subtask. Tables in closed sections are not created, because they would be most of the page. */
function breakdown(subtasks, names, local, ctx) {
  const opened = (local.opened ??= new Set());
  const toggled = (id) => (event) => {
    if (event.target.open) opened.add(id);
    else opened.delete(id);
    ctx.render();
  };
  const longest = Math.max(1, ...subtasks.map(total));
  const ids = [...new Set(subtasks.map((one) => one.vertex))];
  return [
    legend(LEGEND),
    h("div", { class: "breakdowns" }, ids.map((id) => {
      const own = subtasks.filter((one) => one.vertex === id);
      const slowest = own.reduce((most, one) => (total(one) > total(most) ? one : most));
      return h("details", { key: `vertex-${id}`, class: "breakdown", open: opened.has(id), ontoggle: toggled(id) },
        h("summary", {}, h("strong", {}, names.get(id) ?? `vertex ${id}`), " ",
          h("span", { class: "hint" }, `slowest: subtask ${slowest.index}, ${duration(total(slowest))}; `,
            `captured ${bytes(sum(own, "inflight_bytes"))}; state ${bytes(sum(own, "state_bytes"))}`),
          bar(slowest, longest)),
        opened.has(id) && table(`Subtasks of ${names.get(id) ?? `vertex ${id}`}`, columns(longest), own, (one) => one.index));
    })),
  ];
}

function columns(longest) {
  const time = (head, name) => ({ head, number: true, cell: (one) => duration(one[name]) });
  return [
    { head: "Subtask", number: true, cell: (one) => one.index },
    { head: "Time", cell: (one) => bar(one, longest) },
    time("Start delay", "start_delay_ms"),
    time("Alignment", "alignment_ms"),
    time("Sync", "sync_ms"),
    time("Async", "async_ms"),
    { head: "Unaligned", cell: (one) => (one.unaligned ? "unaligned" : "aligned") },
    { head: "Rows in flight", number: true, cell: (one) => count(one.inflight_rows) },
    { head: "Captured", number: true, cell: (one) => bytes(one.inflight_bytes) },
    { head: "Of it written", number: true, cell: (one) => bytes(one.inflight_persisted_bytes) },
    { head: "Processed meanwhile", number: true, cell: (one) => bytes(one.inflight_processed_bytes) },
    { head: "State written", number: true, cell: (one) => bytes(one.state_bytes) },
    { head: "State size", number: true, cell: (one) => bytes(one.state_total_bytes) },
  ];
}

function bar(one, longest) {
  return shareBar(PARTS.map(([look, name, word]) => [look, one[name] / longest, `${word} ${duration(one[name])}`]));
}

const total = (one) => PARTS.reduce((all, [, name]) => all + one[name], 0);
const sum = (list, name) => list.reduce((all, one) => all + one[name], 0);
