// The page of a real cluster: its nodes' health, their curves and links, and what went wrong.

import { Chart, Series, Zoom } from "./charts.js";
import { colourOf, shade } from "./colours.js";
import { Table, Wrong, card, choices, draw, make, number } from "./dom.js";
import { arrow, onCircle } from "./map.js";

const SIZE = 460, BAR = 16;

export class ClusterPage {
  constructor(main, redraw) {
    this.main = main;
    this.redraw = redraw;
    this.x = "seconds";
    this.curves = new Map();
  }

  state(state) {
    this.about = state;
    this.curves = new Map(Object.entries(state.curves ?? {}).map(([node, columns]) => [node, new Series(columns)]));
    const nodes = card("Nodes", { wide: true }), faults = card("Faults"), links = card("Links"), table = card("Link by link");
    this.nodes = new Table(state.columns, "Nodes");
    this.faults = new Table(["when", "node", "what"], "Faults");
    this.faults.element.classList.add("told");
    this.links = new Table(state.link_columns, "Links");
    this.none = make("p", { class: "quiet" }, "No fault so far.");
    this.unlinked = make("p", { class: "quiet" }, "No node has a link yet.");
    this.map = new Links();
    this.wrong = new Wrong();
    nodes.body.append(this.nodes.element);
    faults.body.append(this.faults.element, this.none);
    links.body.append(this.map.element, this.unlinked);
    table.body.append(this.links.element);
    this.table = table.element;
    this.zoom = new Zoom(this.redraw);
    this.charts = Object.keys(state.metrics).map((metric) => new Chart(state.metrics, metric, this.redraw, this.zoom));
    this.axis = choices("Against", Object.entries(state.axes), this.x, (value) => this.against(value));
    this.main.replaceChildren(
      this.wrong.element,
      make("div", { class: "cards" }, nodes.element),
      make("div", { class: "bar below" }, this.axis, this.zoom.button, make("span", { class: "quiet" }, "Curves begin when this page's server began to watch.")),
      make("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)),
      make("div", { class: "cards half" }, links.element, make("div", { class: "stack" }, faults.element, table.element)));
  }

  news(news) {
    Object.assign(this.about, news);
    for (const node of news.nodes ?? []) {
      const series = this.curves.get(node.node) ?? new Series();
      this.curves.set(node.node, series);
      if (node.slot !== null && node.slot !== undefined && series.last("slots") !== node.slot) series.add({ slots: [node.slot], seconds: [news.seconds], loss: [node.loss ?? null], steps: [node.steps ?? null] });
    }
  }

  draw() {
    const cell = (value) => (typeof value === "number" ? number(value) : value === null || value === undefined ? "-" : String(value));
    const { nodes, links, faults } = this.about;
    this.nodes.show(nodes.map((node) => this.about.columns.map((name) => cell(node[name]))), (index) => nodes[index].bad);
    this.links.show(links.map((link) => this.about.link_columns.map((name) => cell(link[name]))), (index) => !links[index].up);
    this.unlinked.hidden = links.length > 0;
    this.table.hidden = !links.length;
    this.map.show(nodes, links);
    this.faults.show(faults.map((fault) => [fault.when, fault.node, fault.what]), () => true);
    this.none.hidden = faults.length > 0;
    this.wrong.show(nodes.filter((node) => node.bad).map((node) => `${node.node} is ${node.state}; see Faults below`));
    const groups = [...this.curves].map(([label, series], index) => ({ label, index, shown: true, runs: [{ seed: 0, series }] }));
    for (const chart of this.charts) chart.draw(groups, this.x, this.about.axes, false);
  }

  repaint() {
    for (const chart of this.charts) chart.repaint();
    this.map.shown = null;
    this.redraw();
  }

  against(axis) {
    this.x = axis;
    this.axis.querySelector("select").value = axis;
    this.zoom.set(null);
  }

  key(key) {
    const axes = Object.keys(this.about.axes);
    if (key === "x") this.against(axes[(axes.indexOf(this.x) + 1) % axes.length]);
    else this.zoom.key(key, this.charts);
  }

  keys() {
    return [["x", "next axis"], ...this.zoom.keys()];
  }

  summary() {
    const bad = this.about.nodes.filter((node) => node.bad).length, all = this.about.nodes.length;
    return { state: bad ? "down" : "running", text: `${all - bad} of ${all} nodes well`, part: null };
  }
}

// Nodes on a circle, links coloured by latency; a node that is down is hollow.
class Links {
  constructor() {
    this.element = draw("svg", { class: "map", viewBox: `-60 0 ${SIZE + 180} ${SIZE}`, role: "img" });
  }

  show(nodes, links) {
    const key = JSON.stringify([nodes.map((node) => [node.node, node.bad]), links]);
    if (key === this.shown) return;
    this.shown = key;
    const where = onCircle({ positions_m: nodes, server: false });
    const place = new Map(nodes.map((node, index) => [node.node, where[index]]));
    const known = links.map((link) => link["latency (ms)"]).filter((value) => value !== null);
    const low = Math.min(...known), high = Math.max(...known);
    const part = (value) => (high > low ? (value - low) / (high - low) : 0.5);
    const drawn = links.filter((link) => place.has(link.from) && place.has(link.to)).map((link) => {
      const value = link["latency (ms)"];
      return draw("path", { class: "link", d: arrow(place.get(link.from), place.get(link.to)), stroke: value === null ? "#888888" : shade(part(value)), "stroke-dasharray": link.up ? null : "3 4" });
    });
    const dots = nodes.flatMap((node, index) => {
      const [x, y] = where[index];
      const out = [(x - SIZE / 2) / (0.4 * SIZE), (y - SIZE / 2) / (0.4 * SIZE)];
      const anchor = out[0] > 0.3 ? "start" : out[0] < -0.3 ? "end" : "middle";
      return [draw("circle", { class: "node", cx: x, cy: y, r: 9, fill: node.bad ? "none" : colourOf(index), "data-bad": node.bad ? "yes" : null }), draw("text", { x: x + 16 * out[0], y: y + 20 * out[1] + 4, "text-anchor": anchor }, node.node)];
    });
    this.element.replaceChildren(...drawn, ...dots, ...(known.length ? scale(low, high) : []));
    this.element.setAttribute("aria-label", `Links between ${nodes.length} nodes, ${links.filter((link) => link.up).length} up, coloured by latency`);
  }
}

function scale(low, high) {
  const steps = high > low ? 24 : 1, top = 60, tall = SIZE - 120, x = SIZE + 50;
  const boxes = Array.from({ length: steps }, (_, i) => draw("rect", { x, y: top + (tall * i) / steps, width: BAR, height: tall / steps + 0.5, fill: shade(steps > 1 ? 1 - i / (steps - 1) : 0.5) }));
  const values = high > low ? [high, (low + high) / 2, low] : [low];
  const labels = values.map((value, i) => draw("text", { x: x + BAR + 5, y: top + (values.length > 1 ? (tall * i) / 2 : tall / 2) + 4 }, number(value, 3)));
  return [...boxes, ...labels, draw("text", { x: x - 30, y: top - 14 }, "latency (ms)")];
}
