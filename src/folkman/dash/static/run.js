// The page of a run folder.

import { Chart, Series, Zoom } from "./charts.js";
import { colourOf } from "./colours.js";
import { Table, Wrong, card, choices, make, number, offer } from "./dom.js";
import { Cell } from "./map.js";
import { lookOf } from "./save.js";

const FIRST = ["train_loss", "test_accuracy", "consensus", "mean_age"];

export class RunPage {
  constructor(main, redraw) {
    this.main = main;
    this.redraw = redraw;
    this.runs = new Map();
    this.x = "seconds";
    this.each = false;
    this.picked = "";
  }

  // Everything anew: on the first visit, and whenever the connection or the run began again.
  state(state) {
    const known = this.shape === JSON.stringify([state.name, state.runs.map((run) => run.id)]);
    this.shape = JSON.stringify([state.name, state.runs.map((run) => run.id)]);
    this.about = state;
    const hidden = new Set((this.groups ?? []).filter((group) => !group.shown).map((group) => group.label));
    this.runs = new Map(state.runs.map((run) => [run.id, { ...run, series: new Series(run.columns, run.step) }]));
    const labels = [...new Set(state.runs.map((run) => run.label))];
    const methods = [...new Set(state.runs.map((run) => run.method ?? run.label))];
    this.groups = labels.map((label, index) => {
      const runs = [...this.runs.values()].filter((run) => run.label === label), first = runs[0];
      const look = first.place === undefined ? {} : { colour: methods.indexOf(first.method), dash: first.place ? [7, 4] : [] };
      return { label, index, shown: !hidden.has(label), runs, ...look };
    });
    if (!known) this.build();
    this.pick(this.picked);
  }

