// The page: sections by the address's fragment, one live stream, and the health of the node that is shown.

import { announce, el, get, sentence } from "./dom.js";
import { Ledger, Log, Overview, Peers, Rollouts, Settings } from "./panels.js";
import { Swarm } from "./swarm.js";

const SECTIONS = { overview: Overview, rollouts: Rollouts, peers: Peers, ledger: Ledger, log: Log, settings: Settings };
const REFRESH = { swarm: 20_000, overview: 20_000, rollouts: 10_000, peers: 15_000, ledger: 10_000, log: 5_000 };

const main = document.getElementById("main"), tabs = document.getElementById("tabs");
const state = document.getElementById("state"), health = document.getElementById("health");
const spoken = document.getElementById("spoken"), swarm = document.getElementById("swarm"), pick = document.getElementById("node");

const page = { about: null, node: null, panels: {}, section: "", chosen: "", stream: null, timer: 0 };

function say(text, kind = "") {
  if (state.textContent === text) return;
  state.textContent = text;
  state.className = `state ${kind}`;
}

function fail(error) {
  say("not connected", "bad");
  health.dataset.key = "";
  const text = error.status ? error.message : "The node does not answer: it may have stopped.";
  const hint = error.hint || (error.status ? "" : "This page goes on when it is back; if it does not, `sapo dashboard` prints a new link.");
  health.replaceChildren(finding("error", text, hint));
}

function finding(level, text, hint) {
  return el("div", { class: `finding ${level}` }, el("b", {}, ...sentence(text)), hint ? el("p", { class: "small" }, ...sentence(hint)) : null);
}

function status(report) {
  const errors = report.findings.some((each) => each.level === "error");
  const [text, kind] = report.state !== "running" ? [report.state, "warn"] : errors ? ["unhealthy", "bad"] : report.findings.length ? ["warnings", "warn"] : ["healthy", "good"];
  say(text, kind);
  swarm.textContent = `${report.swarm_name} · ${report.node_id.slice(0, 12)}`;
  document.title = `${errors ? "unhealthy: " : ""}${report.swarm_name} · sapo`;
  const key = JSON.stringify(report.findings);
  if (health.dataset.key !== key) {
    health.dataset.key = key;
    const whose = page.about.nodes.length > 1 ? `${page.node}: ` : "";
    health.replaceChildren(...report.findings.map((each) => finding(each.level, whose + each.text, each.hint)));
  }
  announce(spoken, report.findings);
  page.panels.overview.status(report);
}

function connect() {
  page.stream?.close();
  if (page.node === null) return;
  const stream = new EventSource(`api/${encodeURIComponent(page.node)}/stream`);
  page.stream = stream;
  stream.addEventListener("status", (event) => status(JSON.parse(event.data)));
  stream.addEventListener("decisions", (event) => page.panels.overview.decisions(JSON.parse(event.data)));
  stream.onerror = () => get(`api/${encodeURIComponent(page.node)}/status`).catch(fail);
}

async function refresh() {
  clearTimeout(page.timer);
  if (document.hidden) return;
  const { section } = page;
  try {
    await page.panels[section].load(page.chosen);
  } catch (error) {
    fail(error);
  }
  page.chosen = "";
  clearTimeout(page.timer);
  if (REFRESH[section]) page.timer = setTimeout(refresh, REFRESH[section]);
}

function open() {
  const [name, chosen] = decodeURIComponent(location.hash.slice(1)).split("/");
  page.section = name in page.panels ? name : Object.keys(page.panels)[0];
  page.chosen = chosen ?? "";
  for (const link of tabs.children) {
    if (link.hash === `#${page.section}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const panel = page.panels[page.section];
  if (main.firstChild !== panel.element) main.replaceChildren(panel.element);
  refresh();
}

function show(node) {
  page.node = node;
  page.panels = {};
  if (page.about.swarm) page.panels.swarm = new Swarm(page.about, page.about.nodes.length ? choose : null);
  for (const [name, Section] of Object.entries(SECTIONS)) if (node !== null) page.panels[name] = new Section(encodeURIComponent(node));
  tabs.replaceChildren(...Object.keys(page.panels).map((name) => el("a", { href: `#${name}` }, name === "swarm" && page.about.tab ? page.about.tab : name[0].toUpperCase() + name.slice(1))));
  connect();
}

function choose(node) {
  pick.value = node;
  show(node);
  if (page.section === "swarm") location.hash = "overview";
  else open();
}

async function start() {
  page.about = await get("api/nodes");
  const { nodes, title } = page.about;
  document.title = `${title} · sapo`;
  swarm.textContent = title;
  if (nodes.length > 1) {
    pick.append(...nodes.map((each) => el("option", { value: each.name }, each.role === "control" ? `${each.title} (shares nothing)` : each.title)));
    pick.addEventListener("change", () => choose(pick.value));
    document.getElementById("pick").hidden = false;
  }
  if (!nodes.length) say("reading results", "good");
  show(nodes.length ? nodes[0].name : null);
  addEventListener("hashchange", open);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) page.stream?.close();
    else { connect(); refresh(); }
  });
  open();
}

start().catch(fail);
