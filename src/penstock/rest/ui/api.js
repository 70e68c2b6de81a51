// Client of the REST service: same origin, JSON, one class of error.

const TOKEN = "penstock-token";
const TIMEOUT_MS = 10_000;
const LABEL_TIMEOUT_MS = 40_000; // the owner of the location changes labels, which may be another driver

/** Error of a request. `status` 0: no answer. `detail`: the detail of the problem document. */
export class Problem extends Error {
  constructor(status, title, detail, retryAfter = null) {
    super(detail || title);
    this.status = status;
    this.title = title;
    this.retryAfter = retryAfter;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

/** Send a GET request. Resolves to `{body, etag, status}`. */
export function get(path, signal) {
  return send("GET", path, null, {}, signal);
}

/** Change the spec of a query. `more`: other members of the body, for example `resume_from`. */
export function changeQuery(id, spec, etag, more = {}) {
  const headers = { "content-type": "application/merge-patch+json", "if-match": etag };
  return send("PATCH", queryPath(id), JSON.stringify({ spec, ...more }), headers);
}

/** Take a snapshot. A repeated request with the same `key` takes no second one. */
export function takeSnapshot(query, wanted, key) {
  const headers = { "content-type": "application/json", "idempotency-key": key };
  return send("POST", queryPath(query, "snapshots"), JSON.stringify(wanted), headers);
}

export function labelSnapshot(query, snapshot, names) {
  const headers = { "content-type": "application/merge-patch+json" };
  return send("PATCH", queryPath(query, "snapshots", snapshot), JSON.stringify(names), headers, null, LABEL_TIMEOUT_MS);
}

export function deleteSnapshot(query, snapshot) {
  return send("DELETE", queryPath(query, "snapshots", snapshot), null, {});
}

/** Export or fork a snapshot. `kind`: `exports` or `forks`. `name`: folder below the service's export root. */
export function copySnapshot(query, snapshot, kind, name) {
  const headers = { "content-type": "application/json" };
  return send("POST", queryPath(query, "snapshots", snapshot, kind), JSON.stringify({ name }), headers);
}

export function queryPath(id, ...rest) {
  return ["/api/v1/queries", id, ...rest].map((part, n) => (n ? encodeURIComponent(part) : part)).join("/");
}

export function operationPath(id) {
  return `/api/v1/operations/${encodeURIComponent(id)}`;
}

async function send(method, path, body, headers, signal, timeoutMs = TIMEOUT_MS) {
  const sent = { accept: "application/json", ...headers };
  if (token()) sent.authorization = `Bearer ${token()}`;
  const limit = AbortSignal.timeout(timeoutMs);
  const both = signal ? AbortSignal.any([signal, limit]) : limit;
  let response;
  let text;
  try {
    response = await fetch(path, { method, body, headers: sent, signal: both, cache: "no-store", redirect: "error" });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error; // the page does not need the answer any more
    const why = error.name === "TimeoutError" ? `did not answer within ${timeoutMs / 1000} s` : "cannot be reached";
    throw new Problem(0, "No answer", `The driver at ${location.host} ${why}.`);
  }
  const parsed = parse(text);
  if (!response.ok) {
    const detail = parsed?.detail ?? `The service answered ${response.status} ${response.statusText}.`;
    throw new Problem(response.status, parsed?.title ?? "Refused", detail);
  }
  if (parsed === null) throw new Problem(0, "No answer", `What answers at ${location.host} is not Penstock.`);
  return { body: parsed, etag: response.headers.get("etag"), status: response.status };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // for example the page of a proxy, or plain text from the HTTP server
  }
}
