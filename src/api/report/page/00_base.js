// What all parts of the page share: elements (text is never markup), numbers, scales, axes, tips, theme.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false) node.append(child.nodeType ? child : document.createTextNode(String(child)));
  }
  return node;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const clear = (node, ...children) => { node.replaceChildren(); return put(node, {}, children); };

const color = (k) => `var(--c${k % 8})`;
const computed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function number(value, digits = 3) {
  if (!isFinite(value)) return "-";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(1);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}
function ms(value, digits = 3) {
  if (!(value > 0)) return "-";
  if (value < 1) return number(value * 1e3, digits) + " us";
  return value < 1000 ? number(value, digits) + " ms" : number(value / 1e3, digits) + " s";
}
function si(value, unit) {
  for (const [factor, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= factor) return `${number(value / factor)} ${prefix}${unit}`;
  }
  return `${number(value)} ${unit}`;
}
const duration = (seconds) => seconds < 90 ? `${number(seconds)} s` : seconds < 5400 ? `${number(seconds / 60)} min` : `${number(seconds / 3600)} h`;
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const percent = (share) => `${number(100 * share)} %`;

function linear(low, high, from, to) {
  const span = high - low || 1;
  const scale = (v) => from + (v - low) / span * (to - from);
  scale.ticks = (count) => {
    const raw = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((f) => f >= raw) || raw;
    const list = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) list.push(Number(v.toPrecision(12)));
    return list;
  };
  return scale;
}
function logarithmic(low, high, from, to) {
  const a = Math.log10(low), b = Math.log10(high);
  const inner = linear(a, b === a ? a + 1 : b, from, to);
  const scale = (v) => inner(Math.log10(v));
  scale.ticks = (count) => {
    const list = [];
    for (let k = Math.floor(a); k <= Math.ceil(b); ++k) for (const f of b - a > count ? [1] : b - a > 1.3 ? [1, 3] : [1, 1.5, 2, 3, 4, 5, 7]) {
      const v = f * 10 ** k;
      if (v >= low * 0.999 && v <= high * 1.001) list.push(v);
    }
    const every = Math.ceil(list.length / Math.max(count, 1));
    return list.filter((_, k) => k % every === 0);
  };
  return scale;
}
function axes(box, x, y, { xLabel, yLabel, xFormat = number, yFormat = number }) {
  const parts = [];
  for (const v of y.ticks(5)) {
    parts.push(s("line", { class: "grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      s("text", { x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, yFormat(v)));
  }
  for (const v of x.ticks(Math.max(2, Math.floor((box.right - box.left) / 90)))) {
    parts.push(s("line", { class: "grid", x1: x(v), x2: x(v), y1: box.top, y2: box.bottom }),
      s("text", { x: x(v), y: box.bottom + 16, "text-anchor": "middle" }, xFormat(v)));
  }
  parts.push(s("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  if (xLabel) parts.push(s("text", { x: (box.left + box.right) / 2, y: box.bottom + 32, "text-anchor": "middle" }, xLabel));
  if (yLabel) parts.push(s("text", { x: box.left, y: box.top - 8, "text-anchor": "start" }, yLabel));
  return parts;
}
// Dots of one colour are one path: 10,000 of them are quick.
const dots = (points, fill, size = 5, more = {}) => s("path", { d: points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h.01`).join(""), stroke: fill, "stroke-width": size, "stroke-linecap": "round", fill: "none", ...more });

// Charts draw themselves for a width, again when it or the theme changes.
const charts = [];
const watcher = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.find((c) => c.figure === entry.target);
    if (chart && Math.abs(chart.width - entry.contentRect.width) > 1) chart.redraw();
  }
});
function chart(id, label, caption, draw) {
  const place = h("div", {});
  const figure = h("figure", { id, "data-chart": id, role: "group", "aria-label": label }, place, caption ? h("figcaption", {}, caption) : null);
  const self = { figure, width: 0, redraw() {
    self.width = figure.clientWidth || 600;
    const picture = draw(Math.max(self.width, 220), self);
    if (picture && picture.tagName === "svg") { picture.setAttribute("role", "img"); picture.setAttribute("aria-label", label); }
    clear(place, picture);
  } };
  charts.push(self);
  figure.redraw = () => self.redraw();
  return figure;
}
function startCharts() {
  for (const c of charts) { c.redraw(); watcher.observe(c.figure); }
}
const svg = (width, height, ...children) => s("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, ...children);

const tip = document.getElementById("tip");
function showTip(event, text) {
  if (!text) { tip.hidden = true; return; }
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
}
const hideTip = () => { tip.hidden = true; };

function remembered(key, value) {
  try {
    if (value !== undefined) sessionStorage.setItem("nestor-" + key, value);
    return sessionStorage.getItem("nestor-" + key);
  } catch { return null; }
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  for (const c of charts) if (c.width) c.redraw();
}
const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(remembered("theme") || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => {
  setTheme(remembered("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark") || (document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
});

function section(id, title, lead, ...children) {
  const node = h("section", { id, "aria-labelledby": id + "-title" }, h("h2", { id: id + "-title" }, title), lead ? h("p", { class: "lead" }, lead) : null, ...children);
  document.getElementById("nav").append(h("li", {}, h("a", { href: "#" + id }, title)));
  main.append(node);
  return node;
}
function choice(label, options, chosen, change) {
  const select = h("select", { onchange: () => change(select.value) }, options.map(([value, text]) => h("option", { value, selected: String(value) === String(chosen) }, text)));
  const node = h("label", {}, label, select);
  node.select = select;
  return node;
}
const legend = (entries) => h("ul", { class: "legend" }, entries.map(([text, fill]) => h("li", {}, h("i", { style: `background:${fill}` }), text)));

// Trials as rows that know their columns.
const columns = data.trials || { id: [], status: [], ms: [], parameters: {}, constant: {}, statuses: [], origins: [], reasons: [] };
const count = columns.id ? columns.id.length : 0;
const parameterNames = Object.keys(columns.parameters || {});
const statusOf = (k) => columns.statuses[columns.status[k]];
const originOf = (k) => columns.origins[columns.origin[k]];
const timed = (k) => columns.ms[k] > 0 && (statusOf(k) === "ok" || statusOf(k) === "slow");
const correct = (k) => columns.ms[k] > 0 && statusOf(k) === "ok";
const everyTrial = Array.from({ length: count }, (_, k) => k);
const rowOf = (id) => columns.id ? columns.id.indexOf(id) : -1;
const okRows = everyTrial.filter(correct);
const bestRow = rowOf(data.best) >= 0 ? rowOf(data.best) : okRows.reduce((a, k) => a < 0 || columns.ms[k] < columns.ms[a] ? k : a, -1);
const subjectRow = data.subject ? rowOf(data.subject.id) : bestRow;
const trialText = (k) => `trial ${columns.id[k]}: ${statusOf(k)}${columns.ms[k] > 0 ? ", " + ms(columns.ms[k]) : ""}\n${originOf(k)}${columns.reasons[columns.reason[k]] ? "\n" + columns.reasons[columns.reason[k]] : ""}`;
