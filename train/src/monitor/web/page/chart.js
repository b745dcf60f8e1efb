// Elements are made of names and texts only, so that no text becomes markup.
const build = (space) => (name, attributes = {}, ...children) => {
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const html = build(null);
const svg = build("http://www.w3.org/2000/svg");

// A number with four significant digits.
function short(value) {
  if (typeof value !== "number") return value === "inf" ? "∞" : value === "-inf" ? "−∞" : String(value ?? "none");
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < 1e-4 || size >= 1e7) return value.toExponential(2).replace("e+", "e");
  const decimals = Math.max(0, 3 - Math.floor(Math.log10(size)));
  return String(Number(value.toFixed(Math.min(decimals, 12))));
}

// Steps with separated thousands.
const count = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u2009");

// Multiples of one, two or five times a power of ten.
function ticks(low, high, n) {
  const raw = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= raw * 0.999) || raw;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// Powers of ten, and simple multiples of them where there are few; as logarithms.
function logTicks(low, high, n) {
  const first = Math.floor(low), last = Math.ceil(high);
  const within = (digits, every) => {
    const found = [];
    for (let k = first; k <= last; k += every) {
      for (const digit of digits) {
        const at = k + Math.log10(digit);
        if (at >= low - 1e-9 && at <= high + 1e-9) found.push(at);
      }
    }
    return found;
  };
  const fine = within([1, 2, 5], 1), finest = within([1, 2, 3, 4, 5, 6, 7, 8, 9], 1);
  // Within a part of a decade the grid is that of a linear scale.
  if (finest.length < 2) return ticks(10 ** low, 10 ** high, n).map(Math.log10);
  if (fine.length < 3) return finest.slice(0, 8);
  return fine.length <= n + 2 ? fine : within([1], Math.max(1, Math.ceil((high - low) / n)));
}

const PHASES = ["training", "validation"];
const HEIGHT = 210, TOP = 10, BOTTOM = 26, RIGHT = 12;

