// An agent's turns: the graph of a group's states, and the credit of each turn. A group without turns has neither.
const STATE = { width: 168, height: 40, across: 96, down: 26 };
const STATE_CHARACTERS = 20;
const END = -1; // where a completion's last turn leads
let agents = null; // the group at hand, the places of its states, and the largest credit of a turn

function drawTurns(group) {
  byId("turns-section").hidden = !group.graph;
  agents = null;
  if (!group.graph) return;
  const { states, rows } = group.graph;
  const steps = rows.flat();
  agents = { group, states, rows, place: statePlaces(states), scale: Math.max(...steps.map((step) => Math.abs(step[4])), 1e-9) };
  byId("turn-legend").replaceChildren(
    html("span", {}, signed(-agents.scale), html("i", { class: "ramp credit" }), `${signed(agents.scale)}, mean advantage of a turn`),
    html("span", {}, `${many(states.length, "state")} · ${many(steps.length, "turn")}`),
  );
  drawGraph();
  drawTurnTable();
  byId("turn-detail").textContent = "Point at a state or a turn, or press Tab to go through them.";
}

/** States from left to right by their earliest turn, those that most completions saw on top. */
function statePlaces(states) {
  const below = [];
  const order = states.map((_, i) => i).sort((a, b) => states[b].n - states[a].n);
  const place = [];
  for (const i of order) {
    const layer = states[i].l;
    below[layer] = (below[layer] ?? -1) + 1;
    place[i] = { x: 6 + layer * (STATE.width + STATE.across), y: 8 + below[layer] * (STATE.height + STATE.down) };
  }
  return place;
}

/** Turns from one state to another, added up: completions that took it, their mean advantage, and the tools called. */
function arrows() {
  const found = new Map();
  for (const steps of agents.rows) {
    for (const [from, to, , , credit, calls] of steps) {
      const key = `${from} ${to}`;
      const arrow = found.get(key) ?? { from, to, count: 0, sum: 0, calls: new Set() };
      arrow.count += 1;
      arrow.sum += credit;
      if (calls) arrow.calls.add(calls);
      found.set(key, arrow);
    }
  }
  return [...found.values()].map((arrow) => ({ ...arrow, credit: arrow.sum / arrow.count, calls: [...arrow.calls].join(", ") }));
}

