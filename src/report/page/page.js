// The page from its data.

function headline(data) {
  const { stats } = data;
  const card = (label, value, note, extra) => h("div", { class: "card" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value), h("div", { class: "note" }, note), extra);
  const latency = (name, of) => card(`${name} latency`, of && of.n ? time(of.p50) : "–",
    of && of.n ? `median; p90 ${time(of.p90)}, p99 ${time(of.p99)}, max ${time(of.max)}` : "none timed");
  const meter = (fraction) => h("div", { class: "meter" }, h("span", { style: `width:${100 * Math.min(1, fraction)}%` }));
  const calls = stats.hits + stats.misses;
  return h("div", { class: "cards" },
    card("Hit rate", calls ? percent(stats.hit_rate, 2) : "–", `${several(stats.hits, "hit")}, ${several(stats.misses, "miss", "misses")}${stats.waits ? `, ${several(stats.waits, "wait")}` : ""}`, meter(stats.hit_rate)),
    card("Entries", `${count(stats.n_entries)} of ${count(stats.capacity)}`, `${count(stats.evictions)} evicted, ${several(stats.clears, "clear")}${stats.pinned ? `, ${count(stats.pinned)} pinned` : ""}`, meter(stats.n_entries / stats.capacity)),
    card("Memory", bytes(stats.bytes), !stats.byte_budget ? "code, arenas and constants; no byte budget" : `of a budget of ${bytes(stats.byte_budget)}`, !stats.byte_budget ? null : meter(stats.bytes / stats.byte_budget)),
    stats.device_bytes > 0 && card("On GPUs", bytes(stats.device_bytes), !stats.device_byte_budget ? "code, arenas and captured tensors; no byte budget" : `of a budget of ${bytes(stats.device_byte_budget)}`, !stats.device_byte_budget ? null : meter(stats.device_bytes / stats.device_byte_budget)),
    latency("Hit", stats.hit_latency),
    latency("Miss", stats.miss_latency),
    stats.backward_hits + stats.backward_misses > 0 && card("Backward code", several(stats.backward_hits + stats.backward_misses, "run"), `${count(stats.backward_misses)} of them compiled it first`),
    stats.checked + stats.trapped > 0 && card("Checks", `${count(stats.differing)} of ${count(stats.checked)} differ`, `${several(stats.quarantines, "signature")} in quarantine, ${several(stats.quarantined_calls, "call")} served un-accelerated for it; ${several(stats.trapped, "call")} trapped`));
}

function entryTable(data, choose) {
  const most = Math.max(...data.entries.map((entry) => entry.calls), 1);
  const row = (entry, n) => {
    const { bar, total } = stages(entry.times);
    return h("tr", { "data-entry": n, tabindex: 0, role: "button", class: entry.detail ? "" : "bare", ...pressed(() => choose(n)) },
      h("td", {}, h("code", { title: entry.arguments }, shortened(entry.arguments, 84)), entry.notes.map((note) => h("span", { class: "chip" }, note))),
      h("td", { class: "number" }, count(entry.calls), h("div", { class: "meter thin" }, h("span", { style: `width:${(100 * entry.calls) / most}%` }))),
      h("td", { class: "number" }, ago(entry.idle)),
      h("td", { class: "number" }, bytes(entry.bytes), entry.device_bytes > 0 && h("div", { class: "at" }, `${bytes(entry.device_bytes)} on a GPU`)),
      h("td", { class: "number" }, bytes(entry.arena_bytes), h("div", { class: "at" }, `${bytes(entry.arena_unshared_bytes)} unshared`)),
      h("td", { class: "number" }, count(entry.n_steps)),
      h("td", { class: "number" }, count(entry.captures.length)),
      h("td", { class: "number" }, time(total), bar));
  };
  const names = ["arguments", "calls", "last use", "bytes", "arena", "groups", "captures", "made in"];
  return h("div", { class: "scroll tall" }, h("table", { class: "entries" },
    h("thead", {}, h("tr", {}, names.map((name, n) => h("th", { class: n ? "number" : "" }, name)))),
    h("tbody", {}, data.entries.map(row))));
}

