// How its warps share time: events of each role, the units behind them, and stages of shared memory as lanes.
function warpsSection() {
  const kernels = data.warps || [];
  if (!kernels.length) return;
  const fills = { wait: "var(--grid)", product: color(0), compute: color(1), copy: color(2), held: color(6) };
  kernels.forEach((kernel, index) => {
    const state = { from: 0, zoom: 1 };
    const cut = kernel.gap ? kernel.gap[1] - kernel.gap[0] : 0, length = kernel.clocks - cut;
    const moved = (t) => kernel.gap && t >= kernel.gap[1] ? t - cut : t;
    state.zoom = Math.max(1, Math.min(64, length / 14000));
    const figure = chart(`chart-warps-${index}`, "Time of the roles of a block: producer, warpgroups, tensor cores and stages of shared memory", "One work tile of the grid's middle block. The order is what barriers, stages and turns allow; lengths are estimates from the chip's rates, not measurements.", (width) => {
      const left = Math.min(118, width * 0.3), right = width - 8, row = 24, top = 24, window_ = length / state.zoom, begin = state.from * (length - window_);
      const x = linear(begin, begin + window_, left, right), groups = new Map(), labels = [];
      for (const [lane, start, span, kind, text] of kernel.spans) {
        const t = moved(start), end = t + span;
        if (end < begin || t > begin + window_) continue;
        const x1 = Math.max(left, x(t)), x2 = Math.min(right, x(end)), name = kernel.kinds[kind], y = top + lane * row + 3;
        const key = name;
        groups.set(key, (groups.get(key) || "") + `M${x1.toFixed(1)} ${y}h${Math.max(x2 - x1 - 0.5, 0.6).toFixed(1)}v${row - 6}H${x1.toFixed(1)}z`);
        const room = Math.floor((x2 - x1 - 6) / 6.2), words = kernel.texts[text];
        if (room > 4) labels.push(s("text", { x: x1 + 4, y: y + 13, style: `fill:${name === "wait" ? "var(--soft)" : "var(--card)"}` }, words.length > room ? words.slice(0, room - 1) + "…" : words));
      }
      const picture = svg(width, top + kernel.lanes.length * row + 26,
        kernel.lanes.map(([name, kind], k) => [k % 2 ? null : s("rect", { x: 0, width, y: top + k * row, height: row, fill: "var(--code)" }), s("text", { class: kind === "role" ? "strong" : "", x: left - 8, y: top + k * row + 16, "text-anchor": "end" }, name)]),
        x.ticks(Math.max(2, Math.floor(width / 160))).map((v) => [s("line", { class: "grid", x1: x(v), x2: x(v), y1: top, y2: top + kernel.lanes.length * row }), s("text", { x: x(v), y: top + kernel.lanes.length * row + 16, "text-anchor": "middle" }, `${number(v)} clocks`)]),
        [...groups].map(([kind, d]) => s("path", { d, fill: fills[kind], "fill-opacity": kind === "held" ? 0.75 : 0.95 })), labels,
        kernel.gap && kernel.gap[0] > begin && kernel.gap[0] < begin + window_ ? s("line", { x1: x(kernel.gap[0]), x2: x(kernel.gap[0]), y1: top, y2: top + kernel.lanes.length * row, stroke: "var(--bad)", "stroke-dasharray": "3 3", "stroke-width": 2 }) : null);
      picture.addEventListener("pointermove", (event) => {
        const area = picture.getBoundingClientRect(), lane = Math.floor((event.clientY - area.top - top) / row), t = begin + (event.clientX - area.left - left) / (right - left) * window_;
        const hit = kernel.spans.filter((sp) => sp[0] === lane && moved(sp[1]) <= t && moved(sp[1]) + sp[2] >= t).pop();
        showTip(event, hit ? `${kernel.texts[hit[4]]}\n${kernel.kinds[hit[3]]}, about ${number(hit[2])} clocks` : "");
      });
      picture.addEventListener("pointerleave", hideTip);
      return picture;
    });
    const zoom = h("input", { type: "range", min: 0, max: 6, step: 0.1, value: Math.log2(state.zoom), "aria-label": "Zoom of the timeline", oninput: (event) => { state.zoom = 2 ** +event.target.value; figure.redraw(); } });
    const move = h("input", { type: "range", min: 0, max: 1, step: 0.002, value: 0, "aria-label": "Position in the timeline", oninput: (event) => { state.from = +event.target.value; figure.redraw(); } });
    const busy = (name) => {
      const lane = kernel.lanes.findIndex(([n]) => n === name), spans = kernel.spans.filter((sp) => sp[0] === lane);
      return lane < 0 || !spans.length ? null : h("div", { class: "stat" }, h("b", {}, percent(spans.reduce((a, sp) => a + sp[2], 0) / length)), h("span", {}, `${name} busy, in this estimate`));
    };
    section(index ? `warps-${index}` : "warps", index ? `Warps of kernel ${index + 1}` : "How its warps share time", `${kernel.symbol}: ${plural(kernel.warpgroups, "warpgroup")} that compute, ${kernel.threads} threads, ${si(kernel.shared_bytes, "B")} of shared memory.`,
      h("div", { class: "stats" }, busy("tensor cores"), busy("copies"), h("div", { class: "stat" }, h("b", {}, number(kernel.clocks)), h("span", {}, "clocks for a work tile, estimated"))),
      h("div", { class: "row noprint" }, h("label", { style: "flex:1 1 14rem" }, "zoom", zoom), h("label", { style: "flex:1 1 14rem" }, "position", move)), figure,
      legend([["product on tensor cores", fills.product], ["computing", fills.compute], ["copy under way", fills.copy], ["tile held in a stage", fills.held], ["waiting", "var(--line)"], ...(kernel.gap ? [["middle left out", "var(--bad)"]] : [])]));
  });
}
