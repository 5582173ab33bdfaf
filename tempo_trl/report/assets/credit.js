// Completions as text, coloured by credit: GRPO's row above the method's. Only what is asked for is in the page.
const AT_ONCE = 12000; // tokens of a group that are drawn at once, the same number of each completion

const OF_KIND = {
  total: { grpo: (row) => row.outcome ?? 0, method: (token) => token.adv },
  td: { grpo: () => 0, method: (token) => token.td },
  outcome: { grpo: (row) => row.outcome ?? 0, method: (token, row) => row.outcome ?? 0 },
  entropy: { grpo: () => null, method: (token) => token.entropy },
};
let rows = []; // of the group at hand: { row, tokens, shown }
let scale = 1; // the credit of the darkest colour
let chunk = 0;

function drawCredit(group) {
  chunk = Math.max(Math.floor(AT_ONCE / group.rows.length), 100);
  rows = group.rows.map((row) => ({ row, tokens: tokensOf(group, row), shown: chunk }));
  const has = group.rows.some((row) => row.h);
  const entropy = document.querySelector('input[name="kind"][value="entropy"]');
  entropy.disabled = !has;
  entropy.parentElement.title = has ? "" : "no entropies were computed when this group was recorded";
  if (!has && state.kind === "entropy") chooseKind("total");
  scale = group.scale[0];
  byId("credit").replaceChildren(...rows.map(drawCompletion));
  creditLegend();
  byId("token-detail").textContent = `Point at a token, or press Tab to go through the underlined ones. Underlined is ${whatIsMarked()}.`;
}

function creditLegend() {
  const legend = state.kind === "entropy"
    ? html("span", {}, "entropy 0", html("i", { class: "ramp entropy" }), `${plain(data.entropyMax)} nats`)
    : scaleLegend("in units of the advantage");
  byId("credit-legend").replaceChildren(legend);
}

/** What the darkest colours stand for, and that what is larger is as dark. */
function scaleLegend(unit) {
  const [darkest, largest] = groupShown().scale;
  const more = largest > darkest ? `; the largest 5%, up to ${plain(largest)}, are as dark` : "";
  return html("span", {}, signed(-darkest), html("i", { class: "ramp credit" }), `${signed(darkest)}, ${unit}${more}`);
}

function drawCompletion({ row, tokens, shown }, index) {
  const verdict = html("span", { class: isRight(row.reward) ? "right" : "wrong" }, mark(row.reward));
  const head = html("h3", {}, verdict, ` completion ${index + 1} · reward ${plain(row.reward)} · outcome ${signed(row.outcome)} · ${many(tokens.length, "token")}`);
  const text = tokens.slice(0, shown);
  const box = html("div", { class: "completion", "data-row": index }, head);
  if (state.kind !== "entropy") box.append(line("GRPO", "grpo", grpoSpans(row, text)));
  box.append(line(terms().label, "method", methodSpans(row, text, ownPlaces(row, tokens.length))));
  if (shown < tokens.length) {
    const more = Math.min(chunk, tokens.length - shown);
    box.append(html("button", { type: "button", class: "more" }, `show ${more.toLocaleString("en")} of ${(tokens.length - shown).toLocaleString("en")} more tokens`));
  }
  return box;
}

function line(name, kind, spans) {
  return html("div", { class: `line ${kind}` }, html("span", {}, name), html("div", { dir: "auto" }, ...spans));
}

/** A span for each stretch of tokens that are in the loss, or are not, such as a tool's answer. */
function grpoSpans(row, tokens) {
  const spans = [];
  tokens.forEach((token, t) => {
    if (token.skip !== tokens[t - 1]?.skip) {
      spans.push(html("i", token.skip ? { class: "skip" } : {}));
      paintSpan(spans.at(-1), token.skip ? 0 : OF_KIND[state.kind].grpo(row));
    }
    spans.at(-1).append(drawnText(token.text));
  });
  return spans;
}

/** A span a token. The bytes of one character are one span: the first has its text, and the largest credit is shown. */
function methodSpans(row, tokens, places) {
  const spans = [];
  let value = 0;
  tokens.forEach((token, t) => {
    const own = token.skip && state.kind !== "entropy" ? 0 : OF_KIND[state.kind].method(token, row);
    if (token.text === "" && spans.length) {
      if (Math.abs(own) <= Math.abs(value)) return;
      value = own;
      paintSpan(spans.at(-1), value);
      return;
    }
    value = own;
    const span = html("i", { "data-token": t }, drawnText(token.text));
    paintSpan(span, value);
    if (terms().of_places) underlinePlace(span, places, t);
    else if (terms().added === "TD" ? token.td : Math.abs(token.td) > scale / 2) fill(span, { class: "turn", tabindex: 0 }, []);
    if (token.skip) span.classList.add("skip");
    spans.push(span);
  });
  return spans;
}

function whatIsMarked() {
  if (terms().of_places) return "the place of a criterion that has credit there, up to half of the completion";
  return terms().added === "TD" ? "a token whose TD error is not zero" : "a token to which much was added";
}

/** Line breaks are drawn as a sign too, so that their colour is seen. */
const drawnText = (text) => text.replace(/\n/g, "⏎\n");

function paintSpan(span, value) {
  if (!value) span.style.backgroundColor = "";
  else if (state.kind === "entropy") {
    const share = Math.round((value / (data.entropyMax || 1)) * 65);
    span.style.backgroundColor = `color-mix(in srgb, var(--c3) ${share}%, transparent)`;
  } else span.style.backgroundColor = diverging(value / (scale || 1));
}

function chooseKind(kind) {
  state.kind = kind;
  document.querySelector(`input[name="kind"][value="${kind}"]`).checked = true;
}

byId("kind").addEventListener("change", (event) => {
  state.kind = event.target.value;
  byId("credit").replaceChildren(...rows.map(drawCompletion));
  creditLegend();
});

byId("credit").addEventListener("click", (event) => {
  const button = event.target.closest("button.more");
  if (!button) return;
  const box = button.closest(".completion");
  const entry = rows[Number(box.dataset.row)];
  entry.shown += chunk;
  box.replaceWith(drawCompletion(entry, Number(box.dataset.row)));
});

function showToken(event) {
  const span = event.target.closest?.("[data-token]");
  if (!span) return;
  const index = Number(span.closest(".completion").dataset.row);
  const { row, tokens } = rows[index];
  const t = Number(span.dataset.token);
  const token = tokens[t];
  document.querySelector(".line i.shown")?.classList.remove("shown");
  span.classList.add("shown");
  const parts = [html("b", {}, oneLine(token.text)), ` token ${t + 1} of completion ${index + 1} · GRPO `, html("b", {}, signed(row.outcome)),
    ...(terms().of_places ? [] : [` · ${terms().added} `, html("b", {}, signed(token.td))]), " · trains with ", html("b", {}, signed(token.adv))];
  if (token.entropy !== null) parts.push(` · entropy ≈ ${plain(token.entropy)} nats`);
  if (token.skip) parts.push(" · not in the loss");
  byId("token-detail").replaceChildren(html("span", { dir: "auto" }, ...parts), ...criteriaThere(row, t));
}
byId("credit").addEventListener("mouseover", showToken);
byId("credit").addEventListener("focusin", showToken);
