// How good: the shown trial beside the starting point and the roofs, what limits it, and why it is right.
function bars(id, label, caption, rows) {
  return chart(id, label, caption, (width) => {
    const left = Math.min(190, width * 0.4), right = width - 74, most = Math.max(...rows.map((r) => r.value), 1e-12);
    const x = linear(0, most, left, right);
    return svg(width, rows.length * 27 + 6, rows.map((row, k) => {
      const y = k * 27 + 4, end = x(row.value);
      const room = Math.floor(left / 6.6);
      return [s("text", { class: "strong", x: left - 8, y: y + 15, "text-anchor": "end" }, row.name.length > room ? row.name.slice(0, room - 1) + "…" : row.name, s("title", {}, row.name)),
        s("rect", { x: left, y: y + 2, width: Math.max(end - left, 1.5), height: 18, rx: 4, fill: row.fill, "fill-opacity": row.faint ? 0.45 : 1 }),
        row.low ? s("line", { x1: x(row.low), x2: Math.min(x(row.high), right), y1: y + 11, y2: y + 11, stroke: "var(--ink)", "stroke-width": 2 }) : null,
        s("text", { x: Math.max(end, row.low ? Math.min(x(row.high), right) : 0) + 6, y: y + 15 }, row.text)];
    }));
  });
}

function sampleStrip(trial) {
  return chart("chart-samples", "All samples of the shown trial", "Every sample, in the order in which it was taken; the band is the 95 % interval of the median.", (width) => {
    const list = trial.samples, low = Math.min(...list), high = Math.max(...list), pad = (high - low) * 0.1 || high * 0.01;
    const box = { left: 64, right: width - 8, top: 22, bottom: 130 };
    const x = linear(0, Math.max(list.length - 1, 1), box.left + 6, box.right - 6), y = linear(low - pad, high + pad, box.bottom, box.top);
    return svg(width, 150, axes(box, x, y, { yLabel: "time", yFormat: (v) => ms(v, high / low < 1.02 ? 5 : 3), xFormat: (v) => Number.isInteger(v) ? String(v + 1) : "" }),
      isFinite(trial.low) && trial.low > 0 ? s("rect", { x: box.left, width: box.right - box.left, y: y(trial.high), height: Math.max(y(trial.low) - y(trial.high), 1), fill: color(0), "fill-opacity": 0.15 }) : null,
      dots(list.map((v, k) => [x(k), y(v)]), color(0), 5));
  });
}

function certificatePart() {
  const c = data.certificate;
  if (!c) return null;
  const verdict = c.program.verdict;
  const list = (title, items) => items.length ? [h("h3", {}, title), h("ul", {}, items.map((t) => h("li", {}, t)))] : null;
  return h("div", { id: "certificate" }, h("h3", {}, "Why it is right"),
    h("p", {}, h("span", { class: "badge " + (verdict === "proved" ? "good" : verdict === "refuted" ? "bad" : "warn") }, "tile program " + verdict), " ",
      `${plural(c.steps.length, "step")} replayed, ${plural(c.dependences.length, "dependence")} checked against the final order, ${plural(c.program.facts.length + c.blocks.length + c.stages.length, "fact")} of the code's plans proved.`),
    h("details", {}, h("summary", {}, "The certificate"),
      list("Rules of algebra", c.rules.map((r) => `${r.step}: ${r.summary}. Proof: ${r.proof}. Rounding: ${r.rounding}`)),
      list("Dependences", c.dependences.map((d) => `${d.dependence} — ${d.verdict}`)),
      list("Tile program", c.program.facts), list("Warps that copy and warps that compute", c.stages), list("Threads of a block", c.blocks),
      list("Finite values needed in masked places of", c.program.finite), list("Buffers", c.buffers), list("Valid for sizes with", c.valid)));
}

