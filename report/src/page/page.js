// The page from its data.

function card(label, value, note, ...more) {
  return h("div", { class: "card" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value), more,
    note && h("div", { class: "note" }, note));
}

function latencyCard(name, of) {
  if (!of.n_timed) return card(`${name} latency`, "–", "none timed");
  const rows = ["p90", "p99", "max"].map((name) => [name, of[`${name}_seconds`]]);
  const figures = rows.map(([title, value]) => [h("dt", {}, title), h("dd", {}, time(value))]);
  return card(`${name} latency, median`, time(of.p50_seconds), null, h("dl", { class: "figures" }, figures));
}

function memoryCard(label, used, budget, kinds) {
  const note = budget ? `of a budget of ${bytes(budget)}` : `${kinds}; no byte budget`;
  return card(label, bytes(used), note, budget > 0 && meter(used / budget));
}

function meter(fraction, kind = "") {
  return h("div", { class: `meter ${kind}` }, h("span", { style: `width:${100 * Math.min(1, fraction)}%` }));
}

function headline({ stats }) {
  const { checks, entries } = stats;
  const calls = stats.hits + stats.misses;
  const hitRate = stats.hits / calls;
  const all = (field) => entries.reduce((sum, entry) => sum + entry[field], 0);
  const backward = stats.backward_hits + stats.backward_misses;
  const parts = (...list) => list.filter(Boolean).join(", ");
  const beside = (text) => h("span", { class: "of" }, text);
  const waits = stats.waits > 0 && several(stats.waits, "wait");
  const outcomes = parts(several(stats.hits, "hit"), several(stats.misses, "miss", "misses"), waits);
  const turnover = parts(`${count(stats.evictions)} evicted`, several(stats.clears, "clear"),
    stats.pinned > 0 && `${count(stats.pinned)} pinned`, stats.rejected > 0 && `${count(stats.rejected)} not kept`);
  const quarantine = parts(`${several(checks.quarantines, "signature")} in quarantine`,
    checks.quarantined_calls > 0 && `${several(checks.quarantined_calls, "call")} served un-accelerated for it`);
  return h("div", { class: "cards" },
    calls > 0 ? card("Hit rate", percent(hitRate, 2), outcomes, meter(hitRate)) : card("Hit rate", "–", "no calls yet"),
    card("Entries", [count(entries.length), beside(` of ${count(stats.capacity)}`)], turnover, meter(entries.length / stats.capacity)),
    memoryCard("Memory", all("bytes"), stats.budget.host, "code, arenas and constants"),
    all("device_bytes") > 0 && memoryCard("On GPUs", all("device_bytes"), stats.budget.device, "code, arenas and captured tensors"),
    latencyCard("Hit", stats.hit_latency),
    latencyCard("Miss", stats.miss_latency),
    backward > 0 && card("Backward code", several(backward, "run"), `${count(stats.backward_misses)} of them compiled it first`),
    checks.checked > 0 && card("Checked calls", [count(checks.checked), beside(`, ${count(checks.differing)} differ`)], quarantine),
    checks.trapped > 0 && card("Trapped calls", count(checks.trapped), "NaN or infinity from finite numbers"));
}

/** Where and by which program the page was made. */
function circumstances(data) {
  const { machine } = data;
  const processor = [
    machine.processor || "unknown processor", several(machine.threads, "thread"), `${machine.instruction_set} kernels`,
    `${machine.architecture} ${machine.system}`,
  ];
  const written = new Date(1000 * data.written_seconds).toISOString().replace("T", " ").slice(0, 19);
  const facts = [
    ["Accelerated at", h("code", {}, place(data.made_at))],
    ["Processor", processor.join(" · ")],
    machine.gpus.length > 0 && ["GPU", machine.gpus.join(" · ")],
    ["Written", `${written} UTC by retape ${data.version}, ${time(data.age_seconds)} after the function was made`],
  ];
  return h("dl", { class: "facts" }, facts.map((fact) => fact && h("div", {}, h("dt", {}, fact[0]), h("dd", {}, fact[1]))));
}

const words = [
  ["hit", "a call whose arguments have a known signature: machine code runs, the closure is not entered"],
  ["miss", "a call with a new signature: the closure runs once on stand-ins; that is differentiated, optimised and compiled"],
  ["signature", "structure, dtypes, shapes, device and static values of the arguments"],
  ["entry", "what a miss leaves in the cache: machine code for one signature"],
  ["group", "ops that became one loop nest, or one call of a library kernel"],
  ["arena", "the memory of a running call for values between groups"],
  ["capture", "a tensor that the closure took from outside instead of as an argument"],
];

/** The button that goes from light to dark and back. */
function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const button = h("button", { type: "button", class: "theme" });
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  name();
  return button;
}

function build(data) {
  const { name, entries, advice: advised } = data.stats;
  const page = document.getElementById("page");
  const chosen = h("div", { id: "entry" });
  const choose = (n) => {
    document.querySelectorAll("[data-entry]").forEach((row) => {
      const isChosen = Number(row.dataset.entry) === n;
      row.classList.toggle("chosen", isChosen);
      row.querySelector(".choice").setAttribute("aria-pressed", isChosen);
    });
    const { element, start } = entryDetail(entries[n], data.details[n]);
    chosen.replaceChildren(element);
    start();
  };
  const hasCalls = data.stats.hits + data.stats.misses > 0;
  const rate = hasCalls && hitRate(data);
  const links = [["cache", "Cache"], ["entries", "Entries"], ["misses", "Misses"], ["words", "Words"]];
  const nav = h("nav", { "aria-label": "Sections" }, links.map(([id, title]) => h("a", { href: `#${id}` }, title)));
  const advice = h("div", { class: "advice" }, h("h3", {}, "Advice"), h("ul", {}, advised.map((advice) => h("li", {}, advice.message))));
  const nothing = hasCalls ? "The cache is empty." : "The function was not called yet: its first call traces it and makes an entry.";
  const term = ([word, meaning]) => h("div", {}, h("dt", {}, word), h("dd", {}, meaning));
  document.title = `${name}: retape report`;
  page.append(
    h("header", {}, h("div", { class: "top" }, h("strong", {}, "retape"), nav, themeButton()),
      h("p", { class: "over" }, "Report on an accelerated function"), h("h1", {}, name), circumstances(data)),
    h("main", {},
      section("cache", "Cache", headline(data), advised.length > 0 && advice, rate && [h("h3", {}, "Hit rate over time"), rate.element]),
      section("entries", "Entries", entries.length > 0 ? entryTable(entries, choose) : empty(nothing), chosen),
      section("misses", "Misses", data.misses.length > 0 ? missTable(data) : empty("No call has missed.")),
      section("words", "Words", h("dl", { class: "words" }, words.map(term)))));
  if (rate) rate.start();
  if (entries.length) choose(0);
}

window.addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });
build(JSON.parse(document.getElementById("data").textContent));
document.documentElement.dataset.ready = "true";
