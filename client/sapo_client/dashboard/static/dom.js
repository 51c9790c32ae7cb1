// Elements are built from text nodes only: a stranger's text can never become markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * Replace the children of an element; what had the focus in it keeps it, by its data-id.
 *
 * If it is gone, as a row is that newer ones have pushed out, what stands in its place has the focus: a reader at
 * the keyboard would otherwise be back at the top of the page.
 */
export function replace(element, ...children) {
  const before = [...element.querySelectorAll("[data-id]")], focused = document.activeElement;
  const place = before.indexOf(focused);
  element.replaceChildren(...children);
  if (place < 0) return;
  const after = [...element.querySelectorAll("[data-id]")];
  (after.find((each) => each.dataset.id === focused.dataset.id) ?? after[Math.min(place, after.length - 1)])?.focus();
}

export class ApiError extends Error {
  constructor(status, text, hint) {
    super(text);
    this.status = status;
    this.hint = hint || "";
  }
}

export async function get(path) {
  return answer(await fetch(path, { headers: { Accept: "application/json" } }));
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Sapo": "1" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answer(response) {
  if (response.ok) {
    const found = await response.json();
    if (found.error) throw new ApiError(200, found.error, found.hint);
    return found;
  }
  if (response.status === 401) throw new ApiError(401, "This session has ended.", "Open the page again with: sapo dashboard");
  const problem = await response.json().catch(() => ({}));
  throw new ApiError(response.status, problem.error || `The node answered ${response.status}.`, problem.hint);
}

export function short(hex, digits = 8) {
  if (!hex) return "";
  return hex.length > digits + 4 ? `${hex.slice(0, digits)}…` : hex;
}

const whole = new Intl.NumberFormat("en");
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const share = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
export const percent = (value) => `${Math.round(value * 100)} %`;
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
export const moment = (seconds) => new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

export function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** A sentence in which commands and options, such as `sapo status` and --rpc, are not broken over lines. */
export function sentence(text) {
  return text.split(/(`[^`]+`|--[a-z][a-z-]*)/).map((part, place) => (place % 2 ? el("code", {}, part.replaceAll("`", "")) : part));
}

/** Tell a screen reader which findings there are, once: their figures change at every assessment. */
export function announce(spoken, findings) {
  const key = findings.map((each) => `${each.level} ${each.code}`).join();
  if (spoken.dataset.key === key) return;
  const before = spoken.dataset.key;
  spoken.dataset.key = key;
  spoken.textContent = findings.map((each) => `${each.level}: ${each.text}`).join(". ") || (before ? "nothing is wrong" : "");
}
