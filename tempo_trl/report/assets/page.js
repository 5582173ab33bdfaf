// What is shown: run, step and prompt. Every text comes from a model: it goes into the page through textContent only.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const signed = (x, digits = 2) => (x === null ? "–" : (x < 0 ? "−" : "+") + Math.abs(x).toFixed(digits));
const plain = (x, digits = 2) => (x === null ? "–" : x < 0 ? signed(x, digits) : x.toFixed(digits));
const percent = (x, digits = 1) => `${(100 * x).toFixed(digits)}%`;
const many = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

/** A colour between orange, nothing and blue: `x` from -1 to 1, at most `most` percent of it over `ground`. */
function diverging(x, most = 65, ground = "transparent") {
  const share = Math.round(Math.min(Math.abs(x), 1) * most * 10) / 10;
  return `color-mix(in srgb, var(${x < 0 ? "--neg" : "--pos"}) ${share}%, ${ground})`;
}

/** Spaces, line breaks and tabs as signs, for labels of one line. */
function oneLine(text) {
  const marked = text.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  const inner = marked.replace(/^ +| +$/g, "");
  if (!inner) return "␣".repeat(marked.length);
  const before = marked.length - marked.trimStart().length;
  return "␣".repeat(before) + inner + "␣".repeat(marked.length - before - inner.length);
}

/** First characters of a text, never half of one. */
function cut(text, length) {
  const characters = Array.from(text);
  return characters.length <= length ? text : characters.slice(0, Math.max(1, length - 1)).join("") + "…";
}

/** How the run at hand speaks of its method's credit. */
const terms = () => data.runs[data.sources[state.source]?.run ?? 0].terms;

const state = { source: 0, group: null, kind: "total" };

/** Tokens of a row with what is known of each: text, TD, advantage, entropy, in the loss or not. */
function tokensOf(group, row) {
  const texts = [];
  const path = [];
  for (let at = row.leaf; at >= 0; at = group.nodes[at].p) path.unshift(group.nodes[at].t);
  for (const part of path) for (const number of part) texts.push(number);
  for (const [t, number] of row.x ?? []) texts[t] = number;
  const tokens = texts.map((number) => ({ text: data.texts[number], td: 0, adv: 0, entropy: null, skip: false }));
  for (const [t, td] of row.td) tokens[t].td = td;
  row.adv.forEach(([from, adv], i) => {
    const to = row.adv[i + 1]?.[0] ?? tokens.length;
    for (let t = from; t < to; t++) tokens[t].adv = adv;
  });
  const levels = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (row.h) tokens.forEach((token, t) => (token.entropy = (levels.indexOf(row.h[t]) / 63) * data.entropyMax));
  for (const [from, to] of row.skip ?? []) for (let t = from; t < to; t++) tokens[t].skip = true;
  return tokens;
}

const isRight = (reward) => reward !== null && reward - data.right > 1e-6;
const mark = (reward) => (reward === null ? "?" : isRight(reward) ? "✓" : "✗");

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, String(value) === String(chosen))));
  select.disabled = entries.length < 2;
}

function chooseSource(source) {
  state.source = source;
  const own = data.sources[source];
  options(byId("source"), data.sources.map((s, i) => [i, s.label]), source);
  chooseStep(data.groups[own.opening].step, own.opening);
  showRun(own.run);
  byId("credit-kind").textContent = terms().added;
  byId("credit-kind").parentElement.hidden = terms().of_places; // the total is the credit there
  if (terms().of_places && state.kind === "td") chooseKind("total");
}

function groupsOf(step) {
  return data.sources[state.source].groups.filter((i) => data.groups[i].step === step);
}

function chooseStep(step, group = null) {
  const steps = [...new Set(data.sources[state.source].groups.map((i) => data.groups[i].step))];
  options(byId("step"), steps.map((s) => [s, s]), step);
  const own = groupsOf(step);
  const label = (i) => `${data.groups[i].group}: ${cut(oneLine(data.groups[i].prompt), 110)}`;
  const same = own.find((i) => data.groups[i].group === data.groups[state.group]?.group);
  const chosen = group ?? same ?? own[0];
  options(byId("prompt"), own.map((i) => [i, label(i)]), chosen);
  chooseGroup(chosen);
}

function chooseGroup(index) {
  state.group = index;
  byId("prompt").value = index;
  const all = data.sources[state.source].groups;
  byId("previous").disabled = all.indexOf(index) <= 0;
  byId("next").disabled = all.indexOf(index) >= all.length - 1;
  const group = data.groups[index];
  byId("question").textContent = group.prompt;
  drawTree(group);
  drawTurns(group);
  drawCriteria(group);
  drawCredit(group);
}

function stepBy(by) {
  const all = data.sources[state.source].groups;
  const index = all[all.indexOf(state.group) + by];
  if (index === undefined) return;
  if (data.groups[index].step !== data.groups[state.group].step) chooseStep(data.groups[index].step, index);
  else chooseGroup(index);
}

function showRun(run) {
  drawTokens(data.runs[run].statistics);
}

function drawHead() {
  byId("subtitle").textContent = data.subtitle;
  for (const line of data.headlines) {
    const meter = html("div", { class: "meter", role: "img", "aria-label": percent(line.share) }, html("i"));
    meter.firstChild.style.width = percent(line.share);
    const head = html("div", {}, html("strong", {}, line.number), line.words);
    byId("headlines").append(html("div", { class: "headline" }, head, meter, html("div", { class: "facts" }, line.facts)));
  }
}

const THEMES = [["light dark", "as the system", "◐"], ["light", "light", "☀"], ["dark", "dark", "☾"]];
let theme = 0;
byId("theme").addEventListener("click", () => {
  theme = (theme + 1) % THEMES.length;
  document.documentElement.style.colorScheme = THEMES[theme][0];
  byId("theme").textContent = THEMES[theme][2];
  byId("theme").setAttribute("aria-label", `Colours: ${THEMES[theme][1]}`);
});

function start() {
  drawHead();
  byId("source").addEventListener("change", (event) => chooseSource(Number(event.target.value)));
  byId("step").addEventListener("change", (event) => chooseStep(Number(event.target.value)));
  byId("prompt").addEventListener("change", (event) => chooseGroup(Number(event.target.value)));
  byId("previous").addEventListener("click", () => stepBy(-1));
  byId("next").addEventListener("click", () => stepBy(1));
  if (data.sources.length) chooseSource(0);
  else {
    const drawn = byId("curves-title").parentElement;
    for (const part of [byId("choose"), ...document.querySelectorAll("main > section")]) part.hidden = part !== drawn;
  }
  drawCurves();
  performance.mark("drawn");
}
