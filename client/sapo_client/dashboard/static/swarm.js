// All nodes of a swarm, or all arms of an experiment, side by side.

import { Chart, named } from "./chart.js";
import { el, get, moment, share } from "./dom.js";
import { card, segments, WINDOWS } from "./panels.js";

/** More of them are on the nodes' own pages. */
const MAX_FAMILIES = 24;
const TITLES = { node: "nodes that share (mean)", control: "a node that trains alone" };

export class Swarm {
  constructor(about, choose) {
    this.about = about;
    this.choose = choose;
    this.hours = 2;
    this.charts = new Map();
    this.chart = new Chart({ label: "Mean reward of own answers over all nodes", height: 300, time: about.axis === "time", axis: about.axis });
    this.note = el("p", { class: "note" });
    this.attacks = el("p", { class: "note" });
    this.grid = el("div", { class: "grid" });
    this.families = el("div", { class: "grid" });
    this.byFamily = el("section", { class: "card", hidden: true }, el("h2", {}, "By family"),
      el("p", { class: "note" }, "Mean reward of own answers, one line for each node: a skill that one node has and another has not is where lines lie apart."), this.families);
    const windows = about.axis === "time" ? segments(WINDOWS, this.hours, (hours) => { this.hours = hours; this.load(); }) : null;
    this.element = el("div", { class: "panel" },
      el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, about.headline ?? "All nodes: reward of own answers"), windows), this.chart.element, this.note, this.attacks),
      this.byFamily,
      card(about.parts ?? "Each node", this.grid));
  }

  async load() {
    const data = await get(`api/swarm/curves?hours=${this.hours}`);
    const timed = this.about.axis === "time";
    const all = Object.entries(data.figures);
    const parts = all.filter(([name]) => name.startsWith("node/"));
    const groups = all.filter(([name]) => !/^(node|family)\//.test(name));
    const starts = parts.map(([, points]) => points).filter((points) => points.length).map((points) => points[0][0]);
    const first = Math.min(...starts, data.now - (timed ? 60 : 1));
    const range = [timed ? Math.max(data.since, first) : first, data.now], gap = timed ? data.seconds * 3.5 : Infinity;
    const series = groups.map(([name, points], index) => ({ name: TITLES[name] ?? name, style: name === "control" ? 1 : index % 6, points, dash: name === "control" || index >= 6 }));
    this.chart.show({ series, range, gap, marks: data.marks });
    this.note.textContent = timed
      ? `Mean reward of own answers, 0 to 1; ${named(data.seconds)} over n nodes.`
      : data.note ?? "";
    this.attacks.textContent = data.marks.length ? `Red lines: ${data.marks.length} moments at which attackers sent something, from ${moment(data.marks[0].at)}.` : "";
    this.showFamilies(all.filter(([name]) => name.startsWith("family/")), parts.map(([name]) => name.slice(5)), { range, gap, marks: data.marks });
    for (const [name, points] of parts) this.part(name.slice(5), points, range, gap, data.marks);
  }

  showFamilies(curves, nodes, frame) {
    const byFamily = new Map();
    for (const [name, points] of curves) {
      const [, family, node] = name.split("/"), index = nodes.indexOf(node);
      byFamily.set(family, [...(byFamily.get(family) ?? []), { name: node, style: index % 6, dash: index >= 6, points: points.map(([at, mean, , n]) => [at, mean, null, n]) }]);
    }
    this.byFamily.hidden = !byFamily.size;
    for (const [family, series] of [...byFamily].sort().slice(0, MAX_FAMILIES)) {
      if (!this.charts.has(`family/${family}`)) {
        const chart = new Chart({ label: `Mean reward in the family ${family}`, height: 160, ticks: 2 });
        this.charts.set(`family/${family}`, { chart });
        this.families.append(el("div", {}, el("h3", {}, family.replaceAll("_", " ")), chart.element));
      }
      this.charts.get(`family/${family}`).chart.show({ series, ...frame });
    }
  }

  part(name, points, range, gap, marks) {
    if (!this.charts.has(name)) {
      const chart = new Chart({ label: `Mean reward of ${name}`, height: 130, ticks: 2, legend: false, time: this.about.axis === "time", axis: this.about.axis });
      const last = el("span", { class: "muted small" });
      const title = this.choose ? el("button", { class: "plain", type: "button", onclick: () => this.choose(name) }, name) : name;
      this.charts.set(name, { chart, last });
      this.grid.append(el("div", {}, el("h3", {}, title, " ", last), chart.element));
    }
    const { chart, last } = this.charts.get(name);
    last.textContent = points.length ? share(points.at(-1)[1]) : "";
    const control = this.about.nodes.some((each) => each.name === name && each.role === "control");
    chart.show({ series: [{ name: "own answers", style: control ? 1 : 0, points }], range, gap, marks });
  }

  status() {}

  decisions() {}
}
