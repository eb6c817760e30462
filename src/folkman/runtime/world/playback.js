"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const members = data.members, place = new Map();
const W = 560, H = 430, last = Math.max(data.last_s, 0.001);
let now = 0, playing = false, before = 0, span = last;

members.forEach((member, i) => {
  const angle = -Math.PI / 2 + (2 * Math.PI * i) / members.length;
  const isServer = member.name === "server";
  place.set(member.number, isServer ? [W / 2, H / 2] :
    [W / 2 + 165 * Math.cos(angle), H / 2 + 150 * Math.sin(angle)]);
});
const nameOf = (n) => { const m = members.find((each) => each.number === n); return m ? m.name : "world"; };

function make(kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/* What a member and a link are at a time: the last line that says so. */
function stateAt(t) {
  const found = { up: new Map(), node: new Map(), saved: new Map(), spin: new Map(), at: -1 };
  members.forEach((m) => found.node.set(m.number, "down"));
  data.lines.forEach((line, i) => {
    const [when, who, what, peer, detail] = line;
    if (when > t) return;
    found.at = i;
    if (what === "begins") found.node.set(who, "alive");
    else if (what === "ends") found.node.set(who, detail.startsWith("finished") ? "done" : "down");
    else if (what === "fault suspend") found.node.set(who, "asleep");
    else if (what === "end of suspend" && found.node.get(who) === "asleep") found.node.set(who, "alive");
    else if (what === "link up") found.up.set([who, peer].sort().join("-"), true);
    else if (what === "link down") found.up.set([who, peer].sort().join("-"), false);
    else if (what === "Save") found.spin.set(who, true);
    else if (what === "SaveFailed") { found.spin.set(who, false); found.saved.set(who, "refused"); }
    else if (what === "Saved") { found.spin.set(who, false); found.saved.set(who, "saved"); }
  });
  return found;
}

function draw() {
  const picture = find("picture"), state = stateAt(now);
  picture.setAttribute("viewBox", `0 0 ${W} ${H}`);
  picture.replaceChildren();
  for (const [pair, up] of state.up) {
    const [a, b] = pair.split("-").map(Number), [x, y] = place.get(a), [u, v] = place.get(b);
    picture.append(make("line", { x1: x, y1: y, x2: u, y2: v, stroke: "var(--line)",
      "stroke-width": up ? 2 : 1, "stroke-dasharray": up ? "" : "2 6" }));
  }
  const cuts = data.faults.filter((f) => f.start <= now && now < f.stop);
  cuts.filter((f) => f.peer >= 0).forEach((f) => {
    const [x, y] = place.get(f.node), [u, v] = place.get(f.peer);
    picture.append(make("line", { x1: x, y1: y, x2: (x + 2 * u) / 3, y2: (y + 2 * v) / 3,
      stroke: "var(--bad)", "stroke-width": 2, "stroke-dasharray": "6 5", opacity: .7 }));
    picture.append(make("text", { x: (2 * x + u) / 3, y: (2 * y + v) / 3, class: "soft" }, f.kind));
  });
  data.flights.forEach(([sent, real, a, b, kind]) => {
    const at = Math.max(real, sent + .01 * span); // or nobody would see it; zoom in for the truth
    if (now < sent || now > at || !place.has(a) || !place.has(b)) return;
    const [x, y] = place.get(a), [u, v] = place.get(b), part = (now - sent) / Math.max(at - sent, 1e-9);
    const reach = kind === "lost" ? .6 : 1, side = 5;
    const length = Math.hypot(u - x, v - y) || 1, px = (-(v - y) / length) * side, py = ((u - x) / length) * side;
    const cx = x + (u - x) * part * reach + px, cy = y + (v - y) * part * reach + py;
    if (kind === "lost") picture.append(make("text", { x: cx - 4, y: cy + 4, fill: "var(--bad)" }, "×"));
    else picture.append(make("circle", { cx, cy, r: kind === "model" ? 6 : 3,
      fill: kind === "model" ? "var(--model)" : "var(--word)" }));
  });
  const age = latestAges();
  members.forEach((m) => {
    const [x, y] = place.get(m.number), is = state.node.get(m.number);
    const fill = is === "alive" ? "var(--node)" : is === "done" ? "var(--done)" : "var(--down)";
    picture.append(make("circle", { cx: x, cy: y, r: 25, fill, stroke: m.lie ? "var(--lie)" : "none",
      "stroke-width": 4, opacity: is === "asleep" ? .45 : 1 }));
    picture.append(make("text", { x, y: y + 5, "text-anchor": "middle", style: "fill:var(--back);font-weight:600" },
      m.name === "server" ? "S" : m.name));
    const under = [is === "alive" ? "" : is, m.lie && `lies: ${m.lie}`].filter(Boolean).join(", ");
    const steps = age.get(m.number);
    const lines = [under, steps ? `${steps.steps} steps` : ""].filter(Boolean);
    lines.forEach((text, i) => picture.append(make("text", { x, y: y + 42 + 15 * i, "text-anchor": "middle",
      class: "soft" }, text)));
    const disk = state.spin.get(m.number) ? "var(--model)" : state.saved.get(m.number) === "refused" ?
      "var(--bad)" : "var(--line)";
    picture.append(make("rect", { x: x + 19, y: y - 34, width: 15, height: 11, rx: 2, fill: disk,
      stroke: "var(--soft)" }));
    cuts.filter((f) => f.peer < 0 && f.node === m.number).forEach((f, i) =>
      picture.append(make("text", { x: x - 30, y: y - 30 - 14 * i, "text-anchor": "end",
        style: "fill:var(--bad)" }, f.kind)));
  });
  drawLines(state.at);
  drawAges(age);
  drawStrip();
  find("clock").textContent = `${now.toFixed(3)} s of ${last.toFixed(1)} s, slot ${Math.floor(now / data.slot_s)}` +
    (now >= data.heal_s ? ", healed" : "");
  find("at").value = now;
}

function latestAges() {
  const found = new Map();
  data.ages.forEach(([when, who, ages, steps]) => { if (when <= now) found.set(who, { ages, steps }); });
  return found;
}

function drawAges(found) {
  const table = document.createElement("table"), head = table.insertRow();
  head.append(document.createElement("th"));
  const learners = members.filter((m) => m.name !== "server"), served = learners.length < members.length;
  const columns = [...(served ? ["server"] : []), ...learners.map((m) => m.name)];
  columns.forEach((name) => {
    const th = document.createElement("th");
    th.textContent = `of ${name}`;
    head.append(th);
  });
  [...members.filter((m) => m.name === "server"), ...learners].forEach((m) => {
    const row = table.insertRow(), th = document.createElement("th"), held = found.get(m.number);
    th.textContent = m.name === "server" ? "server" : `node ${m.name}`;
    row.append(th);
    columns.forEach((name) => {
      const cell = row.insertCell(), age = held ? ageOf(held.ages, m, name, served) : null;
      cell.textContent = name === m.name ? "·" : age === null || age === undefined ? "–" : age;
      if (age > 0 && name !== m.name)
        cell.style.background = `color-mix(in srgb, var(--model) ${Math.min(80, 6 * age)}%, transparent)`;
    });
  });
  find("ages").replaceChildren(table);
}

/** Around a server a node holds the server's copy alone, and the server those of all nodes. */
function ageOf(ages, member, name, served) {
  if (served && member.name !== "server") return name === "server" ? ages[0] : null;
  return name === "server" ? null : ages[Number(name)];
}

function drawLines(at) {
  const list = find("lines"), items = [];
  const past = innerWidth <= 760 ? 4 : 8;
  for (let i = Math.max(0, at - past); i <= Math.min(data.lines.length - 1, at + 3); i++) {
    const [when, who, what, peer, detail] = data.lines[i], item = document.createElement("li");
    item.textContent = `${when.toFixed(3)}  ${nameOf(who)}: ${what}${peer >= 0 ? " " + nameOf(peer) : ""} ${detail}`;
    item.title = item.textContent;
    if (i === at) item.className = "now";
    items.push(item);
  }
  list.replaceChildren(...items);
}

function drawStrip() {
  const strip = find("strip"), rows = Math.max(1, data.faults.length), height = 30 + 15 * rows;
  const width = Math.max(340, Math.min(strip.clientWidth || 1100, 1100));
  const first = Math.max(0, Math.min(now - span / 2, last - span)), x = (t) => 8 + ((t - first) / span) * (width - 16);
  strip.setAttribute("viewBox", `0 0 ${width} ${height}`);
  strip.replaceChildren();
  strip.append(make("rect", { x: x(data.heal_s), y: 0, width: Math.max(0, x(last) - x(data.heal_s)), height,
    fill: "var(--good)", opacity: .08 }));
  const wanted = span / (width / 75), ticks = [.02, .05, .1, .2, .5, 1, 2, 5, 10, 20].find((t) => t >= wanted) || 50;
  for (let t = Math.ceil(first / ticks) * ticks; t <= first + span + 1e-9; t += ticks)
    strip.append(make("text", { x: x(t), y: height - 4, class: "soft", "text-anchor": "middle" }, `${+t.toFixed(2)} s`));
  data.faults.forEach((f, i) => {
    const y = 6 + 15 * i, a = Math.max(x(f.start), 0), b = Math.min(x(f.stop), width);
    if (b < 0 || a > width) return;
    strip.append(make("rect", { x: a, y, width: Math.max(2, b - a), height: 10, rx: 3, fill: "var(--bad)", opacity: .55 }));
    const right = a > width * .6;
    strip.append(make("text", { x: right ? a - 6 : Math.max(b + 6, 8), y: y + 9, class: "soft",
      "text-anchor": right ? "end" : "start" }, f.said));
  });
  strip.append(make("line", { x1: x(now), x2: x(now), y1: 0, y2: height - 16, stroke: "var(--text)", "stroke-width": 1.5 }));
  strip.onpointerdown = strip.onpointermove = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = strip.getBoundingClientRect();
    go(first + (((event.clientX - box.left) / box.width) * width - 8) / (width - 16) * span);
  };
}

