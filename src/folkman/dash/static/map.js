// The cell: where nodes are, what is on the air between them, and how old, how clear or how far apart it is.

import { colourOf, shade } from "./colours.js";
import { Table, card, choices, draw, make, number, offer } from "./dom.js";

const SIZE = 460, BAR = 16;
const PALE = 1 / 6; // the part of the ramp on which dark ink is read, on a light ground
const PAINTS = [["sinr", "SINR"], ["age", "age"], ["disagreement", "disagreement"]];
const UNITS = { sinr: "dB", age: "slots", disagreement: "||v - w||" };

export class Cell {
  constructor(onpick) {
    this.paint = "sinr";
    this.chosen = null;
    this.frames = [];
    this.span = {};
    const { element, head, body } = card("The cell");
    this.element = element;
    this.runs = choices("Run", [["", "the one that runs"]], "", (value) => onpick(value));
    this.picker = choices("Colour", PAINTS, this.paint, (value) => this.colour(value));
    this.when = make("span", { class: "quiet" });
    this.slider = make("input", { type: "range", min: "0", max: "0", value: "0", "aria-label": "Frame", hidden: true, oninput: () => this.show(this.frames[Number(this.slider.value)]) });
    this.play = make("button", { type: "button", hidden: true, onclick: () => this.toggle() }, "Play");
    head.append(this.runs, this.picker);
    this.svg = draw("svg", { class: "map", viewBox: `0 0 ${SIZE + 90} ${SIZE}`, role: "group", "aria-label": "Map of nodes and links" });
    this.still = draw("g");
    this.links = draw("g");
    this.nodes = draw("g");
    this.scale = draw("g");
    this.svg.append(this.still, this.links, this.nodes, this.scale);
    this.note = make("p", { class: "quiet" });
    body.append(this.svg, make("div", { class: "bar" }, this.play, this.slider, this.when), this.note);
    this.air = new Air();
    this.table = new Nodes();
  }

  colour(paint) {
    this.paint = paint;
    this.picker.querySelector("select").value = paint;
    if (this.frame) this.show(this.frame);
  }

  // What a map can be coloured by: what its network has.
  paints() {
    const known = (name) => this.span[name] && this.span[name][1] >= this.span[name][0];
    return PAINTS.filter(([name]) => known(name));
  }

  keys() {
    const found = this.frame && this.paints().length > 1 ? [["c", "next colour"]] : [];
    return this.frames.length > 1 ? [...found, ["[ ]", "step through frames"]] : found;
  }

  repaint() {
    this.scaled = null;
    if (this.frame) this.show(this.frame);
  }

  next() {
    const names = this.paints().map(([name]) => name);
    if (names.length) this.colour(names[(names.indexOf(this.paint) + 1) % names.length]);
  }

  step(by) {
    if (!this.frames.length) return;
    this.slider.value = String(Math.min(Math.max(Number(this.slider.value) + by, 0), this.frames.length - 1));
    this.show(this.frames[Number(this.slider.value)]);
  }

