// View of one snapshot: its state tables, its in-flight data by channel, and the bottleneck of the query.

import { h } from "./dom.js";
import { bytes, clock, count, duration, eventTime, percent } from "./format.js";
import { heatMap } from "./heatmap.js";
import { badge, clamped, empty, facts, notice, section, table } from "./parts.js";
import { address } from "./router.js";

const TOP_CHANNELS = 5;

/** View of one snapshot. `buttons`: its actions. */
export function snapshotView(shown, query, buttons) {
  const { snapshot, bottleneck } = shown;
  const tables = shown.operators.flatMap((operator) => operator.tables.map((one) => ({ operator, ...one })));
  return [
    h("p", { key: "back" }, h("a", { href: address(query, "snapshots") }, "← All snapshots")),
    section(snapshot.label ? `${snapshot.id}: ${snapshot.label}` : snapshot.id,
      snapshot.problem && notice("bad", "Damaged", snapshot.problem),
      facts([
        ["Taken", clock(snapshot.created_at_ms)],
        ["Kind", snapshot.kind],
        ["Alignment", alignment(snapshot)],
        ["Parallelism", `${count(snapshot.parallelism)} of at most ${count(shown.max_parallelism)}`],
        ["State", `${count(snapshot.state_rows)} rows, ${bytes(snapshot.state_bytes)}`],
        ["In flight", `${count(snapshot.inflight_rows)} rows, ${bytes(snapshot.inflight_bytes)}`],
        ["Own bytes", bytes(snapshot.exclusive_bytes)],
        ["For recovery", snapshot.in_lineage ? "yes" : "no"],
        shown.drained && ["Drained", "only commits are left to be made"],
      ]),
      snapshot.note && h("p", { class: "cause" }, snapshot.note),
      buttons,
      snapshot.not_deletable && h("p", { class: "hint" }, `It cannot be deleted now: ${snapshot.not_deletable}.`),
      waitedFor(bottleneck)),
    section("Rows in flight", inFlight(shown.edges)),
    section("State", tables.length
      ? table("Tables of state", TABLES, tables, (one) => `${one.operator.operator_id}/${one.name}`)
      : empty("This plan keeps no state.")),
    section("Subtasks", h("details", {}, h("summary", {}, `${count(shown.subtasks.length)} subtasks, as they were captured`),
      table("Subtasks, as they were captured", SUBTASKS, shown.subtasks, (one) => `${one.vertex}/${one.index}`))),
  ];
}

/** Text of the actual alignment of all subtasks. */
export function alignment({ unaligned_subtasks: unaligned, subtasks }) {
  return unaligned ? `${count(unaligned)} of ${count(subtasks)} subtasks unaligned` : "aligned";
}

function waitedFor(bottleneck) {
  const known = bottleneck.vertex && bottleneck.subtask >= 0;
  const where = known ? `. ${percent(bottleneck.share)} of it waits at subtask ${bottleneck.subtask}.` : "";
  const text = capitalised(bottleneck.explanation) + where;
  if (!bottleneck.vertex) return notice("calm", "Nothing to be waited for was seen", text);
  return notice("warn", "What the query waited for", bottleneck.vertex, h("p", {}, text));
}

const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function inFlight(edges) {
  if (!edges.length) return empty("All of this plan is one vertex: rows are in flight on edges alone.");
  return h("div", { class: "edges" }, edges.map((edge) => h("div", { key: edge.exchange, class: "edge-card" },
    h("h3", {}, edge.exchange),
    clamped(`from ${edge.producer}`, "hint"),
    clamped(`to ${edge.consumer} (${edge.kind})`, "hint"),
    facts([
      ["Rows", count(edge.rows)],
      ["Bytes", bytes(edge.bytes)],
      ["Watermark (UTC)", eventTime(edge.watermark_us)],
    ]),
    edge.rows ? [heatMap(edge), fullest(edge.channels)] : empty("Nothing was in flight here."))));
}

function fullest(channels) {
  const most = channels.filter((one) => one.rows).sort((a, b) => b.rows - a.rows).slice(0, TOP_CHANNELS);
  return table("The fullest channels", CHANNELS, most, (one) => `${one.producer}/${one.consumer}`);
}

const CHANNELS = [
  { head: "Channel", cell: (one) => `${one.producer} → ${one.consumer}` },
  { head: "Rows", number: true, cell: (one) => count(one.rows) },
  { head: "Bytes", number: true, cell: (one) => bytes(one.bytes) },
  { head: "Watermark (UTC)", cell: (one) => eventTime(one.watermark_us) },
];

const TABLES = [
  { head: "Operator", wide: true, cell: (one) => one.operator.name },
  { head: "Vertex", wide: true, cell: (one) => clamped(one.operator.vertex) },
  { head: "Table", cell: (one) => h("span", { class: "mono" }, one.name) },
  { head: "Keys", cell: (one) => (one.keys ?? []).join(", ") || "–" },
  { head: "Columns", wide: true, cell: (one) => one.columns.join(", ") },
  { head: "Rows", number: true, cell: (one) => (one.rows === null ? "not counted" : count(one.rows)) },
  { head: "Bytes", number: true, cell: (one) => bytes(one.bytes) },
  { head: "Sections", number: true, cell: (one) => count(one.sections) },
];

const SUBTASKS = [
  { head: "Vertex", wide: true, cell: (one) => clamped(one.vertex) },
  { head: "Subtask", number: true, cell: (one) => one.index },
  { head: "Start delay", number: true, cell: (one) => duration(one.start_delay_ms) },
  { head: "Alignment", number: true, cell: (one) => duration(one.alignment_ms) },
  { head: "Sync", number: true, cell: (one) => duration(one.sync_ms) },
  { head: "Async", number: true, cell: (one) => duration(one.async_ms) },
  { head: "Unaligned", cell: (one) => (one.unaligned ? "unaligned" : "aligned") },
  { head: "In flight", number: true, cell: (one) => bytes(one.inflight_bytes) },
  { head: "Of it written", number: true, cell: (one) => bytes(one.inflight_persisted_bytes) },
  { head: "State written", number: true, cell: (one) => bytes(one.state_bytes) },
  { head: "Rows in", number: true, cell: (one) => count(one.rows_in) },
];
