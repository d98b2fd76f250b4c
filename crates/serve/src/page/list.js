// A list of any length: only visible rows are in the page, and an unchanged row is not touched.
import { el, say, put, chip, bar, sign, tone, TONES, WORDS, duration, ago } from "./dom.js";

const HEIGHT = 68, SPARE = 6;

export function list({ href, current }) {
  const inner = el("div", { class: "rows", role: "list", "aria-label": "Operations" });
  const node = el("div", { class: "list", tabindex: "0", role: "region", "aria-label": "Operations, stuck ones first" }, inner);
  const made = new Map();
  let items = [], now = Date.now(), queued = false;

  function queue() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; draw(); });
  }

  function draw() {
    const height = `${items.length * HEIGHT}px`;
    if (inner.style.height !== height) inner.style.height = height;
    const first = Math.max(0, Math.floor(node.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(items.length, Math.ceil((node.scrollTop + (node.clientHeight || 600)) / HEIGHT) + SPARE);
    const seen = new Set();
    for (let place = first; place < last; place += 1) {
      const item = items[place];
      seen.add(item.key);
      let row = made.get(item.key);
      if (!row) { row = make(item, href); made.set(item.key, row); inner.append(row.node); }
      row.update(item, place, items.length, now, current() === item.key);
    }
    for (const [key, row] of made) if (!seen.has(key)) { row.node.remove(); made.delete(key); }
  }

  node.addEventListener("scroll", queue, { passive: true });
  function step(event) {
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || !items.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const at = items.findIndex((item) => item.key === (document.activeElement.dataset.key || current()));
    const next = Math.max(0, Math.min(items.length - 1, (at < 0 ? (by > 0 ? -1 : 1) : at) + by));
    reveal(next);
  }
  node.addEventListener("keydown", step);
  function reveal(place) {
    const top = place * HEIGHT;
    if (top < node.scrollTop) node.scrollTop = top;
    if (top + HEIGHT > node.scrollTop + node.clientHeight) node.scrollTop = top + HEIGHT - node.clientHeight;
    draw();
    const row = made.get(items[place].key);
    if (row) row.node.querySelector("a").focus({ preventScroll: true });
  }
  new ResizeObserver(queue).observe(node);
  // Focuses the row of this key, or the list itself if the row is gone.
  function focus(key) {
    const place = items.findIndex((item) => item.key === key);
    if (place < 0) node.focus({ preventScroll: true }); else reveal(place);
  }
  return { node, step, focus, show(next, time) { items = next; now = time; queue(); } };
}

function make(item, href) {
  const icon = el("span", { class: "sign", "aria-hidden": "true" });
  const kind = el("span", { class: "kind" });
  const name = el("span", { class: "name" });
  const doing = el("span", { class: "doing" });
  const state = el("span", { class: "state" });
  const gauge = bar(item.name);
  const percent = el("span", { class: "percent" });
  const numbers = el("span", { class: "numbers" });
  const left = el("span", { class: "left" });
  const link = el("a", { href: href(item.key), "data-key": item.key, class: "row" }, icon,
    el("span", { class: "what" }, el("span", { class: "title" }, name, kind, state), doing),
    el("span", { class: "far" }, el("span", { class: "measure" }, gauge.node, percent), numbers), left);
  const node = el("div", { role: "listitem", class: "slot" }, link);
  let shown = null, place = -1;
  return {
    node,
    update(row, at, size, now, chosen) {
      if (at !== place) { node.style.transform = `translateY(${at * HEIGHT}px)`; place = at; }
      put(node, "aria-posinset", at + 1);
      put(node, "aria-setsize", size);
      put(link, "aria-current", chosen ? "true" : null);
      if (shown !== row) {
        shown = row;
        put(link, "class", `row ${TONES[row.verdict] || "dim"}`);
        put(icon, "class", `sign ${tone(row.look)}`);
        say(icon, sign(row.look));
        say(name, row.name);
        say(kind, row.kind);
        say(doing, row.doing);
        put(doing, "title", row.doing);
        state.replaceChildren(chip(row.verdict));
        const ended = row.ended !== null;
        gauge.set(row.bar, row.percent, ended ? TONES[row.verdict] : TONES[row.verdict] === "run" ? "run" : TONES[row.verdict]);
        say(percent, row.percent);
        say(numbers, [row.bytes || row.counts, row.rate].filter(Boolean).join("  ·  "));
        put(link, "aria-label", [row.kind, row.name, WORDS[row.verdict], row.percent, row.left ? `${row.left} left` : "", row.doing].filter(Boolean).join(", "));
      }
      say(left, time(row, now));
    },
  };
}

function time(row, now) {
  if (row.ended !== null) return ago(row.ended, now);
  if (row.verdict === "Stuck") return row.since ? `${row.stall || "stalled"} for ${duration((now - row.since) / 1000)}` : `for ${duration((now - row.created) / 1000)}`;
  if (row.left) return `${row.left} left`;
  return duration((now - (row.started || row.created)) / 1000);
}