  toggle() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      if (Number(this.slider.value) >= this.frames.length - 1) this.slider.value = "0";
      this.timer = setInterval(() => (Number(this.slider.value) >= this.frames.length - 1 ? this.toggle() : this.step(1)), 250);
    }
    this.play.textContent = this.timer ? "Stop" : "Play";
  }

  // Show the frames that a finished run has kept.
  keep(frames) {
    this.frames = frames;
    this.span = {};
    this.slider.max = String(Math.max(frames.length - 1, 0));
    this.slider.hidden = this.play.hidden = frames.length < 2;
    frames.forEach((frame) => this.widen(frame));
    const links = frames.map((frame) => frame.on_air.flat().filter(Boolean).length);
    const best = links.lastIndexOf(Math.max(...links, 0));
    this.slider.value = String(best < 0 ? frames.length - 1 : best);
    if (frames.length) this.show(frames[Number(this.slider.value)]);
  }

  // Show what is now, of a run that goes on.
  live(frame) {
    if (this.frames.length) this.keep([]);
    this.show(frame);
  }

  forget() {
    this.span = {};
    this.chosen = null;
  }

  // Colours keep their meaning from frame to frame: the range only grows.
  widen(frame) {
    const seen = { sinr: frame.sinr_db.flat(), age: frame.age_slots.flat().filter((age) => age >= 0), disagreement: frame.disagreement };
    for (const [name, values] of Object.entries(seen)) {
      const span = (this.span[name] ??= [Infinity, -Infinity]);
      for (const value of values) {
        if (value === null) continue;
        if (value < span[0]) span[0] = value;
        if (value > span[1]) span[1] = value;
      }
    }
  }

  show(frame) {
    if (!frame) return;
    this.frame = frame;
    this.widen(frame);
    const placed = frame.positions_m.every(([x]) => x !== null);
    const known = this.paints();
    offer(this.picker, known);
    const paint = known.some(([name]) => name === this.paint) ? this.paint : known[0]?.[0] ?? "disagreement";
    this.paint = paint;
    this.picker.querySelector("select").value = paint;
    const where = placed ? onMap(frame) : onCircle(frame);
    this.when.textContent = `slot ${frame.slot}, ${number(frame.seconds)} s`;
    this.drawStill(frame, placed);
    this.drawLinks(frame, where, paint);
    this.drawNodes(frame, where, paint);
    this.drawScale(paint);
    this.note.textContent = [placed ? "" : "This network has no positions; nodes stand on a circle.", frame.age_slots.length ? "" : "Pairs are shown for at most 64 nodes."].join(" ").trim();
    this.air.show(frame, this.chosen);
    this.table.show(frame);
  }

  drawStill(frame, placed) {
    const key = placed ? JSON.stringify([frame.cell_radius_m, frame.interferers_m.length, frame.interferers_m[0]]) : "circle";
    if (key === this.drawn) return;
    this.drawn = key;
    this.still.replaceChildren();
    if (!placed) return;
    this.still.append(draw("circle", { class: "cell", cx: SIZE / 2, cy: SIZE / 2, r: frame.cell_radius_m * zoom(frame) }));
    for (const point of frame.interferers_m) {
      const [x, y] = toScreen(frame, point);
      if (Math.min(x, y) < 5 || Math.max(x, y) > SIZE - 5) continue;
      this.still.append(draw("path", { class: "interferer", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }));
    }
  }

  drawLinks(frame, where, paint) {
    const laws = !frame.on_air.flat().some(Boolean) && frame.left_slots.every((left) => left < 0);
    const wanted = [];
    frame.age_slots.forEach((row, rx) => row.forEach((age, tx) => {
      if (rx === tx || (this.chosen !== null && rx !== this.chosen && tx !== this.chosen)) return;
      if (laws ? age >= 0 : frame.on_air[rx][tx]) wanted.push([rx, tx]);
    }));
    while (this.links.childNodes.length > wanted.length) this.links.lastChild.remove();
    wanted.forEach(([rx, tx], index) => {
      const link = this.links.childNodes[index] ?? this.links.appendChild(draw("path", { class: "link" }));
      const value = paint === "sinr" ? frame.sinr_db[rx][tx] : paint === "age" ? frame.age_slots[rx][tx] : frame.disagreement[tx];
      const colour = this.shadeOf(paint, value);
      link.setAttribute("d", arrow(where[tx], where[rx]));
      link.setAttribute("stroke", colour);
      link.setAttribute("stroke-opacity", laws ? "0.8" : "0.95");
    });
  }

  drawNodes(frame, where, paint) {
    while (this.nodes.childNodes.length > where.length) this.nodes.lastChild.remove();
    where.forEach(([x, y], index) => {
      let group = this.nodes.childNodes[index];
      if (!group) {
        group = draw("g", {}, draw("circle", { class: "node", r: 10, tabindex: "0", role: "button", onclick: () => this.choose(index), onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), this.choose(index)) }), draw("text", {}));
        this.nodes.append(group);
      }
      const server = frame.server && index === where.length - 1;
      const [dot, text] = group.childNodes;
      group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      dot.setAttribute("fill", paint === "disagreement" && !server ? this.shadeOf(paint, frame.disagreement[index]) : server ? "#777777" : colourOf(1));
      dot.classList.toggle("chosen", this.chosen === index);
      dot.setAttribute("aria-label", server ? "server" : `node ${index}, disagreement ${number(frame.disagreement[index], 3)}`);
      dot.setAttribute("aria-pressed", String(this.chosen === index));
      const pale = paint === "disagreement" && this.partOf(paint, frame.disagreement[index]) < PALE;
      text.setAttribute("class", server ? "outside" : pale ? "number pale" : "number");
      text.setAttribute("x", server ? "12" : "0");
      text.setAttribute("y", server ? "-8" : "4");
      if (text.textContent !== (server ? "server" : String(index))) text.textContent = server ? "server" : String(index);
    });
  }

  choose(index) {
    this.chosen = this.chosen === index ? null : index;
    this.show(this.frame);
  }

  shadeOf(paint, value) {
    if (value === null || value === undefined || value < -1e8) return "#888888";
    return shade(this.partOf(paint, value));
  }

  partOf(paint, value) {
    const [low, high] = this.span[paint];
    return high > low ? (value - low) / (high - low) : 0.5;
  }

  drawScale(paint) {
    const [low, high] = this.span[paint];
    const key = JSON.stringify([paint, low, high]);
    if (key === this.scaled) return;
    this.scaled = key;
    const steps = 24, top = 40, tall = SIZE - 80, x = SIZE + 14;
    const boxes = Array.from({ length: steps }, (_, i) => draw("rect", { x, y: top + (tall * i) / steps, width: BAR, height: tall / steps + 0.5, fill: shade(1 - i / (steps - 1)) }));
    const labels = [high, (low + high) / 2, low].map((value, i) => draw("text", { x: x + BAR + 5, y: top + (tall * i) / 2 + 4 }, number(value, 3)));
    this.scale.replaceChildren(...boxes, ...labels, draw("text", { x, y: top - 14 }, UNITS[paint]));
  }
}

