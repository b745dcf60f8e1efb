// The entries: a table of all, and one of them in detail.

/** Leaves that tell apart entries which look alike in short: for each entry the first few that not all of them share. */
function distinctions(entries) {
  const alike = new Map();
  const key = ({ signature }) => JSON.stringify([signature.summaries, signature.modes]);
  entries.forEach((entry) => alike.set(key(entry), [...(alike.get(key(entry)) || []), entry]));
  const leaves = ({ signature }) => signature.leaves.map((leaf, n) => [`${n} ${leaf.path} ${leaf.value}`, leaf]);
  return entries.map((entry) => {
    const others = alike.get(key(entry));
    if (others.length < 2) return [];
    const counts = new Map();
    others.flatMap(leaves).forEach(([text]) => counts.set(text, (counts.get(text) || 0) + 1));
    const own = leaves(entry).filter(([text]) => counts.get(text) < others.length);
    return own.slice(0, 2).map(([, leaf]) => `${leaf.path}: ${shortened(leaf.value, 80)}`);
  });
}

function entryTable(entries, choose) {
  const most = Math.max(...entries.map((entry) => entry.calls), 1);
  const different = distinctions(entries);
  const name = (entry, n) => [
    h("button", { type: "button", class: "link choice", "aria-label": `Entry ${entry.signature.id}` }, chip(entry.signature.id)),
    signature(entry.signature),
    entry.is_pinned && h("span", { class: "chip" }, "pinned"),
    different[n].map((text) => h("div", { class: "at" }, text)),
  ];
  const row = (entry, n) => {
    const { bar, total } = stages(entry.times);
    return { "data-entry": n, onclick: () => choose(n), cells: [
      name(entry, n),
      [count(entry.calls), meter(entry.calls / most, "thin")],
      ago(entry.last_use_seconds),
      [bytes(entry.bytes), entry.device_bytes > 0 && h("div", { class: "at" }, `${bytes(entry.device_bytes)} on a GPU`)],
      [bytes(entry.arena_bytes), h("div", { class: "at" }, `${bytes(entry.arena_unshared_bytes)} unshared`)],
      count(entry.n_steps),
      count(entry.captures.length),
      [total > 0 ? time(total) : "loaded", bar],
    ] };
  };
  const titles = ["calls", "last use", "bytes", "arena", "groups", "captures", "made in"];
  const columns = [{ title: "arguments", class: "text" }, ...numbers(...titles)];
  const keys = ["trace", "optimise", "plan", "compile"].map((name) => stageKey(name));
  return [
    about("One row per compiled signature, most recently used first. Choose one to look inside."),
    table({ label: "Entries", columns, rows: entries.map(row), kind: "entries stacked" }),
    legend(["made in:"], keys),
  ];
}

function gradientTable(entry) {
  const { tensors } = entry.signature;
  const operands = (code) => {
    const by = code.arguments.map((n) => tensors[n] || `captured tensor ${n - tensors.length}`);
    const all = h("code", {}, by.join(", "));
    if (by.length <= 3) return all;
    const some = h("code", {}, `${by.slice(0, 2).join(", ")} and ${by.length - 2} more`);
    return h("details", { class: "full" }, h("summary", {}, some), all);
  };
  const row = (code) => {
    const made = stages(code.times);
    return { cells: [
      [operands(code), !code.is_compiled && h("span", { class: "chip" }, "not compiled yet")],
      count(code.calls),
      [count(code.residuals), h("div", { class: "at" }, bytes(code.residual_bytes))],
      bytes(code.bytes),
      [time(made.total), made.bar],
    ] };
  };
  const columns = [{ title: "with respect to", class: "text" }, ...numbers("calls", "values kept", "bytes", "made in")];
  return [h("h4", {}, "Code for gradients"),
    about("The function was called inside a gradient that is taken outside of it: a forward version keeps values for a",
      " backward one, which is compiled when it is first needed."),
    table({ label: "Code for gradients", columns, rows: entry.gradients.map(row) })];
}

