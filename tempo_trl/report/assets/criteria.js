// Criteria: rewards with a place. A row's `s` has [criterion, reward, advantage, places] of each that judged it.
const groupShown = () => data.groups[state.group];
const inPlace = (places, t) => places.some(([from, to]) => from <= t && t < to);

/** The places to underline: of criteria with credit, and of half of the completion at most. */
function ownPlaces(row, length) {
  const credited = (row.s ?? []).filter(([, , advantage]) => advantage !== 0);
  return credited.flatMap(([, , , places]) => places).filter(([from, to]) => 2 * (to - from) <= length);
}

/** Underlines a token of a place. A place begins with a gap, and Tab stops there. */
function underlinePlace(span, places, t) {
  if (!inPlace(places, t)) return;
  span.className = "own";
  if (places.some(([from]) => from === t)) fill(span, { class: "own first", tabindex: 0 }, []);
}

/** Share of a criterion's advantage that a token has: all of it on a place, and everywhere without one. */
function shareOf(places, t) {
  if (!places.length || inPlace(places, t)) return 1;
  return Math.max(0, ...places.filter(([from]) => t < from).map(([from]) => groupShown().trace ** (from - t)));
}

/** The criteria that place credit at a token, with reward and advantage. */
function criteriaThere(row, t) {
  const found = (row.s ?? []).map((own) => [...own, shareOf(own[3], t)]).filter((own) => own[4] >= 0.005);
  if (!row.s) return [];
  if (!found.length) return [html("div", {}, "no criterion places credit here")];
  const parts = found.map(([k, reward, advantage, places, share]) => {
    const where = places.length ? (share < 1 ? ` × ${plain(share)} before its place` : "") : " (no place)";
    return html("span", { class: "criterion" }, html("b", {}, cut(oneLine(groupShown().criteria[k]), 60)), `: ${short(reward)}, ${signed(advantage)}${where}`);
  });
  return [html("div", { dir: "auto" }, ...parts)];
}

function drawCriteria(group) {
  byId("criteria").hidden = !group.criteria;
  if (!group.criteria) return byId("criteria-table").replaceChildren();
  const run = new Map(Object.entries(data.runs[data.sources[state.source].run].statistics?.criteria ?? {}));
  const heads = ["criterion", "#mean reward here", "#mean |advantage| here", "#where here", "#mean reward", "#mean |advantage|", "#flat groups"];
  const lines = group.criteria.map((name, k) => {
    const own = group.rows.flatMap((row) => (row.s ?? []).filter((judged) => judged[0] === k));
    const mean = (values) => (values.includes(null) ? null : values.reduce((sum, value) => sum + value, 0) / values.length);
    const [reward, credit, flat, groups] = run.get(name) ?? [null, null, null, 0];
    return [html("span", { class: "name", dir: "auto" }, cut(oneLine(name), 60)), plain(mean(own.map((judged) => judged[1]))),
      plain(mean(own.map((judged) => judged[2] && Math.abs(judged[2])))), whereOf(own), plain(reward), plain(credit),
      flat === null ? "–" : `${percent(flat, 0)} of ${groups.toLocaleString("en")}`];
  });
  const drawn = table("criteria of the group", heads, lines);
  drawn.querySelectorAll("tbody tr").forEach((line, k) => fill(line, { "data-criterion": k, tabindex: 0 }, []));
  byId("criteria-table").replaceChildren(...drawn.children);
}

/** Mean first and last token of a criterion's places in the group. */
function whereOf(own) {
  const placed = own.map((judged) => judged[3]).filter((places) => places.length);
  if (!placed.length) return "all tokens";
  const mean = (values) => Math.round(values.reduce((sum, value) => sum + value, 0) / values.length);
  const first = mean(placed.map((places) => Math.min(...places.map(([from]) => from)))) + 1;
  const last = mean(placed.map((places) => Math.max(...places.map(([, to]) => to))));
  const some = placed.length < own.length ? ` (${placed.length} of ${own.length})` : "";
  return `${first === last ? `token ${first}` : `tokens ${first}–${last}`}${some}`;
}

/** Frames the places of a criterion in the texts; none for null. */
function framePlaces(k) {
  for (const span of byId("credit").querySelectorAll("i[data-token]")) {
    const row = rows[Number(span.closest(".completion").dataset.row)].row;
    const own = k === null ? null : (row.s ?? []).find((judged) => judged[0] === k);
    span.classList.toggle("place", Boolean(own) && inPlace(own[3], Number(span.dataset.token)));
  }
}

const criterionOf = (event) => {
  const line = event.target.closest?.("[data-criterion]");
  return line ? Number(line.dataset.criterion) : null;
};
for (const kind of ["mouseover", "focusin"]) byId("criteria-table").addEventListener(kind, (event) => framePlaces(criterionOf(event)));
for (const kind of ["mouseleave", "focusout"]) byId("criteria-table").addEventListener(kind, () => framePlaces(null));