function drawGraph() {
  const { place } = agents;
  const right = Math.max(...place.map((p) => p.x)) + STATE.width + STATE.across;
  const bottom = Math.max(...place.map((p) => p.y)) + STATE.height + 40;
  const graph = byId("turn-graph");
  fill(graph, { width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}` }, []);
  const drawn = arrows().filter((arrow) => arrow.to !== END).map(drawArrow);
  graph.replaceChildren(...drawn.map(([path]) => path), ...agents.states.map((_, i) => drawState(i)), ...drawn.map(([, label]) => label));
}

function drawArrow(arrow) {
  const a = agents.place[arrow.from];
  const b = agents.place[arrow.to];
  const forward = b.x > a.x;
  const [x, y] = forward ? [a.x + STATE.width, a.y + STATE.height / 2] : [a.x + STATE.width * 0.6, a.y + STATE.height];
  const [X, Y] = forward ? [b.x, b.y + STATE.height / 2] : [b.x + STATE.width * 0.4, b.y + STATE.height];
  const bend = forward ? (X - x) / 2 : 30;
  const curve = forward ? `C${x + bend} ${y} ${X - bend} ${Y} ${X} ${Y}` : `C${x} ${y + bend} ${X} ${Y + bend} ${X} ${Y}`;
  const path = svg("path", { d: `M${x} ${y}${curve}`, class: "arrow", "stroke-width": 1 + 1.5 * arrow.count });
  path.style.stroke = diverging(arrow.credit / agents.scale, 100, "var(--even)");
  const lower = forward ? 4 : 26;
  return [path, svg("text", { class: "call", x: (x + X) / 2, y: (y + Y) / 2 + lower }, cut(arrow.calls, 14))];
}

const stateText = (i) => oneLine(agents.states[i].t || (agents.states[i].l ? "no answer" : "prompt"));

function drawState(i) {
  const { states, place, group } = agents;
  const { x, y } = place[i];
  const label = `${cut(stateText(i), 80)}: ${many(states[i].n, "completion")}, V ${plain(states[i].v)}`;
  const element = svg("g", { class: "state", role: "listitem", tabindex: 0, "data-state": i, "aria-label": label });
  const rect = svg("rect", { x, y, width: STATE.width, height: STATE.height });
  const share = data.high > data.low ? (2 * (states[i].v - data.low)) / (data.high - data.low) - 1 : 0;
  rect.style.fill = states[i].v === null ? "var(--even)" : diverging(share, 52, "var(--even)");
  const ended = agents.rows.flatMap((steps, row) => (steps.at(-1)?.[0] === i ? [group.rows[row].reward] : []));
  const ends = [...new Set(ended.map(mark))].map((sign) => `${sign}×${ended.filter((reward) => mark(reward) === sign).length}`);
  element.append(
    rect,
    svg("text", { x: x + 9, y: y + 17 }, cut(stateText(i), STATE_CHARACTERS)),
    svg("text", { x: x + 9, y: y + 33, class: "numbers" }, [`V ${plain(states[i].v)}`, `n ${states[i].n}`, ...ends].join("  ")),
  );
  return element;
}

function drawTurnTable() {
  const { rows, group, scale } = agents;
  const most = Math.max(...rows.map((steps) => steps.length));
  const heads = ["completion", "GRPO", ...Array.from({ length: most }, (_, n) => `turn ${n + 1}`)];
  const cell = (row, n) => {
    const [, , , , credit, calls] = rows[row][n];
    const element = html("td", { tabindex: 0, "data-row": row, "data-turn": n }, signed(credit), html("small", {}, cut(calls || "text", 18)));
    element.style.backgroundColor = diverging(credit / scale);
    return element;
  };
  const lines = rows.map((steps, row) =>
    html("tr", {},
      html("th", { scope: "row" }, `${mark(group.rows[row].reward)} ${row + 1}`),
      html("td", {}, signed(group.rows[row].outcome)),
      ...steps.map((_, n) => cell(row, n)),
    ),
  );
  const head = html("thead", {}, html("tr", {}, ...heads.map((text) => html("th", { scope: "col" }, text))));
  byId("turn-table").replaceChildren(head, html("tbody", {}, ...lines));
}

function turnText(row, n) {
  const [, , begin, end] = agents.rows[row][n];
  return tokensOf(agents.group, agents.group.rows[row]).slice(begin, end).map((token) => token.text).join("");
}

function showState(i) {
  const state = agents.states[i];
  const leaving = arrows().filter((arrow) => arrow.from === i).sort((a, b) => b.count - a.count);
  const ways = leaving.map(({ calls, count, credit, to }) => `${calls || "text"} ×${count} (${signed(credit)}) → ${to === END ? "end" : cut(stateText(to), 40)}`);
  const facts = html("div", {}, html("b", {}, many(state.n, "completion")), ` of ${agents.group.rows.length} saw it, first before turn ${state.l + 1} · V `, html("b", {}, plain(state.v)));
  byId("turn-detail").replaceChildren(facts, html("pre", { dir: "auto" }, state.t || stateText(i)), html("div", { dir: "auto" }, ways.join(" · ")));
}

function showTurn(row, n) {
  const [from, to, , , credit] = agents.rows[row][n];
  const facts = html("div", {}, `turn ${n + 1} of completion ${row + 1} · trains with `, html("b", {}, signed(credit)), ` · GRPO ${signed(agents.group.rows[row].outcome)}`);
  const way = html("div", { dir: "auto" }, `from ${cut(stateText(from), 60)} to ${to === END ? "the end" : cut(stateText(to), 60)}`);
  byId("turn-detail").replaceChildren(facts, html("pre", { dir: "auto" }, turnText(row, n)), way);
}

function showOfTurns(event) {
  const at = event.target.closest?.("[data-state], [data-turn]");
  if (!at || !agents) return;
  if (at.dataset.state !== undefined) showState(Number(at.dataset.state));
  else showTurn(Number(at.dataset.row), Number(at.dataset.turn));
}
for (const id of ["turn-graph", "turn-table"]) {
  byId(id).addEventListener("mouseover", showOfTurns);
  byId(id).addEventListener("focusin", showOfTurns);
  byId(id).addEventListener("click", showOfTurns);
}
