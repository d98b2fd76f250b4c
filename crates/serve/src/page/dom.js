// Elements and text. Text from the cluster is set as text, never as markup.

export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

// Sets text only where it has changed: keeps the selection and avoids a new layout.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
export function put(node, name, value) {
  const text = value === null || value === undefined || value === false ? null : String(value);
  if (text === null) { if (node.hasAttribute(name)) node.removeAttribute(name); }
  else if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}
export function ago(milliseconds, now) {
  if (!milliseconds) return "never";
  const s = (now - milliseconds) / 1000;
  if (s < 0) return `in ${short(-s)}`;
  return s < 5 ? "just now" : `${short(s)} ago`;
}
export function short(seconds) {
  const s = Math.round(seconds);
  if (s < 90) return `${s}s`;
  if (s < 5400) return `${Math.round(s / 60)}m`;
  if (s < 129600) return `${Math.round(s / 3600)}h`;
  return `${Math.round(s / 86400)}d`;
}
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(count) {
  if (count === null || count === undefined) return "";
  let value = count, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  // Truncated, not rounded, as the server does it.
  return `${unit === 0 ? Math.floor(value) : (Math.floor(value * 10) / 10).toFixed(1)} ${UNITS[unit]}`;
}
// For the axis of a chart, where there is little room.
export const roundBytes = (count) => (count ? bytes(count).replace(/\.0 /, " ") : "0");
export function when(milliseconds) {
  return milliseconds ? new Date(milliseconds).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "";
}

export const WORDS = {
  Stuck: "Stuck", Failed: "Failed", PartiallyFailed: "Incomplete", Refused: "Refused", Cancelled: "Cancelled",
  Quiet: "No signal", Waiting: "Waiting", Moving: "Running", Fine: "Done",
};
export const TONES = {
  Stuck: "bad", Failed: "bad", PartiallyFailed: "warn", Refused: "bad", Cancelled: "dim", Quiet: "run", Waiting: "wait",
  Moving: "run", Fine: "good",
};
const SIGNS = {
  stalled: "!", failed: "✕", cancelled: "–", quiet: "…", waiting: "◷", running: "▸", done: "✓", pending: "·", skipped: "–",
  takenOver: "↻", interrupted: "✕", unknown: "?",
};
const LOOKS = {
  stalled: "bad", failed: "bad", cancelled: "dim", quiet: "run", waiting: "wait", running: "run", done: "good", pending: "dim",
  skipped: "dim", takenOver: "wait", interrupted: "bad", unknown: "dim",
};
// Words for screen readers.
const SPOKEN = {
  stalled: "Stuck", failed: "Failed", cancelled: "Cancelled", quiet: "No signal", waiting: "Waiting", running: "Running", done: "Done",
  pending: "Not started", skipped: "Skipped", takenOver: "Taken over", interrupted: "Interrupted", unknown: "Unknown",
};
export const word = (look) => SPOKEN[look] || "Unknown";
export const sign = (look) => SIGNS[look] || "?";
export const tone = (look) => LOOKS[look] || "dim";

export function chip(verdict) {
  return el("span", { class: `chip ${TONES[verdict] || "dim"}` }, WORDS[verdict] || verdict);
}

export function bar(name) {
  const fill = el("i", {});
  const node = el("div", { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": name }, fill);
  return {
    node,
    set(fraction, text, colour) {
      put(node, "class", `bar ${colour || ""}${fraction === null || fraction === undefined ? " unknown" : ""}`);
      put(node, "aria-valuenow", fraction === null || fraction === undefined ? null : Math.floor(fraction * 100));
      put(node, "aria-valuetext", text || "unknown");
      const width = `${Math.min(100, (fraction || 0) * 100).toFixed(2)}%`;
      if (fill.style.width !== width) fill.style.width = width;
    },
  };
}

export function command(text) {
  const button = el("button", { class: "quiet copy", type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    try { await navigator.clipboard.writeText(text); say(button, "Copied"); } catch { say(button, "Select it"); }
    setTimeout(() => say(button, "Copy"), 1500);
  });
  return el("div", { class: "command" }, el("code", {}, text), button);
}
