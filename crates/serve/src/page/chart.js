// Two kinds of charts as SVG: a line over time with an optional band, and bars.
import { svg, el } from "./dom.js";

const W = 440, H = 160, LEFT = 78, RIGHT = 8, TOP = 12, BOTTOM = 26;

function nice(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 2, 2.5, 5, 10]) if (most <= step * power) return step * power;
  return most;
}
// For bytes the steps are powers of two, so that the marks are whole numbers.
function niceBytes(most) {
  let unit = 1;
  while (most / unit >= 1024) unit *= 1024;
  return nice(most / unit) * unit;
}

// For time the steps are those of a clock.
const CLOCK = [10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400];
const niceSeconds = (most) => CLOCK.find((step) => most <= step) || Math.ceil(most / 172800) * 172800;
const NICE = { bytes: niceBytes, seconds: niceSeconds };

export function lineChart({ title, points, value, band, format, axis, unit, empty, now }) {
  const known = points.filter((p) => value(p) !== null && value(p) !== undefined);
  // Without a current value the caption stays empty: an old value is not the current one.
  const latest = known.length && known[known.length - 1] === points[points.length - 1] ? format(value(known[known.length - 1])) : "";
  const figure = el("figure", { class: "chart" }, el("figcaption", {}, el("span", {}, title), el("b", {}, latest)));
  if (known.length < 2) { figure.append(el("p", { class: "empty small" }, (!known.length && empty) || "Not enough samples yet.")); return figure; }
  const from = points[0].at, to = Math.max(points[points.length - 1].at, from + 1000);
  const most = Math.max(...known.map((p) => (band ? Math.max(...band(p)) : value(p))), 0);
  const high = (NICE[unit] || nice)(most);
  const x = (at) => LEFT + ((at - from) / (to - from)) * (W - LEFT - RIGHT);
  const y = (v) => H - BOTTOM - (v / high) * (H - TOP - BOTTOM);
  const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": describe(title, known, value, format) });
  for (const part of [0, 0.5, 1]) {
    drawing.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(high * part), y2: y(high * part) }));
    drawing.append(label(LEFT - 8, y(high * part) + 4, (axis || format)(high * part), "end"));
  }
  drawing.append(label(LEFT, H - 5, clock(from), "start"), label(W - RIGHT, H - 5, now ? "now" : clock(to), "end"));
  if (band) {
    const up = known.map((p) => `${x(p.at).toFixed(1)},${y(band(p)[1]).toFixed(1)}`);
    const down = known.map((p) => `${x(p.at).toFixed(1)},${y(band(p)[0]).toFixed(1)}`).reverse();
    drawing.append(svg("polygon", { class: "band", points: up.concat(down).join(" ") }));
  } else {
    const area = known.map((p) => `${x(p.at).toFixed(1)},${y(value(p)).toFixed(1)}`);
    const [first, last] = [known[0], known[known.length - 1]];
    drawing.append(svg("polygon", { class: "area", points: [`${x(first.at)},${y(0)}`, ...area, `${x(last.at)},${y(0)}`].join(" ") }));
  }
  drawing.append(svg("polyline", { class: "line", points: known.map((p) => `${x(p.at).toFixed(1)},${y(value(p)).toFixed(1)}`).join(" ") }));
  figure.append(drawing);
  return figure;
}

export function barChart({ title, items, format, axis, unit, empty }) {
  const figure = el("figure", { class: "chart" }, el("figcaption", {}, el("span", {}, title)));
  if (!items.length) { figure.append(el("p", { class: "empty small" }, empty || "No data.")); return figure; }
  const high = (NICE[unit] || nice)(Math.max(...items.map((i) => i.value), 1));
  const y = (v) => H - BOTTOM - (v / high) * (H - TOP - BOTTOM);
  const step = (W - LEFT - RIGHT) / Math.max(items.length, 14), width = Math.max(2, Math.min(26, step - 3));
  const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: ${items.length} runs, the latest took ${format(items[items.length - 1].value)}` });
  for (const part of [0, 0.5, 1]) {
    drawing.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(high * part), y2: y(high * part) }));
    drawing.append(label(LEFT - 8, y(high * part) + 4, (axis || format)(high * part), "end"));
  }
  items.forEach((item, place) => {
    const rect = svg("rect", { class: `column ${item.tone}`, x: LEFT + step * place + (step - width) / 2, y: Math.min(y(item.value), H - BOTTOM - 2), width, height: Math.max(2, H - BOTTOM - y(item.value)), rx: 2 });
    const hint = svg("title", {});
    hint.textContent = item.hint;
    rect.append(hint);
    drawing.append(rect);
  });
  drawing.append(label(LEFT, H - 5, items[0].label, "start"), label(LEFT + step * items.length, H - 5, items.length > 3 ? items[items.length - 1].label : "", "end"));
  figure.append(drawing);
  return figure;
}

export function spark(points) {
  const drawing = svg("svg", { class: "spark", viewBox: "0 0 120 32", "aria-hidden": "true", preserveAspectRatio: "none" });
  if (points.length < 2) return drawing;
  const most = Math.max(...points.map((p) => p.rate), 1), from = points[0].at, to = points[points.length - 1].at;
  const line = points.map((p) => `${(((p.at - from) / Math.max(1, to - from)) * 120).toFixed(1)},${(30 - (p.rate / most) * 28).toFixed(1)}`);
  drawing.append(svg("polygon", { class: "area", points: ["0,32", ...line, "120,32"].join(" ") }));
  drawing.append(svg("polyline", { class: "line", points: line.join(" ") }));
  return drawing;
}

function label(x, y, text, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}
function clock(at) { return new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" }); }
function describe(title, points, value, format) {
  const values = points.map(value);
  return `${title}: now ${format(values[values.length - 1])}, between ${format(Math.min(...values))} and ${format(Math.max(...values))}`;
}
