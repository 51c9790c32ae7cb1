// The sections of a node's page. Each has an `element`, and `load()` which asks for what it shows.

import { Chart, named } from "./chart.js";
import { Curves } from "./curves.js";
import { clock, count, el, get, moment, percent, post, replace, share, short, span, svg } from "./dom.js";

const WINDOWS = [[2, "2 hours"], [24, "24 hours"], [336, "14 days"], [0, "all"]];
const MAX_FAMILIES = 12;
const MAX_LIVE = 120;
const PAGE = 25;
/** Of lists that are not in the order of time. */
const TURNS = ["Previous", "Next"];

function card(title, ...children) {
  return el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, title)), ...children);
}

function segments(choices, chosen, choose) {
  const group = el("div", { class: "segments", role: "group" });
  const draw = (now) => group.replaceChildren(...choices.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === now), onclick: () => { draw(value); choose(value); } }, text)));
  draw(chosen);
  return group;
}

function tile(name) {
  const title = el("dt", {}, name), value = el("dd", {}, "–"), below = el("dd", {}, "");
  return { element: el("div", { class: "card tile" }, title, value, below), name: (text) => { title.textContent = text; }, set: (text, note = "") => { value.textContent = text; below.textContent = note; } };
}

function islandsText(islands) {
  if (!islands) return "";
  if (islands.count === null) return "; islands not known yet";
  const changes = islands.next_count !== null && islands.next_count !== islands.count;
  return `; ${islands.carried.length} of ${count(islands.count)} islands heard` + (changes ? `, ${count(islands.next_count)} from the next epoch on` : "");
}

/** The results of the last check on held-out tasks. */
function heldOutTexts(held) {
  if (!held) return ["–", "no check yet"];
  const first = `${share(held.reward_first)} in the first check`, copy = held.own_alone;
  if (!copy) return [share(held.reward), first];
  const lead = `${copy.lead < 0 ? "−" : "+"}${share(Math.abs(copy.lead))} ± ${share(1.96 * copy.lead_error)}`;
  return [share(held.reward), `${first}; ${lead} over own answers alone`];
}

function roundText({ round, state, waits_for_epoch: next }) {
  const done = round ? `round ${count(round)} of this start` : "no round has ended yet";
  return state === "running" && next ? `${done}; the next one begins with epoch ${count(next)}, for all slots of this one are used` : done;
}

function changeText(change) {
  if (!change) return "";
  return `; new terms from epoch ${count(change.activation_epoch)} on` + (change.trouble === null ? "" : ", which this node cannot follow yet");
}

