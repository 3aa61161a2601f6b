// How it was found: convergence, failures by reason, time by stage.
function convergence(by) {
  return chart("chart-convergence", "Convergence: time of every trial, and the best so far", null, (width) => {
    const box = { left: 66, right: width - 10, top: 24, bottom: 260 };
    const shown = everyTrial.filter(timed), at = (k) => by.value === "seconds" ? columns.seconds[k] : k + 1;
    if (!shown.length) return h("p", { class: "soft" }, "No trial has a time yet.");
    const times = shown.map((k) => columns.ms[k]), low = Math.min(...times) * 0.92, high = Math.max(...times) * 1.08;
    const x = linear(by.value === "seconds" ? 0 : 1, Math.max(at(count - 1), 2), box.left + 6, box.right - 6), y = logarithmic(low, high, box.bottom, box.top);
    const groups = columns.origins.map((_, o) => dots(shown.filter((k) => columns.origin[k] === o).map((k) => [x(at(k)), y(columns.ms[k])]), color(o), count > 2000 ? 3 : 5.5, { "stroke-opacity": 0.75 }));
    const failed = dots(everyTrial.filter((k) => !timed(k)).map((k) => [x(at(k)), box.bottom + 5]), "var(--bad)", 4, { "stroke-opacity": 0.6 });
    let best = Infinity, line = "";
    for (const k of shown) {
      if (statusOf(k) !== "ok" || columns.ms[k] >= best) continue;
      line += line ? `H${x(at(k)).toFixed(1)}V${y(columns.ms[k]).toFixed(1)}` : `M${x(at(k)).toFixed(1)} ${y(columns.ms[k]).toFixed(1)}`;
      best = columns.ms[k];
    }
    if (line) line += `H${box.right}`;
    const picture = svg(width, 300, axes(box, x, y, { xLabel: by.value === "seconds" ? "seconds since the first trial" : "trials", yLabel: "time (logarithmic)", yFormat: ms, xFormat: (v) => number(v) }), groups, failed,
      s("path", { d: line, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }));
    picture.addEventListener("pointermove", (event) => {
      const area = picture.getBoundingClientRect(), px = (event.clientX - area.left) * width / area.width, py = (event.clientY - area.top) * width / area.width;
      let near = -1, least = 200;
      for (const k of everyTrial) {
        const d = (x(at(k)) - px) ** 2 + ((timed(k) ? y(columns.ms[k]) : box.bottom + 5) - py) ** 2;
        if (d < least) least = d, near = k;
      }
      showTip(event, near < 0 ? "" : trialText(near));
    });
    picture.addEventListener("pointerleave", hideTip);
    return picture;
  });
}

function failures() {
  const groups = new Map();
  for (const k of everyTrial) {
    if (statusOf(k) === "ok") continue;
    const reason = columns.reasons[columns.reason[k]].replace(/[-+]?\d[\d.,]*(e[-+]?\d+)?/g, "#");
    const key = statusOf(k) + "\n" + reason;
    if (!groups.has(key)) groups.set(key, { status: statusOf(k), reason, rows: [] });
    groups.get(key).rows.push(k);
  }
  const list = [...groups.values()].sort((a, b) => b.rows.length - a.rows.length);
  if (!list.length) return h("p", { class: "soft" }, "Every trial was correct and measured in full.");
  return h("div", { class: "scroll", id: "failures", tabindex: 0, role: "region", "aria-label": "Trials that failed or were cut, by reason" },
    h("table", {}, h("thead", {}, h("tr", {}, ["trials", "what", "reason (numbers left out)", "one of them"].map((t, k) => h("th", { scope: "col", class: k ? null : "num" }, t)))),
      h("tbody", {}, list.slice(0, 12).map((g) => h("tr", {}, h("td", { class: "num" }, g.rows.length), h("td", {}, g.status), h("td", { class: "wrap" }, g.reason || "-"), h("td", { class: "num" }, columns.id[g.rows[0]]))))),
    list.length > 12 ? h("p", { class: "soft" }, `and ${list.length - 12} more groups: see the table of trials`) : null);
}

function stages() {
  const sum = (name) => (columns[name] || []).reduce((a, v) => a + v, 0);
  const rows = [["compile", "generating code"], ["assemble", "assembling and loading"], ["check", "checking results"], ["measure", "timing"]].map(([name, text], k) => ({ name: text, value: sum(name), text: duration(sum(name) / 1e3), fill: color(k) })).filter((r) => r.value > 0);
  if (!rows.length) return null;
  return [h("h3", {}, "Time by stage"), bars("chart-stages", "Time by stage, all trials together", "Summed over all trials, as far as they say; stages of different trials overlap.", rows)];
}

function foundSection() {
  if (!count) return;
  const span = columns.seconds[count - 1] || 0;
  const counts = columns.statuses.map((name, k) => `${columns.status.filter((v) => v === k).length.toLocaleString("en")} ${name}`);
  const by = { value: "trials" };
  const figure = convergence(by);
  const button = (value, text) => h("button", { type: "button", "aria-pressed": String(by.value === value), onclick: (event) => {
    by.value = value;
    for (const other of event.target.parentNode.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === event.target));
    figure.redraw();
  } }, text);
  section("found", "How it was found", `${plural(count, "trial")}${span > 0 ? ` in ${duration(span)}` : ""}: ${counts.join(", ")}.`,
    h("div", { class: "row noprint", role: "group", "aria-label": "Axis of the convergence chart" }, button("trials", "by trials"), button("seconds", "by seconds")),
    figure, legend([...columns.origins.map((o, k) => [o, color(k)]), ["failed", "var(--bad)"], ["best so far", "var(--ink)"]]),
    h("div", { class: "two" }, h("div", {}, h("h3", {}, "What failed or was cut, and why"), failures()), h("div", {}, stages())));
}