function go(t) { now = Math.max(0, Math.min(last, t)); draw(); }
function step(by) {
  const times = data.lines.map((line) => line[0]);
  const next = by > 0 ? times.find((t) => t > now + 1e-6) : times.filter((t) => t < now - 1e-6).pop();
  play(false);
  go(next === undefined ? (by > 0 ? last : 0) : next);
}
function play(on) {
  playing = on;
  find("play").textContent = on ? "Pause" : "Play";
  if (on) { if (now >= last) now = 0; before = performance.now(); requestAnimationFrame(frame); }
}
function frame(time) {
  if (!playing) return;
  go(now + ((time - before) / 1000) * Number(find("speed").value));
  before = time;
  if (now >= last) play(false); else requestAnimationFrame(frame);
}
function zoom(factor) { span = Math.max(.2, Math.min(last, span * factor)); draw(); }

find("at").max = last;
find("at").oninput = (event) => { play(false); go(Number(event.target.value)); };
find("play").onclick = () => play(!playing);
find("back").onclick = () => step(-1);
find("on").onclick = () => step(1);
find("closer").onclick = () => zoom(.5);
find("wider").onclick = () => zoom(2);
find("broke").textContent = data.broken ? "To what broke" : "To the end";
find("broke").onclick = () => { play(false); go(last); };
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "SELECT") return;
  const keys = { " ": () => play(!playing), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
    "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), Home: () => go(0), End: () => go(last) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
const liars = members.filter((m) => m.lie).length;
find("about").textContent = `${data.method}, ${members.length} members` + (liars ? `, ${liars} of them lies` : "") +
  `, ${data.faults.length} faults until ${data.heal_s.toFixed(1)} s` + (data.sentence ? `. Broken: ${data.sentence}` : "");
find("legend").textContent = "Large dots are models, small ones control messages, × is lost. A red ring lies. " +
  "The small box is the disk: it lights up while it writes, red if it refused. Messages are shown longer than they " +
  "take unless you zoom in. Space plays, arrows step, + and - zoom.";
addEventListener("resize", draw);
const start = new URLSearchParams(location.hash.slice(1)).get("t");
go(start === null ? (data.broken ? last : 0) : Number(start));
