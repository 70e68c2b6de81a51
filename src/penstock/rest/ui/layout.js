// Layered layout of a dataflow (after Sugiyama): layers, an order within layers with few crossings, and positions that
// keep lines straight. Pure functions of numbers.

const SWEEPS = 8;

/**
 * `vertices`: `[{id}]`; `edges`: `[{id, producer, consumer}]`; `size`: `{width, height}` of a box; `gap`: `{along,
 * across}`; `down`: rows flow downwards instead of to the right.
 * Returns `{width, height, boxes: Map(id -> {x, y}), lines: Map(edge id -> [{x, y}, ...])}`; a line runs from the
 * producer's side to the consumer's and passes between the boxes of the layers it crosses.
 */
export function layered(vertices, edges, size, gap, down) {
  const layerOf = assignLayers(vertices, edges);
  const { layers, chains } = withBends(vertices, edges, layerOf);
  const neighbours = link(chains);
  reorder(layers, neighbours);
  const along = down ? size.height + gap.along : size.width + gap.along;
  const extent = (item) => (item.bend ? gap.across : down ? size.width : size.height);
  const centre = place(layers, neighbours, extent, gap.across);
  return draw({ layers, chains, centre, along, size, gap, down });
}

function assignLayers(vertices, edges) {
  const layer = new Map(vertices.map((vertex) => [vertex.id, 0]));
  for (let round = 0; round < vertices.length; round += 1) {
    let moved = false;
    for (const { producer, consumer } of edges) {
      if (layer.get(consumer) <= layer.get(producer)) {
        layer.set(consumer, layer.get(producer) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  // A source is placed directly in front of its first consumer, which avoids long lines.
  for (const { id } of vertices) {
    const fed = edges.some((edge) => edge.consumer === id);
    const readers = edges.filter((edge) => edge.producer === id).map((edge) => layer.get(edge.consumer));
    if (!fed && readers.length) layer.set(id, Math.min(...readers) - 1);
  }
  return layer;
}

function withBends(vertices, edges, layerOf) {
  const layers = [];
  const into = (item, layer) => (layers[layer] ??= []).push(item);
  const items = new Map(vertices.map((vertex) => [vertex.id, { id: vertex.id, layer: layerOf.get(vertex.id) }]));
  for (const item of items.values()) into(item, item.layer);
  const chains = edges.map((edge) => {
    const from = items.get(edge.producer);
    const to = items.get(edge.consumer);
    const chain = [from];
    for (let layer = from.layer + 1; layer < to.layer; layer += 1) {
      const bend = { bend: true, layer };
      into(bend, layer);
      chain.push(bend);
    }
    chain.push(to);
    return { edge, chain };
  });
  return { layers, chains };
}

function link(chains) {
  const before = new Map();
  const after = new Map();
  const add = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
  for (const { chain } of chains) {
    for (let n = 1; n < chain.length; n += 1) {
      add(after, chain[n - 1], chain[n]);
      add(before, chain[n], chain[n - 1]);
    }
  }
  return { before: (item) => before.get(item) ?? [], after: (item) => after.get(item) ?? [] };
}

function reorder(layers, { before, after }) {
  const rank = new Map();
  const number = () => layers.forEach((layer) => layer.forEach((item, n) => rank.set(item, n)));
  number();
  let best = layers.map((layer) => [...layer]);
  let fewest = crossings(layers, after, rank);
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) {
      const near = forward ? before : after;
      const wanted = new Map(layer.map((item) => [item, mean(near(item).map((one) => rank.get(one))) ?? rank.get(item)]));
      layer.sort((a, b) => wanted.get(a) - wanted.get(b));
      layer.forEach((item, n) => rank.set(item, n));
    }
    const now = crossings(layers, after, rank);
    if (now < fewest) {
      fewest = now;
      best = layers.map((layer) => [...layer]);
    }
  }
  best.forEach((layer, n) => layers.splice(n, 1, layer));
}

function crossings(layers, after, rank) {
  let total = 0;
  for (const layer of layers) {
    const ends = layer.flatMap((item) => after(item).map((one) => rank.get(one)).sort((a, b) => a - b));
    for (let n = 0; n < ends.length; n += 1) for (let m = n + 1; m < ends.length; m += 1) if (ends[n] > ends[m]) total += 1;
  }
  return total;
}

/** Return the center of each item across the flow: as close to the mean of its neighbors as its layer allows. */
function place(layers, { before, after }, extent, gap) {
  const centre = new Map();
  for (const layer of layers) spread(layer, layer.map(() => 0), extent, gap, centre);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) {
      const wanted = layer.map((item) => {
        const near = forward ? before(item) : after(item);
        return mean(near.map((one) => centre.get(one))) ?? centre.get(item);
      });
      spread(layer, wanted, extent, gap, centre);
    }
  }
  const least = Math.min(...layers.flat().map((item) => centre.get(item) - extent(item) / 2));
  for (const [item, at] of centre) centre.set(item, at - least);
  return centre;
}

/** Least-squares positions that keep the order and the gaps. Overlapping neighbors are pooled and share the error. */
function spread(layer, wanted, extent, gap, centre) {
  let offset = 0;
  const offsets = layer.map((item, n) => {
    if (n > 0) offset += extent(layer[n - 1]) / 2 + gap + extent(item) / 2;
    return offset;
  });
  const pools = [];
  layer.forEach((item, n) => {
    pools.push({ sum: wanted[n] - offsets[n], size: 1 });
    while (pools.length > 1 && level(pools.at(-2)) > level(pools.at(-1))) {
      const last = pools.pop();
      pools.at(-1).sum += last.sum;
      pools.at(-1).size += last.size;
    }
  });
  const levels = pools.flatMap((pool) => Array(pool.size).fill(level(pool)));
  layer.forEach((item, n) => centre.set(item, levels[n] + offsets[n]));
}

const level = (pool) => pool.sum / pool.size;

function mean(numbers) {
  return numbers.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : null;
}

function draw({ layers, chains, centre, along, size, gap, down }) {
  const at = (forth, across) => (down ? { x: across, y: forth } : { x: forth, y: across });
  const depth = down ? size.height : size.width;
  const breadth = down ? size.width : size.height;
  const boxes = new Map();
  let widest = 0;
  for (const item of layers.flat()) {
    const middle = centre.get(item);
    if (!item.bend) boxes.set(item.id, at(item.layer * along, middle - breadth / 2));
    widest = Math.max(widest, middle + (item.bend ? gap.across : breadth) / 2);
  }
  const lines = new Map();
  for (const { edge, chain } of chains) {
    lines.set(edge.id, chain.flatMap((item, n) => {
      const start = item.layer * along;
      const ends = [at(start, centre.get(item)), at(start + depth, centre.get(item))];
      return n === 0 ? [ends[1]] : n === chain.length - 1 ? [ends[0]] : ends;
    }));
  }
  const long = Math.max(0, layers.length * along - gap.along);
  return { width: down ? widest : long, height: down ? long : widest, boxes, lines };
}
