// Where it stands: all trials, and the operator's other problems, under the device's roofs.
function rooflineSection() {
  const work = data.work, total = work ? work.tensor_flops + work.scalar_flops : 0;
  const shown = everyTrial.filter(timed);
  if (!work || !(work.bytes > 0) || !(total > 0) || !shown.length) return;
  const others = (data.relatives || []).map((r) => ({ ...r, flops: r.work.tensor_flops + r.work.scalar_flops })).filter((r) => r.flops > 0 && r.work.bytes > 0);
  const points = [...shown.map((k) => ({ x: total / work.bytes, y: total / columns.ms[k] * 1e3, k })), ...others.map((r) => ({ x: r.flops / r.work.bytes, y: r.flops / r.ms * 1e3, other: r }))];
  let memory = (data.roofs || []).find((r) => r.name === "memory"), flat = (data.roofs || []).filter((r) => r.name !== "memory" && r.name !== "special functions");
  const seen = !memory;
  if (seen) {
    memory = { name: "fastest bytes of any trial", per_second: Math.max(...points.map((p) => p.y / p.x)) };
    flat = [{ name: "most operations of any trial", per_second: Math.max(...points.map((p) => p.y)) }];
  }
  const caption = seen ? "This device's identity says too little for its roofs: the dashed lines are the best that any trial here reached." : "Roofs follow from the clocks and widths in the device's identity. Operations and bytes are those of the definition: inputs and outputs, each once.";
  section("roofline", "Where it stands", `${number(total / work.bytes)} operations a byte${work.exact ? "" : " (instances counted by samples)"}.`,
    chart("chart-roofline", "Roofline of all trials", caption, (width) => {
      const box = { left: 72, right: width - 12, top: 24, bottom: 300 };
      const xs = points.map((p) => p.x), ys = [...points.map((p) => p.y), ...flat.map((f) => f.per_second)];
      const x = logarithmic(Math.min(...xs) / 4, Math.max(...xs, ...flat.map((f) => f.per_second / memory.per_second)) * 3, box.left, box.right);
      const low = Math.min(...points.map((p) => p.y)) / 2, high = Math.max(...ys) * 1.8, y = logarithmic(low, high, box.bottom, box.top);
      const from = Math.max(Math.min(...xs) / 4, low / memory.per_second), most = Math.max(...flat.map((f) => f.per_second)), knee = most / memory.per_second, dash = seen ? "5 4" : null;
      const slope = s("line", { x1: x(from), y1: y(from * memory.per_second), x2: x(knee), y2: y(most), stroke: color(1), "stroke-width": 2, "stroke-dasharray": dash });
      const picture = svg(width, 340, axes(box, x, y, { xLabel: "operations a byte", yLabel: "operations a second", yFormat: (v) => si(v, ""), xFormat: number }), slope,
        s("text", { x: (x(from) + x(knee)) / 2 + 12, y: (y(from * memory.per_second) + y(most)) / 2 + 14 }, `${memory.name}, ${si(memory.per_second, "B/s")}`),
        flat.filter((f) => f.per_second > low && f.per_second < high).map((f) => [s("line", { x1: x(f.per_second / memory.per_second), x2: box.right, y1: y(f.per_second), y2: y(f.per_second), stroke: color(1), "stroke-width": 2, "stroke-dasharray": dash }), s("text", { x: box.right, y: y(f.per_second) - 6, "text-anchor": "end" }, `${f.name}, ${si(f.per_second, "op/s")}`)]),
        dots(points.filter((p) => p.other).map((p) => [x(p.x), y(p.y)]), color(4), 6, { "stroke-opacity": 0.6 }),
        dots(points.filter((p) => !p.other).map((p) => [x(p.x), y(p.y)]), color(2), 6, { "stroke-opacity": 0.7 }),
        subjectRow >= 0 && timed(subjectRow) ? s("circle", { cx: x(total / work.bytes), cy: y(total / columns.ms[subjectRow] * 1e3), r: 7, fill: color(0), stroke: "var(--card)", "stroke-width": 2 }) : null);
      picture.addEventListener("pointermove", (event) => {
        const area = picture.getBoundingClientRect(), px = event.clientX - area.left, py = event.clientY - area.top;
        const near = points.map((p) => [(x(p.x) - px) ** 2 + (y(p.y) - py) ** 2, p]).reduce((a, b) => b[0] < a[0] ? b : a, [160, null])[1];
        showTip(event, !near ? "" : near.other ? `${near.other.variant} at ${near.other.sizes}: ${ms(near.other.ms)}` : trialText(near.k));
      });
      picture.addEventListener("pointerleave", hideTip);
      return picture;
    }), legend([["the shown trial", color(0)], ["trials of this problem", color(2)], ...(others.length ? [["best of the operator's other problems", color(4)]] : []), ["roofs", color(1)]]));
}
