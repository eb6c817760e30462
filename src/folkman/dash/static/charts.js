// Curves that grow: one chart a metric, a line a run, or the mean over the seeds of a label.

import { colourOf } from "./colours.js";
import { choices, make, number, offer, variable } from "./dom.js";
import { drawingOf, lookOf, saver } from "./save.js";

const MOST_POINTS = 2000, MOST_TOLD = 13;

// Rows of one run as columns, bounded and even: when full, every second row is let go, and from then on only every
// second new one is kept. The newest is always there, if only until the next comes.
export class Series {
  constructor(columns = {}, step = 1) {
    this.columns = columns;
    this.step = step;
    this.count = this.length;
    this.passing = false;
  }

  get length() {
    return this.columns.slots?.length ?? 0;
  }

  add(columns) {
    const more = columns.slots?.length ?? 0;
    const names = new Set([...Object.keys(this.columns), ...Object.keys(columns)]);
    for (const name of names) this.columns[name] ??= new Array(this.length).fill(null);
    for (let row = 0; row < more; row++) {
      for (const name of names) {
        if (this.passing) this.columns[name].pop();
        this.columns[name].push(columns[name]?.[row] ?? null);
      }
      this.count += 1;
      this.passing = this.count % this.step !== 0;
      if (!this.passing && this.length > MOST_POINTS) this.thin();
    }
  }

  thin() {
    for (const name of Object.keys(this.columns)) this.columns[name] = this.columns[name].filter((_, index) => index % 2 === 0);
    this.step *= 2;
  }

  last(name) {
    const column = this.columns[name];
    return column?.length ? column[column.length - 1] : null;
  }
}

// The mean over runs at the recorded slots that all of them have reached.
function meanOf(group, x, y) {
  const begun = group.filter((run) => run.series.length);
  if (begun.length === 1) return [begun[0].series.columns[x] ?? [], begun[0].series.columns[y] ?? []];
  const sums = new Map();
  for (const { series } of begun) {
    const { slots } = series.columns, xs = series.columns[x], ys = series.columns[y];
    if (!xs || !ys) continue;
    slots.forEach((slot, index) => {
      if (ys[index] === null) return;
      const sum = sums.get(slot) ?? [0, 0, 0];
      sums.set(slot, [sum[0] + xs[index], sum[1] + ys[index], sum[2] + 1]);
    });
  }
  const met = [...sums.entries()].filter(([, sum]) => sum[2] === begun.length).sort((a, b) => a[0] - b[0]);
  return [met.map(([, sum]) => sum[0] / sum[2]), met.map(([, sum]) => sum[1] / sum[2])];
}

function increasing([xs, ys]) {
  const kept = [[], []];
  let last = -Infinity;
  for (let i = 0; i < xs.length; i++) {
    if (xs[i] === null || xs[i] <= last) continue;
    last = xs[i];
    kept[0].push(xs[i]);
    kept[1].push(ys[i]);
  }
  return kept;
}

const RATIO_FOR_LOG = 30;

function dot(look) {
  const found = make("i", { class: "dot", "aria-hidden": "true" });
  found.style.background = colourOf(look);
  return found;
}

function spansMuch(tables) {
  const all = tables.flatMap(([, ys]) => ys).filter((y) => y !== null && Number.isFinite(y));
  const low = Math.min(...all), high = Math.max(...all);
  return all.length > 0 && low > 0 && high / low > RATIO_FOR_LOG;
}

// The part of the x axis that charts show, the same for all of a page; null is all of it.
export class Zoom {
  constructor(redraw) {
    this.range = null;
    this.redraw = redraw;
    this.button = make("button", { type: "button", hidden: true, onclick: () => this.set(null) }, "Whole axis");
  }

  set(range) {
    this.range = range;
    this.button.hidden = range === null;
    this.redraw();
  }

