// What it does: cells of two loops, full, partial or empty; the order of visits on a slider; what depends on what.
function decodeCells(pair) {
  let text = "";
  for (const [, kind, run] of pair.cells.matchAll(/([efp])(\d+)/g)) text += kind.repeat(+run);
  return text;
}
// Of a legal order only what an outer loop carries, or a rule relaxes, points against the order of visits.
const backwards = ([da, db]) => da < 0 || (da === 0 && db < 0);
const concurrent = (loop) => loop.kind === "parallel" || loop.kind === "gpu_block" || loop.kind === "gpu_lane";

// Visits: each block has an order of its own, blocks run at once.
function visitsOf(space, pair, cells) {
  const a = space.loops[pair.a], b = space.loops[pair.b], progress = new Map(), list = [];
  for (let r = 0; r < pair.rows; ++r) for (let c = 0; c < pair.columns; ++c) {
    if (cells[r * pair.columns + c] === "e") continue;
    const block = (concurrent(a) ? r : 0) * 100000 + (concurrent(b) ? c : 0), step = progress.get(block) || 0;
    progress.set(block, step + 1);
    list.push({ r, c, block: concurrent(a) ? r : concurrent(b) ? c : 0, step });
  }
  return { list, steps: Math.max(0, ...progress.values()), blocks: progress.size };
}

