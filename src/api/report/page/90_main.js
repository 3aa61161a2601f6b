// The page from top to bottom.
const sizesText = Object.entries(data.problem.sizes).map(([name, value]) => `${name} ${value.toLocaleString("en")}`).join(", ");
const title = `${data.problem.op}${data.problem.variant ? ` (${data.problem.variant})` : ""}`;
document.title = `${title} – Nestor report`;
document.querySelector("h1").textContent = title;
document.getElementById("subtitle").textContent = `${sizesText} · ${data.device.name} (${data.device.arch}) · ${data.program}`;

if (data.live) {
  const pause = h("input", { type: "checkbox", checked: remembered("paused") === "yes", onchange: () => remembered("paused", pause.checked ? "yes" : "no") });
  main.append(h("div", { class: "live", role: "status" }, h("b", {}, "The search is under way. "), count ? "This page reads itself again every two seconds; the schedule's pictures come when it ends. " : "Waiting for the first trial. ", h("label", {}, pause, "pause")));
  setInterval(() => { if (!pause.checked) location.reload(); }, 2000);
}
if (!data.live || count) goodSection();
foundSection();
if (count) mattersSection();
rooflineSection();
spaceSection();
scheduleSection();
warpsSection();
trialsSection();
commandsSection();
if (data.notes.length) section("notes", "What could not be shown", null, data.notes.map((text) => h("p", { class: "note" }, text)));
startCharts();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