function leafTable({ leaves }) {
  const columns = [{ title: "path", class: "text" }, { title: "value in the signature", class: "text" }];
  const rows = leaves.map((leaf) => ({ cells: [h("code", {}, leaf.path), h("code", {}, leaf.value)] }));
  const title = several(leaves.length, "leaf of the arguments", "leaves of the arguments");
  return h("details", { class: "leaves", open: rows.length <= 8 }, h("summary", {}, title),
    table({ label: "Leaves of the arguments", columns, rows, most: 16 }));
}

function entryDetail(entry, detail) {
  const times = stages(entry.times);
  const made = [h("h4", {}, `Made in ${time(times.total)}`), times.bar, legend(times.keys)];
  const captures = [h("h4", {}, "Captured tensors"),
    about("The closure used these from outside; the entry keeps the value each had when it was traced."),
    h("ul", { class: "captures" }, entry.captures.map((text) => h("li", {}, h("code", {}, text))))];
  const top = [
    h("h3", {}, "Entry ", chip(entry.signature.id)),
    h("p", { class: "subject" }, signature(entry.signature)),
    leafTable(entry.signature),
    times.total > 0 ? made : about("Loaded from an artefact."),
    entry.captures.length > 0 && captures,
    entry.gradients.length > 0 && gradientTable(entry),
  ];
  if (detail) return graphDetail({ ...entry, ...detail }, top);
  const missing = empty("The report draws the graphs of the entries used last; this one is not among them.");
  return { element: h("div", { class: "detail" }, top, missing), start: () => {} };
}

function arenaPart(entry, facts, show) {
  const title = h("h4", {}, "Arena over time");
  if (!entry.arena.allocations.length) {
    return { element: [title, empty("No value lies between groups, so there is no arena.")], start: () => {} };
  }
  const map = arenaMap(entry, facts, show);
  const [shared, unshared] = [entry.arena.bytes, entry.arena_unshared_bytes];
  const saved = percent(unshared ? 1 - shared / unshared : 0, 0);
  const scratch = entry.arena_bytes - shared;
  const sentences = [
    "Every rectangle is a value between groups: how long it lives (across) and which bytes it holds (up).",
    ` Bytes of dead values are used again: ${bytes(shared)} in place of ${bytes(unshared)}, ${saved} less.`,
    scratch > 0 && ` A call holds ${bytes(scratch)} more as scratch for long reductions.`,
    !map.isToScale && " Small values are drawn higher than to scale.",
  ];
  const used = new Set(entry.arena.allocations.map((own) => facts.steps[own.first].kind));
  return { element: [title, about(sentences), legend(kindKeys(used)), map.element], start: map.start };
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
  const heat = [h("i", { class: "swatch heat" }), "share of a call's time; the slowest group has the longest bar"];
  const text = (title, body) => h("details", {}, h("summary", {}, title), listing(title, body));
  const drawn = [
    about("A group is one loop nest or one library call; the ops fused in it pass values in registers. Data flows from",
      " top to bottom. Press a group, or move with the arrow keys, to see what it does; press + to see the ops in it."),
    legend(kindKeys(used), isTimed && [heat]), graph.tools, h("div", { class: "split" }, graph.frame, aside),
    h("h4", {}, "Time per group"), timings(entry, facts, show),
    arena.element,
  ];
  const isEmpty = facts.steps.length === 0;
  const element = h("div", { class: "detail" }, top,
    h("h4", {}, `Graph: ${several(facts.values.length, "value")} in ${several(facts.steps.length, "group")}`),
    isEmpty ? empty("Nothing is computed: the results are arguments or constants.") : drawn,
    h("h4", {}, "Text"), text("Optimised graph", entry.graph_text), text("Plan, step by step", entry.plan_text));
  const start = () => {
    if (isEmpty) return;
    graph.draw();
    arena.start();
  };
  return { element, start };
}
