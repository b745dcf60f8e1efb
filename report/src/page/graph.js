// The drawing of an entry: groups, each of which opens to show its values, and what flows between them.

const opRow = 22;
/** The size of letters in a drawing that is seen from afar. */
const bigLetter = 26;

function textWidth(text, size) {
  return text.length * size * 0.605;
}

/** Below these scales, signs and then words are too small to read, and the numbers of groups take their place. */
const [smallest, largest, readable, wordless] = [0.02, 2, 0.7, 0.5];

/** The drawing of all groups; `select` is told which one was chosen. It opens whole, with the slowest group chosen. */
function drawGraph(entry, facts, select) {
  const open = new Set(facts.steps.length === 1 ? [0] : []);
  let hasEnds = entry.params.length + entry.outputs.length <= 24;
  let [scale, chosen, isWhole, isFirst] = [1, facts.slowest, true, true];
  let size = { w: 1, h: 1 };
  const frame = scrolling(h("div", { class: "sheet" }), "Drawing of the graph");
  const canvas = frame.firstChild;
  const sheet = canvas.firstChild;
  canvas.classList.add("canvas");
  const enter = roving(sheet);

  const zoom = (wanted) => {
    const middle = [canvas.scrollLeft + canvas.clientWidth / 2, canvas.scrollTop + canvas.clientHeight / 2];
    const next = Math.min(largest, Math.max(smallest, wanted));
    const ratio = next / scale;
    scale = next;
    const svg = sheet.firstChild;
    svg.setAttribute("width", size.w * scale);
    svg.setAttribute("height", size.h * scale);
    svg.classList.toggle("small", scale < readable);
    svg.classList.toggle("wordless", scale < wordless);
    canvas.scrollLeft = middle[0] * ratio - canvas.clientWidth / 2;
    canvas.scrollTop = middle[1] * ratio - canvas.clientHeight / 2;
  };
  const fitting = () => Math.min(1, (canvas.clientWidth - 2) / size.w, (canvas.clientHeight - 2) / size.h);
  const fit = () => {
    isWhole = true;
    zoom(fitting());
  };
  const zoomBy = (factor) => {
    isWhole = false;
    zoom(scale * factor);
  };
  const toggle = (n) => {
    if (!open.delete(n)) open.add(n);
    draw();
  };
  const zoomTo = (n) => {
    isWhole = false;
    zoom(1);
    centre(n);
  };
  const choose = (n) => {
    chosen = n;
    sheet.querySelectorAll("[data-group]").forEach((node) => {
      const isChosen = Number(node.dataset.group) === n;
      node.classList.toggle("chosen", isChosen);
      node.setAttribute("aria-pressed", isChosen);
    });
    enter(n);
    select(n, () => toggle(n), open.has(n), () => zoomTo(n));
  };
  const centre = (n) => {
    const node = sheet.querySelector(`[data-group="${n}"]`);
    const [box, own] = [node.getBoundingClientRect(), canvas.getBoundingClientRect()];
    canvas.scrollLeft += box.left + box.width / 2 - own.left - own.width / 2;
    canvas.scrollTop += box.top + box.height / 2 - own.top - own.height / 2;
  };
  const draw = () => {
    const drawn = drawing(entry, facts, open, hasEnds, { choose, toggle });
    size = drawn;
    sheet.replaceChildren(drawn.svg);
    if (isFirst) frame.parentNode.style.setProperty("--wish", `${size.h + 40}px`);
    isFirst = false;
    zoom(isWhole ? fitting() : scale);
    if (chosen !== null) choose(chosen);
  };
  dragging(canvas);
  new ResizeObserver(() => {
    if (isWhole && sheet.firstChild) fit();
  }).observe(canvas);
  const button = (label, title, action) => h("button", { type: "button", title, "aria-label": title, onclick: action }, label);
  const showEnds = (event) => {
    hasEnds = event.target.checked;
    draw();
  };
  const all = facts.steps.map((_, n) => n);
  const tools = h("div", { class: "tools" },
    h("span", { class: "joined" }, button("−", "Smaller", () => zoomBy(0.8)), button("+", "Larger", () => zoomBy(1.25))),
    h("button", { type: "button", onclick: fit }, "Whole graph"),
    h("button", { type: "button", onclick: () => { all.forEach((n) => open.add(n)); draw(); } }, "Open all"),
    h("button", { type: "button", onclick: () => { open.clear(); draw(); } }, "Close all"),
    h("label", {}, h("input", { type: "checkbox", checked: hasEnds, onchange: showEnds }),
      `arguments and results (${entry.params.length} and ${entry.outputs.length})`));
  const show = (n) => {
    choose(n);
    centre(n);
  };
  return { tools, frame, draw, show };
}

function dragging(canvas) {
  let start = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType !== "mouse") return;
    start = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop];
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
  const lines = paths.map((path, n) => s("path", { class: isFar[n] ? "edge far" : "edge", d: path }));
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
  return { svg, ...size };
}

