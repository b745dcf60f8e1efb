// Bars, the arena over time, and the hit rate over time.

/** Parts of a whole as one bar, with a line that says what they are. */
function stages(times) {
  const names = ["trace", "optimise", "plan", "compile"];
  const total = names.reduce((sum, name) => sum + times[name], 0);
  const part = (name) => h("span", { class: `stage ${name}`, style: `flex-grow:${total ? times[name] / total : 0}`, ...explained(() => [`${name} ${time(times[name])}`, `${percent(times[name] / total)} of ${time(total)}`]) });
  const key = (name) => h("li", {}, h("i", { class: `swatch stage ${name}` }), `${name} ${time(times[name])}`);
  return { bar: h("div", { class: "stages" }, names.map(part)), keys: h("ul", { class: "legend" }, names.map(key)), total };
}

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

function redrawn(draw) {
  const holder = h("div", { class: "chart" });
  let width = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth && holder.clientWidth !== width) {
      width = holder.clientWidth;
      holder.replaceChildren(draw(width));
    }
  }).observe(holder);
  // The first drawing waits for the holder to have a place in the page.
  holder.start = () => {
    width = holder.clientWidth || 900;
    holder.replaceChildren(draw(width));
  };
  return holder;
}

/** Where intermediate values lie in the arena, step by step. */
function arenaMap(entry, facts, show) {
  const { rects, bytes: size } = entry.arena;
  const n = facts.steps.length;
  // A value that another one takes the place of ends where that begins.
  const taken = new Set(rects.filter((rect) => rect.over !== null).map((rect) => rect.over));
  const ends = (rect) => rect.to + (taken.has(rect.value) ? 0 : 1);
  const live = facts.steps.map((_, step) => rects.reduce((sum, rect) => sum + (rect.from <= step && step < ends(rect) ? rect.len : 0), 0));
  const peak = live.indexOf(Math.max(...live));
  return redrawn((width) => {
    const [left, right, top, height] = [64, 12, 8, 260];
    const [under, below] = [38, 54];
    const w = width - left - right;
    const x = (step) => left + (w * step) / n;
    const y = (offset) => top + height - (height * offset) / size;
    const lineTop = top + height + under;
    const lineY = (value) => lineTop + below - (below * value) / size;
    const labels = ticks(n, Math.max(2, Math.min(12, width / 90))).filter((step) => Number.isInteger(step) && step < n);
    const rectangle = (rect) => {
      const value = facts.values[rect.value];
      const [x0, x1, y0, y1] = [x(rect.from), x(ends(rect)), y(rect.offset + rect.len), y(rect.offset)];
      const lines = () => [
        named(facts.values, rect.value),
        `${value.op}, ${bytes(rect.len)} at offset ${bytes(rect.offset)}`,
        rect.from === rect.to ? `lives in step ${rect.from} only` : `lives from step ${rect.from} to step ${rect.to}`,
        rect.over !== null && `takes the place of %${rect.over}, which dies as it is written`,
        value.at,
      ];
      return s("rect", {
        class: `life ${facts.steps[rect.from].kind}`, "data-arena": rect.value, tabindex: 0, role: "button", "aria-label": named(facts.values, rect.value),
        x: round(x0), y: round(y0), width: round(Math.max(1, x1 - x0)), height: round(Math.max(1, y1 - y0)),
        ...explained(lines), ...pressed(() => show(rect.from)),
      });
    };
    const line = live.map((value, step) => `${step ? "L" : "M"}${round(x(step))} ${round(lineY(value))}H${round(x(step + 1))}`).join("");
    return s("svg", { width, height: lineTop + below + 36, class: "plot", role: "group", "aria-label": "Arena over time" },
      byteTicks(size, 5).map((offset) => [
        s("line", { class: "grid", x1: left, x2: left + w, y1: y(offset), y2: y(offset) }),
        s("text", { x: left - 8, y: y(offset) + 4, "text-anchor": "end" }, bytes(offset))]),
      rects.map(rectangle),
      s("text", { class: "title", x: left, y: lineTop - 10 }, `live bytes: at most ${bytes(live[peak])}, in step ${peak}`),
      s("line", { class: "grid", x1: left, x2: left + w, y1: lineY(0), y2: lineY(0) }),
      s("text", { x: left - 8, y: lineY(size) + 4, "text-anchor": "end" }, bytes(size)),
      s("text", { x: left - 8, y: lineY(0) + 4, "text-anchor": "end" }, "0 B"),
      s("line", { class: "grid", x1: left, x2: left + w, y1: lineY(size), y2: lineY(size) }),
      s("path", { class: "area", d: `${line}V${lineY(0)}H${left}Z` }),
      s("path", { class: "curve", d: line }),
      labels.map((step) => s("text", { x: x(step + 0.5), y: lineTop + below + 16, "text-anchor": "middle" }, step)),
      s("text", { class: "title", x: left + w, y: lineTop + below + 32, "text-anchor": "end" }, "step of the plan"));
  });
}

