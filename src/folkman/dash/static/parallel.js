// Parallel coordinates of a sweep: an axis for each setting that varies and for each metric, a line for each arm. A drag
// over an axis, or the arrow keys on it, keeps the arms that pass there.

import { colourOf, dashOf } from "./colours.js";
import { card, draw, make, number } from "./dom.js";
import { saver, standingAlone } from "./save.js";

const TALL = 250, TOP = 46, LEFT = 104, RIGHT = 84, LEAST_GAP = 110, MOST_GAP = 220, RATIO_FOR_LOG = 30, STEPS = 20, HANDLE = 14;

function told(value) {
  return typeof value === "number" ? number(value, 3) : String(value);
}

// An axis: where its values are, from 0 (bottom) to 1 (top).
function axisOf(key, title, values) {
  const known = [...new Set(values.filter((value) => value !== null && value !== undefined))];
  const numbers = known.filter((value) => typeof value === "number");
  if (numbers.length !== known.length) {
    const names = known.map(told);
    const part = (value) => (value === null || value === undefined ? null : names.length > 1 ? names.indexOf(told(value)) / (names.length - 1) : 0.5);
    return { key, title, part, marks: names.map((name) => [part(name), name]), step: 1 / Math.max(names.length - 1, 1) };
  }
  const low = Math.min(...numbers), high = Math.max(...numbers), log = low > 0 && high / low > RATIO_FOR_LOG;
  const up = (value) => (log ? Math.log10(value) : value);
  const part = (value) => (value === null || value === undefined ? null : high > low ? (up(value) - up(low)) / (up(high) - up(low)) : 0.5);
  const shown = numbers.length <= 6 ? numbers : [low, log ? Math.sqrt(low * high) : (low + high) / 2, high];
  const back = (at) => (log ? 10 ** (up(low) + at * (up(high) - up(low))) : low + at * (high - low));
  return { key, title, part, back, marks: shown.map((value) => [part(value), told(value)]), step: 1 / STEPS };
}

export class Parallel {
  constructor(onfilter) {
    this.onfilter = onfilter;
    this.filters = new Map();
    const { element, head, body } = card("Arms side by side", { wide: true });
    this.element = element;
    this.count = make("span", { class: "quiet", role: "status" });
    this.clear = make("button", { type: "button", hidden: true, onclick: () => { this.filters.clear(); this.filtered(); } }, "All arms");
    head.append(this.count, this.clear, make("span", { class: "gap" }), saver(() => "arms", () => this.table(), () => this.alone()));
    this.svg = draw("svg", { class: "parallel", role: "group", "aria-label": "Parallel coordinates of the arms" });
    this.hint = make("p", { class: "quiet" }, "Drag over an axis to keep the arms that pass there. By keyboard: Tab to an axis, arrow keys move its lower end, with Shift its upper end, Escape takes it off.");
    body.append(make("div", { class: "scroll" }, this.svg), this.hint);
  }

  // Arms: { arm, label, settings, ends } with the mean of each metric at the end.
  show(arms, metrics) {
    const key = JSON.stringify([arms, metrics]);
    if (key === this.shown) return;
    this.shown = key;
    this.arms = arms;
    const settings = [...new Set(arms.flatMap((arm) => Object.keys(arm.settings)))];
    const varies = (values) => new Set(values.filter((value) => value !== undefined).map((value) => JSON.stringify(value))).size > 1;
    const plain = (value) => (value === null || value === undefined ? null : ["number", "string"].includes(typeof value) ? value : JSON.stringify(value));
    this.axes = [["algorithm", "algorithm", arms.map((arm) => arm.label)], ...settings.map((name) => [name, name, arms.map((arm) => plain(arm.settings[name]))])]
      .filter(([, , values]) => varies(values.map((value) => value ?? undefined)))
      .concat(metrics.map(([name, title]) => [name, title, arms.map((arm) => arm.ends[name] ?? null)]).filter(([, , values]) => values.some((value) => value !== null)))
      .map(([name, title, values]) => Object.assign(axisOf(name, title, values), { values }));
    for (const name of this.filters.keys()) if (!this.axes.some((axis) => axis.key === name)) this.filters.delete(name);
    this.element.hidden = arms.length < 2 || this.axes.length < 2;
    this.paint();
  }

  paint() {
    const many = Math.max(this.axes.length - 1, 1), room = this.element.clientWidth - 40 - LEFT - RIGHT;
    this.gap = Math.round(Math.min(Math.max(room / many, LEAST_GAP), MOST_GAP));
    const wide = LEFT + RIGHT + this.gap * (this.axes.length - 1);
    this.svg.setAttribute("viewBox", `0 0 ${wide} ${TALL + TOP + 24}`);
    this.svg.setAttribute("width", wide);
    const labels = [...new Set(this.arms.map((arm) => arm.label))];
    this.lines = this.arms.map((arm, row) => {
      const look = labels.indexOf(arm.label);
      let d = "", broken = true;
      this.axes.forEach((axis, place) => {
        const part = axis.part(axis.values[row]);
        if (part === null) broken = true;
        else {
          d += `${broken ? "M" : "L"}${this.x(place)} ${this.y(part).toFixed(1)}`;
          broken = false;
        }
      });
      return draw("path", { class: "arm", d, stroke: colourOf(look), "stroke-dasharray": dashOf(look).join(" ") || null }, draw("title", {}, arm.arm));
    });
    this.brushes = this.axes.map((axis, place) => draw("rect", { class: "brush", x: this.x(place) - HANDLE / 2, width: HANDLE, visibility: "hidden" }));
    this.svg.replaceChildren(...this.lines, ...this.axes.flatMap((axis, place) => this.axis(axis, place)));
    this.filtered();
  }

