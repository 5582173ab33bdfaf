// An agent's turns as a table: what each called, with its credit, and what it had seen. A group without turns has none.
function drawTurns(group) {
  byId("turns-section").hidden = !group.turns;
  if (!group.turns) return byId("turn-table").replaceChildren();
  byId("turn-legend").replaceChildren(scaleLegend("mean advantage of a turn"));
  const most = Math.max(...group.turns.map((turns) => turns.length));
  const heads = ["completion", "GRPO", ...Array.from({ length: most }, (_, n) => `turn ${n + 1}`)];
  const cell = (row, n) => {
    const [, , credit, calls] = group.turns[row][n];
    const element = html("td", { tabindex: 0, "data-row": row, "data-turn": n }, signed(credit), html("small", {}, cut(calls || "text", 18)));
    element.style.backgroundColor = diverging(credit / group.scale[0]);
    return element;
  };
  const lines = group.turns.map((turns, row) =>
    html("tr", {},
      html("th", { scope: "row" }, `${mark(group.rows[row].reward)} ${row + 1}`),
      html("td", {}, signed(group.rows[row].outcome)),
      ...turns.map((_, n) => cell(row, n)),
    ),
  );
  const head = html("thead", {}, html("tr", {}, ...heads.map((text) => html("th", { scope: "col" }, text))));
  byId("turn-table").replaceChildren(head, html("tbody", {}, ...lines));
  byId("turn-detail").textContent = "Point at a turn, or press Tab to go through them.";
}

function showTurn(event) {
  const at = event.target.closest?.("[data-turn]");
  if (!at) return;
  const [row, n] = [Number(at.dataset.row), Number(at.dataset.turn)];
  const group = groupShown();
  const [begin, end, credit, , observed] = group.turns[row][n];
  const text = tokensOf(group, group.rows[row]).slice(begin, end).map((token) => token.text).join("");
  const facts = html("div", {}, `turn ${n + 1} of completion ${row + 1} · trains with `, html("b", {}, signed(credit)), ` · GRPO ${signed(group.rows[row].outcome)}`);
  const seen = observed ? [html("div", {}, "after"), html("pre", { dir: "auto" }, observed)] : [];
  byId("turn-detail").replaceChildren(facts, ...seen, html("div", {}, "the turn"), html("pre", { dir: "auto" }, text));
}
for (const kind of ["mouseover", "focusin", "click"]) byId("turn-table").addEventListener(kind, showTurn);
