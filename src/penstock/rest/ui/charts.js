// Bar charts of the checkpoints on one page of the history: their durations and written bytes.

import { h, s } from "./dom.js";
import { bytes, clock, duration } from "./format.js";
import { legend } from "./parts.js";

const HIGH = 150;
const LEFT = 62;
const BELOW = 20;

export function checkpointCharts(checkpoints) {
  const shown = [...checkpoints].reverse();
  const times = [["duration", "time it took", (one) => one.duration_ms]];
  const sizes = [["state", "state written", (one) => one.state_bytes], ["inflight", "captured", (one) => one.inflight_bytes]];
  return h("div", { class: "charts" },
    chart("How long each checkpoint took", shown, times, duration, niceTime),
    chart("What each checkpoint wrote for state, and captured in flight", shown, sizes, bytes, niceBytes));
}

function chart(title, checkpoints, series, words, nice) {
  const wide = chartWidth();
  const total = (one) => series.reduce((sum, [, , read]) => sum + read(one), 0);
  const top = nice(Math.max(...checkpoints.map(total)));
  const step = (wide - LEFT) / Math.max(checkpoints.length, 12);
  const y = (value) => HIGH - (value / top) * (HIGH - 12);
  const bars = checkpoints.map((one, n) => bar(one, LEFT + n * step, step, series, y, words));
  const newest = checkpoints.at(-1);
  const most = Math.max(...checkpoints.map(total));
  const said = `${title}: ${checkpoints.length} checkpoints, up to ${words(most)}; the newest ${words(total(newest))}`;
  const size = { width: wide, height: HIGH + BELOW, viewBox: `0 0 ${wide} ${HIGH + BELOW}` };
  const last = { x: LEFT + (checkpoints.length - 0.5) * step, "text-anchor": checkpoints.length > 20 ? "end" : "middle" };
  return h("figure", {},
    h("figcaption", {}, title),
    legend([...series, ["failed", "✕: it failed"]]),
    s("svg", { class: "chart", ...size, role: "img", "aria-label": said },
      [0, 0.5, 1].map((part) => [
        s("line", { class: "grid", x1: LEFT, x2: wide, y1: y(top * part), y2: y(top * part) }),
        s("text", { class: "axis", x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, words(top * part)),
      ]),
      bars,
      s("text", { class: "axis", x: LEFT, y: HIGH + 15 }, checkpoints[0].checkpoint),
      checkpoints.length > 1 && s("text", { class: "axis", y: HIGH + 15, ...last }, newest.checkpoint)));
}

function bar(one, x, step, series, y, words) {
  const figures = series.map(([, word, read]) => `${word} ${words(read(one))}`).join(", ");
  const said = `Checkpoint ${one.checkpoint}, ${clock(one.triggered_at_ms)}, ${one.state}: ${figures}`;
  let from = 0;
  const wide = Math.max(1, Math.min(28, step) - (step > 5 ? 2 : 0.5));
  return s("g", { key: one.checkpoint, class: one.state === "failed" ? "failed" : null }, s("title", {}, said),
    one.state === "failed" && s("text", { class: "cross", x: x + wide / 2, y: HIGH - 3, "text-anchor": "middle" }, "✕"),
    series.map(([look, , read]) => {
      const to = from + read(one);
      const high = Math.max(0, y(from) - y(to));
      const place = { x: x.toFixed(1), y: y(to).toFixed(1), width: wide.toFixed(1), height: high.toFixed(1) };
      const part = s("rect", { class: `fill-${look}`, ...place });
      from = to;
      return part;
    }));
}

/** Return the width of a chart in pixels. Charts are never scaled, so that text keeps its size. */
function chartWidth() {
  const page = document.documentElement.clientWidth;
  return page < 1000 ? Math.max(260, page - 68) : (Math.min(page, 1680) - 48 - 34 - 28) / 2;
}

function niceTime(most) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000];
  return [...steps, 60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000].find((one) => one >= most) ?? most;
}

function niceBytes(most) {
  return Math.max(64, 2 ** Math.ceil(Math.log2(Math.max(1, most))));
}
