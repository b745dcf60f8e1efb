// The entries: a table of all, and one of them in detail.

/** Leaves that tell apart entries which look alike in short: for each entry the first few that not all of them share. */
function distinctions(entries) {
  const alike = new Map();
  const key = (entry) => JSON.stringify(entry.summary);
  entries.forEach((entry) => alike.set(key(entry), [...(alike.get(key(entry)) || []), entry]));
  const leaves = (entry) => entry.leaves.map((leaf, n) => [`${n} ${leaf.path} ${leaf.text}`, leaf]);
  return entries.map((entry) => {
    const others = alike.get(key(entry));
    if (others.length < 2) return [];
    const counts = new Map();
    others.flatMap(leaves).forEach(([text]) => counts.set(text, (counts.get(text) || 0) + 1));
    return leaves(entry).filter(([text]) => counts.get(text) < others.length).slice(0, 2).map(([, leaf]) => `${leaf.path}: ${shortened(leaf.text, 80)}`);
  });
}

function entryTable(data, choose) {
  const most = Math.max(...data.entries.map((entry) => entry.calls), 1);
  const different = distinctions(data.entries);
  const row = (entry, n) => {
    const { bar, total } = stages(entry.times);
    const notes = entry.notes.map((note) => h("span", { class: "chip" }, note));
    return { "data-entry": n, onclick: () => choose(n), cells: [
      [h("button", { type: "button", class: "link choice", "aria-label": `Entry ${entry.signature}` }, chip(entry.signature)), signature(entry.summary), notes,
        different[n].map((text) => h("div", { class: "at" }, text))],
      [count(entry.calls), h("div", { class: "meter thin" }, h("span", { style: `width:${(100 * entry.calls) / most}%` }))],
      ago(entry.idle),
      [bytes(entry.bytes), entry.device_bytes > 0 && h("div", { class: "at" }, `${bytes(entry.device_bytes)} on a GPU`)],
      [bytes(entry.arena_bytes), h("div", { class: "at" }, `${bytes(entry.arena_unshared_bytes)} unshared`)],
      count(entry.n_steps),
      count(entry.captures.length),
      [total > 0 ? time(total) : "loaded", bar],
    ] };
  };
  const titles = ["calls", "last use", "bytes", "arena", "groups", "captures", "made in"];
  const columns = [{ title: "arguments", class: "text" }, ...titles.map((title) => ({ title, number: true }))];
  const keys = ["trace", "optimise", "plan", "compile"].map((name) => stageKey(name));
  return [table({ label: "Entries", columns, rows: data.entries.map(row), kind: "entries stacked" }), legend(["made in:"], keys)];
}

function gradientTable(entry) {
  const row = (code) => {
    const by = code.arguments.map((n) => entry.names[n] || `captured tensor ${n - entry.names.length}`);
    const made = stages(code.times);
    const list = by.length > 3 ? h("details", { class: "full" }, h("summary", {}, h("code", {}, `${by.slice(0, 2).join(", ")} and ${by.length - 2} more`)), h("code", {}, by.join(", "))) : h("code", {}, by.join(", "));
    return { cells: [[list, !code.is_compiled && h("span", { class: "chip" }, "not compiled yet")], count(code.calls),
      [count(code.residuals), h("div", { class: "at" }, bytes(code.residual_bytes))], bytes(code.bytes), [time(made.total), made.bar]] };
  };
  const columns = [{ title: "with respect to", class: "text" }, ...["calls", "values kept", "bytes", "made in"].map((title) => ({ title, number: true }))];
  return [h("h4", {}, "Code for gradients"),
    h("p", { class: "about" }, "The function was called inside a gradient that is taken outside of it: a forward version keeps values for a backward one, which is compiled when it is first needed."),
    table({ label: "Code for gradients", columns, rows: entry.gradients.map(row) })];
}