function entryDetail(entry) {
  const times = stages(entry.times);
  const leaves = h("details", { class: "leaves", open: entry.leaves.length <= 8 }, h("summary", {}, `${count(entry.leaves.length)} leaves of the arguments`),
    h("div", { class: "scroll tall" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "path"), h("th", {}, "value in the signature"))),
      h("tbody", {}, entry.leaves.map((leaf) => h("tr", {}, h("td", {}, h("code", {}, leaf.path)), h("td", {}, h("code", {}, leaf.text))))))));
  const captures = entry.captures.length > 0 && [h("h4", {}, "Captured tensors"),
    h("p", { class: "about" }, "The closure used these from outside; the entry keeps the value each had when it was traced."),
    h("ul", { class: "captures" }, entry.captures.map((text) => h("li", {}, h("code", {}, text))))];
  const gradient = (code) => {
    const by = code.arguments.map((n) => entry.names[n] || `captured tensor ${n - entry.names.length}`).join(", ");
    const made = stages(code.times);
    return h("tr", {},
      h("td", {}, h("code", { title: by }, shortened(by, 90)), !code.is_compiled && h("span", { class: "chip" }, "not compiled yet")),
      h("td", { class: "number" }, count(code.calls)),
      h("td", { class: "number" }, count(code.residuals), h("div", { class: "at" }, bytes(code.residual_bytes))),
      h("td", { class: "number" }, bytes(code.bytes)),
      h("td", { class: "number" }, time(made.total), made.bar));
  };
  const gradients = entry.gradients.length > 0 && [h("h4", {}, "Code for gradients"),
    h("p", { class: "about" }, "The function was called inside a gradient that is taken outside of it: a forward version keeps values for a backward one, which is compiled when it is first needed."),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["with respect to", "calls", "values kept", "bytes", "made in"].map((name, n) => h("th", { class: n ? "number" : "" }, name)))),
      h("tbody", {}, entry.gradients.map(gradient))))];
  const top = [h("h3", {}, "Entry ", h("code", {}, shortened(entry.arguments, 120))), leaves,
    h("h4", {}, `Making it took ${time(times.total)}`), times.bar, times.keys, captures, gradients];
  if (!entry.detail) return { element: h("div", { class: "detail" }, top, h("p", { class: "quiet" }, "The report shows the graphs of the entries used last; this one is not among them.")), start: () => {} };
  return graphDetail({ ...entry, ...entry.detail }, top);
}

function graphDetail(entry, top) {
  const facts = linked(entry);
  const panel = h("aside", { class: "panel" }, h("p", { class: "quiet" }, "Choose a group to see what it reads, writes and computes."));
  const graph = drawGraph(entry, facts, (n, toggle, isOpen) => panel.replaceChildren(...groupDetails(entry, facts, n, toggle, isOpen).flat(Infinity).filter(Boolean)));
  const show = (n) => {
    graph.show(n);
    graph.canvas.scrollIntoView({ block: "nearest" });
  };
  const arena = entry.arena.rects.length > 0 && arenaMap(entry, facts, show);
  const used = new Set(facts.steps.map((step) => step.kind));
  const saved = entry.arena_unshared_bytes ? 1 - entry.arena.bytes / entry.arena_unshared_bytes : 0;
  const scratch = entry.arena_bytes - entry.arena.bytes;
  const text = (title, body) => h("details", {}, h("summary", {}, title), h("pre", {}, body));
  const element = h("div", { class: "detail" }, top,
    h("h4", {}, `Graph: ${count(facts.values.length)} values in ${count(facts.steps.length)} groups`),
    h("p", { class: "about" }, "A group is one loop nest or one library call; the ops fused in it pass values in registers. Data flows from top to bottom. Hover or focus for details, press + to open a group."),
    legend(used, facts.units.some((unit) => unit.time) && h("li", {}, h("i", { class: "swatch heat" }), "share of a call's time, the longest group full")), graph.tools, h("div", { class: "split" }, graph.canvas, panel),
    h("h4", {}, "Time per group"), timings(entry, facts, show),
    h("h4", {}, "Arena over time"),
    arena ? [h("p", { class: "about" }, `Every rectangle is a value between groups: how long it lives (across) and which bytes it holds (up). Bytes of dead values are used again: ${bytes(entry.arena.bytes)} in place of ${bytes(entry.arena_unshared_bytes)}, ${percent(saved, 0)} less.${scratch > 0 ? ` A call holds ${bytes(scratch)} more as scratch for long reductions.` : ""}`), legend(new Set(entry.arena.rects.map((rect) => facts.steps[rect.from].kind))), arena]
      : h("p", { class: "quiet" }, "No value lies between groups, so there is no arena."),
    h("h4", {}, "Text"), text("Optimised graph", entry.graph_text), text("Plan, step by step", entry.plan_text));
  const start = () => {
    graph.draw();
    if (arena) arena.start();
  };
  return { element, start };
}