  build() {
    const { axes, metrics } = this.about;
    this.zoom = new Zoom(this.redraw);
    this.charts = FIRST.map((metric) => new Chart(metrics, metric, this.redraw, this.zoom));
    this.cell = new Cell((id) => this.pick(id));
    this.axis = choices("Against", Object.entries(axes), this.x, (value) => this.against(value));
    this.seeds = choices("Seeds", [["mean", "mean"], ["each", "each"]], "mean", (value) => { this.each = value === "each"; this.redraw(); });
    const legend = make("fieldset", { class: "legend" }, make("legend", { class: "quiet" }, "Algorithms"));
    this.swatches = this.groups.map((group) => {
      const swatch = make("canvas", { class: "swatch", width: 26, height: 8 });
      legend.append(make("label", {}, make("input", { type: "checkbox", checked: group.shown, onchange: (event) => this.toggle(group.label, event.target.checked) }), swatch, group.label));
      return [swatch, lookOf(group)];
    });
    this.paintSwatches();
    this.list = new Table(["run", "seed", "state", "slots", "training loss", "accuracy", "mean age"], "Runs");
    const runs = card("Runs");
    runs.body.append(this.list.element);
    this.wrong = new Wrong();
    this.noted = new Wrong("noted", "Also seen");
    this.main.replaceChildren(
      this.wrong.element,
      make("div", { class: "bar" }, this.axis, this.seeds, this.zoom.button, legend),
      make("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)),
      this.noted.element,
      make("div", { class: "cards half" }, make("div", { class: "stack" }, this.cell.element, this.cell.air.element), make("div", { class: "stack" }, this.cell.table.element, runs.element)));
  }

  // Another axis has another range: what was zoomed in on is not on it.
  against(axis) {
    this.x = axis;
    this.axis.querySelector("select").value = axis;
    this.zoom.set(null);
  }

  // Offer what there is: axes and metrics that runs have, seeds where there are several, runs with a cell.
  offer() {
    const runs = [...this.runs.values()];
    const known = new Set(runs.flatMap((run) => Object.keys(run.series.columns)));
    if (known.size) {
      offer(this.axis, Object.entries(this.about.axes).filter(([name]) => known.has(name)));
      for (const chart of this.charts) chart.offer(known);
    }
    this.seeds.hidden = new Set(runs.map((run) => run.seed)).size < 2;
    const shown = runs.filter((run) => run.keeps || run.scene).map((run) => [run.id, `${run.label}, seed ${run.seed}`]);
    const follow = runs.some((run) => run.status === "running") ? [["", "the one that runs"]] : [];
    offer(this.cell.runs, [...follow, ...shown]);
    if (this.shown && !follow.length) this.cell.runs.querySelector("select").value = this.shown;
  }

  // A line for each label with runs that went nowhere: why, and what to try.
  complaints() {
    return this.groups.flatMap((group) => ["diverged", "not learning"].flatMap((word) => {
      const bad = group.runs.filter((run) => (run.verdict || run.status) === word);
      return bad.length ? [`${group.label}: ${bad.length} of ${group.runs.length} runs ${word}; ${bad[0].reason || bad[0].message || "try a smaller step or less delay"}`] : [];
    }));
  }

  toggle(label, shown) {
    this.groups.find((group) => group.label === label).shown = shown;
    this.redraw();
  }

  paintSwatches() {
    for (const [canvas, look] of this.swatches) {
      const pen = canvas.getContext("2d");
      pen.clearRect(0, 0, 26, 8);
      pen.strokeStyle = colourOf(look.colour);
      pen.lineWidth = 3;
      pen.setLineDash(look.dash);
      pen.beginPath();
      pen.moveTo(0, 4);
      pen.lineTo(26, 4);
      pen.stroke();
    }
  }

  news(news) {
    if (news.swings) this.about.swings = news.swings;
    for (const told of news.runs ?? []) {
      const run = this.runs.get(told.id);
      if (!run) continue;
      Object.assign(run, { status: told.status, done: told.done });
      if (told.message !== undefined) Object.assign(run, { message: told.message, verdict: told.verdict, reason: told.reason });
      if (told.columns) {
        if (told.again) run.series = new Series(told.columns, told.step ?? 1);
        else run.series.add(told.columns);
      }
      if (told.scene) {
        run.scene = told.scene;
        this.fresh = run.id;
      }
      if (told.ended) {
        run.keeps = true;
        if (this.shown === run.id) this.pick(this.picked);
      }
    }
  }

  // Look at one run's cell; with no choice, at the one that runs, or the first that kept one.
  async pick(id) {
    this.picked = id;
    const all = [...this.runs.values()];
    const run = this.runs.get(id) ?? all.find((each) => each.status === "running") ?? all.find((each) => each.keeps);
    if (this.shown !== run?.id) this.cell.forget();
    this.shown = run?.id;
    if (!run) return;
    if (run.scene && run.status === "running") this.cell.live(run.scene);
    else if (run.keeps) {
      const answer = await fetch(`/scene/${encodeURIComponent(run.id)}`);
      if (answer.ok && this.shown === run.id) {
        this.cell.keep((await answer.json()).frames);
        this.redraw();
      }
    } else if (run.scene) this.cell.live(run.scene);
  }

  draw() {
    if (this.fresh) {
      const run = this.runs.get(this.fresh), watched = this.runs.get(this.picked);
      if (watched ? watched === run : true) {
        if (this.shown !== run.id) this.cell.forget();
        this.shown = run.id;
        this.cell.live(run.scene);
      }
      this.fresh = null;
    }
    this.offer();
    this.wrong.show(this.complaints());
    this.noted.show(this.about.swings ?? []);
    for (const chart of this.charts) chart.draw(this.groups, this.x, this.about.axes, this.each);
    const rows = [...this.runs.values()];
    this.list.show(rows.map((run) => [run.label, String(run.seed), run.verdict || run.status, `${number(run.done, 7)} of ${run.slots ?? this.about.slots}`, number(run.series.last("train_loss")), number(run.series.last("test_accuracy")), number(run.series.last("mean_age"))]), (index) => ["diverged", "stopped", "not learning"].includes(rows[index].verdict || rows[index].status));
  }

  repaint() {
    this.paintSwatches();
    this.cell.repaint();
    for (const chart of this.charts) chart.repaint();
  }

  key(key) {
    const axes = [...this.axis.querySelectorAll("option")].map((option) => option.value);
    if (key === "x") {
      this.against(axes[(axes.indexOf(this.x) + 1) % axes.length]);
    } else if (this.zoom.key(key, this.charts)) return;
    else if (key === "c") this.cell.next();
    else if (key === "[" || key === "]") this.cell.step(key === "]" ? 1 : -1);
    else return;
    this.redraw();
  }

  keys() {
    const found = this.axis.querySelectorAll("option").length > 1 ? [["x", "next axis"]] : [];
    return [...found, ...this.zoom.keys(), ...this.cell.keys()];
  }

  summary() {
    const runs = [...this.runs.values()], ended = runs.filter((run) => ["finished", "diverged"].includes(run.status)).length;
    const all = (run) => run.slots ?? this.about.slots;
    const done = runs.reduce((sum, run) => sum + (run.status === "finished" || run.status === "diverged" ? all(run) : run.done), 0);
    const state = runs.some((run) => run.status === "running") ? "running" : ended === runs.length ? (runs.some((run) => run.status === "diverged") ? "diverged" : "finished") : runs.some((run) => run.status === "stopped") ? "stopped" : "waiting";
    return { state, text: `${state}, ${ended} of ${runs.length} runs`, part: done / Math.max(1, runs.reduce((sum, run) => sum + all(run), 0)) };
  }
}
