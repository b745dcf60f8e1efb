// Charts: axes, the arena over time, and the time of groups.

/** Round numbers of an axis from 0 to `end`. */
function ticks(end, about) {
  if (!(end > 0)) return [0];
  const rough = end / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((size) => size >= rough);
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, n) => n * step);
}

/** Ticks at multiples of a power of two. */
function byteTicks(end, about) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(end / about)));
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, n) => n * step);
}

/** A chart that is drawn for the width it has, again whenever that changes; it may be wider, and scrolls then. */
function redrawn(label, draw) {
  const holder = h("div", { class: "chart" });
  const element = scrolling(holder, label);
  const room = element.firstChild;
  const enter = roving(holder);
  let width = 0;
  const start = () => {
    width = room.clientWidth || 900;
    holder.replaceChildren(draw(width));
    if (holder.querySelector("[data-stop]")) enter(0);
  };
  new ResizeObserver(() => {
    if (width && room.clientWidth && room.clientWidth !== width) start();
  }).observe(room);
  // The first drawing waits for the holder to have a place in the page.
  return { element, start };
}

/** Steps are at least so wide, and values at least so high: what is smaller could neither be seen nor pointed at. */
const [leastStep, leastValue] = [9, 7];

/**
 * Heights of byte offsets: in proportion, except that the stretches between neighbouring borders of values have a
 * least height. Gives the height of all and where an offset is.
 */
function stretched(rects, size, height) {
  const ends = rects.flatMap((rect) => [rect.offset, rect.offset + rect.len]);
  const borders = [...new Set([0, size, ...ends])].sort((a, b) => a - b);
  const parts = borders.slice(1).map((end, n) => Math.max(leastValue, (height * (end - borders[n])) / size));
  const tops = [0];
  parts.forEach((part) => tops.push(tops[tops.length - 1] + part));
  const at = (offset) => {
    const n = Math.max(0, borders.findLastIndex((border) => border <= offset));
    if (n === parts.length) return tops[n];
    return tops[n] + (parts[n] * (offset - borders[n])) / (borders[n + 1] - borders[n]);
  };
  const isToScale = borders.slice(1).every((end, n) => (height * (end - borders[n])) / size >= leastValue);
  return { at, total: tops[tops.length - 1], isToScale };
}

/** Where intermediate values lie in the arena, step by step. */
function arenaMap(entry, facts, show) {
  const { allocations: rects, bytes: size } = entry.arena;
  const n = facts.steps.length;
  // A value that another one takes the place of ends where that begins.
  const taken = new Set(rects.filter((rect) => rect.over !== null).map((rect) => rect.over));
  const ends = (rect) => rect.last + (taken.has(rect.value) ? 0 : 1);
  const lives = (rect, step) => rect.first <= step && step < ends(rect);
  const live = facts.steps.map((_, step) => rects.reduce((sum, rect) => sum + (lives(rect, step) ? rect.len : 0), 0));
  const peak = live.indexOf(Math.max(...live));
  const scale = stretched(rects, size, 240);
  const chart = redrawn("Arena over time", (room) => {
    const [left, margin, top] = [66, 12, 8];
    const [under, below] = [38, 56];
    const width = Math.max(room, left + margin + leastStep * n);
    const w = width - left - margin;
    const x = (step) => left + (w * step) / n;
    const y = (offset) => top + scale.total - scale.at(offset);
    const lineTop = top + scale.total + under;
    const lineY = (value) => lineTop + below - (below * value) / size;
    const labels = ticks(n, Math.max(2, w / 90)).filter((step) => Number.isInteger(step) && step < n);
    const rectangle = (rect) => {
      const value = facts.values[rect.value];
      const [x0, x1, y0, y1] = [x(rect.first), x(ends(rect)), y(rect.offset + rect.len), y(rect.offset)];
      const lines = () => [
        named(facts.values, rect.value),
        `${value.op}, ${bytes(rect.len)} at offset ${bytes(rect.offset)}`,
        rect.first === rect.last ? `lives in step ${rect.first} only` : `lives from step ${rect.first} to step ${rect.last}`,
        rect.over !== null && `takes the place of %${rect.over}, which dies as it is written`,
        value.at,
      ];
      return s("rect", {
        class: `life ${facts.steps[rect.first].kind}`, "data-arena": rect.value, "data-stop": true, tabindex: -1,
        x: round(x0 + 0.5), y: round(y0 + 0.5), rx: 1.5,
        width: round(Math.max(1, x1 - x0 - 1)), height: round(Math.max(1, y1 - y0 - 1)),
        "aria-label": spoken(lines), ...explained(lines), ...pressed(() => show(rect.first)),
      });
    };
    const level = (value, step) => `${step ? "L" : "M"}${round(x(step))} ${round(lineY(value))}H${round(x(step + 1))}`;
    const line = live.map(level).join("");
    const right = { x: left + Math.min(w, room - left - margin), "text-anchor": "end" };
    // Of ticks that fall together in a stretched scale the first is written.
    const isFree = (kept, offset) => kept.length === 0 || y(kept[kept.length - 1]) - y(offset) >= 14;
    const marks = byteTicks(size, 8).reduce((kept, offset) => (isFree(kept, offset) ? [...kept, offset] : kept), []);
    return s("svg", { width, height: lineTop + below + 36, class: "plot", role: "group", "aria-label": "Arena over time" },
      marks.map((offset) => [
        s("line", { class: "grid", x1: left, x2: left + w, y1: y(offset), y2: y(offset) }),
        s("text", { x: left - 8, y: y(offset) + 4, "text-anchor": "end" }, bytes(offset))]),
      rects.map(rectangle),
      s("text", { class: "title", x: left, y: lineTop - 10 }, `live bytes: at most ${bytes(live[peak])}, in step ${peak}`),
      s("line", { class: "grid", x1: left, x2: left + w, y1: lineY(0), y2: lineY(0) }),
      s("text", { x: left - 8, y: lineY(size) + 4, "text-anchor": "end" }, bytes(size)),
      s("text", { x: left - 8, y: lineY(0) + 4, "text-anchor": "end" }, "0 B"),
      s("line", { class: "grid", x1: left, x2: left + w, y1: lineY(size), y2: lineY(size) }),
      s("path", { class: "area", d: `${line}V${round(lineY(0))}H${left}Z` }),
      s("path", { class: "curve", d: line }),
      labels.map((step) => s("text", { x: x(step + 0.5), y: lineTop + below + 16, "text-anchor": "middle" }, step)),
      s("text", { class: "title", ...right, y: lineTop + below + 32 }, "step of the plan"));
  });
  return { ...chart, isToScale: scale.isToScale };
}

