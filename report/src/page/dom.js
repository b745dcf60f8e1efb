// Elements, numbers with units, explanations on hover, and keys. Text enters the page as text nodes only.

const svgSpace = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An HTML element. */
function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes, ...children) {
  return fill(document.createElementNS(svgSpace, tag), attributes, children);
}

function significant(x, digits = 3) {
  if (x === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(x))) + 1;
  return x.toFixed(Math.max(0, digits - whole));
}

/** Seconds with the unit that suits them. */
function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const [size, unit] = units.find(([size]) => seconds >= 0.9995 * size) || units[3];
  return `${significant(seconds / size)} ${unit}`;
}

function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]];
  const found = units.find(([size]) => n >= size);
  return found ? `${n % found[0] ? significant(n / found[0]) : n / found[0]} ${found[1]}` : `${n} B`;
}

function percent(fraction, digits = 1) {
  const text = (100 * fraction).toFixed(digits);
  // A part must not read as all.
  return fraction < 1 && Number(text) === 100 ? `${99.9.toFixed(digits)} %` : `${text} %`;
}

function count(n) {
  return n === null || n === undefined ? "–" : n.toLocaleString("en-US");
}

function several(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

function ago(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "now";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([size]) => seconds >= size);
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

/** `text` cut in its middle, for what differs is often at the end. */
function shortened(text, length) {
  if (text.length <= length) return text;
  const head = Math.ceil((length - 1) * 0.6);
  return `${text.slice(0, head)}…${text.slice(text.length - (length - 1 - head))}`;
}

/** `text` cut at its end. */
function beginning(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

const hover = document.getElementById("hover");

/** Shows lines beside the pointer, or beside the element that has the focus. */
function showHover(lines, x, y) {
  hover.replaceChildren(...lines.filter(Boolean).map((line, n) => h("div", { class: n ? "" : "first" }, line)));
  hover.hidden = false;
  const box = hover.getBoundingClientRect();
  const left = Math.min(x + 14, document.documentElement.clientWidth - box.width - 8);
  const below = y + 18 + box.height < window.innerHeight;
  hover.style.left = `${Math.max(8, left)}px`;
  hover.style.top = `${Math.max(8, below ? y + 18 : y - box.height - 12)}px`;
}

/** The attributes that make an element explain itself to pointer and keyboard. */
function explained(lines) {
  const of = (element) => element.getBoundingClientRect();
  return {
    onpointermove: (event) => showHover(lines(), event.clientX, event.clientY),
    onpointerleave: () => { hover.hidden = true; },
    onfocus: (event) => showHover(lines(), of(event.target).right, of(event.target).top),
    onblur: () => { hover.hidden = true; },
  };
}

/** The attributes that make a drawn element a button for pointer and keyboard. */
function pressed(action) {
  return {
    role: "button",
    onclick: action,
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        action(event);
      }
    },
  };
}

/**
 * Makes what is marked `data-stop` inside `holder` one stop of the tab key: arrow keys, Home and End move within it.
 * Drawings have hundreds of parts, and nobody wants to tab through them.
 */
function roving(holder) {
  const stops = () => [...holder.querySelectorAll("[data-stop]")];
  const enter = (stop) => {
    stops().forEach((other) => other.setAttribute("tabindex", other === stop ? 0 : -1));
  };
  holder.addEventListener("focusin", (event) => {
    const stop = event.target.closest("[data-stop]");
    if (stop) enter(stop);
  });
  holder.addEventListener("keydown", (event) => {
    const all = stops();
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step && at + step;
    if (next === undefined || !all[next]) return;
    event.preventDefault();
    all[next].focus();
  });
  /** Chooses where the tab key enters: the `n`-th stop. */
  return (n) => enter(stops()[n]);
}

/** The lines of an explanation as one, for those who hear it. */
function spoken(lines) {
  return lines().filter(Boolean).join("; ");
}

/** A sentence for newcomers. */
function about(...children) {
  return h("p", { class: "about" }, children);
}

/** A sentence in place of something that there is none of. */
function empty(...children) {
  return h("p", { class: "empty" }, children);
}

/** A section with a heading. */
function section(id, title, ...children) {
  return h("section", { id }, h("h2", {}, title), children);
}

/** A list of keys, each a sign with its meaning. */
function legend(...keys) {
  return h("ul", { class: "legend" }, keys.flat().map((key) => key && h("li", {}, key)));
}

const kinds = {
  library: "library kernel: a matrix product, a convolution, a sort",
  reduction: "reduction: a loop that folds axes",
  pointwise: "pointwise: one fused loop",
  movement: "movement: a copy in another layout",
};

/** The meaning of the colours of these kinds of groups. */
function kindKeys(used) {
  const keys = Object.keys(kinds).filter((kind) => used.has(kind));
  return keys.map((kind) => [h("i", { class: `swatch ${kind}` }), kinds[kind]]);
}
