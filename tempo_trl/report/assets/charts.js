// Of a whole run: the table of tokens, and curves over training.

function table(caption, heads, lines) {
  const numeric = heads.map((head) => head.startsWith("#"));
  const label = (i) => heads[i].replace("#", "");
  const cell = (content, i, tag) => html(tag, { class: numeric[i] ? "number" : null, "data-label": tag === "td" ? label(i) : null }, content);
  return html("table", {}, html("caption", { hidden: "" }, caption),
    html("thead", {}, html("tr", {}, ...heads.map((_, i) => cell(label(i), i, "th")))),
    html("tbody", {}, ...lines.map((cells) => html("tr", {}, ...cells.map((content, i) => cell(content, i, "td"))))));
}

const code = (text) => html("code", {}, text);
const empty = (text) => html("p", { class: "empty" }, text);

function drawTokens(statistics) {
  if (!statistics || !statistics.top.length) return byId("token-table").replaceChildren(empty(statistics ? `No token has a non-zero |${terms().added}|.` : data.nothing));
  const lines = statistics.top.map((token) => [code(token.text), token.mass.toFixed(2), percent(token.share), `${token.ups} ↑ ${token.downs} ↓`, token.seen.toLocaleString("en"), examples(token)]);
  byId("token-table").replaceChildren(table(`tokens by ${terms().added}`, ["token", `#sum |${terms().added}|`, "#share", "#ups and downs", "#seen", "largest changes"], lines));
}

function examples(token) {
  const box = html("div");
  for (const [td, before, after] of token.examples) {
    const own = html("b", {}, token.text);
    own.style.backgroundColor = diverging(Math.sign(td) * 0.7);
    box.append(html("span", { class: "context", dir: "auto" }, `${signed(td)}  …${before}`, own, `${after}…`));
  }
  return box;
}

/** Round numbers that cover low to high. */
function ticks(low, high, count = 4) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * power).find((x) => x >= rough);
  const found = [];
  for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-6; x += step) found.push(Math.abs(x) < step * 1e-6 ? 0 : x);
  return found;
}

const short = (x) => Number(x.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 });

function frame(width, height, xs, ys, xLabel) {
  const [left, right, top, bottom] = [44, width - 10, 8, height - 34];
  const x = (value) => left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (right - left);
  const y = (value) => bottom - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * (bottom - top);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const tick of ticks(...ys)) {
    picture.append(svg("line", { class: "axis", x1: left, x2: right, y1: y(tick), y2: y(tick) }));
    picture.append(svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  picture.append(svg("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel));
  return { picture, x, y, left, right, top, bottom };
}

function legend(entries) {
  return html("div", { class: "legend" }, ...entries.map(([name, colour]) => {
    const swatch = html("i", { class: "ramp" });
    swatch.style.cssText = `background:${colour};width:16px;margin-left:0`;
    return html("span", {}, swatch, name);
  }));
}

function drawCurves() {
  const names = [...new Set(data.curves.flatMap((curve) => curve.lines.map((line) => line.name)))];
  const colour = (name) => `var(--c${names.indexOf(name) % 6})`;
  if (names.length > 1) byId("curves").before(legend(names.map((name) => [name, colour(name)])));
  byId("curves").replaceChildren(...data.curves.map((curve) => drawCurve(curve, colour)));
  if (!data.curves.length) byId("curves").append(empty("Nothing was logged yet."));
}

function drawCurve(curve, colour) {
  const points = curve.lines.flatMap((line) => [line, ...line.runs]);
  const xs = points.flatMap((line) => line.x);
  const ys = points.flatMap((line) => line.y);
  const margin = 0.06 * (Math.max(...ys) - Math.min(...ys) || Math.abs(ys[0]) || 1);
  const [low, high] = [Math.min(...ys) - margin, Math.max(...ys) + margin];
  const box = frame(360, 190, [Math.min(...xs), Math.max(...xs)], [low, high], "step");
  for (const tick of ticks(Math.min(...xs), Math.max(...xs), 4)) {
    if (Number.isInteger(tick)) box.picture.append(svg("text", { x: box.x(tick), y: box.bottom + 14, "text-anchor": "middle" }, short(tick)));
  }
  const clamp = (y) => box.y(Math.min(Math.max(y, low), high));
  for (const line of curve.lines) {
    if (line.low) {
      const up = line.x.map((x, i) => `${box.x(x)} ${clamp(line.high[i])}`);
      const down = line.x.map((x, i) => `${box.x(x)} ${clamp(line.low[i])}`).reverse();
      const band = svg("path", { d: `M${[...up, ...down].join("L")}Z` });
      band.style.cssText = `fill:${colour(line.name)};opacity:0.16`;
      box.picture.append(band);
    }
    const paths = [...(line.runs.length > 1 ? line.runs.map((run) => [run, 1, 0.5]) : []), [line, 2.2, 1]];
    for (const [{ x, y }, width, opacity] of paths) {
      const path = svg("path", { d: `M${x.map((at, i) => `${box.x(at)} ${box.y(y[i])}`).join("L")}` });
      path.style.cssText = `fill:none;stroke:${colour(line.name)};stroke-width:${width};opacity:${opacity};stroke-linejoin:round`;
      box.picture.append(path);
    }
    if (line.x.length === 1) {
      const dot = svg("circle", { cx: box.x(line.x[0]), cy: box.y(line.y[0]), r: 3.5 });
      dot.style.fill = colour(line.name);
      box.picture.append(dot);
    }
    if (line.x.length) box.picture.append(...line.x.map((x, i) => hitOf(box, line, i)));
  }
  const last = curve.lines.map((line) => `${line.name}: ${short(line.y[0])} → ${short(line.y.at(-1))}`).join("; ");
  box.picture.setAttribute("aria-label", `${curve.title}, from first to last step. ${last}`);
  return html("figure", {}, html("h3", {}, curve.title), box.picture, html("figcaption", {}, curve.help));
}

function hitOf(box, line, i) {
  const half = line.x.length > 1 ? (box.right - box.left) / line.x.length / 2 : 12;
  const at = box.x(line.x[i]);
  const hit = svg("rect", { class: "hit", x: at - half, y: box.top, width: 2 * half, height: box.bottom - box.top });
  hit.append(svg("title", {}, `${line.name}, step ${line.x[i]}: ${short(line.y[i])}`));
  return hit;
}
