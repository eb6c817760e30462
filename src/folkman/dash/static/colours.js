// Colours of curves and of values, each for a light and for a dark ground; those of the report (report/palette.py).

import { variable } from "./dom.js";

const SERIES = {
  light: ["#4986d4", "#be0501", "#0c5441", "#c16b89", "#6d854a", "#5627b3"],
  dark: ["#5ec8f2", "#ff7d5c", "#2f9e86", "#f5b8dd", "#ffd75e", "#8f7bff"],
};
// From low to high: what is high stands out most from its ground.
const RAMP = {
  light: ["#eb6628", "#de5238", "#cb4149", "#b63458", "#a02a63", "#88226a", "#71196e", "#5a116e", "#420a68", "#290b55", "#120a32", "#030210"],
  dark: ["#d34743", "#df5337", "#e9612b", "#f1711f", "#f78212", "#fa9407", "#fca60c", "#fbba1f", "#f8cd37", "#f4e156", "#f2f27d", "#fcffa4"],
};
const DASHES = [[], [8, 4], [8, 3, 2, 3], [2, 3], [12, 3], [6, 2, 2, 2, 2, 2]];

export function theme() {
  return variable("--theme") === "dark" ? "dark" : "light";
}

export function colourOf(index) {
  const all = SERIES[theme()];
  return all[index % all.length];
}

// A colour that returns has another dash.
export function dashOf(index) {
  return DASHES[(index + Math.floor(index / SERIES.light.length)) % DASHES.length];
}

export function shade(part) {
  const all = RAMP[theme()];
  const place = Math.min(Math.max(part, 0), 1) * (all.length - 1);
  const low = Math.min(Math.floor(place), all.length - 2);
  const [from, to] = [all[low], all[low + 1]].map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
  return `rgb(${from.map((value, i) => Math.round(value + (place - low) * (to[i] - value))).join(",")})`;
}
