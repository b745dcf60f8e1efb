// The groups and values of an entry, in words.

/** The facts of an entry that drawing, tables and details share, worked out once. */
function linked(entry) {
  const { values, steps } = entry;
  const firstCapture = entry.params.length - entry.captures.length;
  entry.params.forEach((value, n) => {
    const capture = n - firstCapture;
    values[value].name = capture < 0 ? entry.signature.tensors[n] || `argument ${n}` : `captured tensor ${capture}`;
  });
  const maker = new Map();
  steps.forEach((step, n) => step.writes.forEach((value) => maker.set(value, n)));
  const units = [];
  entry.launches.forEach(({ steps: { start: first, end } }, n) => {
    const last = units[units.length - 1];
    if (last && first < last.end) {
      last.end = end;
      last.launches.push(n);
    } else {
      units.push({ first, end, launches: [n] });
    }
  });
  const calls = entry.launches.length ? entry.launches[0].count : 0;
  const total = entry.launches.reduce((sum, launch) => sum + launch.mean_seconds, 0);
  for (const unit of units) {
    for (let step = unit.first; step < unit.end; step += 1) steps[step].unit = unit;
    if (calls) {
      const sum = (field) => unit.launches.reduce((sum, n) => sum + entry.launches[n][`${field}_seconds`], 0);
      const [mean, min, max] = [sum("mean"), sum("min"), sum("max")];
      unit.time = { mean, min, max, share: total ? mean / total : 0 };
    }
  }
  const share = (unit) => (unit.time ? unit.time.share : 0);
  const slowest = units.reduce((best, unit) => (best && share(unit) <= share(best) ? best : unit), null);
  return { values, steps, maker, calls, units, hottest: Math.max(slowest ? share(slowest) : 0, 1e-9), slowest: slowest && slowest.first };
}

/** A value in words: `%12: f32[3, 4]`, or the name of an argument with its type. */
function named(values, id) {
  return `${values[id].name ? `${values[id].name} (%${id})` : `%${id}`}: ${values[id].type}`;
}

/** An op with its arguments: `add %1, %2`. */
function applied(value) {
  return value.args.length ? `${value.op} ${value.args.map((arg) => `%${arg}`).join(", ")}` : value.op;
}

/** The attributes of a value's op, in braces. */
function attributes(value) {
  return value.attributes ? ` {${value.attributes}}` : "";
}

/** The lines that explain a group on hover. */
function groupLines(facts, n) {
  const step = facts.steps[n];
  return [
    `${n}: ${step.label}`,
    `makes ${step.writes.map((id) => named(facts.values, id)).join(", ")}`,
    `reads ${step.reads.map((id) => named(facts.values, id)).join(", ") || "nothing"}`,
    step.unit && step.unit.time && timeLine(step),
    step.lines.length > 0 && step.lines.join(", "),
  ];
}

function timeLine({ unit }) {
  const together = unit.end - unit.first > 1 ? `, measured together with groups ${unit.first} to ${unit.end - 1}` : "";
  return `${time(unit.time.mean)} per call, ${percent(unit.time.share)} of all groups${together}`;
}

/** All there is to know of one group. */
function groupDetails(facts, n, toggle, isOpen, zoom) {
  const { values, steps } = facts;
  const step = steps[n];
  const operand = (id) => h("li", {}, h("code", {}, named(values, id)), h("span", { class: "size" }, bytes(values[id].bytes)));
  const op = (id) => h("li", {}, h("code", {}, `%${id} = ${applied(values[id])}${attributes(values[id])} : ${values[id].type}`),
    values[id].at && h("span", { class: "at" }, place(values[id].at)));
  const list = (title, items) => [h("h5", {}, title), items.length ? h("ul", {}, items) : h("p", { class: "quiet" }, "nothing")];
  const timed = step.unit && step.unit.time ? timeLine(step) : "Not measured: profiling was off";
  return [
    h("h4", {}, h("span", { class: "ordinal" }, `Group ${n}`), step.label),
    h("p", { class: "kind" }, h("i", { class: `swatch ${step.kind}` }), kinds[step.kind]),
    h("p", { class: "kind" }, timed, n === facts.slowest && step.unit.time && "; none is slower"),
    h("div", { class: "tools" },
      h("button", { type: "button", onclick: zoom }, "Zoom to it"),
      step.members.length > 1 && h("button", { type: "button", onclick: toggle }, isOpen ? "Close in the drawing" : "Open in the drawing")),
    list("Reads", step.reads.map(operand)),
    list("Writes", step.writes.map(operand)),
    list(`Ops fused here (${step.members.length})`, step.members.map(op)),
    h("details", {}, h("summary", {}, "Kernel"), listing(`Kernel of group ${n}`, step.text)),
  ].flat(Infinity).filter(Boolean);
}