/** Where the time of a call goes: one row per measured unit, the longest first or in order. */
function timings(entry, facts, show) {
  const { calls, units } = facts;
  if (!calls) {
    return empty("No call of this entry was measured. Turn profiling on (", h("code", {}, "set_profiling(true)"),
      "), call the function a few times, and write the report again.");
  }
  const link = (n) => h("button", { type: "button", class: "link", onclick: () => show(n) },
    h("i", { class: `swatch ${facts.steps[n].kind}` }), h("span", { class: "ordinal" }, n), beginning(facts.steps[n].label, 44));
  const places = (lines) => lines.length > 0 && h("div", { class: "at" },
    lines.slice(0, 2).map((line, n) => [n > 0 && ", ", place(line)]),
    lines.length > 2 && ` and ${several(lines.length - 2, "more line")}`);
  const bar = (unit) => {
    const style = `width:${(100 * unit.time.share) / facts.hottest}%`;
    return h("span", { class: "track" }, h("span", { class: `fill ${facts.steps[unit.first].kind}`, style }));
  };
  const row = (unit) => {
    const steps = facts.steps.slice(unit.first, unit.end).map((_, k) => unit.first + k);
    const lines = [...new Set(steps.flatMap((n) => facts.steps[n].lines))];
    const rest = h("details", {}, h("summary", {}, `and ${steps.length - 3} more`), steps.slice(3).map(link));
    return { "data-unit": unit.first, cells: [
      [steps.slice(0, 3).map(link), steps.length > 3 && rest, places(lines)],
      bar(unit), percent(unit.time.share), time(unit.time.mean), time(unit.time.min), time(unit.time.max),
    ] };
  };
  const columns = [{ title: "group", class: "text" }, { title: "", class: "bar" }, ...numbers("share", "mean", "min", "max")];
  const holder = h("div", {});
  const sort = (byTime) => {
    const sorted = byTime ? [...units].sort((a, b) => b.time.share - a.time.share) : units;
    const sheet = table({ label: "Time per group", columns, rows: sorted.map(row), kind: "timings" });
    holder.replaceChildren(...[sheet].flat());
  };
  sort(true);
  const choice = (label, byTime) => {
    const radio = h("input", { type: "radio", name: `sort-${entry.signature.id}`, checked: byTime, onchange: () => sort(byTime) });
    return h("label", {}, radio, label);
  };
  const mean = time(units.reduce((sum, unit) => sum + unit.time.mean, 0));
  return [
    about(`${several(calls, "call")} measured, ${mean} in groups per call${calls > 1 ? " after the first" : ""}.`,
      " Small neighbours run as one function and are measured together."),
    h("div", { class: "tools", role: "radiogroup", "aria-label": "Order" }, choice("longest first", true), choice("in order", false)),
    holder,
  ];
}
