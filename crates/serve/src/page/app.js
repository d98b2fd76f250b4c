// State, routes and views. Everything that is shown arrives on one stream of events.
import { el, say, put, bytes, ago, short, command } from "./dom.js";
import { stream } from "./stream.js";
import { list } from "./list.js";
import { detail } from "./detail.js";
import { spark } from "./chart.js";
import * as views from "./views.js";

const main = document.getElementById("main");
const state = { rows: new Map(), volumes: new Map(), sections: {}, throughput: [], facts: null, ahead: 0, filter: "", seen: false };
let token = null, shown = null, live = null, asked = 0;
// One hour of samples.
const MAX_POINTS = 1200;

const now = () => Date.now() + state.ahead;
const address = (key) => `#/operation/${key.split("/").map(encodeURIComponent).join("/")}`;
const facts = () => state.facts || {};

// --- token: read from the address once, then kept in this tab only -------------------------------------------------------------
function findToken() {
  const given = location.hash.match(/^#token=([^&]+)/);
  if (given) {
    sessionStorage.setItem("plimsoll-token", decodeURIComponent(given[1]));
    history.replaceState(null, "", `${location.pathname}#/`);
  }
  return sessionStorage.getItem("plimsoll-token");
}
function askForToken(wrong) {
  if (live) live.stop();
  live = null;
  leave();
  const field = el("input", { type: "password", autocomplete: "off", required: true, id: "token", "aria-describedby": "token-help" });
  main.replaceChildren(el("form", { class: "panel door", onsubmit(event) {
    event.preventDefault();
    sessionStorage.setItem("plimsoll-token", field.value.trim());
    begin();
  } }, el("h1", {}, wrong ? "Invalid token" : "Enter the access token"),
    el("label", { for: "token" }, "Token"), field,
    el("p", { id: "token-help" }, "This command prints an address that contains the token:"), command("plimsoll ui"),
    el("button", { type: "submit" }, "Open")));
  field.focus();
}

// --- stream -------------------------------------------------------------------------------------------------------------
async function begin() {
  token = sessionStorage.getItem("plimsoll-token");
  if (live) live.stop();
  leave();
  main.replaceChildren(el("p", { class: "empty" }, "Loading…"));
  if (!(await fetchFacts())) return;
  live = stream("api/events", token, { refused: () => askForToken(true), state: link, event: take });
  route();
}
// Fetches the namespace and whether changes are allowed. Retried until it succeeds: without it there are no buttons.
async function fetchFacts() {
  asked = Date.now();
  try {
    const response = await fetch("api/facts", { headers: { "X-Plimsoll-Token": token }, cache: "no-store" });
    if (response.status === 401) { askForToken(true); return false; }
    if (response.ok) { state.facts = await response.json(); say(document.getElementById("where"), state.facts.namespace); }
  } catch { /* the stream reports the connection state */ }
  return true;
}
function link(how, pause) {
  const node = document.getElementById("link");
  put(node, "class", `link ${how}`);
  say(node.querySelector("b"), how === "live" ? "Live" : pause > 1500 ? `Reconnecting in ${short(pause / 1000)}` : "Reconnecting");
}
function take(name, news) {
  if (name !== "news") return;
  if (!state.facts && Date.now() - asked > 2000) fetchFacts();
  if (news.full) { state.rows.clear(); state.volumes.clear(); state.throughput = []; }
  state.ahead = news.now - Date.now();
  const before = state.seen ? stuckKeys() : null;
  for (const row of news.rows) state.rows.set(row.key, row);
  for (const key of news.removed) state.rows.delete(key);
  // A server of an older version sends none.
  for (const volume of news.volumes || []) state.volumes.set(volume.key, volume);
  for (const key of news.removedVolumes || []) state.volumes.delete(key);
  Object.assign(state.sections, news.sections);
  for (const point of news.throughput) if (!state.throughput.length || point.at > state.throughput[state.throughput.length - 1].at) state.throughput.push(point);
  state.throughput.splice(0, state.throughput.length - MAX_POINTS);
  state.seen = true;
  if (before) announce(before);
  draw();
}
const stuckKeys = () => new Set([...state.rows.values()].filter((row) => row.verdict === "Stuck").map((row) => row.key));
function announce(before) {
  const spoken = document.getElementById("spoken");
  const fresh = [...state.rows.values()].filter((row) => row.verdict === "Stuck" && !before.has(row.key));
  if (fresh.length) say(spoken, fresh.slice(0, 3).map((row) => `${row.kind} ${row.name} is stuck: ${row.doing}`).join(". "));
}

// --- routes -------------------------------------------------------------------------------------------------------------
function leave() { if (shown && shown.stop) shown.stop(); shown = null; }
function route() {
  if (!token) return;
  const path = location.hash.replace(/^#/, "") || "/";
  for (const a of document.querySelectorAll("#views a")) put(a, "aria-current", a.getAttribute("href") === `#${path}` || (path.startsWith("/operation/") && a.getAttribute("href") === "#/") ? "page" : null);
  const chosen = path.startsWith("/operation/") ? path.slice(11).split("/").map(decodeURIComponent).join("/") : null;
  const plain = VIEWS[path];
  document.title = chosen ? `${chosen.split("/").filter((_, i) => i !== 1).join("/")} · Plimsoll` : "Plimsoll";
  // The list is kept when an operation is opened or closed, with its scroll position and focus.
  if (plain || !shown || !shown.choose) {
    leave();
    shown = plain ? table(...plain) : operations();
    main.className = "page";
    main.replaceChildren(...shown.nodes);
  }
  if (!plain) shown.choose(chosen);
  draw();
}
// Each with its minimum interval between two drawings, in milliseconds: volumes change often, the others rarely.
const VIEWS = { "/history": [views.history, 900], "/volumes": [views.volumes, 250], "/schedules": [views.schedules, 900], "/locations": [views.locations, 900] };
function table(view, pace) {
  const holder = el("div", {});
  let last = 0, later = null;
  // Tables are rebuilt: at most once per interval, and not while text in them is selected.
  return { nodes: [holder], draw() {
    if (last && String(getSelection())) return;
    if (Date.now() - last < pace) { later = later || setTimeout(() => { later = null; draw(); }, pace); return; }
    last = Date.now();
    const focused = document.activeElement && holder.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    holder.replaceChildren(...view(state, now()));
    if (focused) { const again = [...holder.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused); if (again) again.focus({ preventScroll: true }); }
  } };
}
function operations() {
  let chosen = null, right = null;
  const tiles = makeTiles(), unseen = makeUnseen();
  const rows = list({ href: address, current: () => chosen });
  const field = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter operations by name, kind or state", value: state.filter, oninput(event) { state.filter = event.target.value; draw(); } });
  const count = el("span", { class: "dim", role: "status" });
  const empty = el("div", { class: "panel empty", hidden: true });
  const left = el("section", { class: "overview" }, tiles.node, el("div", { class: "tools" }, field, count), empty, rows.node, unseen.node);
  function close() {
    if (right) { right.stop(); right.node.remove(); }
    right = null;
  }
  function open(key) {
    right = detail(key, { token, refused: () => askForToken(true), facts, act, back: () => el("a", { class: "back", href: "#/", "aria-label": "Close, back to all operations" }, "✕") });
    main.append(right.node);
    right.node.focus({ preventScroll: true });
  }
  return {
    nodes: [left], field, step: rows.step, stop: close,
    // The keyboard focus follows: into the opened operation, and back to its row.
    choose(key) {
      const before = chosen;
      close();
      chosen = key;
      main.className = chosen ? "split open" : "split";
      if (chosen) open(chosen);
      else if (before) rows.focus(before);
    },
    draw() {
      tiles.show();
      unseen.show();
      if (right) right.buttons();
      const all = sorted(), words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = all.filter((row) => words.every((word) => `${row.kind}/${row.name} ${row.namespace} ${row.verdict} ${row.phase} ${row.schedule}`.toLowerCase().includes(word)));
      say(count, words.length ? `${wanted.length} of ${all.length}` : `${all.length} operation${all.length === 1 ? "" : "s"}`);
      empty.hidden = wanted.length > 0 || !state.seen;
      rows.node.hidden = wanted.length === 0;
      if (!empty.hidden) empty.replaceChildren(...(all.length ? ["No operation matches the filter."] : [el("p", {}, "There are no backups, restores or actions yet."), command("plimsoll backup create first --wait")]));
      rows.show(wanted, now());
    },
  };
}
// The same order as in every other view: stuck, running, waiting, ended.
const RANK = { Stuck: 0, Quiet: 1, Moving: 1, Waiting: 2 };
function sorted() {
  return [...state.rows.values()].sort((a, b) => (RANK[a.verdict] ?? 3) - (RANK[b.verdict] ?? 3) || (b.ended || 0) - (a.ended || 0) || a.created - b.created || (a.key < b.key ? -1 : 1));
}
function makeUnseen() {
  const items = el("ul", {}), node = el("details", { class: "unseen-list", hidden: true }, el("summary", {}, "Some resources could not be read"), items);
  let drawn = null;
  return { node, show() {
    const all = state.sections.unseen || [];
    if (drawn === all) return;
    drawn = all;
    node.hidden = !all.length;
    items.replaceChildren(...all.slice(0, 50).map((one) => el("li", {}, `${one.what}: ${one.why}`)));
  } };
}
function makeTiles() {
  const tile = (word) => { const number = el("b", {}), more = el("small", {}); return { node: el("div", { class: "tile" }, el("span", {}, word), number, more), number, more }; };
  const stuck = tile("Stuck"), running = tile("Running"), failed = tile("Failed today"), good = tile("Last backup"), flow = tile("Throughput");
  const line = el("div", { class: "sparkline" });
  flow.node.append(line);
  return {
    node: el("div", { class: "tiles" }, stuck.node, running.node, failed.node, good.node, flow.node),
    show() {
      const rows = [...state.rows.values()], at = now();
      const many = (test) => rows.reduce((sum, row) => sum + (test(row) ? 1 : 0), 0);
      const stuckNow = many((row) => row.verdict === "Stuck"), failedNow = many((row) => row.ended && at - row.ended < 86400000 && ["Failed", "PartiallyFailed", "Refused"].includes(row.verdict));
      const waiting = many((row) => row.verdict === "Waiting");
      put(stuck.node, "class", `tile ${stuckNow ? "bad" : "calm"}`);
      put(failed.node, "class", `tile ${failedNow ? "warn" : "calm"}`);
      say(stuck.number, String(stuckNow));
      say(stuck.more, stuckNow ? "needs attention" : "no stalled operations");
      say(running.number, String(many((row) => row.verdict === "Moving" || row.verdict === "Quiet")));
      say(running.more, waiting ? `${waiting} waiting` : "none waiting");
      say(failed.number, String(failedNow));
      say(failed.more, failedNow ? "in 24 hours" : "none in 24 hours");
      const last = rows.reduce((most, row) => (row.kind === "backup" && row.verdict === "Fine" && row.ended > most ? row.ended : most), 0);
      say(good.number, last ? ago(last, at) : "–");
      say(good.more, last ? new Date(last).toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" }) : "no successful backup");
      const rate = rows.reduce((sum, row) => sum + row.bytesRate, 0);
      say(flow.number, rate ? `${bytes(rate)}/s` : "–");
      say(flow.more, "");
      line.replaceChildren(spark(state.throughput.slice(-120)));
    },
  };
}
let due = false;
function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; if (shown && state.seen) shown.draw(); });
}

