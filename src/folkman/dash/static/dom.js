// Small helpers over the DOM: text is always text, never markup.

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

let terms = {}, termOf = {};

export function explain(known, of) {
  terms = known;
  termOf = of;
}

// A heading; one that needs a word has its meaning as a tooltip.
function heading(text) {
  const meaning = terms[termOf[text] ?? text];
  return meaning ? make("abbr", { title: meaning, tabindex: "0" }, text) : text;
}

// Offer these entries and no others; what was chosen stays chosen where it is still there.
export function offer(label, entries) {
  const select = label.querySelector("select"), key = JSON.stringify(entries);
  if (select.dataset.offered === key) return;
  const chosen = select.value;
  select.dataset.offered = key;
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value }, text)));
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
  label.hidden = entries.length < 2;
}

export function choices(label, entries, chosen, onchange, spoken = null) {
  const select = make("select", { "aria-label": spoken, onchange: () => onchange(select.value) });
  for (const [value, text] of entries) select.append(make("option", { value, selected: value === chosen }, text));
  select.value = chosen;
  return make("label", {}, label ? `${label} ` : null, select);
}

export function card(title, { wide = false } = {}) {
  const head = make("div", { class: "head" }, make("h2", {}, title));
  const body = make("div");
  const element = make("section", { class: wide ? "card wide" : "card", "aria-label": title }, head, body);
  return { element, head, body };
}

// Rows of text under headings; only what changed is touched, so that a reader's place and selection stay.
export class Table {
  constructor(headings, caption) {
    this.body = make("tbody");
    const heads = headings.map((text) => make("th", { scope: "col" }, heading(text)));
    this.element = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), this.body));
  }

  show(rows, bad = () => false) {
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((cells, index) => {
      const row = this.body.rows[index] ?? this.body.insertRow();
      row.className = bad(index) ? "bad" : "";
      while (row.cells.length > cells.length) row.deleteCell(-1);
      cells.forEach((text, column) => {
        const cell = row.cells[column] ?? row.insertCell();
        if (cell.textContent !== text) cell.textContent = text;
      });
    });
  }
}

// What went wrong, and what to try; or, calmly, what else was seen.
export class Wrong {
  constructor(kind = "wrong", name = "What went wrong") {
    this.element = make("ul", { class: kind, "aria-label": name, hidden: true });
  }

  show(lines) {
    const key = JSON.stringify(lines);
    if (key === this.shown) return;
    this.shown = key;
    this.element.hidden = !lines.length;
    this.element.replaceChildren(...lines.map((line) => make("li", {}, line)));
  }
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

export function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
