// Page of all snapshots at the query's checkpoint location with their actions, and of one snapshot with its contents.

import { get, Problem, queryPath } from "./api.js";
import { h } from "./dom.js";
import { ago, bytes, clock, count, plural } from "./format.js";
import { badge, empty, facts, loading, section, table } from "./parts.js";
import { address } from "./router.js";
import { sharingSection } from "./sharing.js";
import { actionButtons, actionDialog, takeButton } from "./snapshot-actions.js";
import { alignment, snapshotView } from "./snapshot-view.js";

export const EVERY_MS = 5000;

export async function load(route, signal, local) {
  if (route.item !== null) {
    return { item: route.item, one: (await get(queryPath(route.query, "snapshots", route.item), signal)).body };
  }
  const listing = (await get(queryPath(route.query, "snapshots"), signal)).body;
  const there = listing.snapshots.map((one) => one.id).join(" ");
  if (local.sharing?.there !== there) local.sharing = { there, ...(await sharing(route.query, signal)) };
  return { listing, sharing: local.sharing };
}

/** Load the shared files. A failure is returned as `problem`, because the page can show everything else. */
async function sharing(query, signal) {
  try {
    return (await get(queryPath(query, "snapshots", "sharing"), signal)).body;
  } catch (error) {
    if (error instanceof Problem && error.status >= 404) return { problem: error };
    throw error;
  }
}

export function view(at) {
  const { data, query, route } = at;
  if (route.item !== null) {
    if (data.item !== route.item) return loading();
    return [snapshotView(data.one, query.id, actionButtons(data.one.snapshot, at)), actionDialog(at)];
  }
  if (!data.listing) return loading();
  const { listing } = data;
  const newestFirst = [...listing.snapshots].reverse();
  return [
    section("Snapshots",
      h("div", { class: "panel-head" },
        facts([
          ["Location", h("span", { class: "mono where" }, listing.location)],
          ["Committed up to epoch", count(listing.committed_epoch)],
          ["Owned by Generation", count(listing.owner)],
        ]),
        takeButton(at)),
      newestFirst.length
        ? table("Snapshots, newest first", columns(at), newestFirst, (one) => one.id)
        : empty("None yet: the first checkpoint that completes is the first snapshot."),
      h("p", { class: "hint" }, "Own bytes: what only this snapshot refers to, and would go with it.",
        !query.service?.export_root && [" To export and fork from here the service needs a folder to write to: ",
          h("code", {}, "penstock.serve(export_root=…)"), "."])),
    newestFirst.length > 0 && sharingSection(data.sharing, query.id),
    actionDialog(at),
  ];
}

function columns(at) {
  const both = (size, below) => [bytes(size), h("p", { class: "hint" }, below)];
  return [
    { head: "Snapshot", cell: (one) => h("a", { href: address(at.query.id, "snapshots", one.id) }, one.id) },
    { head: "Label", wide: true, cell: (one) => [one.label, one.note && h("p", { class: "hint" }, one.note)] },
    { head: "Taken", cell: taken },
    { head: "Alignment", cell: alignment },
    { head: "State", number: true, cell: (one) => both(one.state_bytes, plural(one.state_rows, "row")) },
    { head: "In flight", number: true, cell: (one) => both(one.inflight_bytes, plural(one.inflight_rows, "row")) },
    { head: "All bytes", number: true, cell: (one) => both(one.bytes, `${bytes(one.exclusive_bytes)} own`) },
    { head: "What can be done", cell: (one) => actionButtons(one, at) },
  ];
}

function taken(one) {
  if (one.problem) return [badge("damaged"), h("p", { class: "cause" }, one.problem)];
  return [h("span", { title: clock(one.created_at_ms) }, ago(one.created_at_ms)),
    h("p", { class: "hint" }, one.kind, !one.in_lineage && ", of an abandoned lineage")];
}
