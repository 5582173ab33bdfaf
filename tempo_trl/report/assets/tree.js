// The prefix tree of a group, from left to right: boxes are folded runs of tokens, ribbons the completions between them.
const LONG = 22; // characters of a box's text; a leaf may have more
const LONG_LEAF = 30;
const CHARACTER = 7.6;
const GAP = 30; // between a box and what follows
let drawn = null; // the group at hand, with its folded nodes and where everything lies

const nodeText = (node) => node.t.map((number) => data.texts[number]).join("");

function drawTree(group) {
  const children = group.nodes.map(() => []);
  group.nodes.forEach((node, i) => node.p >= 0 && children[node.p].push(i));
  drawn = { group, children, folded: new Set(), focus: 0, unit: group.rows.length <= 16 ? 42 : 25 };
  const low = Math.min(...group.rows.map((row) => row.reward ?? Infinity));
  const high = Math.max(...group.rows.map((row) => row.reward ?? -Infinity));
  drawn.low = Math.min(low, data.low);
  drawn.high = Math.max(high, data.high);
  byId("tree-legend").replaceChildren(
    html("span", {}, `V ${plain(drawn.low)}`, html("i", { class: "ramp diverging" }), plain(drawn.high)),
    html("span", {}, `✓ reward above ${plain(data.right)}   ✗ not above   ? not scored`),
    html("span", {}, `${many(group.rows.length, "completion")} · first branch after ${group.first === null ? "none" : many(group.first, "token")}`),
  );
  layOut();
  showNode(0);
}

function shownNodes() {
  const order = [];
  const visit = [0];
  while (visit.length) {
    const i = visit.pop();
    order.push(i);
    if (!drawn.folded.has(i)) visit.push(...[...drawn.children[i]].reverse());
  }
  return order;
}

/** Height of each node: of its completions one by one, of a folded one as if they were fewer. */
function heights(order) {
  const height = new Map();
  for (const i of [...order].reverse()) {
    const node = drawn.group.nodes[i];
    const own = drawn.folded.has(i) ? Math.min(node.n, 1 + Math.log2(node.n)) : node.e.length;
    const inside = drawn.folded.has(i) ? 0 : drawn.children[i].reduce((sum, child) => sum + height.get(child), 0);
    height.set(i, own * drawn.unit + inside);
  }
  return height;
}

function layOut() {
  const { group, children, folded } = drawn;
  const order = shownNodes();
  const height = heights(order);
  const level = new Map([[0, 0]]);
  const widths = [];
  const top = new Map([[0, 4]]);
  for (const i of order) {
    const leaf = folded.has(i) || !children[i].length;
    const length = i ? Array.from(nodeText(group.nodes[i])).length : 6;
    const least = drawn.unit < 42 ? 96 : i && group.nodes[i].d ? 126 : 78;
    const width = Math.max(Math.min(length, leaf ? LONG_LEAF : LONG) * CHARACTER + 20, least);
    widths[level.get(i)] = Math.max(widths[level.get(i)] ?? 0, width);
    let y = top.get(i);
    if (folded.has(i)) continue;
    for (const child of children[i]) {
      level.set(child, level.get(i) + 1);
      top.set(child, y);
      y += height.get(child);
    }
  }
  const left = widths.map((_, k) => 4 + widths.slice(0, k).reduce((sum, width) => sum + width + GAP, 0));
  drawn.place = new Map(order.map((i) => [i, { x: left[level.get(i)], y: top.get(i), w: widths[level.get(i)], h: height.get(i) - 5 }]));
  paint(order);
}

