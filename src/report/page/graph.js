// The drawing of an entry: groups, each of which opens to show its values, and what flows between them.

const opRow = 22;

function textWidth(text, size) {
  return text.length * size * 0.605;
}

/** What the drawing, the tables and the details need to know of an entry, worked out once. */
function linked(entry) {
  const { values, steps } = entry;
  const firstCapture = entry.params.length - entry.captures.length;
  entry.params.forEach((value, n) => { values[value].name = n < firstCapture ? entry.names[n] || `argument ${n}` : `captured tensor ${n - firstCapture}`; });
  const maker = new Map();
  steps.forEach((step, n) => step.writes.forEach((value) => maker.set(value, n)));
  const units = [];
  entry.launches.forEach(([first, end], n) => {
    const last = units[units.length - 1];
    if (last && first < last.end) {
      last.end = end;
      last.launches.push(n);
    } else {
      units.push({ first, end, launches: [n] });
    }
  });
  const total = entry.profile ? entry.profile.launches.reduce((sum, launch) => sum + launch.total, 0) : 0;
  for (const unit of units) {
    for (let step = unit.first; step < unit.end; step += 1) steps[step].unit = unit;
    if (entry.profile && entry.profile.calls) {
      const times = unit.launches.map((n) => entry.profile.launches[n]);
      const sum = (field) => times.reduce((sum, time) => sum + time[field], 0);
      unit.time = { mean: sum("total") / entry.profile.calls, min: sum("min"), max: sum("max"), share: total ? sum("total") / total : 0 };
    }
  }
  return { values, steps, maker, units, hottest: Math.max(...units.map((unit) => (unit.time ? unit.time.share : 0)), 1e-9) };
}

/** A value in words: `%12: f32[3, 4]`, or the name of an argument with its type. */
function named(values, id) {
  return `${values[id].name ? `${values[id].name} (%${id})` : `%${id}`}: ${values[id].ty}`;
}

/** The attributes of a value's op, in braces. */
function attributes(value) {
  return value.attributes ? ` {${value.attributes}}` : "";
}

/** The drawing of all groups; `select` is told which one was chosen. */
function drawGraph(entry, facts, select) {
  const open = new Set(facts.steps.length === 1 ? [0] : []);
  let hasEnds = entry.params.length + entry.outputs.length <= 24;
  const canvas = h("div", { class: "canvas", tabindex: 0, role: "group", "aria-label": "Drawing of the graph" });
  let scale = null;
  let chosen = null;
  let size = { w: 0, h: 0 };

  const zoom = (factor) => {
    const svg = canvas.firstChild;
    const [x, y] = [canvas.scrollLeft + canvas.clientWidth / 2, canvas.scrollTop + canvas.clientHeight / 2];
    const next = Math.min(2, Math.max(0.1, scale * factor));
    const ratio = next / scale;
    scale = next;
    svg.setAttribute("width", size.w * scale);
    svg.setAttribute("height", size.h * scale);
    canvas.scrollLeft = x * ratio - canvas.clientWidth / 2;
    canvas.scrollTop = y * ratio - canvas.clientHeight / 2;
  };
  const fit = () => {
    const room = [(canvas.clientWidth - 4) / size.w, (canvas.clientHeight - 4) / size.h];
    zoom(Math.min(1, ...room) / scale);
  };
  const toggle = (n) => {
    if (!open.delete(n)) open.add(n);
    draw();
  };
  const choose = (n) => {
    chosen = n;
    canvas.querySelectorAll("[data-group]").forEach((node) => node.classList.toggle("chosen", Number(node.dataset.group) === n));
    select(n, () => toggle(n), open.has(n));
  };

  const draw = () => {
    const drawn = drawing(entry, facts, open, hasEnds, { choose, toggle });
    size = drawn;
    if (scale === null) scale = Math.min(1, Math.max(0.8, (canvas.clientWidth - 4) / size.w));
    drawn.svg.setAttribute("width", size.w * scale);
    drawn.svg.setAttribute("height", size.h * scale);
    const isFirst = !canvas.firstChild;
    const at = [canvas.scrollLeft, canvas.scrollTop];
    canvas.replaceChildren(drawn.svg);
    [canvas.scrollLeft, canvas.scrollTop] = isFirst ? [drawn.first * scale - canvas.clientWidth / 2, 0] : at;
    if (chosen !== null) choose(chosen);
  };
  dragging(canvas);
  const button = (label, title, action) => h("button", { type: "button", title, onclick: action }, label);
  const all = facts.steps.map((_, n) => n);
  const tools = h("div", { class: "tools" },
    button("+", "Larger", () => zoom(1.25)),
    button("−", "Smaller", () => zoom(0.8)),
    button("Whole graph", "Make all of it visible", fit),
    button("Open all", "Show the values in every group", () => { all.forEach((n) => open.add(n)); draw(); }),
    button("Close all", "Show groups only", () => { open.clear(); draw(); }),
    h("label", {}, h("input", { type: "checkbox", checked: hasEnds, onchange: (event) => { hasEnds = event.target.checked; draw(); } }),
      `arguments and results (${entry.params.length} and ${entry.outputs.length})`));
  const show = (n) => {
    choose(n);
    const node = canvas.querySelector(`[data-group="${n}"]`);
    const [box, own] = [node.getBoundingClientRect(), canvas.getBoundingClientRect()];
    canvas.scrollLeft += box.left + box.width / 2 - own.left - own.width / 2;
    canvas.scrollTop += box.top + box.height / 2 - own.top - own.height / 2;
  };
  return { tools, canvas, draw, show };
}

