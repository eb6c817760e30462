// What a chart shows, as files: CSV, SVG, and PNG made of that SVG.

import { colourOf, dashOf } from "./colours.js";
import { draw, make, number, variable } from "./dom.js";

const WIDE = 720, TALL = 420, LEFT = 70, TOP = 34, BOTTOM = 52, LETTER = 7, FINER = 2;

export function saveBlob(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function quoted(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvOf(head, rows) {
  return [head, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

export function saveCsv(name, head, rows) {
  saveBlob(`${name}.csv`, new Blob([csvOf(head, rows)], { type: "text/csv" }));
}

// An element of the page as a drawing of its own: the looks that the style sheet gives are written into it.
export function standingAlone(svg) {
  const copy = svg.cloneNode(true), looks = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "font-size", "font-weight", "text-anchor", "opacity", "paint-order", "stroke-linejoin", "fill-opacity"];
  const from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, index) => {
    const style = getComputedStyle(element);
    for (const look of looks) to[index].setAttribute(look, style.getPropertyValue(look));
  });
  const [x, y, wide, tall] = svg.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("width", wide);
  copy.setAttribute("height", tall);
  copy.setAttribute("font-family", "system-ui, sans-serif");
  copy.prepend(draw("rect", { x, y, width: wide, height: tall, fill: variable("--card") }));
  return copy;
}

function textOf(svg) {
  return new XMLSerializer().serializeToString(svg);
}

export function saveSvg(name, svg) {
  saveBlob(`${name}.svg`, new Blob([textOf(svg)], { type: "image/svg+xml" }));
}

export async function savePng(name, svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(textOf(svg))}`;
  await image.decode();
  const canvas = make("canvas", { width: FINER * Number(svg.getAttribute("width")), height: FINER * Number(svg.getAttribute("height")) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => saveBlob(`${name}.png`, blob), "image/png");
}

// Three buttons, which ask for what is shown when they are pressed.
export function saver(name, csv, svg) {
  const button = (kind, act) => make("button", { type: "button", class: "save", "aria-label": `Download ${kind}`, onclick: act }, kind);
  return make("span", { class: "saves", role: "group", "aria-label": "Download what is shown" },
    button("CSV", () => { const [head, rows] = csv(); saveCsv(name(), head, rows); }),
    button("SVG", () => saveSvg(name(), svg())),
    button("PNG", () => savePng(name(), svg())));
}

function ticksOf(low, high, log, most) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) for (const part of [1, 2, 5]) found.push(part * 10 ** power);
    const within = found.filter((value) => value >= low && value <= high);
    return within.length > most ? within.filter((value) => Math.abs(Math.log10(value) % 1) < 1e-9) : within;
  }
  const rough = (high - low) / most, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * size).find((each) => each >= rough) ?? size;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(value);
  return found;
}

// Curves with axes and names: lines are [name, look, xs, ys].
export function drawingOf(title, xName, lines, { range, log }) {
  const known = lines.map(([name, look, xs, ys]) => [name, look, xs.map((x, i) => [x, ys[i]]).filter(([x, y]) => x !== null && y !== null && y !== undefined && (!log || y > 0) && x >= range[0] && x <= range[1])]).filter(([, , points]) => points.length);
  const right = WIDE - 20 - LETTER * Math.min(30, Math.max(0, ...known.map(([name]) => name.length)));
  const ys = known.flatMap(([, , points]) => points.map(([, y]) => y));
  let low = Math.min(...ys), high = Math.max(...ys);
  if (!(high > low)) [low, high] = ys.length ? [low - 0.5 * Math.abs(low || 1), high + 0.5 * Math.abs(high || 1)] : [0, 1];
  const [x0, x1] = range[1] > range[0] ? range : [range[0], range[0] + 1];
  const up = (value) => (log ? Math.log10(value) : value);
  const px = (x) => LEFT + ((x - x0) / (x1 - x0)) * (right - LEFT);
  const py = (y) => TALL - BOTTOM - ((up(y) - up(low)) / (up(high) - up(low))) * (TALL - BOTTOM - TOP);
  const ink = variable("--ink"), quiet = variable("--ink-2"), grid = variable("--grid");
  const text = (x, y, words, more = {}) => draw("text", { x: x.toFixed(1), y: y.toFixed(1), fill: quiet, "font-size": 12, ...more }, words);
  const parts = [draw("rect", { width: WIDE, height: TALL, fill: variable("--card") }), text(LEFT, 20, title, { fill: ink, "font-size": 14, "font-weight": 600 })];
  for (const value of ticksOf(low, high, log, 6)) parts.push(draw("path", { d: `M${LEFT} ${py(value).toFixed(1)}H${right}`, stroke: grid }), text(LEFT - 6, py(value) + 4, number(value, 3), { "text-anchor": "end" }));
  for (const value of ticksOf(x0, x1, false, 6)) parts.push(draw("path", { d: `M${px(value).toFixed(1)} ${TALL - BOTTOM}v4`, stroke: quiet }), text(px(value), TALL - BOTTOM + 18, number(value, 3), { "text-anchor": "middle" }));
  parts.push(draw("path", { d: `M${LEFT} ${TALL - BOTTOM}H${right}`, stroke: quiet }), text((LEFT + right) / 2, TALL - 12, xName, { "text-anchor": "middle" }));
  const ends = known.map(([name, look, points]) => ({ name, look, y: py(points.at(-1)[1]), end: points.at(-1) })).sort((a, b) => a.y - b.y);
  ends.forEach((end, index) => { end.at = Math.max(end.y, index ? ends[index - 1].at + 15 : TOP); });
  for (let index = ends.length - 1, most = TALL - BOTTOM + 4; index >= 0; index--, most -= 15) ends[index].at = Math.min(ends[index].at, most);
  for (const [, look, points] of known) parts.push(draw("path", { d: points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join(""), fill: "none", stroke: colourOf(look.colour), "stroke-width": 2, "stroke-dasharray": look.dash.join(" ") || "none" }));
  for (const { name, look, y, at, end } of ends) parts.push(draw("path", { d: `M${px(end[0]).toFixed(1)} ${y.toFixed(1)}L${right + 6} ${at.toFixed(1)}`, stroke: colourOf(look.colour), "stroke-width": 0.7 }), text(right + 9, at + 4, name.length > 30 ? `${name.slice(0, 29)}…` : name, { fill: ink }));
  return draw("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, width: WIDE, height: TALL, "font-family": "system-ui, sans-serif", role: "img", "aria-label": title }, ...parts);
}

// How a group of runs looks: its colour and its dash; of two folders a method has one colour, and the second is dashed.
export function lookOf(group) {
  return { colour: group.colour ?? group.index, dash: group.dash ?? dashOf(group.index) };
}
