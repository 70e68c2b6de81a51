// Contents of the dialogs about snapshots: functions that return `{title, explained, fields, word, danger, keep}`.
// `word` is the label of the action's button; without it the dialog has no action.

import { h } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { loading, notice } from "./parts.js";

const MOST_LABEL = 200;
const MOST_NOTE = 2000;
const MOST_PATHS = 100;
const FOLDER = "[A-Za-z0-9_\\-][A-Za-z0-9._\\-]*"; // one path segment, not hidden

export const CONTENTS = { take, label, delete: remove, exports: exported, forks: forked, resume };

const named = (one) => (one.label ? `${one.id} (${one.label})` : one.id);

function take() {
  return {
    title: "Take a snapshot",
    explained: h("p", {}, "The query goes on meanwhile. What is asked for by hand is never collected: it stays until somebody deletes it."),
    fields: [
      naming("", ""),
      choice("alignment", "Alignment", [
        ["", "as the query’s checkpoints"],
        ["auto", "auto: unaligned if aligning is slow"],
        ["aligned", "aligned: captures nothing in flight"],
        ["unaligned", "unaligned: barriers overtake rows"],
      ]),
      choice("format", "Format", [
        ["", "as the query’s snapshots"],
        ["native", "native: to go on from"],
        ["portable", "portable as well: Parquet files that other programs read"],
      ]),
    ],
    word: "Take it",
  };
}

function label({ one }) {
  return {
    title: `Label ${one.id}`,
    explained: h("p", {}, "A snapshot with a label is kept until somebody deletes it. Empty takes the label away."),
    fields: naming(one.label, one.note ?? ""),
    word: "Save",
  };
}

function remove({ one, plan, problem }) {
  const kept = (one.kind === "requested" || one.label) && h("p", {}, "Somebody asked for it or named it: it would not go by itself.");
  if (!plan) return { title: `Delete ${named(one)}?`, explained: problem ? null : loading() };
  const more = plan.paths.length - MOST_PATHS;
  return {
    title: `Delete ${named(one)}?`,
    explained: [
      kept,
      notice("warn", `${bytes(plan.bytes)} in ${plural(plan.files, "file")} go with it`,
        "No other snapshot needs them. What it shares with others stays. It cannot be brought back."),
      plan.paths.length > 0 && h("details", { key: "paths" }, h("summary", {}, "Which files"),
        h("ul", { class: "paths mono" },
          plan.paths.slice(0, MOST_PATHS).map((path) => h("li", { key: path }, path)),
          more > 0 && h("li", {}, `and ${count(more)} more`))),
    ],
    word: "Delete it",
    danger: true,
    keep: "Keep it",
  };
}

function exported({ one }, query) {
  return {
    title: `Export ${named(one)}`,
    explained: h("p", {}, "Its state is written as Parquet files that Spark, pandas and DuckDB read. The query goes on."),
    fields: folder(query, one, "export"),
    word: "Export it",
  };
}

function forked({ one }, query) {
  return {
    title: `Fork ${named(one)}`,
    explained: h("p", {}, "A checkpoint location of its own that begins with this snapshot: start a query with it, and both go on apart."),
    fields: folder(query, one, "fork"),
    word: "Fork it",
  };
}

function resume({ one }) {
  return {
    title: `Resume from ${named(one)}?`,
    explained: h("p", {}, "The query goes back to it. What came later is read again, so it has to be said what becomes of the rows written since."),
    fields: h("fieldset", {}, h("legend", {}, "Rows written since then"),
      option("retract", "Take them back", "each row is there once; only some sinks can, and it is refused otherwise", true),
      option("keep", "Keep them", "they come a second time", false)),
    word: "Resume from it",
  };
}

function option(value, word, hint, checked) {
  const id = `output-${value}`;
  return h("div", { class: "option" },
    h("input", { type: "radio", id, name: "output", initial: value, checked, "aria-describedby": `${id}-hint` }),
    h("label", { for: id }, word),
    h("p", { id: `${id}-hint`, class: "hint" }, hint));
}

function naming(label, note) {
  return [
    h("label", { for: "snapshot-label" }, "Label"),
    h("input", { id: "snapshot-label", name: "label", maxlength: MOST_LABEL, initial: label, autocomplete: "off", "aria-describedby": "label-hint" }),
    h("p", { id: "label-hint", class: "hint" }, "To find it by, for example before-upgrade"),
    h("label", { for: "snapshot-note" }, "Note"),
    h("textarea", { id: "snapshot-note", name: "note", rows: 3, maxlength: MOST_NOTE, initial: note }),
  ];
}

function choice(name, word, entries) {
  return [
    h("label", { for: `snapshot-${name}` }, word),
    h("select", { id: `snapshot-${name}`, name }, entries.map(([value, words]) => h("option", { key: value, value }, words))),
  ];
}

function folder(query, one, kind) {
  const proposed = `${(query.name ?? "query").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[.-]+|-+$/g, "") || "query"}-${one.id}-${kind}`;
  return [
    h("label", { for: "snapshot-folder" }, "Name of the new folder"),
    h("input", {
      id: "snapshot-folder", name: "name", required: true, maxlength: 200, pattern: FOLDER, initial: proposed, autocomplete: "off",
      spellcheck: "false", title: "Letters, digits, dots, hyphens and underlines; no dot in front", "aria-describedby": "folder-hint",
    }),
    h("p", { id: "folder-hint", class: "hint" }, "It comes to be below the export root of this service, and must not be there yet."),
  ];
}
