// The page of a sweep folder: a small curve a job, arm by arm.

import { colourOf } from "./colours.js";
import { Table, Wrong, card, choices, draw, make, number, offer } from "./dom.js";
import { Parallel } from "./parallel.js";

const WIDE = 200, TALL = 60, MOST_SHOWN = 300;

export class SweepPage {
  constructor(main, redraw) {
    this.main = main;
    this.redraw = redraw;
    this.jobs = new Map();
    this.metric = "train_loss";
    this.drawn = new Map();
  }

  state(state) {
    this.about = state;
    this.jobs = new Map(state.jobs.map((job) => [job.key, job]));
    this.drawn.clear();
    this.grid = make("div", { class: "multiples" });
    const failures = card("Failures", { wide: true }), workers = card("Workers", { wide: true });
    this.failures = new Table(["arm", "seed", "what happened"], "Failures");
    this.workers = new Table(["worker", "jobs", "memory", "peak"], "Workers");
    failures.body.append(this.failures.element);
    workers.body.append(this.workers.element);
    this.failureCard = failures.element;
    this.picker = choices("Curve", Object.entries(state.metrics), this.metric, (value) => this.choose(value));
    this.wrong = new Wrong();
    this.parallel = new Parallel((arms) => this.keep(arms));
    const head = make("div", { class: "bar" }, this.picker, make("span", { class: "quiet" }, "One small figure per arm, one line per seed, all on the same scale."));
    this.main.replaceChildren(this.wrong.element, this.parallel.element, head, this.grid, make("p"), failures.element, make("p"), workers.element);
  }

  news(news) {
    Object.assign(this.about, { state: news.state, workers: news.workers, updated: news.updated });
    for (const job of news.jobs ?? []) this.jobs.set(job.key, job);
  }

  arms() {
    const arms = new Map();
    for (const job of this.jobs.values()) arms.set(job.arm, [...(arms.get(job.arm) ?? []), job]);
    return [...arms].slice(0, MOST_SHOWN);
  }

  // Show the small figures of these arms alone.
  keep(arms) {
    this.kept = arms;
    for (const [arm, { element }] of this.drawn) element.hidden = !arms.has(arm);
  }

  // What each arm is and where it ended, in the mean over its jobs that have rows.
  ends() {
    const metrics = this.offered().map(([name]) => name);
    return this.arms().map(([arm, jobs]) => {
      const mean = (name) => {
        const last = jobs.map((job) => job.columns?.[name]?.at(-1)).filter((value) => value !== null && value !== undefined);
        return last.length ? last.reduce((a, b) => a + b, 0) / last.length : null;
      };
      return { arm, label: jobs[0].label, settings: jobs[0].settings ?? {}, ends: Object.fromEntries(metrics.map((name) => [name, mean(name)])) };
    });
  }

  span(column) {
    let low = Infinity, high = -Infinity;
    for (const job of this.jobs.values()) for (const value of job.columns[column] ?? []) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    return high > low ? [low, high] : [Number.isFinite(low) ? low - 0.5 : 0, Number.isFinite(low) ? low + 0.5 : 1];
  }

  choose(metric) {
    this.metric = metric;
    this.picker.querySelector("select").value = metric;
    this.drawn.clear();
    this.redraw();
  }

  // The metrics that jobs have; before any has a row, all.
  offered() {
    const known = new Set([...this.jobs.values()].flatMap((job) => Object.keys(job.columns ?? {})));
    const all = Object.entries(this.about.metrics);
    const found = all.filter(([name]) => known.has(name));
    return found.length ? found : all;
  }

  complaints() {
    return this.arms().flatMap(([arm, jobs]) => ["diverged", "not learning"].flatMap((word) => {
      const bad = jobs.filter((job) => (job.verdict || job.state) === word);
      return bad.length ? [`${arm}: ${bad.length} of ${jobs.length} runs ${word}; ${bad[0].reason || bad[0].message || "try a smaller step or less delay"}`] : [];
    })).slice(0, 12);
  }

  draw() {
    offer(this.picker, this.offered());
    this.wrong.show(this.complaints());
    const x = this.span("slots"), y = this.span(this.metric);
    const seeds = [...new Set([...this.jobs.values()].map((job) => job.seed))];
    for (const [arm, jobs] of this.arms()) {
      const key = JSON.stringify([x, y, this.metric, jobs.map((job) => [job.state, job.columns[this.metric]?.length])]);
      const kept = this.drawn.get(arm);
      if (kept?.key === key) continue;
      const element = this.multiple(arm, jobs, seeds, x, y);
      if (kept) kept.element.replaceWith(element);
      else this.grid.append(element);
      this.drawn.set(arm, { key, element });
    }
    this.parallel.show(this.ends(), this.offered());
    if (this.kept) this.keep(this.kept);
    const failed = [...this.jobs.values()].filter((job) => job.state === "failed" || job.state === "diverged");
    this.failureCard.hidden = !failed.length;
    this.failures.show(failed.map((job) => [job.arm, String(job.seed), job.message || job.state]), () => true);
    this.workers.show((this.about.workers ?? []).map((worker) => [worker.worker, String(worker.jobs), `${number(worker.rss_mb)} MB`, `${number(worker.peak_mb)} MB`]));
  }

  multiple(arm, jobs, seeds, x, y) {
    const lines = jobs.filter((job) => job.columns[this.metric]).map((job) => {
      const points = job.columns.slots.map((slot, i) => [slot, job.columns[this.metric][i]]).filter(([, value]) => value !== null);
      const d = points.map(([slot, value], i) => `${i ? "L" : "M"}${((WIDE * (slot - x[0])) / (x[1] - x[0])).toFixed(1)} ${(TALL - (TALL * (value - y[0])) / (y[1] - y[0])).toFixed(1)}`).join("");
      return draw("path", { class: "line", d, stroke: colourOf(seeds.indexOf(job.seed)) });
    });
    const ended = jobs.map((job) => job.columns[this.metric]?.at(-1)).filter((value) => value !== null && value !== undefined);
    const mean = ended.length ? ended.reduce((a, b) => a + b, 0) / ended.length : null;
    const states = Object.entries(Object.groupBy(jobs, (job) => job.state)).map(([state, all]) => `${all.length} ${state}`).join(", ");
    return make("article", { class: "multiple", "aria-label": arm }, make("h3", {}, arm),
      draw("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": `${this.about.metrics[this.metric]}, last mean ${number(mean)}` }, ...lines),
      make("span", { class: "quiet" }, `${number(mean)}; ${states}`));
  }

  repaint() {
    this.drawn.clear();
    this.grid.replaceChildren();
    this.parallel.repaint();
    this.redraw();
  }

  key(key) {
    const names = this.offered().map(([name]) => name);
    if (key === "c") this.choose(names[(names.indexOf(this.metric) + 1) % names.length]);
  }

  keys() {
    return this.offered().length > 1 ? [["c", "next curve"]] : [];
  }

  summary() {
    const jobs = [...this.jobs.values()], ended = jobs.filter((job) => !["waiting", "running"].includes(job.state)).length;
    return { state: this.about.state ?? "waiting", text: `${this.about.state ?? "waiting"}, ${ended} of ${jobs.length} jobs`, part: ended / Math.max(jobs.length, 1) };
  }
}
