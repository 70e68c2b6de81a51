// Chart of files that snapshots share. Each snapshot is a line, the newest on top. The horizontal axis has all bytes of
// the location: a file is as wide as it is large, and has the same position in all lines.

import { h, s } from "./dom.js";
import { bytes, clip, count, percent, plural } from "./format.js";
import { empty, legend, notice, section, table } from "./parts.js";
import { address } from "./router.js";

const LEFT = 92;
const PHONE_PX = 720; // as in style.css
const LEAST_WIDE = 2; // least width of a group of files, so that small groups are visible
const MOST_LINES = 60;
const MOST_ROWS = 200;
const MOST_PATHS = 20;
const LINE_HIGH = { least: 17, most: 30, all: 320 };

/** Section of shared files. `sharing`: resource of the REST service. */
export function sharingSection(sharing, query) {
  const title = "Which files are shared";
  if (sharing.problem) return section(title, notice("warn", sharing.problem.title, sharing.problem.message));
  const groups = grouped(sharing);
  if (!groups.length) return section(title, empty("There are no files yet."));
  const total = sum(groups);
  const shared = sum(groups.filter((one) => one.ids.length > 1));
  return section(title,
    h("p", {}, `${bytes(total)} in ${plural(groups.reduce((all, one) => all + one.files.length, 0), "file")}. `
      + (shared ? `${percent(shared / total)} of it is needed by two snapshots or more, and written once.` : "No file is needed by two snapshots.")),
    sharing.truncated && h("p", { class: "hint" }, "Only the largest files of the newest snapshots are shown."),
    legend([["series-own", "needed by this snapshot alone: goes with it"], ["series-shared", "needed by others, too"]]),
    picture(sharing.snapshots, groups, total, query),
    h("details", { key: "as-table" }, h("summary", {}, "The same as a table"), asTable(groups, sharing.snapshots)));
}

const sum = (groups) => groups.reduce((all, one) => all + one.bytes, 0);

/** Group the files that the same snapshots need, ordered by the first and the last of these snapshots. */
export function grouped({ files, snapshots }) {
  const at = new Map(snapshots.map((id, n) => [id, n]));
  const groups = new Map();
  for (const file of files) {
    const ids = file.snapshots.filter((id) => at.has(id)).sort((a, b) => at.get(a) - at.get(b));
    if (!ids.length) continue; // not needed yet, or not any more
    const key = ids.join(" ");
    const known = groups.get(key) ?? { key, ids, bytes: 0, files: [] };
    known.bytes += file.bytes;
    known.files.push(file);
    groups.set(key, known);
  }
  const place = (one) => [at.get(one.ids[0]), at.get(one.ids.at(-1)), one.ids.length];
  return [...groups.values()].sort((a, b) => {
    const [x, y] = [place(a), place(b)];
    return x[0] - y[0] || x[1] - y[1] || x[2] - y[2];
  });
}

function picture(snapshots, groups, total, query) {
  const shown = [...snapshots].reverse().slice(0, MOST_LINES);
  const page = document.documentElement.clientWidth;
  const room = Math.max(240, Math.min(page, 1680) - (page < PHONE_PX ? 64 : 84)); // width inside a panel
  const columns = across(groups, total, room - LEFT);
  const { least, most, all } = LINE_HIGH;
  const high = Math.max(least, Math.min(most, Math.floor(all / shown.length)));
  const more = snapshots.length - shown.length;
  const size = { width: room, height: shown.length * high, viewBox: `0 0 ${room} ${shown.length * high}` };
  return [
    h("div", { class: "scroller sharing", tabindex: "0", role: "region", "aria-label": "Snapshots and the files they need; the table below says the same" },
      s("svg", { class: "sharing-lines", ...size, role: "group", "aria-label": "Snapshots, newest first" },
        shown.map((id, n) => line(id, n * high, high, room, columns, query)))),
    more > 0 && h("p", { class: "hint" }, `${plural(more, "older snapshot")} are in the table alone.`),
  ];
}

function across(groups, total, room) {
  const least = Math.min(LEAST_WIDE, room / (4 * groups.length));
  const scale = total ? (room - least * groups.length) / total : 0;
  let x = LEFT;
  return groups.map((group) => {
    const wide = least + group.bytes * scale;
    const column = { group, needs: new Set(group.ids), x, wide: wide > 6 ? wide - 1 : wide };
    x += wide;
    return column;
  });
}

function line(id, y, high, room, columns, query) {
  const own = columns.filter((one) => one.needs.has(id) && one.group.ids.length === 1);
  const shared = columns.filter((one) => one.needs.has(id) && one.group.ids.length > 1);
  const size = (list) => bytes(list.reduce((all, one) => all + one.group.bytes, 0));
  const said = `${id}: ${size([...own, ...shared])}, of it ${size(own)} for itself and ${size(shared)} shared`;
  const bars = (list, inset) => list.map((one) =>
    `M${one.x.toFixed(1)} ${y + inset}h${one.wide.toFixed(1)}v${high - 2 * inset}h${(-one.wide).toFixed(1)}z`).join("");
  return s("a", { key: id, class: "sharing-line", href: address(query, "snapshots", id), "aria-label": said },
    s("title", {}, said),
    s("rect", { class: "sharing-hit", x: 1, y: y + 1, width: room - 2, height: high - 2, rx: 3 }),
    s("text", { x: 6, y: y + high / 2 + 4 }, clip(id, 12)),
    s("path", { class: "sharing-ground", d: `M${LEFT} ${y + high / 2}h${room - LEFT - 2}` }),
    s("path", { class: "fill-series-shared", d: bars(shared, Math.max(4, high * 0.28)) }),
    s("path", { class: "fill-series-own", d: bars(own, 3) })); // also higher, for users who do not see colors
}

function asTable(groups, snapshots) {
  const largest = [...groups].sort((a, b) => b.bytes - a.bytes);
  const more = largest.length - MOST_ROWS;
  return [
    table("Files by the snapshots that need them, the most bytes first", [
      { head: "Needed by", wide: true, cell: (one) => neededBy(one.ids, snapshots) },
      { head: "Snapshots", number: true, cell: (one) => count(one.ids.length) },
      { head: "Bytes", number: true, cell: (one) => bytes(one.bytes) },
      { head: "Kind", cell: (one) => [...new Set(one.files.map((file) => file.kind))].join(", ") },
      { head: "Files", wide: true, cell: (one) => paths(one.files) },
    ], largest.slice(0, MOST_ROWS), (one) => one.key),
    more > 0 && h("p", { class: "hint" }, `and ${plural(more, "smaller group")}`),
  ];
}

/** Text of the snapshots; more than two neighbors are named by the first and the last. */
export function neededBy(ids, snapshots) {
  const first = snapshots.indexOf(ids[0]);
  const row = ids.length > 2 && ids.every((id, n) => snapshots[first + n] === id);
  return row ? `${ids[0]} to ${ids.at(-1)}` : ids.join(", ");
}

function paths(files) {
  const more = files.length - MOST_PATHS;
  return h("details", {}, h("summary", {}, plural(files.length, "file")), h("ul", { class: "paths mono" },
    files.slice(0, MOST_PATHS).map((one) => h("li", { key: one.path }, `${one.path} (${bytes(one.bytes)})`)),
    more > 0 && h("li", {}, `and ${count(more)} more`)));
}