function dragging(canvas) {
  let start = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse") start = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop];
  });
  window.addEventListener("pointerup", () => { start = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (start === null || event.buttons === 0) return;
    canvas.scrollLeft = start[0] - event.clientX;
    canvas.scrollTop = start[1] - event.clientY;
  });
}

/** Nodes and edges between groups, laid out. */
function drawing(entry, facts, open, hasEnds, actions) {
  const { values, steps } = facts;
  const nodes = [];
  const edges = [];
  const add = (node) => nodes.push(node) - 1;
  const inputs = new Map((hasEnds ? entry.params : []).map((value, n) => [value, add(inputNode(entry, value, n))]));
  const groups = steps.map((step, n) => add(open.has(n) ? openGroup(facts, n, actions) : closedGroup(facts, n, actions)));
  const known = new Set();
  const connect = (from, to) => {
    if (known.has(`${from} ${to}`)) return;
    known.add(`${from} ${to}`);
    edges.push([from, to]);
  };
  const source = (value) => (facts.maker.has(value) ? groups[facts.maker.get(value)] : inputs.get(value));
  steps.forEach((step, n) => step.reads.forEach((value) => {
    if (source(value) !== undefined && source(value) < groups[n]) connect(source(value), groups[n]);
  }));
  entry.outputs.forEach(({ value, step }, n) => {
    if (hasEnds && step !== null) connect(groups[step], add(outputNode(values, value, n)));
  });
  const { placed, paths, isFar, w, h: height } = layered(nodes, edges);
  const pad = 12;
  const lines = paths.map((path, n) => s("path", { class: isFar[n] ? "edge far" : "edge", d: path, "data-from": edges[n][0], "data-to": edges[n][1] }));
  const drawn = nodes.map((node, n) => {
    const [x, y] = [placed[n].x + pad, placed[n].y + pad].map(round);
    const touch = (isOn) => () => lines.forEach((line, k) => {
      if (edges[k].includes(n)) line.classList.toggle("lit", isOn);
    });
    const element = node.draw();
    element.setAttribute("transform", `translate(${x} ${y})`);
    element.addEventListener("pointerenter", touch(true));
    element.addEventListener("pointerleave", touch(false));
    element.addEventListener("focus", touch(true));
    element.addEventListener("blur", touch(false));
    return element;
  });
  const size = { w: Math.ceil(w + 2 * pad), h: Math.ceil(height + 2 * pad) };
  const moved = s("g", { transform: `translate(${pad} ${pad})` }, lines);
  const svg = s("svg", { viewBox: `0 0 ${size.w} ${size.h}`, class: "graph" }, moved, drawn);
  const first = groups.length ? placed[groups[0]].x + nodes[groups[0]].w / 2 + pad : 0;
  return { svg, first, ...size };
}

function pill(text, kind, lines) {
  const w = Math.max(40, textWidth(text, 11) + 18);
  const draw = () => s("g", { class: `pill ${kind}`, tabindex: 0, ...explained(lines) },
    s("rect", { width: w, height: 22, rx: 11 }), s("text", { x: w / 2, y: 15, "text-anchor": "middle" }, text));
  return { w, h: 22, draw };
}

function inputNode(entry, value, n) {
  const captured = n - (entry.params.length - entry.captures.length);
  const { name, ty, bytes: size } = entry.values[value];
  const node = pill(shortened(`${name}: ${ty}`, 30), captured >= 0 ? "capture" : "input", () => [
    `${name}: ${ty}`, `value %${value} of the graph, ${bytes(size)}`, captured >= 0 && entry.captures[captured],
  ]);
  return { ...node, isSource: true };
}

function outputNode(values, value, n) {
  return pill(shortened(`result ${n}: ${values[value].ty}`, 30), "output", () => [
    `result ${n}: ${values[value].ty}`, `value %${value} of the graph, ${bytes(values[value].bytes)}`,
  ]);
}

/** What a group says of itself on hover. */
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

function groupFrame(facts, n, actions, w, height, isOpen, ...inner) {
  const step = facts.steps[n];
  const sign = s("g", {
    class: "sign", role: "button", tabindex: 0, "aria-label": isOpen ? "Close" : "Open",
    ...pressed((event) => { event.stopPropagation(); actions.toggle(n); }),
  }, s("rect", { x: w - 24, y: 4, width: 18, height: 18, rx: 4 }), s("text", { x: w - 15, y: 17, "text-anchor": "middle" }, isOpen ? "−" : "+"));
  const share = step.unit && step.unit.time ? step.unit.time.share / facts.hottest : 0;
  return s("g", {
    class: `group ${step.kind}`, "data-group": n, tabindex: 0, role: "button", "aria-label": `Group ${n}: ${step.label}`,
    ...pressed(() => actions.choose(n)), ...explained(() => groupLines(facts, n)),
  },
    s("rect", { class: "frame", width: w, height, rx: 6 }),
    s("rect", { class: "side", width: 5, height, rx: 2.5 }),
    s("text", { class: "name", x: 13, y: 17 }, `${n}  ${beginning(step.label, isOpen ? 46 : 30)}`),
    inner,
    share > 0 && s("rect", { class: "heat", x: 8, y: height - 5, width: Math.max(1, (w - 16) * share), height: 3, rx: 1.5 }),
    step.members.length > 1 && sign);
}

