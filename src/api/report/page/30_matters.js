// What matters: parallel coordinates to brush, the effect of each parameter, pairs as heat maps.
const brush = new Map();  // parameter -> [first, last] positions among its values
const listeners = [];     // called when the brush changes

function valuesOf(name) {
  return [...new Set(columns.parameters[name].filter((v) => v !== null))].sort((a, b) => a - b);
}
const parameterValues = Object.fromEntries(parameterNames.map((name) => [name, valuesOf(name)]));
const positionOf = Object.fromEntries(parameterNames.map((name) => [name, new Map(parameterValues[name].map((v, k) => [v, k]))]));
const passes = (k) => [...brush].every(([name, [low, high]]) => {
  const at = positionOf[name].get(columns.parameters[name][k]);
  return at !== undefined && at >= low && at <= high;
});
function setBrush(name, range) {
  if (range) brush.set(name, range); else brush.delete(name);
  for (const listener of listeners) listener();
}

// Best time for every value of a parameter; its effect is how far the best values lie apart.
function bestByValue(name) {
  const best = new Map();
  for (const k of everyTrial) {
    const value = columns.parameters[name][k];
    if (timed(k) && value !== null && !(best.get(value) <= columns.ms[k])) best.set(value, columns.ms[k]);
  }
  return best;
}
const effects = parameterNames.map((name) => {
  const best = [...bestByValue(name).values()];
  return { name, factor: best.length > 1 ? Math.max(...best) / Math.min(...best) : 1 };
}).sort((a, b) => b.factor - a.factor);

function parallelCoordinates() {
  const axesShown = effects.filter((e) => parameterValues[e.name].length > 1).slice(0, 10).map((e) => e.name);
  const rows = everyTrial.filter(timed).sort((a, b) => columns.ms[b] - columns.ms[a]);
  const times = rows.map((k) => columns.ms[k]), low = times[times.length - 1], high = times[0];
  const label = "Parallel coordinates: every trial is a line through the values of its parameters";
  const figure = chart("chart-coordinates", label, "The ten parameters with the largest effect, and the time. Drag along an axis to keep a range; click it to let go. Blue is fast.", (width) => {
    const names = axesShown.slice(0, Math.max(2, Math.min(axesShown.length, Math.floor(width / 72))));
    const height = 300, top = 46, bottom = height - 14, left = 34, right = width - 58;
    const x = (k) => left + k * (right - left) / names.length, y = logarithmic(low * 0.98, high * 1.02, bottom, top);
    const place = (name, k) => {
      const list = parameterValues[name], at = positionOf[name].get(columns.parameters[name][k]);
      return at === undefined ? bottom + 8 : bottom - (at + 0.5) / list.length * (bottom - top);
    };
    const canvas = h("canvas", { role: "img", "aria-label": label, height: 1 }), ratio = Math.min(devicePixelRatio || 1, 2);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    const shades = [computed("--c4"), computed("--c1"), computed("--c2"), computed("--c0")];
    function paint() {
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      const kept = brush.size ? rows.filter(passes) : rows;
      const share = (k) => Math.min(3, Math.floor((1 - Math.log(columns.ms[k] / low) / Math.max(Math.log(high / low), 1e-9)) * 3.999));
      const line = (list, stroke, alpha, thick) => {
        pen.strokeStyle = stroke; pen.globalAlpha = alpha; pen.lineWidth = thick;
        for (const k of list) {
          pen.beginPath();
          names.forEach((name, n) => pen[n ? "lineTo" : "moveTo"](x(n), place(name, k)));
          pen.lineTo(x(names.length), y(columns.ms[k]));
          pen.stroke();
        }
      };
      if (brush.size) line(rows.slice(-1500), computed("--line"), 0.25, 1);
      const dense = Math.max(0.12, Math.min(0.8, 120 / Math.max(kept.length, 1)));
      for (let c = 0; c < 4; ++c) line(kept.filter((k) => share(k) === c), shades[c], c === 3 ? Math.min(1, dense * 2) : dense, c === 3 ? 1.5 : 1);
      if (bestRow >= 0) line([bestRow], computed("--ink"), 1, 2.2);
      pen.globalAlpha = 1; pen.fillStyle = computed("--soft"); pen.font = "11px system-ui, sans-serif"; pen.textAlign = "center";
      const haloed = (text, px, py) => {
        pen.strokeStyle = computed("--card"); pen.lineWidth = 3.5; pen.lineJoin = "round";
        pen.strokeText(text, px, py); pen.fillText(text, px, py);
      };
      [...names, "time"].forEach((name, n) => {
        pen.strokeStyle = computed("--soft"); pen.lineWidth = 1;
        pen.beginPath(); pen.moveTo(x(n), top); pen.lineTo(x(n), bottom); pen.stroke();
        const room = Math.floor((right - left) / names.length / 5.8);
        pen.fillText(name.length > room ? name.slice(0, room - 1) + "…" : name, x(n), n % 2 ? 14 : 30);
        if (n < names.length) {
          const list = parameterValues[name], every = Math.ceil(list.length / 12);
          list.forEach((v, k) => { if (k % every === 0) haloed(String(v), x(n) - 14, bottom - (k + 0.5) / list.length * (bottom - top) + 4); });
          const range = brush.get(name);
          if (range) {
            pen.fillStyle = computed("--accent"); pen.globalAlpha = 0.3;
            pen.fillRect(x(n) - 8, bottom - (range[1] + 1) / list.length * (bottom - top), 16, (range[1] - range[0] + 1) / list.length * (bottom - top));
            pen.globalAlpha = 1; pen.fillStyle = computed("--soft");
          }
        }
      });
      pen.textAlign = "left";
      for (const v of y.ticks(5)) pen.fillText(ms(v), right + 4, y(v) + 4);
    }
    let from = null;
    const where = (event) => {
      const area = canvas.getBoundingClientRect(), n = Math.round((event.clientX - area.left - left) / (right - left) * names.length);
      if (n < 0 || n >= names.length) return null;
      const list = parameterValues[names[n]], at = Math.floor((bottom - (event.clientY - area.top)) / (bottom - top) * list.length);
      return { name: names[n], at: Math.max(0, Math.min(list.length - 1, at)) };
    };
    canvas.style.touchAction = "pan-y";
    canvas.addEventListener("pointerdown", (event) => { from = where(event); });
    canvas.addEventListener("pointerup", (event) => {
      const to = where(event);
      if (from && to && from.name === to.name) {
        const range = [Math.min(from.at, to.at), Math.max(from.at, to.at)], old = brush.get(from.name);
        setBrush(from.name, old && from.at === to.at ? null : range);
      }
      from = null;
    });
    paint();
    figure.paint = paint;
    return canvas;
  });
  listeners.push(() => figure.paint && figure.paint());
  return figure;
}