export class Overview {
  constructor(node) {
    this.curves = new Curves(node);
    this.hours = 2;
    const names = ["reward", "heldOut", "step", "epoch", "peers", "rollouts", "refused", "points"];
    const titles = { reward: "Own reward", heldOut: "Held-out reward", step: "Training step", epoch: "Epoch", peers: "Peers", rollouts: "Shared", refused: "Refused", points: "Points" };
    this.tiles = Object.fromEntries(names.map((name) => [name, tile(titles[name])]));
    this.learning = new Chart({ label: "Mean reward over time: own answers, the training batch, and answers of others" });
    this.note = el("p", { class: "note" });
    this.heldOut = new Chart({ label: "Mean reward on held-out tasks over time: the policy, and a copy trained on own answers alone", height: 160, ticks: 2 });
    this.heldOutNote = el("p", { class: "note" });
    this.families = el("div", { class: "grid" });
    this.charts = new Map();
    this.reasons = el("ul", { class: "bars" });
    this.feed = el("ol", { class: "feed", "aria-label": "Live decisions", tabindex: "0" });
    this.paused = false;
    const curves = el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, "Learning"), segments(WINDOWS, this.hours, (hours) => { this.hours = hours; this.load(); })),
      this.learning.element, this.note);
    const live = el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, "Live"), segments([[false, "running"], [true, "paused"]], false, (paused) => { this.paused = paused; })), this.feed);
    this.element = el("div", { class: "panel" },
      el("dl", { class: "tiles" }, ...names.map((name) => this.tiles[name].element)),
      curves,
      card("Held-out tasks", this.heldOut.element, this.heldOutNote),
      card("By family", this.families),
      el("div", { class: "columns" }, live, card("Decisions by reason", this.reasons)));
  }

  async load() {
    const data = await this.curves.window(this.hours);
    const figures = data.figures, first = Math.min(data.now - 60, ...Object.values(figures).map((points) => points[0][0]));
    const range = [Math.max(data.since, first), data.now], gap = data.seconds * 3.5;
    const lines = [["own", "own answers", 0], ["batch", "training batch", 1], ["others", "verified answers of others", 2]];
    const series = lines.map(([figure, name, style]) => ({ name, style, points: figures[figure] ?? [], dash: style === 2 }));
    this.learning.show({ series, range, gap });
    this.note.textContent = `Mean reward, 0 to 1; ${named(data.seconds)}. n counts rollouts for answers and steps for the batch.`;
    this.showHeldOut(figures, range);
    this.showFamilies(figures, range, gap);
    this.showReasons(figures);
  }

  showHeldOut(figures, range) {
    const lines = [["held_out", "the policy", 0], ["held_out_own_alone", "a copy trained on own answers alone", 2]];
    const series = lines.map(([figure, name, style]) => ({ name, style, points: figures[figure] ?? [], dash: style === 2 }));
    this.heldOut.show({ series, range, gap: Infinity });
    this.heldOutNote.textContent = figures.held_out
      ? "Mean reward on tasks that are never trained on, new ones at each check. The copy is the policy of an earlier check, since then trained on own answers alone; when others' text has clearly helped or harmed, both are made equal again."
      : "No check in this time. From time to time the policy answers tasks that are never trained on, and so does a copy that was trained on own answers alone.";
  }

  showFamilies(figures, range, gap) {
    const names = Object.keys(figures).filter((name) => name.startsWith("own/")).map((name) => name.slice(4));
    for (const name of names.slice(0, MAX_FAMILIES)) {
      if (!this.charts.has(name)) {
        const chart = new Chart({ label: `Mean reward in the family ${name}`, height: 130, ticks: 2, legend: false });
        this.charts.set(name, chart);
        this.families.append(el("div", {}, el("h3", {}, name.replaceAll("_", " ")), chart.element));
      }
      const series = [{ name: "own answers", style: 0, points: figures[`own/${name}`] }, { name: "others", style: 2, dash: true, points: figures[`others/${name}`] ?? [] }];
      this.charts.get(name).show({ series, range, gap });
    }
    if (!names.length) this.families.replaceChildren(el("p", { class: "empty" }, "no answers yet"));
    else this.families.querySelector(".empty")?.remove();
  }

  showReasons(figures) {
    const total = (points) => points.reduce((sum, point) => sum + point[4], 0);
    const rows = Object.entries(figures)
      .filter(([name]) => name.startsWith("refused/") || name === "admitted")
      .map(([name, points]) => [name.replace("refused/", ""), total(points), name === "admitted"])
      .sort((a, b) => b[1] - a[1]);
    const most = Math.max(1, ...rows.map((row) => row[1]));
    this.reasons.replaceChildren(...rows.map(([name, value, good]) => el("li", {},
      el("span", {}, good ? "admitted" : name.replaceAll("_", " ")),
      svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { class: "rail", width: 100, height: 10 }), svg("rect", { class: good ? "s2" : name === "no_signal" ? "s6" : "s1", width: (100 * value) / most, height: 10 })),
      el("span", {}, count(value)))));
    if (!rows.length) this.reasons.replaceChildren(el("li", { class: "muted" }, "nothing arrived in this time"));
  }

  status(report) {
    this.alone = report.alone;
    const { tiles } = this, sum = (values) => Object.values(values).reduce((a, b) => a + b, 0);
    const even = report.refused.no_signal ?? 0, refused = sum(report.refused) - even, arrived = refused + report.accepted;
    tiles.reward.set(share(report.reward), report.reward_start === null ? "" : `${share(report.reward_start)} in the first round`);
    tiles.heldOut.set(...heldOutTexts(report.held_out));
    tiles.step.set(count(report.step), roundText(report));
    tiles.epoch.set(count(report.epoch), `up for ${span(report.uptime_seconds)}${changeText(report.change)}`);
    this.shareTiles(report);
    if (!report.alone) tiles.refused.set(arrived ? percent(refused / arrived) : "–", arrived ? `${count(refused)} of ${count(arrived)}; ${count(even)} without advantage` : "nothing has arrived yet");
    tiles.points.set(report.ledger.enabled ? count(report.ledger.points) : "–", report.ledger.enabled ? (report.ledger.registered ? "registered" : "not registered") : "no ledger");
  }

  shareTiles(report) {
    const { peers, rollouts } = this.tiles;
    rollouts.name(report.alone ? "Made" : "Shared");
    if (report.alone) {
      peers.set("–", "this node trains alone");
      rollouts.set(count(report.shared), "none of them shared");
      this.tiles.refused.set("–", "nothing arrives");
    } else {
      peers.set(count(report.peers), `${count(report.pool)} ${report.pool === 1 ? "rollout" : "rollouts"} in the pool${islandsText(report.islands)}`);
      rollouts.set(count(report.shared), `${count(report.accepted)} accepted from others`);
    }
  }

  decisions({ decisions, left_out: leftOut }) {
    if (this.paused) return;
    const rows = decisions.map((each) => el("li", { class: "new" }, el("time", { class: "muted" }, clock(each.at)), ...words(each, this.alone)));
    if (leftOut) rows.unshift(el("li", {}, el("span", { class: "muted" }, ""), el("span", { class: "muted" }, "…"), el("span", { class: "muted" }, `${count(leftOut)} more in between`)));
    this.feed.prepend(...rows.reverse());
    while (this.feed.children.length > MAX_LIVE) this.feed.lastChild.remove();
  }
}

