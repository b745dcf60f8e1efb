// Hits and misses: the rate from the first call on, why calls missed, and the log.

const reasons = {
  first_call: { name: "first call", family: "first", about: "the function had never been traced" },
  new_shape: { name: "new shape", family: "changed", about: "a tensor has another shape" },
  new_dtype: { name: "new dtype", family: "changed", about: "a tensor has another dtype" },
  new_device: { name: "new device", family: "changed", about: "a tensor lies on another device" },
  new_static: { name: "new static value", family: "changed", about: "a static value changed" },
  new_structure: { name: "new structure", family: "changed", about: "a length, a variant or an option changed" },
  mode_changed: { name: "mode changed", family: "changed", about: "a mode that changes code was switched" },
  evicted: { name: "evicted", family: "evicted", about: "there was an entry, and it had to make room" },
  cleared: { name: "cleared", family: "cleared", about: "there was an entry before the cache was cleared" },
};
const failed = { name: "failed", family: "failed", about: "the call failed, and no entry was made" };

/** Shapes as well as colours, so that nobody needs to tell colours apart. */
const signs = {
  first: "M5 1A4 4 0 1 1 5 9A4 4 0 1 1 5 1Z",
  changed: "M5 0.6L9.6 8.8H0.4Z",
  evicted: "M5 0.2L9.8 5L5 9.8L0.2 5Z",
  cleared: "M1.2 1.2H8.8V8.8H1.2Z",
  failed: "M2 0.4L5 3.4L8 0.4L9.6 2L6.6 5L9.6 8L8 9.6L5 6.6L2 9.6L0.4 8L3.4 5L0.4 2Z",
};

function reasonOf(miss) {
  return miss.error === null ? reasons[miss.reason] || { name: miss.reason, family: "changed", about: "" } : failed;
}

function sign(family) {
  const attributes = { class: `sign-key ${family}`, viewBox: "0 0 10 10", width: 10, height: 10, "aria-hidden": "true" };
  return s("svg", attributes, s("path", { d: signs[family] }));
}

/** How many misses the log no longer has. */
function forgotten({ stats, misses }) {
  return Math.max(0, stats.misses - misses.length);
}

/** The reasons that occur, each with how often. */
function reasonKeys(misses) {
  const found = new Map();
  for (const miss of misses) {
    const reason = reasonOf(miss);
    found.set(reason.name, { reason, n: (found.get(reason.name)?.n || 0) + 1 });
  }
  return [...found.values()].sort((a, b) => b.n - a.n);
}

/** Rates at some calls, as points `[call, rate]`, from call 1 to the last one. */
function ratePoints(data) {
  const { hits: allHits, misses: allMisses } = data.stats;
  const known = new Map(data.history.map(({ misses, hits }) => [misses, hits]));
  data.misses.forEach((miss) => known.set(miss.number, miss.hits));
  const points = [];
  let [hits, misses] = [0, 0];
  const add = (toHits, toMisses) => {
    [hits, misses] = [toHits, toMisses];
    points.push([hits + misses, hits / (hits + misses)]);
  };
  /** Between two misses all calls hit, and the rate climbs along a hyperbola. */
  const climb = (to) => {
    const [from, n] = [hits, Math.min(32, to - hits)];
    // Steps grow, for the curve is steep at first; the first is one call.
    for (let k = 1; k <= n; k += 1) add(Math.max(from + k, Math.round(from + (to - from) * (k / n) ** 2)), misses);
  };
  for (const [number, at] of [...known].sort((a, b) => a[0] - b[0])) {
    // Threads may finish their misses out of order.
    const then = Math.max(hits, at);
    if (number === misses + 1) climb(then);
    add(then, number);
  }
  climb(Math.max(hits, allHits));
  return { points, calls: allHits + allMisses };
}