function missTable(data) {
  const row = (miss) => {
    const { bar, total } = stages(miss.times);
    const changed = miss.changes.map((change) => h("div", { class: "change" }, h("code", {}, change.path), ` ${change.field} `, h("del", {}, shortened(change.old, 60)), " → ", h("ins", {}, shortened(change.new, 60))));
    return h("tr", { "data-miss": miss.number },
      h("td", { class: "number" }, count(miss.number)),
      h("td", { class: "number" }, ago(miss.age)),
      h("td", {}, h("span", { class: "chip" }, miss.reason)),
      h("td", {}, changed, h("code", { class: "arguments", title: miss.arguments }, shortened(miss.arguments, 90))),
      h("td", {}, h("span", { class: "at" }, miss.at)),
      h("td", { class: "number" }, time(total), bar));
  };
  const names = ["miss", "when", "reason", "what differed from the nearest known arguments", "call", "cost"];
  return h("div", { class: "scroll tall" }, h("table", { class: "misses" },
    h("thead", {}, h("tr", {}, names.map((name, n) => h("th", { class: n < 2 || n === 5 ? "number" : "" }, name)))),
    h("tbody", {}, [...data.misses].reverse().map(row))));
}

const glossary = [
  ["hit", "a call whose arguments have a known signature: machine code runs, the closure is not entered"],
  ["miss", "a call with a new signature: the closure runs once on stand-ins, and what it does is differentiated, optimised, planned and compiled"],
  ["signature", "structure, dtypes, shapes, device and static values of the arguments"],
  ["entry", "what a miss leaves in the cache: machine code for one signature"],
  ["group", "ops that became one loop nest, or one call of a library kernel"],
  ["arena", "the memory of a running call for values between groups"],
  ["capture", "a tensor that the closure took from outside instead of as an argument"],
];

function build(data) {
  const page = document.getElementById("page");
  const place = h("div", { id: "entry" });
  const choose = (n) => {
    document.querySelectorAll("[data-entry]").forEach((row) => row.classList.toggle("chosen", Number(row.dataset.entry) === n));
    const { element, start } = entryDetail(data.entries[n]);
    place.replaceChildren(element);
    start();
  };
  const rate = data.misses.length > 0 && hitRate(data.stats, data.misses);
  const theme = () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  };
  const links = [["cache", "Cache"], ["entries", "Entries"], ["misses", "Misses"], ["words", "Words"]];
  page.append(
    h("header", {}, h("div", { class: "top" }, h("strong", {}, "retape"), h("nav", {}, links.map(([id, title]) => h("a", { href: `#${id}` }, title))),
      h("button", { type: "button", onclick: theme, title: "Light or dark" }, "◐")),
      h("h1", {}, "Report on ", h("code", {}, data.title)),
      h("p", { class: "about" }, `Accelerated at ${data.made_at}. Written ${new Date(1000 * data.written).toISOString().replace("T", " ").slice(0, 19)} UTC by retape ${data.version}; ${data.machine}.`)),
    h("main", {},
      section("cache", "Cache", null, headline(data),
        data.advice.length > 0 && h("div", { class: "advice" }, h("h3", {}, "Advice"), h("ul", {}, data.advice.map((line) => h("li", {}, line)))),
        rate && [h("h3", {}, "Hit rate over time"), rate]),
      section("entries", "Entries", data.entries.length ? "One row per compiled signature, most recently used first. Choose one to look inside." : "The cache is empty.",
        data.entries.length > 0 && entryTable(data, choose), place),
      section("misses", "Misses", data.misses.length ? `Why calls had to trace, newest first.${data.forgotten ? ` ${count(data.forgotten)} older ones are forgotten.` : ""}` : "No call has missed.",
        data.misses.length > 0 && missTable(data)),
      section("words", "Words", null, h("dl", {}, glossary.map(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)])))));
  if (rate) rate.start();
  if (data.entries.length) choose(0);
}

window.addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });
build(JSON.parse(document.getElementById("data").textContent));
document.documentElement.dataset.ready = "true";
