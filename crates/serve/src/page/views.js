// The views beside the operations: history, volumes, schedules, locations. Tables with a bounded number of rows.
import { el, bar, chip, ago, bytes, roundBytes, short, when, duration, TONES } from "./dom.js";
import { barChart, lineChart } from "./chart.js";

const MAX_ROWS = 200;
const link = (key, text) => el("a", { href: `#/operation/${key.split("/").map(encodeURIComponent).join("/")}` }, text);
const tag = (text, tone) => el("span", { class: `chip ${tone}` }, text);

function table(caption, heads, rows, total) {
  if (!rows.length) return el("p", { class: "empty" }, `There are no ${caption.toLowerCase()}.`);
  return el("div", { class: "panel scroll" }, el("table", {}, el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))),
    total > rows.length ? el("p", { class: "empty small" }, `${total - rows.length} older entries are not shown.`) : null);
}

const took = (row) => Math.max(0, (row.ended - (row.started || row.created)) / 1000);

export function history(state, now) {
  const ended = [...state.rows.values()].filter((row) => row.ended !== null).sort((a, b) => b.ended - a.ended);
  const groups = new Map();
  for (const row of ended) {
    const name = row.schedule ? `Schedule ${row.schedule}` : row.kind === "backup" ? "Manual backups" : row.kind === "restore" ? "Restores" : "Actions";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  const charts = [...groups].slice(0, 6).map(([name, rows]) => barChart({
    title: `${name}: durations`, format: duration, axis: short, unit: "seconds",
    items: rows.slice(0, 40).reverse().map((row) => ({ value: took(row), tone: TONES[row.verdict], hint: `${row.name}: ${duration(took(row))}, ${row.phase}`, label: new Date(row.ended).toLocaleDateString() })),
  }));
  return [
    el("h1", {}, "History"),
    el("div", { class: "charts" }, lineChart({ title: "Total throughput", points: state.throughput, value: (p) => p.rate, format: (v) => `${bytes(Math.round(v))}/s`, axis: roundBytes, unit: "bytes", now: true, empty: "No throughput yet." }), charts),
    table("Ended operations", ["Operation", "Status", "Duration", "Ended", "Details"],
      ended.slice(0, MAX_ROWS).map((row) => [link(row.key, `${row.kind}/${row.name}`), chip(row.verdict), duration(took(row)), el("span", { title: when(row.ended) }, ago(row.ended, now)), row.cause ? row.cause.text : row.bytes || row.counts || row.phase]), ended.length),
  ];
}

export function volumes(state) {
  const all = [...state.volumes.values()].sort((a, b) => a.isEnded - b.isEnded || b.isStuck - a.isStuck || (b.created || 0) - (a.created || 0) || (a.key < b.key ? -1 : 1));
  return [el("h1", {}, "Volumes"), table("Volumes", ["Volume", "Operation", "Node", "Progress", "Bytes", "Speed", "Time left", "Phase"],
    all.slice(0, MAX_ROWS).map((v) => {
      const gauge = bar(v.name), state = v.isStuck ? "bad" : phaseTone(v);
      gauge.set(v.bar, v.percent, state);
      return [v.name, v.parent ? link(v.parent, v.parent.split("/").filter((_, i) => i !== 1).join("/")) : "", v.node || "",
        el("span", { class: "measure" }, gauge.node, el("span", { class: "percent" }, v.percent)), v.bytes, v.rate, v.left,
        el("span", { title: v.message }, tag(v.isStuck ? "Stuck" : v.phase, state))];
    }), all.length)];
}
const phaseTone = (v) => ({ Completed: "good", Failed: "bad", Canceled: "dim", Cancelled: "dim" })[v.phase] || (v.isEnded ? "good" : "run");

export function schedules(state, now) {
  const all = state.sections.schedules || [];
  return [el("h1", {}, "Schedules"), table("Schedules", ["Schedule", "Cron", "Status", "Last backup", "Last successful", "Next"],
    all.slice(0, MAX_ROWS).map((s) => [el("b", {}, s.name), el("code", {}, s.cron),
      s.missed ? tag(`missed ${ago(s.missed, now)}`, "bad") : s.paused ? tag("Paused", "wait") : s.errors.length ? el("span", { title: s.errors.join("; ") }, tag(s.phase, "bad")) : tag(s.phase === "New" ? "New" : "On time", s.phase === "New" ? "dim" : "good"),
      el("span", { title: when(s.last) }, ago(s.last, now)), el("span", { title: when(s.lastGood) }, ago(s.lastGood, now)),
      s.next ? el("span", { title: when(s.next) }, ago(s.next, now)) : "–"]), all.length)];
}

export function locations(state, now) {
  const all = state.sections.locations || [];
  return [el("h1", {}, "Locations"), table("Locations", ["Location", "Bucket", "Status", "Validated", "Message"],
    all.slice(0, MAX_ROWS).map((l) => [el("span", {}, el("b", {}, l.name), " ", l.default ? tag("default", "dim") : null, l.readOnly ? tag("read-only", "wait") : null),
      el("code", {}, `${l.provider}: ${l.bucket}${l.prefix ? `/${l.prefix}` : ""}`), tag(l.phase, l.phase === "Available" ? "good" : "bad"), ago(l.checked, now), l.message || ""]), all.length)];
}