function entryDetail(entry) {
  const times = stages(entry.times);
  const columns = [{ title: "path", class: "text" }, { title: "value in the signature", class: "text" }];
  const leafRows = entry.leaves.map((leaf) => ({ cells: [h("code", {}, leaf.path), h("code", {}, leaf.text)] }));
  const leaves = h("details", { class: "leaves", open: entry.leaves.length <= 8 }, h("summary", {}, several(entry.leaves.length, "leaf of the arguments", "leaves of the arguments")),
    table({ label: "Leaves of the arguments", columns, rows: leafRows, most: 16 }));
  const captures = entry.captures.length > 0 && [h("h4", {}, "Captured tensors"),
    h("p", { class: "about" }, "The closure used these from outside; the entry keeps the value each had when it was traced."),
    h("ul", { class: "captures" }, entry.captures.map((text) => h("li", {}, h("code", {}, text))))];
  const made = times.total > 0 ? [h("h4", {}, `Made in ${time(times.total)}`), times.bar, legend(times.keys)] : h("p", { class: "about" }, "Loaded from an artefact.");
  const top = [h("h3", {}, "Entry ", chip(entry.signature)), h("p", { class: "subject" }, signature(entry.summary)), leaves, made, captures,
    entry.gradients.length > 0 && gradientTable(entry)];
  if (!entry.detail) return { element: h("div", { class: "detail" }, top, h("p", { class: "empty" }, "The report draws the graphs of the entries used last; this one is not among them.")), start: () => {} };
  return graphDetail({ ...entry, ...entry.detail }, top);
}

function arenaPart(entry, facts, show) {
  const title = h("h4", {}, "Arena over time");
  if (!entry.arena.rects.length) return { element: [title, h("p", { class: "empty" }, "No value lies between groups, so there is no arena.")], start: () => {} };
  const map = arenaMap(entry, facts, show);
  const saved = entry.arena_unshared_bytes ? 1 - entry.arena.bytes / entry.arena_unshared_bytes : 0;
  const scratch = entry.arena_bytes - entry.arena.bytes;
  const sentences = [
    "Every rectangle is a value between groups: how long it lives (across) and which bytes it holds (up).",
    `Bytes of dead values are used again: ${bytes(entry.arena.bytes)} in place of ${bytes(entry.arena_unshared_bytes)}, ${percent(saved, 0)} less.`,
    scratch > 0 && `A call holds ${bytes(scratch)} more as scratch for long reductions.`,
    !map.isToScale && "Small values are drawn higher than to scale.",
  ];
  const used = new Set(entry.arena.rects.map((rect) => facts.steps[rect.from].kind));
  const element = [title, h("p", { class: "about" }, sentences.filter(Boolean).join(" ")), legend(kindKeys(used)), map.element];
  return { element, start: map.start };
}

function graphDetail(entry, top) {
  const facts = linked(entry);
  const panel = h("div", { class: "about-group" });
  const aside = scrolling(panel, "The chosen group");
  aside.classList.add("panel");
  const graph = drawGraph(entry, facts, (n, toggle, isOpen, zoomTo) => {
    panel.replaceChildren(...groupDetails(facts, n, toggle, isOpen, zoomTo));
    aside.firstChild.scrollTop = 0;
  });
  const show = (n) => {
    graph.show(n);
    graph.frame.scrollIntoView({ block: "nearest" });
  };
  const arena = arenaPart(entry, facts, show);
  const used = new Set(facts.steps.map((step) => step.kind));
  const isTimed = facts.units.some((unit) => unit.time);
  const text = (title, body) => h("details", {}, h("summary", {}, title), listing(title, body));
  const drawing = facts.steps.length === 0 ? h("p", { class: "empty" }, "Nothing is computed: the results are arguments or constants.") : [
    h("p", { class: "about" }, "A group is one loop nest or one library call; the ops fused in it pass values in registers. Data flows from top to bottom. Press a group, or move with the arrow keys, to see what it does; press + to see the ops in it."),
    legend(kindKeys(used), isTimed && [[h("i", { class: "swatch heat" }), "share of a call's time; the slowest group has the longest bar"]]),
    graph.tools, h("div", { class: "split" }, graph.frame, aside),
    h("h4", {}, "Time per group"), timings(entry, facts, show),
    arena.element,
  ];
  const element = h("div", { class: "detail" }, top,
    h("h4", {}, `Graph: ${several(facts.values.length, "value")} in ${several(facts.steps.length, "group")}`), drawing,
    h("h4", {}, "Text"), text("Optimised graph", entry.graph_text), text("Plan, step by step", entry.plan_text));
  const start = () => {
    if (facts.steps.length === 0) return;
    graph.draw();
    arena.start();
  };
  return { element, start };
}
