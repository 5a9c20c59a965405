// SPDX-License-Identifier: Apache-2.0
// The status page: reads GET /metrics (Prometheus text) once a second and draws the last minutes. Counters become rates.
"use strict";

const SECONDS_KEPT = 180, SECONDS_SHOWN_MIN = 20;
const HEIGHT = 100, WIDTH = 400;  // of a chart, in its own units

const value = (name) => (sample) => sample.get(name);
const rate = (name) => (sample, before, seconds) =>
  before?.has(name) && sample.has(name) ? Math.max(0, sample.get(name) - before.get(name)) / seconds : undefined;
const share = (part, whole) => (sample, before) => {
  const all = sample.get(whole) - (before?.get(whole) ?? 0), some = sample.get(part) - (before?.get(part) ?? 0);
  return before && all > 0 ? (100 * some) / all : undefined;
};

const CHARTS = [
  { title: "Requests", unit: "", series: [["running", value("deepinfer_requests_running")], ["waiting", value("deepinfer_requests_waiting")]] },
  { title: "Tokens per second", unit: "",
    series: [["answers", rate("deepinfer_answer_tokens_total")], ["prompts", rate("deepinfer_prompt_tokens_total")]] },
  { title: "Cache in use", unit: " %", max: 100,
    series: [["blocks", (s) => 100 * (1 - s.get("deepinfer_cache_blocks_available") / s.get("deepinfer_cache_blocks"))]] },
  { title: "Prompt from cache", unit: " %", max: 100,
    series: [["hit rate", share("deepinfer_cached_tokens_total", "deepinfer_prompt_tokens_total")]] },
  { title: "Rows of a step", unit: "",
    series: [["mean", (s, b) => {
      const steps = s.get("deepinfer_steps_total") - (b?.get("deepinfer_steps_total") ?? 0);
      return b && steps > 0 ? (s.get("deepinfer_step_rows_total") - b.get("deepinfer_step_rows_total")) / steps : undefined;
    }]] },
  { title: "Connections", unit: "", series: [["open", value("deepinfer_http_connections")]] },
];

const SVG = "http://www.w3.org/2000/svg";
let samples = [];  // {at, values}, oldest first
let paused = false;

function svg(tag, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, v] of Object.entries(attributes)) node.setAttribute(name, v);
  node.textContent = text;
  return node;
}

// Sums the values of a metric over its labels.
function parse(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const match = /^([A-Za-z_:][\w:]*)(\{.*\})?\s+(\S+)/.exec(line);
    if (match && !match[1].endsWith("_bucket")) values.set(match[1], (values.get(match[1]) ?? 0) + Number(match[3]));
  }
  return values;
}

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.now = Object.assign(document.createElement("span"), { className: "now" });
    const caption = document.createElement("figcaption");
    caption.append(spec.title, this.now);
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.scale = Object.assign(document.createElement("div"), { className: "soft scale" });
    this.paths = spec.series.map((_, i) => svg("path", { class: `series${i}` }));
    this.svg.append(svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
                    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }), ...this.paths);
    const legend = Object.assign(document.createElement("div"), { className: "legend soft" });
    legend.append(...spec.series.map(([name], i) => Object.assign(document.createElement("span"), { className: `series${i}`, textContent: name })));
    const figure = document.createElement("figure");
    figure.append(caption, this.scale, this.svg, legend);
    document.getElementById("charts").append(figure);
  }

  draw() {
    const end = samples.at(-1).at;
    const shown = Math.max(SECONDS_SHOWN_MIN, (end - samples[0].at) / 1000);
    const lines = this.spec.series.map(([, read]) => samples.map((sample, i) => {
      const before = samples[i - 1];
      const v = read(sample.values, before?.values, before ? (sample.at - before.at) / 1000 : 1);
      return { x: WIDTH * (1 - (end - sample.at) / 1000 / shown), v };
    }).filter((point) => Number.isFinite(point.v)));
    const most = this.spec.max ?? Math.max(1, ...lines.flat().map((point) => point.v));
    lines.forEach((line, i) => {
      this.paths[i].setAttribute("d", line.map((p, n) => `${n ? "L" : "M"}${p.x.toFixed(1)},${((HEIGHT - 2) * (1 - p.v / most) + 1).toFixed(1)}`).join(" "));
    });
    const latest = lines.map((line) => line.at(-1)?.v);
    const said = this.spec.series.map(([name], i) => `${name} ${formatNumber(latest[i] ?? NaN)}${this.spec.unit}`);
    this.scale.textContent = `to ${formatNumber(most)}${this.spec.unit}, the last ${shown.toFixed(0)} s`;
    this.now.textContent = latest.map((v) => formatNumber(v ?? NaN) + this.spec.unit).join(" / ");
    this.svg.setAttribute("aria-label", `${this.spec.title}: ${said.join(", ")}`);
  }
}

function showTable(values) {
  const rows = [...values].map(([name, v]) => {
    const row = document.createElement("tr");
    row.append(Object.assign(document.createElement("td"), { textContent: name }),
               Object.assign(document.createElement("td"), { textContent: formatNumber(v) }));
    return row;
  });
  document.getElementById("table").replaceChildren(...rows);
}

async function tick(charts) {
  const state = document.getElementById("state");
  try {
    const response = await fetch("metrics", { cache: "no-store", headers: headersWithKey() });
    if (!response.ok) throw new Error(`GET /metrics: ${response.status}`);
    const values = parse(await response.text());
    const at = performance.now();
    samples.push({ at, values });
    samples = samples.filter((sample) => at - sample.at < SECONDS_KEPT * 1000);
    charts.forEach((chart) => chart.draw());
    if (document.getElementById("table-part").open) showTable(values);
    if (state.textContent !== "live") state.textContent = "live";
    state.classList.remove("error");
  } catch (error) {
    state.textContent = `no figures: ${error.message}`;
    state.classList.add("error");
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const charts = CHARTS.map((spec) => new Chart(spec));
  const pause = document.getElementById("pause");
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    document.getElementById("state").textContent = paused ? "paused" : "live";
  });
  keepKey(document.getElementById("key"), () => tick(charts));
  tick(charts);
  setInterval(() => { if (!paused && !document.hidden) tick(charts); }, 1000);
});