  // Show less (0.5) or more (2) of what there is, about the middle of what is shown or the cursor.
  by(factor, [low, high], centre = null) {
    const [from, to] = this.range ?? [low, high], at = centre ?? (from + to) / 2;
    const next = [Math.max(low, at - (at - from) * factor), Math.min(high, at + (to - at) * factor)];
    if (!(next[1] > next[0])) return;
    this.set(next[0] <= low && next[1] >= high ? null : next);
  }

  key(key, charts) {
    const chart = charts.find((each) => each.focused) ?? charts[0];
    if (!chart?.plot || !["+", "=", "-", "0"].includes(key)) return false;
    if (key === "0") this.set(null);
    else this.by(key === "-" ? 2 : 0.5, chart.whole(), chart.focused ? chart.at() : null);
    return true;
  }

  keys() {
    return [["+ -", "zoom"], ...(this.range ? [["0", "whole axis"]] : [])];
  }
}

export class Chart {
  constructor(metrics, metric, redraw, zoom = new Zoom(redraw)) {
    this.metric = metric;
    this.metrics = metrics;
    this.zoom = zoom;
    this.readout = make("div", { class: "readout" });
    this.place = make("div", { class: "plot", tabindex: "0", role: "img", "aria-label": metrics[metric] });
    this.log = make("input", { type: "checkbox", onchange: () => { this.asked = true; this.rebuild = true; redraw(); } });
    this.picker = choices("", Object.entries(metrics), metric, (value) => { this.metric = value; this.rebuild = true; redraw(); }, "Curve");
    this.picker.classList.add("curve");
    this.element = make("section", { class: "card", "aria-label": "Curves" },
      make("div", { class: "head" }, this.picker, make("span", { class: "gap" }), saver(() => this.fileName(), () => this.table(), () => this.drawing()), make("label", {}, this.log, " log")),
      this.place, this.readout);
    this.place.addEventListener("keydown", (event) => this.step(event));
    this.plot = null;
    this.shape = "";
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
  }

  get focused() {
    return this.place === document.activeElement;
  }

  // The whole x axis, and where the cursor is on it.
  whole() {
    const xs = this.plot.data[0];
    return [xs[0] ?? 0, xs[xs.length - 1] ?? 1];
  }

  at() {
    const index = this.plot.cursor.idx;
    return index === null || index === undefined ? null : this.plot.data[0][index];
  }

  fileName() {
    return `${this.metric}-${this.x}`;
  }

  // What is shown, as rows: the x axis and a column for each line.
  table() {
    const [low, high] = this.zoom.range ?? [-Infinity, Infinity];
    const rows = this.plot.data[0].map((x, i) => [x, ...this.plot.data.slice(1).map((ys) => ys[i])]);
    return [[this.x, ...this.plot.series.slice(1).map((series) => series.label)], rows.filter(([x]) => x >= low && x <= high)];
  }

  drawing() {
    const [xs, ...columns] = this.plot.data;
    const lines = columns.map((ys, i) => [this.plot.series[i + 1].label, this.shownLooks[i], xs, ys]);
    return drawingOf(this.metrics[this.metric], this.axes[this.x], lines, { range: this.zoom.range ?? this.whole(), log: this.log.checked });
  }

  size() {
    return { width: Math.max(this.place.clientWidth, 120), height: this.place.clientHeight || 230 };
  }

