// Addresses of pages. They are in the fragment (`#...`), so that the server has only one page.

export const TABS = [
  ["graph", "Dataflow"],
  ["checkpoints", "Checkpoints"],
  ["snapshots", "Snapshots"],
  ["exceptions", "Exceptions"],
  ["logs", "Logs"],
  ["configuration", "Configuration"],
];

/** Return `{page, query, item}`. `page` is null if the address does not exist. */
export function parse(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
  if (!parts.length) return { page: "queries", query: null, item: null };
  const [kind, query, page = "graph", item = null] = parts;
  const known = kind === "queries" && query && parts.length <= 4 && TABS.some(([name]) => name === page);
  return known ? { page, query, item } : { page: null, query: null, item: null };
}

export function address(query, page, item = null) {
  const parts = ["queries", query, page, item].filter((part) => part !== null && part !== undefined);
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