function pill(text, kind, lines) {
  const w = Math.max(40, textWidth(text, 11) + 18);
  const draw = () => s("g", { class: `pill ${kind}`, ...explained(lines) },
    s("rect", { width: w, height: 22, rx: 11 }), s("text", { x: w / 2, y: 15, "text-anchor": "middle" }, text));
  return { w, h: 22, draw };
}

function inputNode(entry, value, n) {
  const captured = n - (entry.params.length - entry.captures.length);
  const { name, type, bytes: size } = entry.values[value];
  const node = pill(beginning(`${name}: ${type}`, 34), captured >= 0 ? "capture" : "input", () => [
    `${name}: ${type}`, `value %${value} of the graph, ${bytes(size)}`, captured >= 0 && entry.captures[captured],
  ]);
  return { ...node, isSource: true };
}

function outputNode(values, value, n) {
  return pill(`result ${n}: ${values[value].type}`, "output", () => [
    `result ${n}: ${values[value].type}`, `value %${value} of the graph, ${bytes(values[value].bytes)}`,
  ]);
}

/** The text of a frame that is drawn so small that only large letters can be read. */
function abridged(n, label, width) {
  const room = Math.floor((width - 16) / (bigLetter * 0.605)) - String(n).length - 1;
  return room < 4 ? n : `${n} ${beginning(label, room)}`;
}

function groupFrame(facts, n, actions, w, height, isOpen, ...inner) {
  const step = facts.steps[n];
  // The keyboard opens a group by the button beside the drawing.
  const open = (event) => {
    event.stopPropagation();
    actions.toggle(n);
  };
  const sign = s("g", { class: "sign", onclick: open }, s("rect", { x: w - 24, y: 4, width: 18, height: 18, rx: 4 }),
    s("text", { x: w - 15, y: 17, "text-anchor": "middle" }, isOpen ? "−" : "+"));
  const share = step.unit && step.unit.time ? step.unit.time.share / facts.hottest : 0;
  return s("g", {
    class: `group ${step.kind}`, "data-group": n, "data-stop": true, tabindex: -1, "aria-label": `Group ${n}: ${step.label}`,
    ...pressed(() => actions.choose(n)), ...explained(() => groupLines(facts, n)),
  },
    s("rect", { class: "frame-box", width: w, height, rx: 6 }),
    s("rect", { class: "side", width: 5, height, rx: 2.5 }),
    s("text", { class: "name", x: 13, y: 17 }, `${n}  ${beginning(step.label, isOpen ? 46 : 30)}`),
    !isOpen && s("text", { class: "big", x: w / 2 + 2, y: height / 2 + 8, "text-anchor": "middle" }, abridged(n, step.label, w)),
    inner,
    share > 0 && s("rect", { class: "heat", x: 8, y: height - 5, width: Math.max(1, (w - 16) * share), height: 3, rx: 1.5 }),
    step.members.length > 1 && sign);
}

function closedGroup(facts, n, actions) {
  const step = facts.steps[n];
  const label = `${n}  ${beginning(step.label, 30)}`;
  const made = step.writes.length === 1 ? facts.values[step.writes[0]].type : `${step.writes.length} values`;
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
  const isSource = (id) => !own.has(id) || values[id].args.length === 0;
  const nodes = ids.map((id) => ({ w: textWidth(caption(id), 11) + 16, h: opRow, isSource: isSource(id) }));
  const edges = members.flatMap((id) => [...new Set(values[id].args)].map((arg) => [position.get(arg), position.get(id)]));
  const inner = layered(nodes, edges);
  const header = `${n}  ${beginning(step.label, 46)}`;
  const w = Math.max(inner.w + 28, textWidth(header, 12) + 44);
  const height = inner.h + 46;
  const [left, top] = [(w - inner.w) / 2 + 2, 32];
  const written = new Set(step.writes);
  const fate = (id) => (!own.has(id) ? "" : written.has(id) ? ", written to memory" : ", stays in registers");
  const node = (id, k) => {
    const lines = () => [
      named(values, id),
      own.has(id) ? `${applied(values[id])}${attributes(values[id])}` : "made elsewhere, read here",
      `${bytes(values[id].bytes)}${fate(id)}`, values[id].at,
    ];
    return s("g", {
      class: `op${own.has(id) ? "" : " outside"}${written.has(id) ? " written" : ""}`,
      transform: `translate(${round(inner.placed[k].x)} ${round(inner.placed[k].y)})`, ...explained(lines),
    },
    s("rect", { width: nodes[k].w, height: opRow, rx: 4 }),
    s("text", { x: nodes[k].w / 2, y: 15, "text-anchor": "middle" }, caption(id)));
  };
  const draw = () => groupFrame(facts, n, actions, w, height, true,
    s("g", { transform: `translate(${round(left)} ${top})` },
      inner.paths.map((path) => s("path", { class: "edge inner", d: path })), ids.map(node)));
  return { w, h: height, draw };
}