function closedGroup(facts, n, actions) {
  const step = facts.steps[n];
  const label = `${n}  ${beginning(step.label, 30)}`;
  const made = step.writes.length === 1 ? facts.values[step.writes[0]].ty : `${step.writes.length} values`;
  const extra = step.unit && step.unit.time ? ` · ${time(step.unit.time.mean)}` : "";
  const below = beginning(`${made}${extra}`, 36);
  const w = Math.max(96, textWidth(label, 12) + 44, textWidth(below, 11) + 24);
  const draw = () => groupFrame(facts, n, actions, w, 42, false, s("text", { class: "made", x: 13, y: 33 }, below));
  return { w, h: 42, draw };
}

/** A group with the drawing of the values that it computes. */
function openGroup(facts, n, actions) {
  const { values, steps } = facts;
  const step = steps[n];
  const members = [...step.members].sort((a, b) => a - b);
  const own = new Set(members);
  const outside = [...new Set(members.flatMap((id) => values[id].args).filter((id) => !own.has(id)))].sort((a, b) => a - b);
  const ids = [...outside, ...members];
  const position = new Map(ids.map((id, k) => [id, k]));
  const caption = (id) => (own.has(id) ? `%${id} ${values[id].op}` : `%${id}`);
  const nodes = ids.map((id) => ({ w: textWidth(caption(id), 11) + 16, h: opRow, isSource: !own.has(id) || values[id].args.length === 0 }));
  const edges = members.flatMap((id) => [...new Set(values[id].args)].map((arg) => [position.get(arg), position.get(id)]));
  const inner = layered(nodes, edges);
  const header = `${n}  ${beginning(step.label, 46)}`;
  const w = Math.max(inner.w + 28, textWidth(header, 12) + 44);
  const height = inner.h + 46;
  const [left, top] = [(w - inner.w) / 2 + 2, 32];
  const written = new Set(step.writes);
  const node = (id, k) => {
    const lines = () => [
      named(values, id), own.has(id) ? `${values[id].op}${attributes(values[id])} of ${values[id].args.map((arg) => `%${arg}`).join(", ") || "nothing"}` : "made elsewhere, read here",
      `${bytes(values[id].bytes)}${own.has(id) ? (written.has(id) ? ", written to memory" : ", stays in registers") : ""}`, values[id].at,
    ];
    return s("g", {
      class: `op${own.has(id) ? "" : " outside"}${written.has(id) ? " written" : ""}`, tabindex: 0,
      transform: `translate(${round(inner.placed[k].x)} ${round(inner.placed[k].y)})`, ...explained(lines),
    }, s("rect", { width: nodes[k].w, height: opRow, rx: 4 }), s("text", { x: nodes[k].w / 2, y: 15, "text-anchor": "middle" }, caption(id)));
  };
  const draw = () => groupFrame(facts, n, actions, w, height, true,
    s("g", { transform: `translate(${round(left)} ${top})` }, inner.paths.map((path) => s("path", { class: "edge inner", d: path })), ids.map(node)));
  return { w, h: height, draw };
}

/** All there is to know of one group, as a panel. */
function groupDetails(entry, facts, n, toggle, isOpen) {
  const { values, steps } = facts;
  const step = steps[n];
  const op = (id) => h("li", {}, h("code", {}, `%${id} = ${values[id].op} ${values[id].args.map((arg) => `%${arg}`).join(", ")}${attributes(values[id])} : ${values[id].ty}`),
    values[id].at && h("span", { class: "at" }, values[id].at));
  const operand = (id) => h("li", {}, h("code", {}, named(values, id)), ` ${bytes(values[id].bytes)}`);
  const list = (title, items) => [h("h5", {}, title), items.length ? h("ul", {}, items) : h("p", { class: "quiet" }, "nothing")];
  return [
    h("h4", {}, `Group ${n}: ${step.label}`),
    h("p", {}, h("i", { class: `swatch ${step.kind}` }), " ", kinds[step.kind]),
    step.members.length > 1 && h("button", { type: "button", onclick: toggle }, isOpen ? "Close it in the drawing" : "Open it in the drawing"),
    h("p", {}, step.unit && step.unit.time ? timeLine(step) : "Not measured: profiling was off."),
    list("Reads", step.reads.map(operand)),
    list("Writes", step.writes.map(operand)),
    list(`Ops fused here (${step.members.length})`, step.members.map(op)),
    h("details", {}, h("summary", {}, "Kernel"), h("pre", {}, step.text)),
  ];
}