function paint(order) {
  const { group, children, folded, place } = drawn;
  const tree = byId("tree");
  const right = Math.max(...[...place.values()].map((box) => box.x + box.w)) + 92;
  const bottom = Math.max(...[...place.values()].map((box) => box.y + box.h)) + 8;
  fill(tree, { width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}` }, []);
  const ribbons = order.filter((i) => i > 0).map((i) => ribbon(place.get(group.nodes[i].p), place.get(i)));
  tree.replaceChildren(...ribbons, ...order.map((i) => drawNode(i)));
}

function ribbon(a, b) {
  const [x, X, bend] = [a.x + a.w, b.x, (b.x - a.x - a.w) / 2];
  const y = Math.min(Math.max(b.y, a.y), a.y + a.h);
  const [t, u] = [y, Math.min(y + b.h, a.y + a.h)];
  const [T, U] = [b.y, b.y + b.h];
  const path = `M${x} ${t}C${x + bend} ${t} ${X - bend} ${T} ${X} ${T}V${U}C${X - bend} ${U} ${x + bend} ${u} ${x} ${u}Z`;
  return svg("path", { d: path, class: "ribbon" });
}

function drawNode(i) {
  const { group, children, folded, place } = drawn;
  const node = group.nodes[i];
  const box = place.get(i);
  const text = i ? oneLine(nodeText(node)) : "prompt";
  const leaf = folded.has(i) || !children[i].length;
  const middle = box.y + box.h / 2;
  const two = drawn.unit >= 42;
  const element = svg("g", {
    class: "node", role: "treeitem", tabindex: i === drawn.focus ? 0 : -1, "data-node": i,
    "aria-expanded": children[i].length ? String(!folded.has(i)) : null,
    "aria-label": `${cut(text, 80)}: ${many(node.n, "completion")}, V ${plain(node.v)}${i ? `, TD ${signed(node.d)}` : ""}`,
  });
  const rect = svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h });
  const share = drawn.high > drawn.low ? (2 * (node.v - drawn.low)) / (drawn.high - drawn.low) - 1 : 0;
  rect.style.fill = node.v === null ? "var(--even)" : diverging(share, 52, "var(--even)");
  const label = svg("text", { x: box.x + 9, y: two ? middle - 3 : middle + 4 });
  const room = Math.max(Math.floor((box.w - 16) / CHARACTER) - (two ? 0 : 7), 1);
  if (i && node.d) {
    const first = oneLine(data.texts[node.t[0]]) || "·";
    label.append(svg("tspan", { class: "first" }, cut(first, room)));
    const rest = Array.from(text).slice(Array.from(first).length).join("");
    if (rest && room > Array.from(first).length) label.append(cut(rest, room - Array.from(first).length));
  } else label.append(cut(text, room));
  element.append(rect, label, numbers(node, i, box, middle, two));
  if (node.e.length && !folded.has(i)) element.append(marks(node, box, children[i].length > 0));
  if (folded.has(i)) {
    const hidden = node.n - node.e.length;
    element.append(svg("text", { x: box.x + box.w + 8, y: middle + 4, class: "folded" }, `▸ ${hidden} more`));
  }
  return element;
}

function numbers(node, i, box, middle, two) {
  const text = svg("text", { class: "numbers", x: two ? box.x + 9 : box.x + box.w - 6, y: two ? middle + 13 : middle + 4 });
  if (!two) text.setAttribute("text-anchor", "end");
  if (i && node.d) text.append(svg("tspan", { class: node.d > 0 ? "up" : "down" }, signed(node.d)), two ? "  " : "");
  if (two) text.append(`V ${plain(node.v)}  n ${node.n}`);
  return text;
}

/** Completions that end with this box: right or wrong, and how often. */
function marks(node, box, goesOn) {
  const rewards = node.e.map((row) => drawn.group.rows[row].reward);
  const kinds = [...new Set(rewards)];
  const y = goesOn ? box.y + box.h - drawn.unit / 2 + 6 : box.y + box.h / 2 + 5;
  const text = svg("text", { class: "mark", x: box.x + box.w + 8, y });
  for (const reward of kinds.slice(0, 3)) {
    const count = rewards.filter((other) => other === reward).length;
    text.append(svg("tspan", { class: isRight(reward) ? "up" : "down" }, `${mark(reward)}${count > 1 ? `×${count}` : ""} `));
  }
  return text;
}

function showNode(i) {
  const { group, children } = drawn;
  const node = group.nodes[i];
  drawn.focus = i;
  for (const element of byId("tree").querySelectorAll(".node")) {
    const own = Number(element.dataset.node) === i;
    element.setAttribute("tabindex", own ? 0 : -1);
    element.classList.toggle("shown", own);
  }
  const before = i ? group.nodes[node.p] : null;
  const facts = html("div", {}, html("b", {}, many(node.n, "completion")), ` of ${group.rows.length} · V `, html("b", {}, plain(node.v)));
  if (i && node.d) facts.append(" · TD of its first token ", html("b", {}, signed(node.d)), ` (V ${plain(before.v)} → ${plain(node.v)})`);
  if (i) facts.append(` · tokens ${node.a + 1} to ${node.a + node.t.length}`);
  if (node.e.length) facts.append(` · ends here: ${node.e.map((r) => `${mark(group.rows[r].reward)} ${plain(group.rows[r].reward)}`).slice(0, 12).join(", ")}`);
  if (i === 0 && !children[0].length) facts.append(" · no completion has a token");
  const text = i ? nodeText(node) : group.prompt;
  const shown = text.length > 20000 ? `${cut(text, 20000)} (${text.length.toLocaleString("en")} characters in all)` : text;
  byId("node-detail").replaceChildren(facts, html("pre", { dir: "auto" }, shown));
}

function toggle(i) {
  if (!drawn.children[i].length) return;
  if (!drawn.folded.delete(i)) drawn.folded.add(i);
  layOut();
  showNode(i);
}

function focusNode(i) {
  showNode(i);
  byId("tree").querySelector(`[data-node="${i}"]`)?.focus();
}

function walk(key, i) {
  const order = shownNodes();
  const { children, folded, group } = drawn;
  if (key === "ArrowDown") return order[Math.min(order.indexOf(i) + 1, order.length - 1)];
  if (key === "ArrowUp") return order[Math.max(order.indexOf(i) - 1, 0)];
  if (key === "Home") return order[0];
  if (key === "End") return order.at(-1);
  if (key === "ArrowLeft") return Math.max(group.nodes[i].p, 0);
  if (key === "ArrowRight") return folded.has(i) ? i : (children[i][0] ?? i);
  return null;
}

const nodeOf = (event) => {
  const element = event.target.closest?.(".node");
  return element ? Number(element.dataset.node) : null;
};
byId("tree").addEventListener("click", (event) => {
  const i = nodeOf(event);
  if (i === null || !getSelection().isCollapsed) return; // a text was being selected
  toggle(i);
  focusNode(i);
});
byId("tree").addEventListener("mouseover", (event) => nodeOf(event) !== null && showNode(nodeOf(event)));
byId("tree").addEventListener("focusin", (event) => nodeOf(event) !== null && showNode(nodeOf(event)));
byId("tree").addEventListener("keydown", (event) => {
  const i = nodeOf(event);
  if (i === null) return;
  const next = walk(event.key, i);
  if (next === null && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  if (next === null || (event.key === "ArrowRight" && drawn.folded.has(i))) toggle(i);
  focusNode(next ?? i);
});
