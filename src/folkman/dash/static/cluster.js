// The page of a real cluster: its nodes' health and faults.

import { Table, card, make, number } from "./dom.js";

export class ClusterPage {
  constructor(main, redraw) {
    this.main = main;
    this.redraw = redraw;
  }

  state(state) {
    this.about = state;
    const nodes = card("Nodes", { wide: true }), faults = card("Faults", { wide: true });
    this.nodes = new Table(state.columns, "Nodes");
    this.faults = new Table(["when", "node", "what"], "Faults");
    nodes.body.append(this.nodes.element);
    faults.body.append(this.faults.element);
    this.none = make("p", { class: "quiet" }, "No fault so far.");
    faults.body.append(this.none);
    this.main.replaceChildren(make("div", { class: "cards" }, nodes.element, faults.element));
  }

  news(news) {
    Object.assign(this.about, news);
  }

  draw() {
    const cell = (value) => (typeof value === "number" ? number(value) : value === null || value === undefined ? "-" : String(value));
    this.nodes.show(this.about.nodes.map((node) => this.about.columns.map((name) => cell(node[name]))), (index) => this.about.nodes[index].bad);
    this.faults.show(this.about.faults.map((fault) => [fault.when, fault.node, fault.what]), () => true);
    this.none.hidden = this.about.faults.length > 0;
  }

  repaint() {}

  key() {}

  summary() {
    const bad = this.about.nodes.filter((node) => node.bad).length, all = this.about.nodes.length;
    return { state: bad ? "down" : "running", text: `${all - bad} of ${all} nodes well`, part: null };
  }
}