function zoom(frame) {
  return SIZE / 2 / (1.15 * frame.cell_radius_m);
}

function toScreen(frame, [x, y]) {
  return [SIZE / 2 + x * zoom(frame), SIZE / 2 - y * zoom(frame)];
}

function onMap(frame) {
  return frame.positions_m.map((point) => toScreen(frame, point));
}

export function onCircle(frame) {
  const count = frame.positions_m.length - (frame.server ? 1 : 0);
  const around = Array.from({ length: count }, (_, i) => [SIZE / 2 - 0.4 * SIZE * Math.sin((2 * Math.PI * i) / count), SIZE / 2 - 0.4 * SIZE * Math.cos((2 * Math.PI * i) / count)]);
  return frame.server ? [...around, [SIZE / 2, SIZE / 2]] : around;
}

// A bent line with a head, so that both directions between two nodes can be seen.
export function arrow([ax, ay], [bx, by]) {
  const length = Math.hypot(bx - ax, by - ay) || 1, ux = (bx - ax) / length, uy = (by - ay) / length;
  const bend = Math.min(0.14 * length, 26), mx = (ax + bx) / 2 - uy * bend, my = (ay + by) / 2 + ux * bend;
  const back = Math.hypot(bx - mx, by - my) || 1, vx = (bx - mx) / back, vy = (by - my) / back;
  const ex = bx - 11 * vx, ey = by - 11 * vy, sx = ax + 11 * ux, sy = ay + 11 * uy;
  const round = (value) => value.toFixed(1);
  return `M${round(sx)} ${round(sy)}Q${round(mx)} ${round(my)} ${round(ex)} ${round(ey)}` +
    `M${round(ex - 7 * vx - 4 * vy)} ${round(ey - 7 * vy + 4 * vx)}L${round(ex)} ${round(ey)}L${round(ex - 7 * vx + 4 * vy)} ${round(ey - 7 * vy - 4 * vx)}`;
}