  x(place) {
    return LEFT + this.gap * place;
  }

  y(part) {
    return TOP + (1 - part) * TALL;
  }

  axis(axis, place) {
    const x = this.x(place), title = axis.title.length > 18 ? `${axis.title.slice(0, 17)}…` : axis.title;
    const name = draw("text", { class: "title", x, y: place % 2 ? 14 : 30, "text-anchor": "middle" }, title, draw("title", {}, axis.title));
    const marks = axis.marks.map(([part, text]) => draw("text", { class: "mark", x: x - 10, y: this.y(part) + 4, "text-anchor": "end" }, text.length > 11 ? `${text.slice(0, 10)}…` : text, draw("title", {}, text)));
    const hold = draw("rect", { class: "hold", x: x - 20, y: TOP - 6, width: 40, height: TALL + 12, tabindex: "0", role: "slider", "aria-label": axis.title, "aria-orientation": "vertical", "aria-valuemin": "0", "aria-valuemax": "100" });
    axis.hold = hold;
    hold.addEventListener("keydown", (event) => this.key(event, axis));
    hold.addEventListener("pointerdown", (event) => this.drag(event, axis));
    return [draw("path", { class: "axis", d: `M${x} ${TOP}V${TOP + TALL}` }), this.brushes[place], ...marks, name, hold];
  }

  part(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return Math.min(Math.max(1 - (at.y - TOP) / TALL, 0), 1);
  }

  drag(event, axis) {
    const first = this.part(event), hold = axis.hold;
    hold.setPointerCapture(event.pointerId);
    const move = (moved) => {
      const now = this.part(moved);
      this.filters.set(axis.key, [Math.min(first, now), Math.max(first, now)]);
      this.filtered();
    };
    const end = () => {
      hold.removeEventListener("pointermove", move);
      const [low, high] = this.filters.get(axis.key) ?? [0, 0];
      if (high - low < 0.01) this.filters.delete(axis.key); // a click takes it off
      this.filtered();
    };
    hold.addEventListener("pointermove", move);
    hold.addEventListener("pointerup", end, { once: true });
  }

  key(event, axis) {
    const by = { ArrowUp: axis.step, ArrowDown: -axis.step }[event.key];
    if (event.key === "Escape") this.filters.delete(axis.key);
    else if (by === undefined) return;
    else {
      let [low, high] = this.filters.get(axis.key) ?? [0, 1];
      if (event.shiftKey) high = Math.min(1, Math.max(low, high + by));
      else low = Math.max(0, Math.min(high, low + by));
      if (low <= 0 && high >= 1) this.filters.delete(axis.key);
      else this.filters.set(axis.key, [low, high]);
    }
    event.preventDefault();
    this.filtered();
  }

  passes(row) {
    return this.axes.every((axis) => {
      const range = this.filters.get(axis.key), part = axis.part(axis.values[row]);
      return !range || (part !== null && part >= range[0] - 1e-6 && part <= range[1] + 1e-6);
    });
  }

  filtered() {
    const kept = this.arms.filter((_, row) => this.passes(row));
    this.lines.forEach((line, row) => line.classList.toggle("out", !this.passes(row)));
    this.axes.forEach((axis, place) => {
      const range = this.filters.get(axis.key), [low, high] = range ?? [0, 1], brush = this.brushes[place];
      brush.setAttribute("visibility", range ? "visible" : "hidden");
      brush.setAttribute("y", this.y(high));
      brush.setAttribute("height", Math.max(2, this.y(low) - this.y(high)));
      axis.hold.setAttribute("aria-valuenow", Math.round(100 * low));
      const ends = axis.back ? [low, high].map((at) => number(axis.back(at), 3)) : [low, high].map((at) => axis.marks[Math.round(at * (axis.marks.length - 1))][1]);
      axis.hold.setAttribute("aria-valuetext", `from ${ends[0]} to ${ends[1]}`);
    });
    this.clear.hidden = !this.filters.size;
    this.count.textContent = this.filters.size ? `${kept.length} of ${this.arms.length} arms` : `${this.arms.length} arms, mean over seeds at the end`;
    this.onfilter(new Set(kept.map((arm) => arm.arm)));
  }

  // The arms that are kept, as rows.
  table() {
    const kept = this.arms.map((_, row) => row).filter((row) => this.passes(row));
    return [["arm", ...this.axes.map((axis) => axis.key)], kept.map((row) => [this.arms[row].arm, ...this.axes.map((axis) => axis.values[row])])];
  }

  // As a drawing of its own, without what only a hand needs.
  alone() {
    const holds = this.axes.map((axis) => axis.hold);
    for (const hold of holds) hold.remove();
    const copy = standingAlone(this.svg);
    this.svg.append(...holds);
    return copy;
  }

  repaint() {
    if (this.arms) this.paint();
  }
}