// --- actions, where they are allowed ----------------------------------------------------------------------------------------
async function act(key, action) {
  const name = key.split("/").pop();
  if (!confirm(action === "cancel" ? `Cancel ${name}?` : `Retry ${name}?`)) return;
  let text;
  try {
    const response = await fetch(`api/operations/${key.split("/").map(encodeURIComponent).join("/")}/${action}`, { method: "POST", headers: { "X-Plimsoll-Token": token } });
    text = (await response.json()).message;
  } catch { text = "the server is unreachable"; }
  const toast = document.getElementById("toast");
  say(toast, text);
  toast.hidden = false;
  setTimeout(() => { toast.hidden = true; }, 6000);
}

// --- colours and keys --------------------------------------------------------------------------------------------------------
const THEMES = { auto: ["◐", "system"], light: ["☀", "light"], dark: ["☾", "dark"] };
function theme(next) {
  const name = THEMES[next] ? next : "auto";
  try { localStorage.setItem("plimsoll-theme", name); } catch { /* not stored: the choice is lost when the tab closes */ }
  put(document.documentElement, "data-theme", name === "auto" ? null : name);
  const button = document.getElementById("theme");
  say(button, THEMES[name][0]);
  put(button, "aria-label", `Colours: ${THEMES[name][1]}`);
  put(button, "title", `Colours: ${THEMES[name][1]}`);
  return name;
}
let colours = "auto";
try { colours = localStorage.getItem("plimsoll-theme") || "auto"; } catch { /* storage is unavailable */ }
colours = theme(colours);
document.getElementById("theme").addEventListener("click", () => { colours = theme({ auto: "light", light: "dark", dark: "auto" }[colours]); });
addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing && shown && shown.field) { event.preventDefault(); shown.field.focus(); }
  // Nothing has the focus yet: keys move in the list.
  if ([document.body, main].includes(document.activeElement) && shown && shown.step) shown.step(event);
  if (event.key === "Escape" && location.hash.startsWith("#/operation/")) location.hash = "#/";
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) { findToken(); begin(); } else route(); });
addEventListener("online", () => live && live.nudge());
document.addEventListener("visibilitychange", () => { if (!document.hidden && live) live.nudge(); });
// Ages change without events.
setInterval(draw, 1000);

if (findToken()) begin(); else askForToken(false);