function words(each, alone) {
  const word = (kind, text) => el("span", { class: `word ${kind}` }, text);
  const by = each.account ? `by ${short(String(each.account))}` : each.forwarder ? `from ${short(String(each.forwarder), 12)}` : "";
  const link = each.content_id ? el("a", { href: `#rollouts/${each.content_id}` }, short(String(each.content_id))) : null;
  switch (each.event) {
    case "refused": if (each.reason === "no_signal") return [word("plain", "no advantage"), el("span", {}, link, ` ${by}`)];
      return [word("bad", "refused"), el("span", {}, link, link ? " " : "", `${String(each.reason).replaceAll("_", " ")} ${by} ${each.detail ?? ""}`)];
    case "refusals_counted": return [word("bad", "refused"), el("span", {}, `${count(each.count)} more in ${count(each.seconds)} s, from ${count(each.forwarders)} ${each.forwarders === 1 ? "peer" : "peers"}: ${Object.entries(each.reasons).map(([reason, times]) => `${reason.replaceAll("_", " ")} ${count(times)}`).join(", ")}`)];
    case "verified": return [word("good", "verified"), el("span", {}, link, ` reward ${share(each.mean_reward)} ${by}`)];
    case "published": return [word("plain", alone ? "made" : "shared"), el("span", {}, link, ` ${String(each.family).replaceAll("_", " ")}`, alone ? "" : `, to ${each.peers} ${each.peers === 1 ? "peer" : "peers"}`)];
    case "admitted": return [word("plain", "admitted"), el("span", {}, link, ` ${by}`)];
    case "step": return [word("plain", "step"), el("span", {}, `${each.step}: reward ${share(each.reward)}, batch ${share(each.batch_reward)}, ${each.external?.length ?? 0} of others`)];
    case "health": return [word("warn", "health"), el("span", {}, (each.findings ?? []).map((finding) => finding.text).join("; ") || "nothing is wrong")];
    default: return [word("warn", String(each.event).replaceAll("_", " ")), el("span", {}, by)];
  }
}

