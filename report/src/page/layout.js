// Layered drawings: who depends on whom, from top to bottom.

const layerGap = 34;
const nodeGap = 18;
const pointWidth = 2;
/** With more points than this, edges over more than `farSpan` layers go straight. */
const manyPoints = 12000;
const farSpan = 12;

/**
 * Places nodes `{ w, h, isSource }` and bends edges `[from, to]`, with every `from < to`.
 *
 * Layers by longest path; sources move down to their first reader. Edges over several layers pass through points that
 * all edges of one source share, unless there were too many of them. Order within layers by the mean of the neighbours,
 * positions by least squares.
 */
function layered(nodes, edges) {
  if (nodes.length === 0) return { placed: [], paths: [], isFar: [], w: 0, h: 0 };
  const layer = nodes.map(() => 0);
  const readers = nodes.map(() => []);
  for (const [from, to] of edges) readers[from].push(to);
  nodes.forEach((_, id) => readers[id].forEach((to) => { layer[to] = Math.max(layer[to], layer[id] + 1); }));
  nodes.forEach((node, id) => {
    if (node.isSource && readers[id].length) layer[id] = Math.min(...readers[id].map((to) => layer[to])) - 1;
  });

  const longest = nodes.map((_, id) => Math.max(1, ...readers[id].map((to) => layer[to] - layer[id])) - 1);
  const isCrowded = longest.reduce((sum, points) => sum + points, 0) > manyPoints;
  const isFar = (from, to) => isCrowded && layer[to] - layer[from] > farSpan;

  // Cells: nodes, then the points of long edges.
  const cells = nodes.map((node, id) => ({ w: node.w, layer: layer[id], up: [], down: [], x: 0 }));
  const via = new Map();
  const join = (a, b) => {
    cells[a].down.push(b);
    cells[b].up.push(a);
  };
  nodes.forEach((_, from) => {
    const chain = [from];
    const near = [...new Set(readers[from])].filter((to) => !isFar(from, to));
    for (const to of near.sort((a, b) => layer[a] - layer[b])) {
      while (chain.length < layer[to] - layer[from]) {
        cells.push({ w: pointWidth, layer: layer[from] + chain.length, up: [], down: [], x: 0 });
        join(chain[chain.length - 1], cells.length - 1);
        chain.push(cells.length - 1);
      }
      const used = chain.slice(0, layer[to] - layer[from]);
      join(used[used.length - 1], to);
      via.set(`${from} ${to}`, used);
    }
  });

  const layers = [];
  cells.forEach((cell, id) => (layers[cell.layer] ||= []).push(id));
  order(cells, layers);
  align(cells, layers);

  const heights = layers.map((ids) => Math.max(...ids.map((id) => (nodes[id] ? nodes[id].h : 0)), 0));
  const tops = [];
  heights.reduce((top, height) => {
    tops.push(top);
    return top + height + layerGap;
  }, 0);
  const left = Math.min(...cells.map((cell) => cell.x - cell.w / 2));
  const right = Math.max(...cells.map((cell) => cell.x + cell.w / 2));
  const placed = nodes.map((node, id) => ({
    x: cells[id].x - node.w / 2 - left,
    y: tops[layer[id]] + (heights[layer[id]] - node.h) / 2,
  }));
  const path = ([from, to]) => {
    const points = (via.get(`${from} ${to}`) || []).slice(1).map((id) => {
      const top = tops[cells[id].layer];
      return [cells[id].x - left, top, top + heights[cells[id].layer]];
    });
    return curve(
      [placed[from].x + nodes[from].w / 2, placed[from].y + nodes[from].h],
      points,
      [placed[to].x + nodes[to].w / 2, placed[to].y],
    );
  };
  const bottom = tops[tops.length - 1] + heights[heights.length - 1];
  return { placed, paths: edges.map(path), isFar: edges.map(([from, to]) => isFar(from, to)), w: right - left, h: bottom };
}

function curve(start, points, end) {
  let text = `M${round(start[0])} ${round(start[1])}`;
  let [x, y] = start;
  const bend = (toX, toY) => {
    const middle = round((y + toY) / 2);
    text += `C${round(x)} ${middle} ${round(toX)} ${middle} ${round(toX)} ${round(toY)}`;
    [x, y] = [toX, toY];
  };
  for (const [pointX, top, bottom] of points) {
    bend(pointX, top);
    text += `V${round(bottom)}`;
    y = bottom;
  }
  bend(end[0], end[1]);
  return text;
}