/** The fraction of calls so far that hit, call by call; every miss is marked. */
function hitRate(stats, misses) {
  const points = [...misses.map((miss) => ({ hits: miss.hits, misses: miss.number, miss })), { hits: stats.hits, misses: stats.misses, miss: null }];
  const calls = stats.hits + stats.misses;
  const rate = (hits, missed) => (hits + missed ? hits / (hits + missed) : 0);
  return redrawn((width) => {
    const [left, right, top, height] = [52, 14, 10, 150];
    const w = width - left - right;
    const x = (n) => left + (w * n) / Math.max(1, calls);
    const y = (fraction) => top + height * (1 - fraction);
    let path = "";
    let last = null;
    for (const point of points) {
      const to = point.hits + point.misses;
      if (last === null) {
        path = `M${round(x(to))} ${round(y(rate(point.hits, point.misses)))}`;
      } else {
        // Between two misses all calls hit: the rate climbs along a hyperbola.
        const from = last.hits + last.misses;
        const climbed = point.miss ? to - 1 : to;
        const n = Math.min(24, Math.max(0, climbed - from));
        for (let k = 1; k <= n; k += 1) {
          const at = from + ((climbed - from) * k) / n;
          path += `L${round(x(at))} ${round(y(rate(at - last.misses, last.misses)))}`;
        }
        path += `L${round(x(to))} ${round(y(rate(point.hits, point.misses)))}`;
      }
      last = point;
    }
    const marks = points.filter((point) => point.miss).map((point) => s("circle", {
      class: "miss", cx: round(x(point.hits + point.misses)), cy: round(y(rate(point.hits, point.misses))), r: 3.5, tabindex: 0,
      ...explained(() => [`miss at call ${count(point.hits + point.misses)}`, point.miss.reason, shortened(point.miss.arguments, 120)]),
    }));
    return s("svg", { width, height: top + height + 40, class: "plot", role: "group", "aria-label": "Hit rate over time" },
      [0, 0.25, 0.5, 0.75, 1].map((fraction) => [
        s("line", { class: "grid", x1: left, x2: left + w, y1: y(fraction), y2: y(fraction) }),
        s("text", { x: left - 8, y: y(fraction) + 4, "text-anchor": "end" }, percent(fraction, 0))]),
      ticks(calls, Math.max(2, Math.min(8, width / 110))).filter(Number.isInteger).map((n) =>
        s("text", { x: x(n), y: top + height + 18, "text-anchor": n === 0 ? "start" : x(n) > left + w - 30 ? "end" : "middle" }, count(n))),
      s("path", { class: "curve", d: path, fill: "none" }),
      marks,
      s("text", { class: "title", x: left + w, y: top + height + 36, "text-anchor": "end" }, "calls"));
  });
}

/** Where the time of a call goes: one row per measured unit, the longest first or in order. */
function timings(entry, facts, show) {
  const { units } = facts;
  if (!entry.profile || !entry.profile.calls) {
    return [h("p", { class: "quiet" }, "No call of this entry was measured. Turn profiling on (", h("code", {}, "set_profiling(true)"), "), call the function a few times, and write the report again.")];
  }
  const holder = h("tbody", {});
  const row = (unit) => {
    const steps = facts.steps.slice(unit.first, unit.end);
    const title = steps.map((step, k) => h("button", { type: "button", class: "link", onclick: () => show(unit.first + k) }, h("i", { class: `swatch ${step.kind}` }), `${unit.first + k} ${beginning(step.label, 40)}`));
    const lines = [...new Set(steps.flatMap((step) => step.lines))];
    return h("tr", { "data-unit": unit.first },
      h("td", {}, title.flatMap((part, k) => (k ? [" ", part] : [part])), h("div", { class: "at" }, lines.slice(0, 3).join(", "), lines.length > 3 && ` and ${lines.length - 3} more lines`)),
      h("td", { class: "bar" }, h("span", { style: `width:${(100 * unit.time.share) / facts.hottest}%`, class: `fill ${steps[0].kind}` })),
      h("td", { class: "number" }, percent(unit.time.share)),
      h("td", { class: "number" }, time(unit.time.mean)),
      h("td", { class: "number" }, time(unit.time.min)),
      h("td", { class: "number" }, time(unit.time.max)));
  };
  const sort = (byTime) => {
    const sorted = byTime ? [...units].sort((a, b) => b.time.share - a.time.share) : units;
    holder.replaceChildren(...sorted.map(row));
  };
  sort(true);
  const choice = (label, byTime) => h("label", {}, h("input", { type: "radio", name: `sort-${entry.id}`, checked: byTime, onchange: () => sort(byTime) }), label);
  const mean = units.reduce((sum, unit) => sum + unit.time.mean, 0);
  return [
    h("p", {}, `${several(entry.profile.calls, "call")} measured, ${time(mean)} in groups per call. Small neighbours run as one function and are measured together.`),
    h("div", { class: "tools" }, choice("longest first", true), choice("in order", false)),
    h("div", { class: "scroll tall" }, h("table", { class: "timings" },
      h("thead", {}, h("tr", {}, ["group", "", "share", "mean", "min", "max"].map((name, n) => h("th", { class: n > 1 ? "number" : "" }, name)))), holder)),
  ];
}
