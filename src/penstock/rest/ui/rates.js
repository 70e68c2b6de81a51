// Rates from cumulative metrics. Rows are divided by the subtask's own time (busy, backpressured and idle), because
// metrics are reported twice a second, at other times than the requests of this page.

const LEAST_MS = 400;

export class RateMeter {
  constructor() {
    this.generation = null;
    this.parallelism = null;
    this.subtasks = new Map();
  }

  /**
   * `graph`: resource of the REST service. Returns a map from vertex id to `{subtasks, busy, backpressured, idle,
   * busiest, rowsIn, rowsOut}`. Shares are in [0, 1], rates in rows per second. The first values are means since the
   * start of the generation.
   */
  read(graph) {
    if (graph.generation !== this.generation || graph.parallelism !== this.parallelism) this.subtasks.clear();
    this.generation = graph.generation;
    this.parallelism = graph.parallelism;
    return new Map(graph.vertices.map((vertex) => [vertex.id, this.vertex(vertex)]));
  }

  vertex(vertex) {
    const subtasks = vertex.subtasks.map((figures) => ({ figures, ...this.subtask(`${vertex.id}/${figures.index}`, figures) }));
    const mean = (name) => (subtasks.length ? sum(subtasks, name) / subtasks.length : null);
    return {
      subtasks,
      busy: mean("busy"),
      backpressured: mean("backpressured"),
      idle: mean("idle"),
      busiest: subtasks.reduce((most, one) => (most === null || one.busy > most.busy ? one : most), null),
      rowsIn: sum(subtasks, "rowsIn"),
      rowsOut: sum(subtasks, "rowsOut"),
    };
  }

  subtask(key, figures) {
    const lived = figures.busy_ms + figures.backpressured_ms + figures.idle_ms;
    const known = this.subtasks.get(key);
    const restarted = known && lived < known.lived;
    const before = known && !restarted ? known : { lived: 0, figures: NOTHING, now: null };
    const elapsed = lived - before.lived;
    if (before.now && elapsed < LEAST_MS) return before.now;
    const part = (name) => (elapsed > 0 ? (figures[name] - before.figures[name]) / elapsed : 0);
    const now = {
      busy: part("busy_ms"),
      backpressured: part("backpressured_ms"),
      idle: elapsed > 0 ? part("idle_ms") : 1,
      rowsIn: part("rows_in") * 1000,
      rowsOut: part("rows_out") * 1000,
    };
    this.subtasks.set(key, { lived, figures, now });
    return now;
  }
}

const NOTHING = { busy_ms: 0, backpressured_ms: 0, idle_ms: 0, rows_in: 0, rows_out: 0 };

function sum(list, name) {
  return list.reduce((total, one) => total + one[name], 0);
}

/**
 * Return the bottleneck, or null: the most downstream vertex with a busy subtask whose producers are backpressured.
 */
export function bottleneck(graph, rates) {
  const names = new Map(graph.vertices.map((vertex) => [vertex.id, vertex.name]));
  const waiting = (id) => (rates.get(id)?.backpressured ?? 0) > 0.2;
  for (const vertex of [...graph.vertices].reverse()) {
    const now = rates.get(vertex.id);
    const behind = graph.edges.filter((edge) => edge.consumer === vertex.id).map((edge) => edge.producer);
    if (!now?.busiest || now.busiest.busy < 0.5 || !behind.some(waiting)) continue;
    const producers = [...new Set(behind.filter(waiting))].map((id) => names.get(id));
    const { busy, figures } = now.busiest;
    return { vertex: vertex.id, name: vertex.name, busy, index: figures.index, even: now.busy > 0.8 * busy, producers };
  }
  return null;
}
