// A line chart in SVG: text stays text, colours follow the page's, and it prints.
// A point is [position, mean, half width of the 95 % interval or null, number of values].

import { el, span, svg } from "./dom.js";

const LEFT = 34, RIGHT = 10, TOP = 10, BOTTOM = 22;

export class Chart {
  /** options: label, height, ticks, time (positions are seconds since 1970), unit, most */
  constructor(options) {
    this.options = { height: 240, ticks: 4, time: true, most: 1, unit: "", ...options };
    this.series = [];
    this.marks = [];
    this.at = null;
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.plot = svg("svg", { role: "img", tabindex: "0", "aria-label": this.options.label });
    this.legend = el("ul", { class: "legend" });
    this.element = el("div", { class: "chart" }, this.plot, this.tip, this.options.legend === false ? null : this.legend);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.choose(null));
    this.plot.addEventListener("blur", () => this.choose(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  /** series: [{name, style (0 to 6), points, dash}]; range: [from, to]; gap: positions further apart are not joined */
  show({ series, range, gap = Infinity, marks = [] }) {
    Object.assign(this, { series: series.filter((each) => each.points.length), range, gap, marks });
    this.legend.replaceChildren(...this.series.map((each) => el("li", { class: `s${each.style}${each.dash ? " dash" : ""}` }, each.name)));
    this.plot.setAttribute("aria-label", this.describe());
    this.draw();
  }

  describe() {
    const last = this.series.map((each) => `${each.name} ${this.value(each.points.at(-1))}`);
    return last.length ? `${this.options.label}. Latest: ${last.join("; ")}.` : `${this.options.label}. No data yet.`;
  }

  value([, mean, half, n]) {
    const digits = this.options.most === 1 ? 2 : 1;
    const around = half === null ? "" : ` ± ${half.toFixed(digits)}`;
    return `${mean.toFixed(digits)}${this.options.unit}${around} (n = ${n})`;
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width || !this.range) return;
    const { height } = this.options;
    this.width = width;
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.setAttribute("height", height);
    const [from, to] = this.range;
    const tops = this.series.flatMap((each) => each.points.map((point) => point[1] + (point[2] ?? 0)));
    const top = this.options.most ?? nice(Math.max(...tops, 0.001));
    this.x = (at) => LEFT + ((at - from) / Math.max(1e-9, to - from)) * (width - LEFT - RIGHT);
    this.y = (value) => height - BOTTOM - (Math.min(Math.max(value, 0), top) / top) * (height - TOP - BOTTOM);
    this.cursor = svg("g");
    this.plot.replaceChildren(
      ...this.axes(top, from, to),
      ...this.lines(from, to),
      ...this.series.flatMap((each) => this.paint(each)),
      this.cursor,
    );
    if (!this.series.length) this.plot.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "none" }, "no data yet"));
  }

  axes(top, from, to) {
    const { height, ticks } = this.options;
    const lines = [];
    for (let index = 0; index <= ticks; index += 1) {
      const value = (top * index) / ticks, y = this.y(value);
      lines.push(svg("line", { class: "grid-line", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      lines.push(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, top <= 1 ? value.toFixed(2).replace(/0$/, "") : String(Math.round(value))));
    }
    const most = Math.max(2, Math.floor(this.width / 90));
    for (const [at, text] of this.options.time ? times(from, to, most) : numbers(from, to, most)) {
      lines.push(svg("text", { x: this.x(at), y: height - 5, "text-anchor": "middle" }, text));
    }
    return lines;
  }

  /** One line per two pixels: a flood would else hide the curve. */
  lines(from, to) {
    const places = new Map();
    for (const mark of this.marks) {
      if (mark.at < from || mark.at > to) continue;
      const place = Math.round(this.x(mark.at) / 2) * 2;
      places.set(place, [...(places.get(place) ?? []), mark.label]);
    }
    return [...places].map(([x, labels]) => this.mark(x, labels.length > 3 ? `${labels.slice(0, 3).join(", ")} and ${labels.length - 3} more` : labels.join(", ")));
  }

  mark(x, label) {
    return svg("g", {}, svg("line", { class: "mark", x1: x, x2: x, y1: TOP, y2: this.options.height - BOTTOM }), svg("title", {}, label));
  }

  paint(each) {
    const parts = [];
    for (const run of runs(each.points, this.gap)) {
      const known = run.filter((point) => point[2] !== null);
      if (known.length > 1) {
        const above = known.map((p) => `${this.x(p[0]).toFixed(1)},${this.y(p[1] + p[2]).toFixed(1)}`);
        const below = known.map((p) => `${this.x(p[0]).toFixed(1)},${this.y(p[1] - p[2]).toFixed(1)}`).reverse();
        parts.push(svg("polygon", { class: `band s${each.style}`, points: [...above, ...below].join(" ") }));
      }
      const line = run.map((p) => `${this.x(p[0]).toFixed(1)},${this.y(p[1]).toFixed(1)}`);
      if (run.length === 1) parts.push(svg("circle", { class: `dot s${each.style}`, cx: this.x(run[0][0]), cy: this.y(run[0][1]), r: 2 }));
      else parts.push(svg("polyline", { class: `line s${each.style}${each.dash ? " dash" : ""}`, points: line.join(" ") }));
    }
    return parts;
  }

  point(event) {
    const box = this.plot.getBoundingClientRect();
    const [from, to] = this.range ?? [0, 1];
    this.choose(from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (to - from));
  }

  key(event) {
    const places = [...new Set(this.series.flatMap((each) => each.points.map((point) => point[0])))].sort((a, b) => a - b);
    if (!places.length) return;
    const now = this.at === null ? places.length : places.findIndex((place) => place >= this.at);
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: places.length - 1 };
    if (event.key === "Escape") this.choose(null);
    else if (event.key in moves) {
      this.choose(places[Math.min(places.length - 1, Math.max(0, moves[event.key]))]);
      event.preventDefault();
    }
  }

  choose(at) {
    this.at = null;
    this.tip.hidden = true;
    this.cursor?.replaceChildren();
    if (at === null || !this.series.length) return;
    const near = this.series.map((each) => [each, nearest(each.points, at)]);
    const place = near.reduce((best, [, point]) => (Math.abs(point[0] - at) < Math.abs(best - at) ? point[0] : best), Infinity);
    const here = near.filter(([, point]) => Math.abs(point[0] - place) < 1e-6);
    this.at = place;
    const x = this.x(place);
    this.cursor.replaceChildren(
      svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.options.height - BOTTOM }),
      ...here.map(([each, point]) => svg("circle", { class: `dot s${each.style}`, cx: x, cy: this.y(point[1]), r: 3.5 })),
    );
    const title = this.options.time ? new Date(place * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : `${this.options.axis ?? ""} ${place}`;
    this.tip.replaceChildren(el("p", { class: "muted" }, title), ...here.map(([each, point]) => el("p", { class: `key s${each.style}` }, `${each.name} ${this.value(point)}`)));
    this.tip.hidden = false;
    this.tip.style.left = `${Math.max(0, Math.min(x + 10, this.width - this.tip.offsetWidth))}px`;
    if (x + 10 + this.tip.offsetWidth > this.width) this.tip.style.left = `${Math.max(0, x - 10 - this.tip.offsetWidth)}px`;
  }
}

function runs(points, gap) {
  const found = [];
  let last = -Infinity;
  for (const point of points) {
    if (!found.length || point[0] - last > gap) found.push([]);
    found.at(-1).push(point);
    last = point[0];
  }
  return found;
}

function nearest(points, at) {
  return points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), points[0]);
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 8, 10].map((step) => step * power).find((step) => step >= value);
}

function numbers(from, to, most) {
  const step = nice(Math.max(1, (to - from) / most));
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push([at, String(at)]);
  return found;
}

const STEPS = [10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 15552000];

function times(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? STEPS.at(-1);
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) {
    const date = new Date(at * 1000);
    const text = step >= 86400
      ? date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })
      : date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) });
    found.push([at, text]);
  }
  return found;
}

export const named = (seconds) => `one point per ${span(seconds)}; band: 95 % interval of the mean`;