function pager(total, offset, go, [before, after] = ["Newer", "Older"]) {
  const last = Math.min(total, offset + PAGE);
  return el("div", { class: "pager" },
    el("button", { class: "button", type: "button", "data-id": "newer", disabled: offset === 0, onclick: () => go(Math.max(0, offset - PAGE)) }, before),
    el("button", { class: "button", type: "button", "data-id": "older", disabled: last >= total, onclick: () => go(offset + PAGE) }, after),
    el("span", { class: "muted small" }, total ? `${count(offset + 1)} to ${count(last)} of ${count(total)}` : "none"));
}

function table(columns, rows) {
  // on a phone each row is a block, in which every cell stands behind its column's name
  for (const row of rows) [...row.children].forEach((cell, place) => { cell.dataset.label = columns[place][0]; });
  const heads = columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Table: ${columns.map(([name]) => name).join(", ")}` }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
}

function state(text) {
  const kind = text.startsWith("refused") ? (text.endsWith("no_signal") ? "plain" : "bad") : ["admitted", "no advantage"].includes(text) ? "plain" : "good";
  return el("span", { class: `word ${kind}` }, text.replaceAll("_", " "));
}

export class Rollouts {
  constructor(node) {
    this.node = node;
    this.show = "";
    this.offset = 0;
    this.list = el("div");
    this.inspector = el("section", { class: "card inspector", "aria-label": "Rollout", tabindex: "-1" }, el("p", { class: "empty" }, "Choose a rollout to see its prompt, its answers and how they were checked."));
    const choices = [["", "all"], ["own", "own"], ["others", "others"], ["used", "used"], ["refused", "refused"], ["messages", "not admitted"]];
    this.element = el("div", { class: "split" },
      el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "Rollouts"), segments(choices, "", (show) => { this.show = show; this.offset = 0; this.load(); })), this.list),
      this.inspector);
  }

  async load(chosen) {
    if (chosen) await this.inspect(chosen);
    if (this.show === "messages") return this.loadMessages();
    const data = await get(`api/${this.node}/rollouts?show=${this.show}&offset=${this.offset}&limit=${PAGE}`);
    const rows = data.rollouts.map((each) => el("tr", { class: "link", onclick: () => { location.hash = `rollouts/${each.content_id}`; } },
      el("td", {}, el("button", { type: "button", "data-id": each.content_id, "aria-label": `Inspect rollout ${short(each.content_id)}` }, short(each.content_id))),
      el("td", {}, each.own ? "own" : short(each.account)),
      el("td", {}, each.family.replaceAll("_", " ")),
      el("td", { class: "number" }, share(each.reward)),
      el("td", {}, state(each.state)),
      el("td", { class: "muted" }, clock(each.at))));
    replace(this.list,
      table([["rollout"], ["author"], ["family"], ["reward", "number"], ["state"], ["seen"]], rows),
      pager(data.total, this.offset, (offset) => { this.offset = offset; this.load(); }),
      el("p", { class: "note" }, "The latest 256 own rollouts and 768 of others since the node's start, with their text; all decisions are in the event file."));
  }

  async loadMessages() {
    const data = await get(`api/${this.node}/refusals?offset=${this.offset}&limit=${PAGE}`);
    const name = (each) => (each.message === null ? "–" : short(each.message));
    const rows = data.messages.map((each) => el("tr", { class: "link", onclick: () => this.inspectMessage(each) },
      el("td", {}, el("button", { type: "button", "data-id": `${each.message}${each.at}`, "aria-label": `Inspect message ${name(each)}` }, name(each))),
      el("td", { class: "mono" }, short(each.forwarder, 14)),
      el("td", {}, `${each.stage} ${each.stages[each.stage].name}`),
      el("td", {}, state(`refused: ${each.reason}`)),
      el("td", { class: "muted" }, clock(each.at))));
    const sums = Object.entries(data.forwarders).map(([forwarder, reasons]) => el("li", {}, el("span", { class: "mono" }, short(forwarder, 14)), " ",
      Object.entries(reasons).map(([reason, times]) => `${reason.replaceAll("_", " ")} ${count(times)}`).join(", ")));
    const found = rows.length
      ? [table([["message"], ["sent by"], ["stage"], ["reason"], ["seen"]], rows), pager(data.total, this.offset, (offset) => { this.offset = offset; this.load(); }), el("ul", { class: "note" }, ...sums)]
      : [el("p", { class: "empty" }, "every message was admitted")];
    replace(this.list, ...found,
      el("p", { class: "note" }, "Messages of every kind that were refused before they were admitted: the latest 16 of each of the latest 64 peers, since the node's start. Their bytes are not kept."));
  }

  inspectMessage(each) {
    this.inspector.replaceChildren(
      el("div", { class: "head" }, el("h2", {}, "Message ", el("span", { class: "mono" }, short(each.message, 16))), state(`refused: ${each.reason}`)),
      el("dl", { class: "facts" }, ...facts("came from", each.forwarder), ...(each.message ? facts("SHA-256", each.message) : []), ...facts("rule", each.rule), ...(each.count > 1 ? facts("number", count(each.count)) : [])),
      el("div", { class: "part" }, el("h3", {}, "Why it was refused"), el("p", {}, `It broke rule ${each.rule}, ${each.stages[each.stage].name}: ${each.detail || each.reason.replaceAll("_", " ")}.`)),
      el("div", { class: "part" }, el("h3", {}, "Verification"), stages(each.stages)));
  }

  async inspect(id) {
    let each = null;
    try {
      each = await get(`api/${this.node}/rollout?id=${encodeURIComponent(id)}`);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    if (!each) {
      this.inspector.replaceChildren(el("p", { class: "empty" }, "This rollout is no longer among the latest ones."));
      return;
    }
    this.inspector.replaceChildren(
      el("div", { class: "head" }, el("h2", {}, "Rollout ", el("span", { class: "mono" }, short(each.content_id, 16))), state(each.state)),
      el("dl", { class: "facts" },
        ...facts("author", each.own ? `this node (${each.account})` : each.account),
        ...facts("node key", each.node),
        ...(each.forwarder ? facts("came from", each.forwarder) : []),
        ...facts("place", `epoch ${each.epoch}, slot ${each.slot}`),
        ...facts("family", `${each.family} (${each.level})`),
        ...(each.own ? [] : facts("reputation", each.is_newcomer ? `a newcomer: ${each.passed} of ${count(each.audits)} audited groups passed so far` : `${share(each.reputation)} after ${count(each.audits)} audits`))),
      el("div", { class: "part" }, el("h3", {}, each.own ? "What became of it" : "Why it was used or not"), el("p", {}, why(each))),
      el("div", { class: "part" }, el("h3", {}, "Prompt"), each.prompt === null ? el("p", { class: "muted" }, "Not derived yet: a prompt is derived here when the rollout is verified.") : el("pre", { class: "text", tabindex: "0" }, each.prompt)),
      el("div", { class: "part" }, el("h3", {}, `${each.answers.length} answers`), ...each.answers.map((answer) => el("div", { class: "answer" },
        answer.reward === null ? sign("·", "plain", "not scored") : answer.reward > 0 ? sign("✓", "good", "right") : sign("✕", "bad", "wrong"),
        el("pre", { class: "text", tabindex: "0" }, answer.text)))),
      el("div", { class: "part" }, el("h3", {}, "Verification"), stages(each.stages)));
  }
}

/** A mark that a screen reader calls by its meaning. */
function sign(text, kind, meaning) {
  return el("b", { class: `word ${kind}`, title: meaning, role: "img", "aria-label": meaning }, text);
}

function stages(results) {
  const mark = { true: ["✓", "good", "passed"], false: ["✕", "bad", "failed"], null: ["·", "plain", "not checked"] };
  return el("ol", { class: "stages" }, ...results.map((stage) => {
    return el("li", {}, sign(...mark[String(stage.passed)]), el("span", {}, `${stage.stage} ${stage.name}`),
      el("span", { class: "muted" }, stage.rule ? `${stage.rule}: ` : "", stage.detail));
  }));
}

function facts(name, value) {
  return [el("dt", {}, name), el("dd", {}, String(value))];
}

function why(each) {
  if (each.uses.length) {
    const uses = each.uses.map((use) => `${use.use} in step ${use.step}`).join(", ");
    if (each.own) return `It was ${uses}.`;
    if (each.uses.every((use) => use.use === "imitated")) return `Its right answers were ${uses}: right answers of others are imitated in families where this node fails, by the reputation of their authors.`;
    const chance = each.strategy === "weighted" ? "reputation, likelihood and freshness decide how often an account is drawn" : `the sampling strategy is “${each.strategy}”`;
    return `It was ${uses}: ${chance}.`;
  }
  if (each.state.startsWith("refused")) {
    const failed = each.stages.find((stage) => stage.rule !== null);
    if (each.state === "refused: no_signal") return `There is nothing to reinforce in it: ${failed.detail}.`;
    return failed ? `It was refused at stage ${failed.stage}, ${failed.name}: ${failed.detail}.` : "It was refused.";
  }
  const done = each.alone ? "made" : "shared";
  if (each.own && each.state === "no advantage") return `It was ${done} and scored. All its answers earned the same, so there was nothing to learn from it.`;
  if (each.own) return each.reward === null ? `It was ${done} and waits to be scored.` : `It was ${done} and scored, and not trained on: other groups of its round taught more.`;
  if (each.reward === null) return "It waits in the pool: nobody has drawn or audited it.";
  return each.is_newcomer ? "It was verified. Newcomers share a small part of each batch, and this one was not drawn." : "It was verified, and no batch has drawn it.";
}

export class Peers {
  constructor(node) {
    this.node = node;
    this.first = 0;
    this.offset = 0;
    this.order = "audits";
    this.find = "";
    this.connected = el("div");
    this.book = el("div");
    const search = el("input", { type: "search", placeholder: "account begins with…", "aria-label": "Account begins with", size: "18" });
    search.addEventListener("input", () => { this.find = search.value.replace(/[^0-9a-fx]/gi, ""); this.offset = 0; this.load(); });
    const order = el("select", { "aria-label": "Order" }, ...[["audits", "most audited"], ["bad", "most faults"], ["good", "most good work"], ["account", "account"]].map(([value, text]) => el("option", { value }, text)));
    order.addEventListener("change", () => { this.order = order.value; this.offset = 0; this.load(); });
    this.element = el("div", { class: "panel" },
      card("Connected peers", this.connected),
      el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "Accounts in the books"), el("div", { class: "tools" }, search, order)), this.book));
  }

  async load() {
    const peers = await get(`api/${this.node}/peers`);
    const total = peers.peers.length;
    if (this.first >= total) this.first = Math.max(0, Math.floor((total - 1) / PAGE) * PAGE);
    const rows = peers.peers.slice(this.first, this.first + PAGE).map((peer) => el("tr", {},
      el("td", { class: "mono" }, short(peer.peer_id, 14)),
      el("td", { class: "mono" }, peer.account ? short(peer.account) : "not introduced"),
      el("td", { class: "number" }, share(peer.reputation)),
      el("td", { class: "number" }, peer.score === null ? "–" : peer.score.toFixed(1)),
      el("td", { class: "number" }, count(peer.accepted)), el("td", { class: "number" }, count(peer.refused)),
      el("td", { class: "mono muted wide" }, peer.address ?? "")));
    replace(this.connected, rows.length
      ? table([["peer"], ["account"], ["reputation", "number"], ["score", "number"], ["accepted", "number"], ["refused", "number"], ["address"]], rows)
      : el("p", { class: "empty" }, peers.alone ? "this node trains alone: it has no peers" : "no peer is connected"),
      ...(total > PAGE ? [pager(total, this.first, (first) => { this.first = first; this.load(); }, TURNS)] : []));
    const data = await get(`api/${this.node}/accounts?order=${this.order}&find=${encodeURIComponent(this.find)}&offset=${this.offset}&limit=${PAGE}`);
    const accounts = data.accounts.map((each) => el("tr", {},
      el("td", { class: "mono wide" }, each.account),
      el("td", { class: "number" }, each.banned_until !== null ? el("span", { class: "word bad" }, `banned until ${each.banned_until}`) : each.passed < 20 ? "newcomer" : share(each.reputation)),
      el("td", { class: "number" }, count(each.audits)), el("td", { class: "number" }, each.good.toFixed(1)), el("td", { class: "number" }, each.bad.toFixed(1)),
      el("td", { class: "small wide" }, Object.entries(each.verdicts).sort((a, b) => b[1] - a[1]).map(([name, n]) => `${name.replaceAll("_", " ")} ${count(n)}`).join(", "))));
    replace(this.book,
      accounts.length ? table([["account"], ["reputation", "number"], ["audits", "number"], ["good", "number"], ["bad", "number"], ["decisions since the start"]], accounts) : el("p", { class: "empty" }, "no account yet"),
      pager(data.total, this.offset, (offset) => { this.offset = offset; this.load(); }, TURNS),
      el("p", { class: "note" }, "Evidence of this node's own checks, decayed by epoch. Reputation is the lower bound of an account's reliability, 0 to 1; it counts once 20 groups have passed."));
  }
}

export class Ledger {
  constructor(node) {
    this.node = node;
    this.facts = el("dl", { class: "facts" });
    this.epochs = el("div");
    this.said = el("p", { class: "note", role: "status" });
    this.button = el("button", { class: "button strong", type: "button", onclick: () => this.preview() }, "Claim…");
    this.dialog = el("dialog", { "aria-label": "What will be signed" });
    this.element = el("div", { class: "panel" },
      el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "Ledger"), this.button), this.facts, this.said),
      card("Final epochs", this.epochs), this.dialog);
  }

  async load() {
    const { ledger, account, epochs } = await get(`api/${this.node}/ledger`);
    this.button.disabled = !ledger.enabled || this.dialog.open;
    if (!ledger.enabled) {
      this.facts.replaceChildren(...facts("ledger", "this swarm has none, or this node takes no part in it"));
    } else {
      this.facts.replaceChildren(
        ...facts("account", account), ...facts("chain", ledger.chain_id),
        ...facts("registered", ledger.registered ? "yes" : "no: what this node shares is not paid"),
        ...facts("points in final epochs", count(ledger.points)),
        ...facts("transactions waiting", `${count(ledger.outbox)}${ledger.stuck ? `, ${ledger.stuck} stuck` : ""}`),
        ...facts("last receipt", ledger.last_receipt ? moment(Date.parse(ledger.last_receipt) / 1000) : "none yet"),
        ...(ledger.last_error ? facts("last error", ledger.last_error) : []),
        ...ledger.endpoints.flatMap((end) => facts(end.name, end.trouble ?? (end.head === null ? "no block yet" : `block ${count(end.head)}`))));
    }
    this.epochs.replaceChildren(epochs.length
      ? table([["epoch"], ["own points", "number"], ["all points", "number"], ["root"], ["seen"]], epochs.map((each) => el("tr", {},
        el("td", {}, count(each.epoch)), el("td", { class: "number" }, each.points === null ? "unknown" : count(each.points)),
        el("td", { class: "number" }, count(each.total)), el("td", { class: "mono wide" }, short(each.root, 16)), el("td", { class: "muted wide" }, moment(each.at)))))
      : el("p", { class: "empty" }, "No epoch has become final since this node keeps them."));
  }

  async preview() {
    this.say("asking the chain what can be claimed …");
    this.button.disabled = true;
    try {
      const { statements, digest } = await get(`api/${this.node}/claim`);
      this.ask(statements, digest);
      this.say("");
    } catch (error) {
      this.say(`${error.message} ${error.hint ?? ""}`);
    }
    this.button.disabled = false;
  }

  ask(statements, digest) {
    const sign = el("button", { class: "button strong", type: "button", onclick: () => { this.dialog.close(); this.claim(digest); } }, "Sign and send");
    const close = el("button", { class: "button", type: "button", onclick: () => this.dialog.close() }, "Do not sign");
    this.dialog.replaceChildren(
      el("h2", {}, "This account is about to sign"),
      ...statements.map((words) => el("dl", { class: "facts part" }, ...Object.entries(words).flatMap(([name, value]) => facts(name, value)))),
      el("div", { class: "actions" }, close, sign));
    this.dialog.showModal();
    close.focus();
  }

  async claim(digest) {
    this.say("sent; waiting for the chain …");
    try {
      const done = await post(`api/${this.node}/claim`, { digest });
      this.say(Object.entries(done).map(([name, value]) => `${name} ${value}`).join(", "));
    } catch (error) {
      this.say(`${error.message} ${error.hint ?? ""}`);
    }
    this.load();
  }

  say(text) {
    this.said.textContent = text;
  }
}

export class Log {
  constructor(node) {
    this.node = node;
    this.level = "";
    this.path = el("span", { class: "muted small mono" });
    this.text = el("pre", { class: "log", tabindex: "0", "aria-label": "Log" });
    this.element = el("section", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, "Log"), this.path, segments([["", "everything"], ["warning", "warnings"]], "", (level) => { this.level = level; this.load(); })), this.text);
  }

  async load() {
    const data = await get(`api/${this.node}/log?lines=600`);
    this.path.textContent = data.path;
    const kind = (line) => (/\b(ERROR|CRITICAL)\b/i.test(line.slice(0, 60)) ? "error" : /\bWARNING\b/i.test(line.slice(0, 60)) ? "warning" : "");
    const lines = data.lines.filter((line) => !this.level || kind(line));
    this.text.replaceChildren(...lines.map((line) => el("span", { class: kind(line) }, `${line}\n`)));
    if (!lines.length) this.text.replaceChildren(data.lines.length ? "no warnings in the last lines" : "no lines yet");
    this.text.scrollTop = this.text.scrollHeight;
  }
}

export class Settings {
  constructor(node) {
    this.node = node;
    this.element = el("section", { class: "card" });
  }

  async load() {
    const { settings } = await get(`api/${this.node}/config`);
    const rows = settings.map((each) => el("tr", {}, el("td", { class: "mono wide" }, each.name), el("td", { class: "mono wide" }, JSON.stringify(each.value)),
      el("td", { class: each.origin === "default" ? "muted wide" : "wide" }, each.origin)));
    this.element.replaceChildren(el("div", { class: "head" }, el("h2", {}, "Settings")), table([["setting"], ["value"], ["comes from"]], rows),
      el("p", { class: "note" }, "Flags come before SAPO_ variables, these before the file, it before the defaults. Settings take effect at a start."));
  }
}

export { card, facts, segments, table, WINDOWS };