function brushForm() {
  const names = effects.map((e) => e.name), status = h("span", { class: "soft", role: "status" });
  const from = h("select", { "aria-label": "Smallest value kept" }), to = h("select", { "aria-label": "Largest value kept" });
  const fill = () => {
    const list = parameterValues[which.select.value], range = brush.get(which.select.value) || [0, list.length - 1];
    clear(from, list.map((v, k) => h("option", { value: k, selected: k === range[0] }, v)));
    clear(to, list.map((v, k) => h("option", { value: k, selected: k === range[1] }, v)));
  };
  const which = choice("Keep", names.map((n) => [n, n]), names[0], fill);
  const apply = () => setBrush(which.select.value, [Math.min(+from.value, +to.value), Math.max(+from.value, +to.value)]);
  from.addEventListener("change", apply);
  to.addEventListener("change", apply);
  const update = () => { fill(); status.textContent = brush.size ? `${plural(everyTrial.filter(passes).length, "trial")} kept` : "all trials"; };
  listeners.push(update);
  update();
  return h("div", { class: "row noprint", role: "group", "aria-label": "Ranges of parameters to keep" }, which, h("span", { class: "soft" }, "from"), from, h("span", { class: "soft" }, "to"), to,
    h("button", { type: "button", onclick: () => { brush.clear(); setBrush(names[0], null); } }, "Keep all"), status);
}

