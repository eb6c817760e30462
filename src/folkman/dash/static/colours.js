// Okabe and Ito's colours for series (the black one follows the theme), and viridis for values.

import { variable } from "./dom.js";

const SERIES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", null, "#F0E442"];
const DASHES = [[], [8, 4], [8, 3, 2, 3], [2, 3], [12, 3], [6, 2, 2, 2, 2, 2], [3, 2], [14, 5]];
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];

export function colourOf(index) {
  return SERIES[index % SERIES.length] ?? variable("--ink");
}

export function dashOf(index) {
  return DASHES[(index + Math.floor(index / SERIES.length)) % DASHES.length];
}

export function shade(part) {
  const place = Math.min(Math.max(part, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((value, i) => Math.round(value + (place - low) * (VIRIDIS[low + 1][i] - value)));
  return `rgb(${mixed.join(",")})`;
}