// Who is sending what to whom, at which share of the bandwidth.
class Air {
  constructor() {
    const { element, body } = card("On the air");
    this.element = element;
    this.bar = draw("svg", { class: "shares", viewBox: "0 0 1000 28", preserveAspectRatio: "none", role: "img" });
    this.table = new Table(["sender", "to", "share", "band", "model of slot", "arrives in"], "What is on the air");
    this.empty = make("p", { class: "quiet" });
    body.append(this.bar, this.table.element, this.empty);
  }

  show(frame, chosen) {
    const server = frame.server ? frame.positions_m.length - 1 : -1;
    const name = (index) => (index === server ? "server" : String(index));
    const rows = [];
    for (let tx = 0; tx < frame.on_air.length; tx++) {
      const to = frame.on_air.map((row, rx) => (row[tx] ? rx : -1)).filter((rx) => rx >= 0);
      if (!to.length || (chosen !== null && tx !== chosen && !to.includes(chosen))) continue;
      const share = frame.share[tx], left = frame.left_slots[tx];
      const band = share === null ? "-" : `${number((share * frame.bandwidth_hz) / 1e6, 3)} MHz`;
      const since = frame.stamp[tx];
      rows.push([name(tx), to.map(name).join(" "), share === null ? "-" : `${number(100 * share, 3)} %`, band, since >= 0 ? number(since, 9) : "-", left < 0 ? "-" : `${left} slots`]);
    }
    this.table.show(rows);
    this.element.hidden = frame.left_slots.every((left) => left < 0) && !rows.length;
    this.empty.textContent = rows.length ? "" : "Nothing is on the air.";
    this.drawBar(frame, name);
  }

  drawBar(frame, name) {
    const parts = [];
    let x = 0;
    frame.share.forEach((share, index) => {
      if (!share || (frame.server && index === frame.share.length - 1)) return;
      parts.push(draw("rect", { x, y: 0, width: 1000 * share, height: 28, fill: shade(index / Math.max(frame.share.length - 1, 1)) }));
      x += 1000 * share;
    });
    this.bar.replaceChildren(...parts);
    this.bar.toggleAttribute("hidden", frame.share.every((share) => share === null));
    this.bar.setAttribute("aria-label", `Shares of the bandwidth: ${frame.share.map((share, i) => (share ? `${name(i)} ${number(100 * share, 2)} %` : "")).filter(Boolean).join(", ") || "all free"}`);
  }
}

class Nodes {
  constructor() {
    const { element, body } = card("Nodes");
    this.element = element;
    this.table = new Table(["node", "samples", "gradients", "mean age held", "oldest", "share", "disagreement"], "Nodes");
    body.append(this.table.element);
  }

  show(frame) {
    const count = frame.positions_m.length - (frame.server ? 1 : 0);
    this.table.show(Array.from({ length: count }, (_, i) => {
      const held = (frame.age_slots[i] ?? []).map((age, j) => age >= 0 && j !== i);
      const ages = (frame.age_slots[i] ?? []).filter((_, j) => held[j]);
      const sums = (frame.age_sums?.[i] ?? []).filter((_, j) => held[j]);
      const mean = sums.length ? sums.reduce((a, b) => a + b, 0) / sums.length / Math.max(frame.slot, 1) : null;
      const share = frame.share[i];
      return [String(i), String(frame.samples[i]), String(frame.gradients[i]), number(mean, 3), ages.length ? String(Math.max(...ages)) : "-", share === null ? "-" : `${number(100 * share, 3)} %`, number(frame.disagreement[i], 3)];
    }));
  }
}