function goodSection() {
  const shown = data.subject, work = data.work, roofs = data.roofs || [];
  const start = everyTrial.find((k) => originOf(k) === "starting point" && timed(k));
  const bound = roofs.reduce((a, r) => r.ms > a.ms ? r : a, { ms: 0, name: "" });
  const stats = [], rows = [];
  const stat = (value, text) => stats.push(h("div", { class: "stat" }, h("b", {}, value), h("span", {}, text)));
  if (shown) {
    stat(ms(shown.ms), shown.id === data.best ? `best: trial ${shown.id}, median of ${shown.samples.length}` : `trial ${shown.id}, median of ${shown.samples.length}`);
    rows.push({ name: shown.id === data.best ? "best" : `trial ${shown.id}`, value: shown.ms, text: ms(shown.ms), fill: color(0), low: shown.low, high: shown.high });
    if (shown.id !== data.best && bestRow >= 0) rows.push({ name: "best", value: columns.ms[bestRow], text: ms(columns.ms[bestRow]), fill: color(2) });
  }
  if (data.against) rows.push({ name: `trial ${data.against.id}`, value: data.against.ms, text: ms(data.against.ms), fill: color(3), low: data.against.low, high: data.against.high });
  if (start !== undefined) {
    rows.push({ name: "starting point", value: columns.ms[start], text: ms(columns.ms[start]), fill: color(4) });
    if (shown && shown.ms > 0) stat(`${number(columns.ms[start] / shown.ms)}×`, `faster than the starting point (${ms(columns.ms[start])})`);
  }
  if (shown && shown.ms > 0 && work) {
    stat(si(work.bytes / shown.ms * 1e3, "B/s"), "of inputs and outputs, each once");
    if (work.tensor_flops + work.scalar_flops > 0) stat(si((work.tensor_flops + work.scalar_flops) / shown.ms * 1e3, "op/s"), "of the definition");
    if (bound.ms > 0) stat(percent(bound.ms / shown.ms), `of the roof: ${bound.name}`);
  }
  for (const r of roofs) rows.push({ name: `roof: ${r.name}`, value: r.ms, text: ms(r.ms), fill: color(1), faint: r.name !== bound.name });
  const node = section("good", "How good", shown ? null : "No trial was correct yet.");
  put(node, {}, [h("div", { class: "stats" }, stats)]);
  const left = h("div", {}, rows.length ? bars("chart-times", "Times: shown trial, starting point and roofs", roofs.length ? "Least time of each part of the device for the work of the definition, and times that were measured." : "Median times. This device's identity says too little for a roof.", rows) : null);
  const limit = bound.ms > 0 && shown && shown.ms > 0 ? h("p", {}, h("b", {}, "What limits it: "), bound.ms / shown.ms > 0.8 ? `${bound.name}, at ${percent(bound.ms / shown.ms)} of what the device has.` :
    `${bound.name} would be first, but only ${percent(bound.ms / shown.ms)} of it is used: latency, waiting or work beyond the definition takes the rest.`) : null;
  const kernels = shown && shown.report && shown.report.kernels ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Kernels" }, h("table", {}, h("caption", { class: "soft" }, "What the compiler says of the kernels"), h("thead", {}, h("tr", {}, ["kernel", "registers", "shared", "threads", "blocks a unit", "local"].map((t, k) => h("th", { scope: "col", class: k ? "num" : null }, t)))),
    h("tbody", {}, shown.report.kernels.map((k) => h("tr", {}, h("td", { class: "mono wrap" }, k.name), [k.registers, si((k.shared_bytes || 0) + (k.static_shared_bytes || 0), "B"), k.threads, k.blocks_per_unit, si(k.local_bytes || 0, "B")].map((v) => h("td", { class: "num" }, v))))))) : null;
  put(node, {}, [h("div", { class: "two" }, left, h("div", {}, limit, shown && shown.samples.length > 1 ? sampleStrip(shown) : null)), kernels, certificatePart()]);
}
