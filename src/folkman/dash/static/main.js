// The live page: listens to the stream of events and draws, at most as often as the browser can.

import { ClusterPage } from "./cluster.js";
import { explain, make } from "./dom.js";
import { RunPage } from "./run.js";
import { SweepPage } from "./sweep.js";

const PAGES = { run: RunPage, sweep: SweepPage, cluster: ClusterPage };
const LEAST_GAP_MS = 40;
const $ = (id) => document.getElementById(id);

let page = null, kind = null, paused = false, dirty = false, asked = false;
let newest = null, nextDraw = 0;

function redraw() {
  dirty = true;
  if (!asked) {
    asked = true;
    requestAnimationFrame(paint);
  }
}

function paint(now) {
  asked = false;
  if (!dirty || !page) return;
  if (now < nextDraw) {
    asked = true;
    requestAnimationFrame(paint);
    return;
  }
  dirty = false;
  const begun = performance.now();
  page.draw();
  const took = performance.now() - begun;
  nextDraw = now + Math.max(LEAST_GAP_MS, 2 * took);
  tell();
}

function tell() {
  const { state, text, part } = page.summary();
  const status = $("status");
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = state;
  $("progress").hidden = part === null;
  if (part !== null) $("progress").value = part;
  if (newest !== null) {
    const lag = Math.max(0, Date.now() - 1000 * newest);
    $("lag").textContent = lag < 5000 ? `lag ${lag.toFixed(0)} ms` : "";
    $("lag").dataset.ms = lag.toFixed(1);
    newest = null;
  }
  tellKeys();
}

// Only keys that do something now.
function tellKeys() {
  const keys = [["p", paused ? "go on" : "pause"], ...page.keys(), ["Tab", "to everything"]];
  const text = JSON.stringify(keys);
  if ($("keys").dataset.shown === text) return;
  $("keys").dataset.shown = text;
  $("keys").replaceChildren(...keys.flatMap(([key, what], index) => [...key.split(" ").map((each) => make("kbd", {}, each)), ` ${what}${index < keys.length - 1 ? ", " : "."}`]));
}

function tellWords(terms) {
  $("words").hidden = !Object.keys(terms).length;
  $("words").querySelector("dl").replaceChildren(...Object.entries(terms).map(([term, meaning]) => make("div", {}, make("dt", {}, term), make("dd", {}, meaning))));
}

function trouble(text) {
  $("trouble").hidden = !text;
  if (text) $("trouble").textContent = text;
}

function listen() {
  const events = new EventSource("/events");
  events.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    if (kind !== state.kind) {
      kind = state.kind;
      explain(state.terms ?? {}, state.term_of ?? {});
      tellWords(state.terms ?? {});
      page = new PAGES[kind]($("main"), redraw);
    }
    trouble("");
    $("name").textContent = state.name ?? "folkman";
    document.title = `${state.name} · folkman`;
    page.state(state);
    redraw();
  });
  events.addEventListener("news", (event) => {
    const news = JSON.parse(event.data);
    trouble(news.trouble ?? "");
    if (!page || news.trouble) return;
    page.news(news);
    for (const run of news.runs ?? []) if (run.at) newest = Math.max(newest ?? 0, run.at);
    if (!paused) redraw();
  });
  events.onerror = () => {
    $("status").textContent = "connection lost, trying again";
    $("status").dataset.state = "lost";
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

function pause() {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on" : "Pause";
  if (page) tellKeys();
  if (!paused) redraw();
}

function theme(value) {
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  try { localStorage.setItem("theme", value); } catch { /* a browser may keep nothing */ }
  page?.repaint();
}

$("pause").addEventListener("click", pause);
$("theme").addEventListener("change", () => theme($("theme").value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page?.repaint());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "p") pause();
  else page?.key(event.key);
});
let kept = "auto";
try { kept = localStorage.getItem("theme") ?? "auto"; } catch { /* as above */ }
$("theme").value = kept;
theme(kept);
listen();