// Curves of one scalar over steps, one for each phase, with a band from the least to the largest value of each bin.
class Chart {
  constructor(title, { names = {}, isCount = false } = {}) {
    this.title = title;
    this.names = names;
    this.isCount = isCount;
    this.curves = new Map();
    this.last = new Map();
    this.isLog = false;
    this.cursor = null;
    this.legend = html("ul", { class: "legend" });
    this.plot = svg("svg", { class: "plot", tabindex: "0", role: "img", height: HEIGHT });
    this.read = html("p", { class: "read" });
    this.log = html("button", { type: "button", class: "small", "aria-pressed": "false", "aria-label": `Logarithmic scale for ${title}` }, "log");
    this.element = html("figure", { class: "chart", "data-chart": title },
      html("div", { class: "top" }, html("h3", {}, title), this.log), this.legend, this.plot, this.read);
    this.log.addEventListener("click", () => {
      this.isLog = !this.isLog;
      this.log.setAttribute("aria-pressed", String(this.isLog));
      this.draw();
    });
    this.plot.addEventListener("pointermove", (event) => this.point(event.clientX));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.plot.addEventListener("blur", () => this.leave());
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  set(phase, series, last) {
    this.curves.set(phase, new Curve(series));
    this.last.set(phase, last);
  }

  push(phase, step, value) {
    if (!this.curves.has(phase)) this.set(phase, null, value);
    this.curves.get(phase).push(step, value);
    this.last.set(phase, value);
  }

  name(phase) {
    return this.names[phase] || phase;
  }

  // Coordinates of what there is to draw.
  scale() {
    const bins = [...this.curves.values()].flatMap((curve) => curve.bins);
    const shown = bins.filter((bin) => bin.n > 0 && (!this.isLog || bin.max > 0));
    if (bins.length === 0) return null;
    const value = this.isLog ? (y) => Math.log10(y) : (y) => y;
    const lows = shown.map((bin) => (this.isLog ? (bin.min > 0 ? bin.min : bin.mean > 0 ? bin.mean : bin.max) : bin.min));
    let low = shown.length ? value(Math.min(...lows)) : 0;
    let high = shown.length ? value(Math.max(...shown.map((bin) => bin.max))) : 1;
    const room = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
    const touchesZero = !this.isLog && low >= 0 && low - room < 0;
    [low, high] = [touchesZero ? 0 : low - room, high + room];
    const from = Math.min(...bins.map((bin) => bin.from)), to = Math.max(...bins.map((bin) => bin.to));
    const linear = ticks(low, high, 5).filter((at) => !this.isCount || Number.isInteger(at));
    const marks = this.isLog ? logTicks(low, high, 5) : linear;
    const texts = marks.map((at) => short(this.isLog ? 10 ** at : at));
    const width = Math.max(200, this.plot.clientWidth);
    const left = 14 + 6.9 * Math.max(2, ...texts.map((text) => text.length));
    const x = (step) => left + (to > from ? (step - from) / (to - from) : 0.5) * (width - left - RIGHT);
    const y = (at) => TOP + (1 - (value(at) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const step = (px) => from + ((px - left) / (width - left - RIGHT)) * (to - from);
    return { from, to, marks, texts, width, left, x, y, step };
  }

  draw() {
    this.drawLegend();
    const scale = this.scale();
    if (!scale) return;
    const { width, left, x, y } = scale;
    const parts = [];
    scale.marks.forEach((at, k) => {
      const place = y(this.isLog ? 10 ** at : at);
      parts.push(svg("line", { class: "grid", x1: left, x2: width - RIGHT, y1: place, y2: place }));
      parts.push(svg("text", { x: left - 7, y: place + 4, "text-anchor": "end" }, scale.texts[k]));
    });
    const bottom = HEIGHT - BOTTOM;
    parts.push(svg("line", { class: "axis", x1: left, x2: width - RIGHT, y1: bottom, y2: bottom }));
    for (const at of ticks(scale.from, Math.max(scale.to, scale.from + 1), Math.max(2, Math.floor((width - left) / 85)))) {
      if (!Number.isInteger(at) || at > scale.to) continue;
      const text = count(at), half = 3.5 * text.length;
      parts.push(svg("text", { x: Math.min(x(at), width - 2 - half), y: HEIGHT - 8, "text-anchor": "middle" }, text));
    }
    for (const phase of PHASES) if (this.curves.has(phase)) this.drawCurve(phase, scale, parts);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.plot.setAttribute("aria-label", `${this.title}: ${this.summary()}`);
    this.plot.replaceChildren(...parts);
    this.drawCursor(scale);
  }

  drawCurve(phase, { x, y, width }, parts) {
    const bins = this.curves.get(phase).bins;
    const middle = (bin) => x((bin.from + bin.to) / 2);
    const isShown = (bin) => bin.n > 0 && (!this.isLog || bin.mean > 0);
    const runs = [];
    let run = [];
    for (const bin of bins) {
      if (isShown(bin)) run.push(bin);
      else if (run.length) {
        runs.push(run);
        run = [];
      }
      if (bin.n_bad > 0) parts.push(svg("path", { class: "hole", d: `M${middle(bin).toFixed(1)} ${HEIGHT - BOTTOM - 7}v7` }));
    }
    if (run.length) runs.push(run);
    const at = (bin, value) => `${middle(bin).toFixed(1)} ${y(value).toFixed(1)}`;
    for (const run of runs) {
      if (run.some((bin) => bin.min < bin.max)) {
        const least = (bin) => (this.isLog && bin.min <= 0 ? bin.mean : bin.min);
        const edge = [...run.map((bin) => at(bin, bin.max)), ...run.toReversed().map((bin) => at(bin, least(bin)))];
        parts.push(svg("path", { class: `band ${phase}`, d: `M${edge.join("L")}Z` }));
      }
      parts.push(svg("path", { class: `line ${phase}`, d: `M${run.map((bin) => at(bin, bin.mean)).join("L")}` }));
    }
    const dotted = runs.flat();
    const isSparse = phase === "validation" ? dotted.length <= width / 12 : dotted.length === 1;
    const dots = isSparse ? dotted : dotted.slice(-1);
    for (const bin of dots) parts.push(svg("circle", { class: `dot ${phase}`, cx: middle(bin), cy: y(bin.mean), r: 3.2 }));
  }

  drawLegend() {
    const known = PHASES.filter((phase) => this.curves.has(phase));
    const key = JSON.stringify(known.map((phase) => [phase, this.last.get(phase)]));
    if (key === this.key_) return;
    this.key_ = key;
    this.legend.replaceChildren(...known.map((phase) => html("li", {},
      svg("svg", { viewBox: "0 0 20 10", "aria-hidden": "true" }, svg("path", { class: `line ${phase}`, d: "M1 5h18" })),
      `${this.name(phase)} `, html("b", {}, short(this.last.get(phase))))));
  }

  summary() {
    const text = PHASES.filter((phase) => this.curves.has(phase)).map((phase) => `${this.name(phase)} ${short(this.last.get(phase))}`);
    return `${text.join(", ")}. Arrow keys read the values.`;
  }

  point(clientX) {
    const scale = this.scale();
    if (!scale) return;
    const box = this.plot.getBoundingClientRect();
    const steps = scale.step(((clientX - box.left) / box.width) * scale.width);
    this.cursor = Math.min(scale.to, Math.max(scale.from, steps));
    this.draw();
  }

  key(event) {
    const scale = this.scale();
    if (!scale) return;
    const size = Math.max(1, (scale.to - scale.from) / 50) * (event.shiftKey ? 10 : 1);
    const from = this.cursor ?? scale.to;
    const moves = { ArrowLeft: from - size, ArrowRight: from + size, Home: scale.from, End: scale.to };
    if (event.key === "Escape") return this.leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.cursor = Math.min(scale.to, Math.max(scale.from, moves[event.key]));
    this.draw();
  }

  leave() {
    this.cursor = null;
    this.draw();
  }

  drawCursor(scale) {
    if (this.cursor === null) {
      this.read.replaceChildren();
      return;
    }
    const texts = [];
    let at = null;
    for (const phase of PHASES) {
      const bin = this.curves.get(phase)?.nearest(this.cursor);
      if (!bin) continue;
      const middle = (bin.from + bin.to) / 2;
      at ??= middle;
      const where = bin.from === bin.to ? `step ${count(bin.to)}` : `steps ${count(bin.from)} to ${count(bin.to)}`;
      const range = bin.min < bin.max ? ` (${short(bin.min)} to ${short(bin.max)})` : "";
      const bad = bin.n_bad > 0 ? `, ${bin.n_bad} not finite` : "";
      texts.push(`${where}: ${this.name(phase)} ${bin.n ? short(bin.mean) : "not finite"}${range}${bin.n ? bad : ""}`);
      if (bin.n && (!this.isLog || bin.mean > 0)) this.plot.append(svg("circle", { class: `dot ${phase}`, cx: scale.x(middle), cy: scale.y(bin.mean), r: 4.5 }));
    }
    if (at !== null) this.plot.append(svg("line", { class: "cross", x1: scale.x(at), x2: scale.x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
    this.read.replaceChildren(texts.join("; "));
  }
}
