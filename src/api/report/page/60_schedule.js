// The schedule step by step: the loop nest before and after, differences marked, and why each step is legal.
function lineDifference(before, after) {
  // Longest common subsequence; nests are at most a few hundred lines.
  const a = before.split("\n"), b = after.split("\n"), w = b.length + 1, table = new Uint16Array((a.length + 1) * w);
  for (let i = a.length - 1; i >= 0; --i) for (let j = b.length - 1; j >= 0; --j)
    table[i * w + j] = a[i] === b[j] ? table[(i + 1) * w + j + 1] + 1 : Math.max(table[(i + 1) * w + j], table[i * w + j + 1]);
  const left = [], right = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { left.push([a[i++], ""]); right.push([b[j++], ""]); }
    else if (j >= b.length || (i < a.length && table[(i + 1) * w + j] >= table[i * w + j + 1])) left.push([a[i++], "del"]);
    else right.push([b[j++], "add"]);
  }
  return [left, right];
}
const code = (label, lines) => h("pre", { tabindex: 0, role: "region", "aria-label": label }, lines.map(([text, kind]) => h("span", { class: "line " + kind }, (kind === "add" ? "+ " : kind === "del" ? "- " : "  ") + text + "\n")));

function scheduleSection() {
  const story = data.story;
  if (!story) return;
  let at = 0;
  const steps = [{ step: "original order", text: story.start, why: "The definition's own order: nothing has moved.", facts: [] }, ...story.steps];
  const list = h("ol", { class: "steps", "aria-label": "Steps of the schedule" }), view = h("div", {});
  const back = h("button", { type: "button", onclick: () => go(at - 1) }, "← Step before"), on = h("button", { type: "button", onclick: () => go(at + 1) }, "Next step →");
  const buttons = steps.map((step, k) => h("button", { type: "button", class: "mono", onclick: () => go(k) }, `${k}. ${step.step}`));
  put(list, {}, buttons.map((b) => h("li", {}, b)));
  function go(to) {
    at = Math.max(0, Math.min(steps.length - 1, to));
    buttons.forEach((b, k) => k === at ? b.setAttribute("aria-current", "true") : b.removeAttribute("aria-current"));
    const box = list.getBoundingClientRect(), own = buttons[at].getBoundingClientRect();
    if (box.height && (own.top < box.top || own.bottom > box.bottom)) list.scrollTop += own.top - box.top - box.height / 2;
    back.disabled = at === 0;
    on.disabled = at === steps.length - 1;
    const step = steps[at], after = story.texts[step.text], before = at ? story.texts[steps[at - 1].text] : after, same = before === after;
    const [left, right] = lineDifference(before, after);
    clear(view, h("h3", { class: "mono" }, step.step), step.help ? h("p", { class: "soft" }, step.help) : null,
      h("div", { class: "why" }, h("b", {}, "Why it is legal: "), step.why, step.facts.length ? h("ul", {}, step.facts.map((f) => h("li", {}, f))) : null),
      same ? h("div", {}, h("p", { class: "soft" }, at ? "The loops are as before." : ""), code("Loop nest", right)) : h("div", { class: "two code" }, h("div", {}, h("h3", {}, "Before"), code("Loop nest before the step", left)), h("div", {}, h("h3", {}, "After"), code("Loop nest after the step", right))));
    for (const pre of view.querySelectorAll("pre")) {
      const first = pre.querySelector(".add, .del");
      if (first) pre.scrollTop = Math.max(0, first.offsetTop - 60);
    }
  }
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    go(at + move);
    buttons[at].focus();
  });
  const other = data.against_loops ? (() => {
    const [left, right] = lineDifference(data.against_loops, story.texts[steps[steps.length - 1].text]);
    const mine = new Set(data.subject.steps), theirs = new Set(data.against.steps), keys = [...new Set([...Object.keys(data.subject.parameters), ...Object.keys(data.against.parameters)])].filter((k) => data.subject.parameters[k] !== data.against.parameters[k]);
    return h("div", { id: "against" }, h("h3", {}, `Beside trial ${data.against.id}`), h("p", {}, `Trial ${data.subject.id}: ${ms(data.subject.ms)}; trial ${data.against.id}: ${ms(data.against.ms)}${data.subject.ms > 0 && data.against.ms > 0 ? ` (${number(data.against.ms / data.subject.ms)}×)` : ""}.`),
      keys.length ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parameters that differ" }, h("table", {}, h("thead", {}, h("tr", {}, ["parameter", `trial ${data.subject.id}`, `trial ${data.against.id}`].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, keys.map((k) => h("tr", {}, h("td", { class: "mono" }, k), h("td", {}, data.subject.parameters[k] ?? "-"), h("td", {}, data.against.parameters[k] ?? "-")))))) : null,
      h("p", { class: "soft" }, `Steps of this one alone: ${[...mine].filter((t) => !theirs.has(t)).length}; of the other alone: ${[...theirs].filter((t) => !mine.has(t)).length}.`),
      h("div", { class: "two" }, h("div", {}, h("h3", {}, `Trial ${data.against.id}`), code(`Loops of trial ${data.against.id}`, left)), h("div", {}, h("h3", {}, `Trial ${data.subject.id}`), code(`Loops of trial ${data.subject.id}`, right))));
  })() : null;
  section("schedule", "The schedule, step by step", `${plural(story.steps.length, "step")}, each proved when it was taken. Arrow keys walk through the list.`,
    h("div", { class: "row noprint" }, back, on), h("div", { class: "story" }, list, view), other,
    data.nest ? h("details", {}, h("summary", {}, "The definition as a nest"), h("pre", { tabindex: 0 }, data.nest)) : null);
  go(steps.length - 1);
}
