const token = new URLSearchParams(location.search).get("token") || "";
const element = (id) => document.getElementById(id);
const root = document.documentElement;

const state = { status: "connecting", isLost: false, run: null, charts: new Map(), caches: new Map(), dirty: new Set() };

// Charts that people look for come first.
const FIRST = ["loss", "accuracy", "rate", "throughput"];

// ---- drawing, at most once per frame

function redraw(chart) {
  if (state.dirty.size === 0) {
    requestAnimationFrame(() => {
      const dirty = [...state.dirty];
      state.dirty.clear();
      dirty.forEach((chart) => chart.draw());
    });
  }
  state.dirty.add(chart);
}

function chartOf(name) {
  let chart = state.charts.get(name);
  if (!chart) {
    chart = new Chart(name);
    state.charts.set(name, chart);
    const rank = (title) => (FIRST.includes(title) ? FIRST.indexOf(title) : FIRST.length);
    const after = [...element("charts").children].find((other) => rank(other.dataset.chart) > rank(name));
    element("charts").insertBefore(chart.element, after || null);
    element("empty").hidden = true;
  }
  return chart;
}

const STATUS = {
  connecting: "Connecting", running: "Running", stopping: "Stopping after this step", finished: "Finished",
  lost: "Connection lost, trying again",
};