/** The fraction of calls so far that hit, call by call; the misses that are remembered are marked. */
function hitRate(data) {
  const { points, calls } = ratePoints(data);
  const chart = redrawn("Hit rate over time", (width) => {
    const [left, right, top, height] = [50, 14, 12, 150];
    const w = width - left - right;
    const x = (call) => left + (calls > 1 ? (w * (call - 1)) / (calls - 1) : w / 2);
    const y = (fraction) => top + height * (1 - fraction);
    const at = ([call, rate]) => `${round(x(call))} ${round(y(rate))}`;
    const mark = (miss) => {
      const call = miss.hits + miss.number;
      const reason = reasonOf(miss);
      const change = (one) => `${one.path} ${one.aspect}: ${shortened(one.old, 60)} → ${shortened(one.new, 60)}`;
      const lines = () => [
        `miss ${count(miss.number)}, at call ${count(call)}: ${reason.name}`, miss.signature.summaries.join(", "),
        ...miss.differences.slice(0, 2).map(change), miss.error,
      ];
      return s("g", {
        class: `mark ${reason.family}`, "data-stop": true, tabindex: -1, role: "img", "aria-label": spoken(lines),
        transform: `translate(${round(x(call) - 5)} ${round(y(miss.hits / call) - 5)})`, ...explained(lines),
      }, s("path", { d: signs[reason.family] }));
    };
    const isTick = (n) => Number.isInteger(n) && n > 1 && x(n) - x(1) > 40;
    const later = ticks(calls, Math.max(2, Math.min(8, width / 110))).filter(isTick);
    const anchor = (n) => (calls === 1 ? "middle" : n === 1 ? "start" : x(n) > left + w - 24 ? "end" : "middle");
    const label = (n) => s("text", { x: x(n), y: top + height + 18, "text-anchor": anchor(n) }, count(n));
    return s("svg", { width, height: top + height + 40, class: "plot", role: "group", "aria-label": "Hit rate over time" },
      [0, 0.25, 0.5, 0.75, 1].map((fraction) => [
        s("line", { class: "grid", x1: left, x2: left + w, y1: y(fraction), y2: y(fraction) }),
        s("text", { x: left - 8, y: y(fraction) + 4, "text-anchor": "end" }, percent(fraction, 0))]),
      [1, ...later].map(label),
      s("path", { class: "curve", d: `M${points.map(at).join("L")}`, "data-from": points[0][0] }),
      points.length === 1 && s("circle", { class: "end", cx: x(points[0][0]), cy: y(points[0][1]), r: 3 }),
      data.misses.map(mark),
      s("text", { class: "title", x: left + w, y: top + height + 35, "text-anchor": "end" }, "calls since the first"));
  });
  const keys = reasonKeys(data.misses).map(({ reason, n }) => [sign(reason.family), `${reason.name} `, h("b", {}, count(n))]);
  const line = [h("i", { class: "swatch line" }), "hits over calls so far"];
  const older = forgotten(data) > 0 && [`${count(forgotten(data))} older misses have no mark`];
  return { element: h("figure", {}, chart.element, legend([line], keys, older && [older])), start: chart.start };
}

function missTable(data) {
  const change = (one) => h("div", { class: "change" }, h("code", {}, one.path), ` ${one.aspect}: `,
    h("span", { class: "old" }, shortened(one.old, 120)), " → ", h("span", { class: "new" }, shortened(one.new, 120)));
  const rest = (changes) => h("details", {}, h("summary", {}, several(changes.length, "more difference")), changes.map(change));
  const row = (miss) => {
    const { bar, total } = stages(miss.times);
    const reason = reasonOf(miss);
    const name = miss.error === null ? reason.name : `${(reasons[miss.reason] || { name: miss.reason }).name}, failed`;
    return { "data-miss": miss.number, cells: [
      count(miss.number),
      ago(Math.max(0, data.age_seconds - miss.since_start_seconds)),
      h("span", { class: "reason", title: reason.about }, sign(reason.family), name),
      [signature(miss.signature, miss.signature.arguments), miss.differences.slice(0, 3).map(change),
        miss.differences.length > 3 && rest(miss.differences.slice(3)), miss.error && h("p", { class: "error" }, miss.error)],
      h("span", { class: "at" }, place(miss.at)),
      [time(total > 0 ? total : miss.wall_seconds), bar],
    ] };
  };
  const columns = [
    ...numbers("miss", "when"), { title: "reason", class: "short" },
    { title: "arguments, and what differs from the nearest known", class: "text" },
    { title: "call", class: "place" }, ...numbers("cost"),
  ];
  const meaning = ({ reason, n }) => [sign(reason.family), h("b", {}, reason.name), `, ${count(n)}: ${reason.about}`];
  const rows = [...data.misses].reverse().map(row);
  return [
    about("Why calls had to trace, newest first.", forgotten(data) > 0 && ` The ${count(forgotten(data))} oldest are forgotten.`),
    legend(reasonKeys(data.misses).map(meaning)),
    table({ label: "Misses", columns, rows, kind: "misses stacked" }),
  ];
}
