// One operation: its state, why it is stuck, its tasks, its speed and its time left.
import { el, say, put, bar, sign, tone, word, chip, command, duration, short, bytes, roundBytes, when, TONES } from "./dom.js";
import { lineChart } from "./chart.js";
import { stream } from "./stream.js";

export function detail(key, { token, refused, facts, act, back }) {
  const body = el("div", { class: "inside" }, el("p", { class: "empty" }, "Loading…"));
  const node = el("section", { class: "detail", "aria-label": key, tabindex: "-1" }, body);
  const tree = makeTree();
  let drawn = null, last = null;

  const live = stream(`api/operations/${key.split("/").map(encodeURIComponent).join("/")}/events`, token, {
    refused, state() {},
    event(name, data) {
      if (name === "gone") { body.replaceChildren(el("p", { class: "empty" }, "This operation no longer exists."), back()); drawn = null; return; }
      if (name === "operation") { last = data; draw(); }
    },
  });

  function draw() {
    const { row } = last;
    if (!drawn) { drawn = frame(row, facts, act, back); drawn.tree.append(tree.node); body.replaceChildren(...drawn.nodes); }
    const ended = row.ended !== null;
    drawn.chip.replaceChildren(chip(row.verdict));
    say(drawn.headline, last.headline);
    drawn.bar.set(row.bar, row.percent, TONES[row.verdict]);
    say(drawn.percent, row.percent || (ended ? "" : "…"));
    const took = row.ended !== null ? (row.ended - (row.started || row.created)) / 1000 : null;
    const facts_ = [
      ["Done", row.bytes || row.counts], ["Items", row.bytes ? row.counts : ""], ["Speed", row.rate], ["Time left", row.left],
      ["Duration", took !== null ? duration(took) : ""], ["Started", when(row.started || row.created)], ["Ended", when(row.ended)],
      ["Phase", row.phase], ["Schedule", row.schedule], ["Namespace", row.namespace],
    ].filter(([, text]) => text);
    drawn.facts.replaceChildren(...facts_.map(([word, text]) => el("div", {}, el("dt", {}, word), el("dd", {}, text))));
    causes(drawn.causes, last);
    buttons();
    tree.show(last.tree);
    const points = last.trail;
    const format = last.unit === "bytes" ? (v) => `${bytes(Math.round(v))}/s` : (v) => `${round(v)} ${last.unit}/s`;
    drawn.charts.replaceChildren(
      lineChart({ title: "Speed", points, value: (p) => p.rate, format, axis: last.unit === "bytes" ? roundBytes : (v) => String(round(v)), unit: last.unit, now: !ended,
        empty: ended ? "No samples recorded." : "Speed needs two samples." }),
      lineChart({ title: "Time left", points, value: (p) => (p.left ? (p.left[0] + p.left[1]) / 2 : null), band: (p) => p.left, format: duration, axis: short, unit: "seconds", now: !ended,
        empty: ended ? "No samples recorded." : "No estimate yet." }));
    drawn.charts.hidden = ended && points.length < 2;
  }

  // Whether changes are allowed may be known later than the operation.
  function buttons() {
    if (!drawn) return;
    put(drawn.cancel, "hidden", facts().mayChange && last.row.canCancel ? null : "");
    put(drawn.retry, "hidden", facts().mayChange && last.row.canRetry ? null : "");
  }

  return { node, buttons, stop() { live.stop(); } };
}

const round = (v) => (v >= 10 ? Math.round(v) : Math.round(v * 10) / 10);

function frame(row, facts, act, back) {
  const part = {
    chip: el("span", {}), headline: el("p", { class: "headline" }), bar: bar(row.name), percent: el("b", { class: "percent" }),
    facts: el("dl", { class: "facts" }), causes: el("div", { class: "causes" }), tree: el("div", {}), charts: el("div", { class: "charts" }),
    cancel: el("button", { type: "button", class: "danger", hidden: "", onclick: () => act(row.key, "cancel") }, "Cancel"),
    retry: el("button", { type: "button", hidden: "", onclick: () => act(row.key, "retry") }, "Retry"),
  };
  part.nodes = [
    el("header", {}, back(), el("h1", {}, el("span", { class: "kind" }, row.kind), row.name), part.chip, el("span", { class: "spring" }), part.retry, part.cancel),
    part.headline, el("div", { class: "measure big" }, part.bar.node, part.percent), part.causes, part.facts,
    el("h2", {}, "Tasks"), part.tree, part.charts,
  ];
  return part;
}

const CERTAINTY = { certain: "Cause", likely: "Likely", possible: "Possible" };
function causes(node, detail) {
  // Possible obstacles are not shown while the operation advances.
  const shown = detail.row.verdict === "Moving" || detail.row.verdict === "Fine" ? [] : detail.causes;
  const text = JSON.stringify(shown);
  if (node.dataset.shown === text) return;
  node.dataset.shown = text;
  const bad = TONES[detail.row.verdict] === "bad" || TONES[detail.row.verdict] === "warn";
  node.replaceChildren(...shown.map((cause) => el("article", { class: `cause ${bad && !cause.expected ? TONES[detail.row.verdict] : "wait"}` },
    el("h3", {}, el("span", {}, cause.expected ? "Expected" : CERTAINTY[cause.certainty] || cause.certainty), el("code", {}, cause.reason)),
    el("p", {}, cause.text),
    cause.evidence.length ? el("ul", {}, cause.evidence.map((line) => el("li", {}, line))) : null,
    cause.next.map((line) => command(line)))));
}

// The tree keeps its rows from one drawing to the next.
function makeTree() {
  const node = el("div", { class: "tree", role: "list", "aria-label": "Tasks of the operation" });
  const made = new Map();
  return {
    node,
    show(rows) {
      const seen = new Set();
      rows.forEach((row, place) => {
        seen.add(row.path);
        let line = made.get(row.path);
        if (!line) { line = makeLine(row); made.set(row.path, line); }
        if (node.children[place] !== line.node) node.insertBefore(line.node, node.children[place] || null);
        line.update(row);
      });
      for (const [path, line] of made) if (!seen.has(path)) { line.node.remove(); made.delete(path); }
    },
  };
}

function makeLine(first) {
  const icon = el("span", { class: "sign", "aria-hidden": "true" }), name = el("span", { class: "name" }), text = el("span", { class: "doing" });
  const gauge = bar(first.label), percent = el("span", { class: "percent" }), numbers = el("span", { class: "numbers" }), left = el("span", { class: "left" });
  // Screen readers get the state as a word, not as a sign and a colour.
  const state = el("span", { class: "unseen" });
  const node = el("div", { role: "listitem", class: "line" }, icon, state, el("span", { class: "what" }, name, text),
    el("span", { class: "far" }, el("span", { class: "measure" }, gauge.node, percent), numbers), left);
  return {
    node,
    update(row) {
      put(node, "aria-level", row.depth + 1);
      put(node, "class", `line ${tone(row.look)}`);
      const indent = `${row.depth * 18}px`;
      if (icon.style.marginLeft !== indent) icon.style.marginLeft = indent;
      put(icon, "class", `sign ${tone(row.look)}`);
      say(icon, sign(row.look));
      say(state, word(row.look));
      say(name, row.label);
      say(text, row.detail);
      put(text, "title", row.detail);
      gauge.node.hidden = row.bar === null;
      gauge.set(row.bar, row.percent, tone(row.look));
      say(percent, row.percent);
      say(numbers, [row.bytes, row.counts, row.rate].filter(Boolean).join("  ·  "));
      say(left, row.left ? `${row.left} left` : row.elapsed);
    },
  };
}