function showStatus() {
  const shown = state.isLost && state.status !== "finished" ? "lost" : state.status;
  if (element("status").dataset.status !== shown || element("status").textContent !== STATUS[shown]) {
    element("status").dataset.status = shown;
    element("status").textContent = STATUS[shown];
  }
  element("stop").disabled = shown !== "running";
  if (shown !== "running" && element("confirm").open) element("confirm").close();
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

function showProgress() {
  const run = state.run;
  if (!run || run.step === 0) return;
  const parts = [`Step ${count(run.step)}${run.n_steps ? ` of ${count(run.n_steps)}` : ""}`, `epoch ${run.epoch}`, `${duration(run.time - run.started)} so far`];
  // From what was seen of this run, which may have begun at a later step.
  const done = run.step - run.first.step, seconds = run.time - run.first.time;
  if (run.n_steps && done > 0 && seconds > 0 && run.step < run.n_steps && state.status !== "finished") {
    parts.push(`about ${duration(((run.n_steps - run.step) * seconds) / done)} left`);
  }
  element("where").textContent = parts.join(" · ");
  element("track").hidden = !run.n_steps;
  if (run.n_steps) {
    element("fill").style.width = `${Math.min(100, (100 * run.step) / run.n_steps)}%`;
    element("track").setAttribute("aria-valuemax", run.n_steps);
    element("track").setAttribute("aria-valuenow", Math.min(run.step, run.n_steps));
  }
}

// ---- what the server says

function showInfo(name, value) {
  const known = [...element("fields").children].find((field) => field.firstChild.textContent === name);
  if (known) known.lastChild.textContent = value;
  else element("fields").append(html("div", {}, html("dt", {}, name), html("dd", {}, value)));
  element("info").hidden = false;
}

function showNote({ time, step, text }) {
  const at = new Date(1000 * time);
  const list = element("list");
  list.prepend(html("li", {}, html("time", { datetime: at.toISOString() }, `${at.toLocaleTimeString()}, step ${count(step)}`), html("span", {}, text)));
  while (list.children.length > 100) list.lastChild.remove();
  element("notes").hidden = false;
}

function cacheOf(name) {
  let cache = state.caches.get(name);
  if (!cache) {
    cache = {
      rate: new Chart(`hit rate of ${name}`, { names: { training: "hit rate" } }),
      misses: new Chart(`misses of ${name}`, { names: { training: "misses" }, isCount: true }),
      facts: html("ul", { class: "facts" }),
      advice: html("ul", { class: "advice", hidden: "" }),
      rows: html("tbody"),
    };
    const heads = ["Miss", "Reason", "Change", "Call", "Time"].map((text, k) => html("th", { scope: "col", class: k === 0 || k === 4 ? "number" : "text" }, text));
    const table = html("table", {}, html("caption", {}, `Why calls of ${name} missed, the latest first`), html("thead", {}, html("tr", {}, ...heads)), cache.rows);
    element("caches").append(html("div", { class: "cache", "data-cache": name }, html("h3", {}, name), cache.facts, cache.advice,
      html("div", { class: "charts" }, cache.rate.element, cache.misses.element),
      html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Misses of ${name}` }, table)));
    element("caches").hidden = false;
    state.caches.set(name, cache);
  }
  return cache;
}

function showReport(cache, report) {
  const fact = (value, text) => html("li", {}, html("b", {}, value), ` ${text}`);
  cache.facts.replaceChildren(fact(`${short(100 * report.hit_rate)} %`, "hit rate"), fact(count(report.hits), "hits"),
    fact(count(report.misses), "misses"), fact(count(report.entries), "entries"));
  cache.advice.hidden = report.advice.length === 0;
  cache.advice.replaceChildren(...report.advice.map((text) => html("li", {}, text)));
  const rows = report.last_misses.toReversed().map((miss) => html("tr", { "data-miss": miss.number },
    html("td", { class: "number" }, count(miss.number)), html("td", {}, html("code", {}, miss.reason)),
    html("td", { class: "change" }, miss.differences.join("; ")), html("td", { class: "at" }, miss.at),
    html("td", { class: "number" }, `${short(1000 * miss.seconds)} ms`)));
  cache.rows.replaceChildren(...rows);
}

function showHistory(history) {
  state.run = { ...history, first: { step: history.step, time: history.time } };
  const first = history.curves.flatMap((curve) => curve.bins)[0];
  if (first && history.step > first.from) state.run.first = { step: first.from, time: history.started };
  document.title = `${history.name} · training`;
  element("name").textContent = history.name;
  for (const id of ["charts", "fields", "list"]) element(id).replaceChildren();
  element("caches").replaceChildren(element("caches-title"));
  state.charts.clear();
  state.caches.clear();
  history.info.forEach(([name, value]) => showInfo(name, value));
  for (const curve of history.curves) {
    chartOf(curve.name).set(curve.phase, curve, curve.last);
    redraw(chartOf(curve.name));
  }
  for (const { report, hit_rate, misses } of history.caches) {
    const cache = cacheOf(report.name);
    cache.rate.set("training", hit_rate, report.hit_rate);
    cache.misses.set("training", misses, report.misses);
    showReport(cache, report);
    redraw(cache.rate);
    redraw(cache.misses);
  }
  history.notes.forEach(showNote);
  state.status = history.status;
}

const heard = {
  history: (message) => showHistory(message.history),
  record: ({ phase, time, step, epoch, scalars }) => {
    if (state.run.step === 0) state.run.first = { step, time };
    Object.assign(state.run, { time, step, epoch });
    for (const [name, value] of scalars) {
      chartOf(name).push(phase, step, value);
      redraw(chartOf(name));
    }
  },
  info: ({ name, value }) => showInfo(name, value),
  cache: ({ report }) => {
    const cache = cacheOf(report.name);
    cache.rate.push("training", report.step, report.hit_rate);
    cache.misses.push("training", report.step, report.misses);
    showReport(cache, report);
    redraw(cache.rate);
    redraw(cache.misses);
  },
  note: showNote,
  steps: ({ n_steps }) => { state.run.n_steps = n_steps; },
  status: ({ status }) => { state.status = status; },
};

const events = new EventSource(`events?token=${encodeURIComponent(token)}`);
events.addEventListener("message", (event) => {
  state.isLost = false;
  for (const message of JSON.parse(event.data)) heard[message.kind](message);
  if (state.status === "finished") events.close();
  showProgress();
  showStatus();
});
events.addEventListener("error", () => {
  state.isLost = true;
  showStatus();
});

// ---- what people do

element("stop").addEventListener("click", () => element("confirm").showModal());
element("keep").addEventListener("click", () => element("confirm").close());
element("really").addEventListener("click", async () => {
  element("confirm").close();
  try {
    const answer = await fetch("stop", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
    if (!answer.ok) throw new Error(await answer.text());
  } catch (error) {
    showNote({ time: Date.now() / 1000, step: state.run?.step ?? 0, text: `The training could not be asked to stop: ${error.message}` });
  }
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
const nameTheme = () => { element("theme").textContent = isDark() ? "Light" : "Dark"; };
element("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();