function round(x) {
  return Math.round(10 * x) / 10;
}

function order(cells, layers) {
  const place = () => layers.forEach((ids) => ids.forEach((id, n) => { cells[id].rank = n; }));
  const mean = (ids, otherwise) =>
    ids.length ? ids.reduce((sum, id) => sum + (cells[id].rank + 0.5) / layers[cells[id].layer].length, 0) / ids.length : otherwise;
  place();
  let best = layers.map((ids) => [...ids]);
  let fewest = crossings(cells, layers);
  for (let sweep = 0; sweep < 16 && fewest > 0; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const ids of down ? layers : [...layers].reverse()) {
      const wish = new Map(ids.map((id) => {
        const own = (cells[id].rank + 0.5) / ids.length;
        return [id, mean(down ? cells[id].up : cells[id].down, own)];
      }));
      ids.sort((a, b) => wish.get(a) - wish.get(b) || cells[a].rank - cells[b].rank);
      ids.forEach((id, n) => { cells[id].rank = n; });
    }
    const found = crossings(cells, layers);
    if (found < fewest) {
      fewest = found;
      best = layers.map((ids) => [...ids]);
    }
  }
  best.forEach((ids, n) => { layers[n] = ids; });
  place();
}

/** How often edges between neighbouring layers cross. */
function crossings(cells, layers) {
  let total = 0;
  for (const ids of layers) {
    const ends = ids.flatMap((id) => cells[id].down.map((to) => cells[to].rank).sort((a, b) => a - b));
    const width = Math.max(0, ...ends) + 1;
    const tree = new Array(width + 1).fill(0);
    ends.forEach((end, n) => {
      let notGreater = 0;
      for (let k = end + 1; k > 0; k -= k & -k) notGreater += tree[k];
      total += n - notGreater;
      for (let k = end + 1; k <= width; k += k & -k) tree[k] += 1;
    });
  }
  return total;
}

function align(cells, layers) {
  for (const ids of layers) {
    let x = 0;
    for (const id of ids) {
      cells[id].x = x + cells[id].w / 2;
      x += cells[id].w + nodeGap;
    }
    for (const id of ids) cells[id].x -= x / 2;
  }
  // Points of long edges pull harder than nodes, so that such edges run straight.
  const isPoint = (id) => cells[id].w === pointWidth;
  const pull = (id, other) => (isPoint(id) && isPoint(other) ? 8 : 1);
  const near = (id, others) => {
    const weight = others.reduce((sum, other) => sum + pull(id, other), 0);
    return weight ? others.reduce((sum, other) => sum + pull(id, other) * cells[other].x, 0) / weight : cells[id].x;
  };
  const sweeps = 24;
  for (let sweep = 0; sweep < sweeps; sweep += 1) {
    for (const ids of sweep % 2 ? [...layers].reverse() : layers) {
      const wish = (id) => {
        const one = sweep % 2 ? cells[id].down : cells[id].up;
        return near(id, sweep < sweeps / 2 && one.length ? one : [...cells[id].up, ...cells[id].down]);
      };
      spread(ids.map((id) => cells[id]), ids.map(wish), ids.map((id) => (isPoint(id) ? 4 : 1)));
    }
  }
}

/** Puts cells as near to their wishes as their order and widths allow, by least squares. */
function spread(row, wishes, weights) {
  let offset = 0;
  const offsets = row.map((cell, n) => {
    if (n > 0) offset += (row[n - 1].w + cell.w) / 2 + nodeGap;
    return offset;
  });
  const blocks = [];
  wishes.forEach((wish, n) => {
    let block = { sum: weights[n] * (wish - offsets[n]), weight: weights[n], count: 1 };
    while (blocks.length) {
      const last = blocks[blocks.length - 1];
      if (last.sum / last.weight <= block.sum / block.weight) break;
      block = { sum: block.sum + last.sum, weight: block.weight + last.weight, count: block.count + last.count };
      blocks.pop();
    }
    blocks.push(block);
  });
  let n = 0;
  for (const block of blocks) {
    for (let k = 0; k < block.count; k += 1, n += 1) row[n].x = block.sum / block.weight + offsets[n];
  }
}
