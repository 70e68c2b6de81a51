// Readable texts of numbers and times. An unknown value is a dash.

const DASH = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Format with up to three significant digits: 7, 12.3; larger numbers as whole numbers: 1,234. */
function figures(value) {
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : DASH;
}

export function short(value) {
  if (!known(value)) return DASH;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${figures(value / size)} ${unit}`;
  }
  return figures(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
}

export function rate(value) {
  return known(value) ? `${short(value)}/s` : DASH;
}

export function bytes(value) {
  if (!known(value)) return DASH;
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${figures(value / size)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

export function percent(share) {
  return known(share) ? `${Math.round(share * 100)} %` : DASH;
}

export function duration(ms) {
  if (!known(ms)) return DASH;
  if (ms < 1000) return `${figures(ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms))} ms`;
  if (ms < 60_000) return `${figures(ms / 1000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
}

/** Format an age, rounded to one unit. */
export function ago(atMs, nowMs = Date.now()) {
  if (!known(atMs)) return DASH;
  const seconds = Math.max(0, Math.round((nowMs - atMs) / 1000));
  if (seconds < 2) return "now";
  if (seconds < 120) return `${seconds} s ago`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}

const two = (number) => String(number).padStart(2, "0");

/** Format a wall-clock time in the user's time zone. */
export function clock(atMs) {
  if (!known(atMs)) return DASH;
  const at = new Date(atMs);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function time(atMs) {
  return known(atMs) ? clock(atMs).slice(11) : DASH;
}

/** Format event time (microseconds since 1970) in UTC. The start and the end of event time are not calendar dates. */
export function eventTime(us) {
  if (!known(us)) return DASH;
  if (us >= 4e18) return "at its end";
  if (us <= -4e18) return DASH;
  const at = new Date(us / 1000);
  return Number.isNaN(at.getTime()) ? DASH : at.toISOString().slice(0, 19).replace("T", " ");
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Cut a text that is too long. The full text belongs into a title. */
export function clip(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