function spaceSection() {
  const spaces = data.spaces || [];
  if (!spaces.length) return;
  const mixed = (pair) => new Set(pair.cells.replace(/\d/g, "")).size;
  // Cells of several kinds say more than others, and squares more than stripes.
  const pairInterest = (p) => mixed(p) * 1000 + Math.min(p.rows, p.columns, 64);
  const interest = (sp) => Math.max(...sp.pairs.map(pairInterest)) * 10 + sp.statements.length;
  const state = { space: spaces.reduce((a, sp, k) => interest(sp) > interest(spaces[a]) ? k : a, 0), pair: 0, step: 0, arrows: true };
  const usual = () => spaces[state.space].pairs.reduce((a, p, k, all) => pairInterest(p) >= pairInterest(all[a]) ? k : a, 0);
  state.pair = usual();
  const slider = h("input", { type: "range", min: 0, value: 0, "aria-label": "Visits so far" }), told = h("span", { class: "soft", role: "status" }), facts = h("div", { class: "stats" }), notes = h("div", {});
  const now = () => {
    const space = spaces[state.space], pair = space.pairs[state.pair];
    return { space, pair, a: space.loops[pair.a], b: space.loops[pair.b] };
  };
  let cells = "", visits = { list: [], steps: 0, blocks: 0 };
  const name = (loop) => loop.dim ? `${loop.name} (of ${loop.dim})` : loop.name;
  const value = (loop, at) => loop.first + at;
  const where = (loop, at) => !loop.dim ? "" : Math.abs(loop.scale) === 1 ? `${loop.dim} = ${loop.scale * value(loop, at) + loop.offset}` : `${loop.dim} from ${loop.scale * value(loop, at) + loop.offset}`;
  // Loops that run backwards are drawn along their dim.
  const drawn = (loop, shown, at) => loop.scale < 0 ? shown - 1 - at : at;

  const figure = chart("chart-space", "Iteration space of two loops: full, partial and empty cells, and the order of visits", null, (width) => {
    const { space, pair, a, b } = now();
    const left = 46, top = 34, size = Math.max(2, Math.min(30, (Math.min(width - left - 8, 620)) / pair.columns, 460 / pair.rows));
    const wide = pair.columns * size, tall = pair.rows * size, rects = { f: "", p: "", e: "" };
    const px = (c) => left + drawn(b, pair.columns, c) * size, py = (r) => top + drawn(a, pair.rows, r) * size, gap = size > 6 ? 1 : 0;
    for (let r = 0; r < pair.rows; ++r) for (let c = 0; c < pair.columns; ++c) rects[cells[r * pair.columns + c]] += `M${px(c).toFixed(2)} ${py(r).toFixed(2)}h${(size - gap).toFixed(2)}v${(size - gap).toFixed(2)}h${(gap - size).toFixed(2)}z`;
    const paths = Array.from({ length: 6 }, () => ""), current = [];
    if (state.step > 0) for (const v of visits.list) {
      if (v.step >= state.step) continue;
      const inset = size * 0.18, side = size - 2 * inset - gap;
      paths[v.block % 6] += `M${(px(v.c) + inset).toFixed(2)} ${(py(v.r) + inset).toFixed(2)}h${side.toFixed(2)}v${side.toFixed(2)}h${(-side).toFixed(2)}z`;
      if (v.step === state.step - 1) current.push(v);
    }
    const arrows = [];
    if (state.arrows) {
      const at = current.length ? current[Math.floor(current.length / 2)] : visits.list[Math.floor(visits.list.length / 2)], drawnDeltas = new Set();
      if (at) pair.arrows.forEach((arrow) => arrow.deltas.forEach(([da, db]) => {
        if (drawnDeltas.has(da + "," + db)) return;
        drawnDeltas.add(da + "," + db);
        const reach = Math.max(size, 22) / size, x1 = px(at.c) + size / 2, y1 = py(at.r) + size / 2;
        const x2 = x1 + (b.scale < 0 ? -db : db) * size * reach, y2 = y1 + (a.scale < 0 ? -da : da) * size * reach;
        arrows.push(s("line", { x1, y1, x2, y2, stroke: "var(--ink)", "stroke-width": 2, "stroke-dasharray": backwards([da, db]) ? "3 2" : null, "marker-end": "url(#head)" }));
      }));
    }
    const picture = svg(width, top + tall + 22, s("defs", {}, s("marker", { id: "head", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", fill: "var(--ink)" }))),
      s("text", { x: left, y: 12, class: "strong" }, `${name(b)} →`), s("text", { x: 0, y: top - 8, class: "strong" }, `${name(a)} ↓`),
      s("path", { d: rects.e, fill: "var(--empty)", "shape-rendering": "crispEdges" }), s("path", { "shape-rendering": "crispEdges", d: rects.f, fill: "var(--full)", "fill-opacity": state.step > 0 ? 0.3 : 0.9 }), s("path", { "shape-rendering": "crispEdges", d: rects.p, fill: "var(--partial)", "fill-opacity": state.step > 0 ? 0.45 : 0.95 }),
      paths.map((d, k) => d ? s("path", { d, fill: color([0, 2, 3, 6, 5, 1][k]) }) : null), arrows,
      s("text", { x: left, y: top + tall + 16 }, where(b, b.scale < 0 ? pair.columns - 1 : 0)), s("text", { x: left + wide, y: top + tall + 16, "text-anchor": "end" }, pair.columns > 1 && wide > 150 ? where(b, b.scale < 0 ? 0 : pair.columns - 1) : ""));
    picture.addEventListener("pointermove", (event) => {
      const area = picture.getBoundingClientRect(), c = Math.floor((event.clientX - area.left - left) / size), r = Math.floor((event.clientY - area.top - top) / size);
      if (c < 0 || r < 0 || c >= pair.columns || r >= pair.rows) return hideTip();
      const row = drawn(a, pair.rows, r), col = drawn(b, pair.columns, c), kind = { e: "empty: never visited", p: "partial", f: "full" }[cells[row * pair.columns + col]];
      showTip(event, `${a.name} = ${value(a, row)}, ${b.name} = ${value(b, col)}: ${kind}\n${[where(a, row), where(b, col)].filter(Boolean).join(", ")}`);
    });
    picture.addEventListener("pointerleave", hideTip);
    return picture;
  });

  const tell = () => {
    told.textContent = state.step === 0 ? "all cells" : `after ${plural(state.step, "visit")} of ${visits.steps.toLocaleString("en")}${visits.blocks > 1 ? ", all blocks at once" : ""}`;
    slider.setAttribute("aria-valuetext", told.textContent);
  };
  const prepare = () => {
    const { space, pair, a, b } = now();
    cells = decodeCells(pair);
    visits = visitsOf(space, pair, cells);
    state.step = 0;
    slider.max = visits.steps;
    slider.value = 0;
    const total = (kind) => cells.split(kind).length - 1, box = (v, t, fill) => h("div", { class: "stat" }, h("b", {}, v.toLocaleString("en")), h("span", {}, fill ? h("i", { class: "mark", style: `background:${fill}` }) : null, t));
    clear(facts, box(total("f"), "full cells: nothing to test", null), box(total("p"), "partial: instances are tested", null), box(total("e"), "empty: never visited", null), box(visits.blocks, visits.blocks === 1 ? "order of visits, one after the other" : "blocks or tasks, at the same time", null));
    const cut = [[a, pair.rows], [b, pair.columns]].filter(([loop, shown]) => loop.count > shown).map(([loop, shown]) => `the first ${shown} of ${loop.count.toLocaleString("en")} iterations of ${loop.name}`);
    clear(notes, cut.length ? h("p", { class: "soft" }, "Drawn: " + cut.join(" and ") + ".") : null, h("h3", {}, "Dependences between cells"), pair.arrows.length ? h("ul", { class: "soft" }, pair.arrows.map((d) => h("li", {}, d.text, d.far ? " — reaches cells beyond its neighbours, too" : "", d.deltas.some(backwards) ? " — dashed: also against the order of visits, which an outer loop carries or a rule of algebra relaxes" : ""))) : h("p", { class: "soft" }, "None: cells of these two loops do not wait for each other."));
    tell();
    if (figure.isConnected) figure.redraw();
  };
  slider.addEventListener("input", () => { state.step = +slider.value; tell(); figure.redraw(); });
  const pairs = choice("Loops", [], 0, (v) => { state.pair = +v; prepare(); });
  const listPairs = () => clear(pairs.select, spaces[state.space].pairs.map((p, k) => h("option", { value: k, selected: k === state.pair }, `${spaces[state.space].loops[p.a].name} × ${spaces[state.space].loops[p.b].name}`)));
  const which = choice("Statements", spaces.map((sp, k) => [k, sp.statements.join(", ")]), state.space, (v) => { state.space = +v; state.pair = usual(); listPairs(); prepare(); });
  listPairs();
  prepare();
  section("space", "What it does", "An iteration of two loops is a cell. Move the slider to see the order of visits; colours tell blocks apart.",
    h("div", { class: "row noprint" }, which, pairs, h("label", {}, h("input", { type: "checkbox", checked: true, onchange: (event) => { state.arrows = event.target.checked; figure.redraw(); } }), "arrows")),
    h("div", { class: "two" }, h("div", {}, h("div", { class: "row noprint" }, slider, told), figure, legend([["full", "var(--full)"], ["partial", "var(--partial)"], ["empty", "var(--empty)"], ["a dependence from one cell", "var(--ink)"]])), h("div", {}, facts, notes)));
}