function effectChart(name, number_) {
  const best = bestByValue(name), list = parameterValues[name].filter((v) => best.has(v)), all = [...best.values()];
  const low = Math.min(...all), winner = bestRow >= 0 ? columns.parameters[name][bestRow] : null;
  // Trials that differ from the winner in this parameter alone say most.
  const alone = everyTrial.filter((k) => timed(k) && k !== bestRow && bestRow >= 0 && columns.parameters[name][k] !== null && parameterNames.every((other) => other === name || columns.parameters[other][k] === columns.parameters[other][bestRow]));
  return chart(`chart-effect-${number_}`, `Effect of ${name}`, null, (width) => {
    const box = { left: 40, right: width - 8, top: 24, bottom: 104 }, high = Math.max(Math.min(Math.max(...all) / low, 6), 1.05);
    const x = (v) => box.left + (list.indexOf(v) + 0.5) * (box.right - box.left) / list.length, y = linear(1, high, box.bottom, box.top);
    const clip = (v) => y(Math.min(v / low, high));
    const every = Math.ceil(list.length / Math.max(3, Math.floor(width / 34)));
    return svg(width, 126, s("text", { class: "strong", x: 0, y: 12 }, name), y.ticks(3).map((v) => [s("line", { class: "grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }), s("text", { x: box.left - 5, y: y(v) + 4, "text-anchor": "end" }, number(v) + "×")]),
      s("polyline", { points: list.map((v) => `${x(v)},${clip(best.get(v))}`).join(" "), fill: "none", stroke: color(4), "stroke-width": 1.5 }),
      list.map((v) => s("circle", { cx: x(v), cy: clip(best.get(v)), r: v === winner ? 5 : 3, fill: v === winner ? color(0) : color(4) }, s("title", {}, `${name} = ${v}: best ${ms(best.get(v))}`))),
      dots(alone.map((k) => [x(columns.parameters[name][k]), clip(columns.ms[k])]), color(1), 5),
      list.map((v, k) => k % every ? null : s("text", { x: x(v), y: box.bottom + 16, "text-anchor": "middle" }, v)));
  });
}

function heatMap() {
  const names = effects.filter((e) => parameterValues[e.name].length > 1).map((e) => e.name);
  if (names.length < 2) return null;
  const chosen = { a: names[0], b: names[1] };
  const figure = chart("chart-heat", "Heat map: best time for every pair of values of two parameters", "Best time of all trials with both values, as a factor of the best of all; empty: no such trial has a time.", (width) => {
    const rows = parameterValues[chosen.a], cols = parameterValues[chosen.b], cells = new Map();
    for (const k of everyTrial) {
      const a = columns.parameters[chosen.a][k], b = columns.parameters[chosen.b][k], key = a + "/" + b;
      if (timed(k) && a !== null && b !== null && !(cells.get(key) <= columns.ms[k])) cells.set(key, columns.ms[k]);
    }
    const low = Math.min(...cells.values()), high = Math.max(Math.min(Math.max(...cells.values()), 4 * low), low * 1.01), left = 58, top = 26;
    const w = Math.min((width - left - 4) / cols.length, 74), tall = Math.min(30, Math.max(14, 300 / rows.length));
    const shade = (v) => 1 - 0.88 * Math.min(1, Math.log(v / low) / Math.log(high / low));
    return svg(width, top + rows.length * tall + 8, s("text", { x: left, y: 9 }, `${chosen.b} →`),
      cols.map((b, c) => c % Math.ceil(cols.length * 34 / width) ? null : s("text", { x: left + (c + 0.5) * w, y: top - 5, "text-anchor": "middle" }, b)),
      rows.map((a, r) => [s("text", { x: left - 6, y: top + (r + 0.5) * tall + 4, "text-anchor": "end" }, a), cols.map((b, c) => {
        const v = cells.get(a + "/" + b);
        const cell = s("rect", { x: left + c * w, y: top + r * tall, width: Math.max(w - 2, 1), height: tall - 2, rx: 3, fill: v ? color(0) : "var(--grid)", "fill-opacity": v ? shade(v) : 0.6 }, s("title", {}, `${chosen.a} = ${a}, ${chosen.b} = ${b}: ${v ? ms(v) : "no time"}`));
        const ink = v && shade(v) > (document.documentElement.dataset.theme === "dark" ? 0.68 : 0.5) ? "var(--card)" : "var(--ink)";
        return [cell, v && w > 38 && tall > 17 ? s("text", { x: left + (c + 0.5) * w - 1, y: top + (r + 0.5) * tall + 3, "text-anchor": "middle", style: `fill:${ink}` }, number(v / low, 3) + "×") : null];
      })]));
  });
  return [h("h3", {}, "Pairs"), h("div", { class: "row noprint" }, choice("rows", names.map((n) => [n, n]), chosen.a, (v) => { chosen.a = v; figure.redraw(); }), choice("columns", names.map((n) => [n, n]), chosen.b, (v) => { chosen.b = v; figure.redraw(); })), figure];
}

function mattersSection() {
  const several = effects.filter((e) => parameterValues[e.name].length > 1 && bestByValue(e.name).size > 1);
  const constant = Object.entries(columns.constant || {}).map(([name, value]) => `${name} ${value}`);
  const node = section("matters", "What matters", null);
  if (!several.length) {
    put(node, {}, [h("p", { class: "soft" }, count > 1 ? "No parameter has trials with two values: there is nothing to compare yet." : "One trial alone compares with nothing: search on to see what matters."),
      data.subject ? h("details", {}, h("summary", {}, "Parameters of this trial"), h("p", { class: "mono" }, Object.entries(data.subject.parameters).map(([n, v]) => `${n} ${v}`).join(", ") || "none: the schedule was made by hand")) : null]);
    return;
  }
  const shown = several.slice(0, 12);
  put(node, {}, [brushForm(), parallelCoordinates(), h("h3", {}, "Effect of each parameter around the winner"),
    h("p", { class: "soft" }, "Best time with each value, as a factor of the best of all. Blue is the winner's value; orange trials differ from the winner in this parameter alone."),
    h("div", { class: "many", id: "effects" }, shown.map((e, k) => effectChart(e.name, k))), several.length > shown.length ? h("p", { class: "soft" }, `${several.length - shown.length} parameters with a smaller effect are left out here.`) : null,
    heatMap(), constant.length ? h("details", {}, h("summary", {}, `${plural(constant.length, "parameter")} with one value in all trials`), h("p", { class: "mono" }, constant.join(", "))) : null]);
}