  // Arrow keys move the cursor over the rows, for who has no mouse.
  step(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!move || !this.plot || !this.plot.data[0].length) return;
    event.preventDefault();
    const xs = this.plot.data[0];
    const at = Math.min(Math.max((this.plot.cursor.idx ?? xs.length - 1) + move, 0), xs.length - 1);
    this.plot.setCursor({ left: this.plot.valToPos(xs[at], "x"), top: 10 });
  }

  // Offer the metrics that runs have; one that none has gives its place to the next.
  offer(metrics) {
    offer(this.picker, Object.entries(this.metrics).filter(([name]) => metrics.has(name)));
    this.picker.hidden = false;
    if (metrics.size && !metrics.has(this.metric)) {
      this.metric = this.picker.querySelector("select").value;
      this.rebuild = true;
    }
  }

  draw(groups, x, axes, each) {
    const lines = [];
    for (const group of groups) {
      if (!group.shown) continue;
      if (each) group.runs.forEach((run) => run.series.length && lines.push([group, `${group.label}, seed ${run.seed}`, [run.series.columns[x] ?? [], run.series.columns[this.metric] ?? []]]));
      else lines.push([group, group.label, meanOf(group.runs, x, this.metric)]);
    }
    const tables = lines.map(([, , data]) => increasing(data)).map((data) => (data[0].length ? data : [[0], [null]]));
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0] ?? [[], []];
    if (!this.asked) this.log.checked = spansMuch(tables);
    this.looks = lines.map(([group]) => group.colour ?? group.index);
    this.shownLooks = lines.map(([group]) => lookOf(group));
    Object.assign(this, { x, axes });
    const shape = JSON.stringify([this.metric, x, this.log.checked, lines.map(([, name]) => name)]);
    if (this.rebuild || shape !== this.shape || !this.plot) {
      this.plot?.destroy();
      this.place.replaceChildren();
      this.plot = new uPlot(this.options(lines, x, axes), data, this.place);
      this.place.setAttribute("aria-label", `${this.metrics[this.metric]} against ${axes[x]}`);
      this.shape = shape;
      this.rebuild = false;
    } else this.plot.setData(data, this.zoom.range === null);
    this.fit();
    if (this.plot.cursor.idx === null || this.plot.cursor.idx === undefined) this.tellLast(lines);
  }

  // Show the part that all charts of the page show.
  fit() {
    const { min, max } = this.plot.scales.x, [low, high] = this.zoom.range ?? this.whole();
    if (min === low && max === high) return;
    this.plot.setScale("x", { min: low, max: high > low ? high : low + 1 });
  }

  tellLast(lines) {
    this.say(lines.map(([group, name, [, ys]]) => [name, ys.findLast((y) => y !== null), group.colour ?? group.index]));
  }

  options(lines, x, axes) {
    const ink = () => variable("--ink-2"), grid = { stroke: () => variable("--grid"), width: 1 };
    const common = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
    const series = lines.map(([group, name]) => ({ label: name, stroke: () => colourOf(lookOf(group).colour), dash: lookOf(group).dash, width: 2, spanGaps: true, points: { show: false } }));
    return {
      ...this.size(),
      legend: { show: false },
      padding: [8, 18, 0, 0],
      scales: { x: { time: false }, y: { distr: this.log.checked ? 3 : 1 } },
      cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 }, bind: { dblclick: () => () => this.zoom.set(null) } },
      axes: [{ ...common, label: axes[x], size: 34, values: (_, ticks) => ticks.map((v) => number(v, 3)) },
        { ...common, size: 58, values: (_, ticks) => ticks.map((v) => (v === null ? "" : number(v, 3))) }],
      series: [{}, ...series],
      hooks: { setCursor: [(plot) => this.tell(plot, x)], setSelect: [(plot) => this.select(plot)], setScale: [(plot, key) => this.told(plot, key)] },
    };
  }

  // What is drawn, for who reads the page by program.
  told(plot, key) {
    const { min, max } = plot.scales.x;
    if (key === "x") Object.assign(this.place.dataset, { from: min, to: max });
  }

  // A drag over the axis: all charts show that part.
  select(plot) {
    const { left, width } = plot.select;
    if (width < 3) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.zoom.set(range);
  }

  tell(plot, x) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined) return;
    const values = plot.series.slice(1).map((series, index) => [series.label, plot.data[index + 1][at], this.looks[index]]);
    const known = values.filter(([, value]) => value !== null && value !== undefined).slice(0, MOST_TOLD - 1);
    this.say([[x, plot.data[0][at]], ...known]);
  }

  // Names and values, each apart from the next.
  say(values) {
    this.readout.replaceChildren(...values.slice(0, MOST_TOLD).map(([name, value, look]) => make("span", {}, look === undefined ? null : dot(look), `${name} `, make("b", {}, number(value)))));
  }

  repaint() {
    this.plot?.redraw(false, true);
  }
}
