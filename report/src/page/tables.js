// Tables and scrolling boxes: both say so where they hold more than they show.

/** `inner` in a box that scrolls, with a shadow on each side where there is more. */
function scrolling(inner, label) {
  const box = h("div", { class: "scroll", role: "region", "aria-label": label }, inner);
  const sides = ["left", "right", "top", "bottom"].map((side) => h("i", { class: `shade ${side}` }));
  const frame = h("div", { class: "frame" }, box, sides);
  const mark = () => {
    const right = box.scrollWidth - box.clientWidth - box.scrollLeft;
    const bottom = box.scrollHeight - box.clientHeight - box.scrollTop;
    const more = { left: box.scrollLeft, right, top: box.scrollTop, bottom };
    for (const [side, pixels] of Object.entries(more)) frame.classList.toggle(`more-${side}`, pixels > 1);
    // A box that does not scroll is no stop of the tab key.
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    box.tabIndex = scrolls ? 0 : -1;
  };
  box.addEventListener("scroll", mark, { passive: true });
  const observer = new ResizeObserver(mark);
  observer.observe(box);
  observer.observe(inner);
  return frame;
}

/**
 * A table. A column is `{ title, number }`; a row is `{ cells, ...attributes }`, a cell what an element can hold. Of
 * more than `most` rows the rest is shown on demand. In narrow windows the rows of a `stacked` table become blocks.
 */
function table({ label, columns, rows, most = 10, kind = "" }) {
  const align = (column) => (column.number ? "number" : column.class || null);
  const head = columns.map((column) => h("th", { scope: "col", class: align(column) }, column.title));
  const cell = (inner, k) => h("td", { class: align(columns[k]), "data-label": columns[k].title || null }, h("div", {}, inner));
  const row = ({ cells, ...attributes }, n) => h("tr", { ...attributes, class: n >= most ? "beyond" : null }, cells.map(cell));
  const body = h("tbody", {}, rows.map(row));
  const element = h("table", { class: kind, "aria-label": label }, h("thead", {}, h("tr", {}, head)), body);
  const frame = scrolling(element, label);
  if (rows.length <= most) return frame;
  const button = h("button", { type: "button", class: "wide", "aria-expanded": "false" });
  const show = (isOpen) => {
    element.classList.toggle("open", isOpen);
    button.setAttribute("aria-expanded", isOpen);
    button.textContent = isOpen ? `Show the first ${most} only` : `Show all ${count(rows.length)}`;
  };
  button.addEventListener("click", () => show(!element.classList.contains("open")));
  show(false);
  return [frame, button];
}

/** Columns of numbers with these titles. */
function numbers(...titles) {
  return titles.map((title) => ({ title, number: true }));
}

/** A path or a line of a program, which breaks between folders. */
function place(text) {
  return text.split("/").flatMap((part, n) => (n ? ["/", h("wbr"), part] : [part]));
}

/** Code or text that may be long. */
function listing(label, text) {
  return scrolling(h("pre", {}, text), label);
}

/** Arguments in short; the full text on demand if it says more. */
function signature({ summaries, modes }, full) {
  const text = summaries.join(", ");
  const chips = modes.map((mode) => h("span", { class: "chip" }, mode));
  const last = summaries.length - 1;
  const argument = (part, n) => [h("span", {}, part, n < last && ","), " "];
  const short = h("code", { class: "signature" }, summaries.map(argument));
  const isAll = [text, ...modes].join("; ") === full;
  if (full === undefined || isAll) return [short, " ", chips];
  return h("details", { class: "full" }, h("summary", {}, short, " ", chips), h("code", {}, full));
}

/** The short name of a signature. */
function chip(id) {
  return h("code", { class: "id" }, id);
}

/** The cost of tracing and compiling: a bar of the stages, and all together. */
function stages(times) {
  const names = ["trace", "optimise", "plan", "compile"];
  const of = (name) => times[`${name}_seconds`];
  const total = names.reduce((sum, name) => sum + of(name), 0);
  const share = (name) => (total ? of(name) / total : 0);
  const lines = () => [`${time(total)} in all`, ...names.map((name) => `${name} ${time(of(name))}, ${percent(share(name), 0)}`)];
  const part = (name) => h("span", { class: `stage ${name}`, style: `flex-grow:${share(name)}` });
  const attributes = { class: "stages", role: "img", "aria-label": spoken(lines), ...explained(lines) };
  const bar = total > 0 && h("div", attributes, names.map(part));
  return { total, bar, keys: names.map((name) => stageKey(name, time(of(name)))) };
}

function stageKey(name, value) {
  return [h("i", { class: `swatch stage ${name}` }), name, value && h("b", {}, ` ${value}`)];
}
