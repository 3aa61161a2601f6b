// All trials in a table with filters, and commands to copy.
async function copyText(text, button) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = h("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const old = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = old; }, 1200);
}

function trialsSection() {
  if (!count) return;
  const state = { status: "", origin: "", text: "", sort: "ms", down: false, page: 0 }, each = 25;
  const shownParameters = (typeof effects === "undefined" ? [] : effects).slice(0, 4).map((e) => e.name);
  const sortable = [["id", "trial"], ["status", "outcome"], ["ms", "time"], ["error", "worst error"], ["seconds", "after"], ["origin", "origin"]];
  const body = h("tbody", {}), status = h("span", { class: "soft", role: "status" }), headers = h("tr", {});
  const before = h("button", { type: "button", onclick: () => { --state.page; fill(); } }, "←"), after = h("button", { type: "button", onclick: () => { ++state.page; fill(); } }, "→");
  before.setAttribute("aria-label", "Trials before");
  after.setAttribute("aria-label", "Trials after");
  const value = (k, by) => by === "status" ? statusOf(k) : by === "origin" ? originOf(k) : by === "ms" ? (timed(k) ? columns.ms[k] : Infinity) : shownParameters.includes(by) ? columns.parameters[by][k] ?? -Infinity : columns[by][k];
  function rows() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    return everyTrial.filter((k) => (!state.status || statusOf(k) === state.status) && (!state.origin || originOf(k) === state.origin) && passes(k) && words.every((w) => {
      const [name, wanted] = w.split("=");
      if (wanted !== undefined && columns.parameters[name]) return String(columns.parameters[name][k]) === wanted;
      return String(columns.id[k]) === w || columns.reasons[columns.reason[k]].toLowerCase().includes(w);
    })).sort((a, b) => { const x = value(a, state.sort), y = value(b, state.sort); return (x < y ? -1 : x > y ? 1 : a - b) * (state.down ? -1 : 1); });
  }
  function fill() {
    const list = rows(), pages = Math.max(1, Math.ceil(list.length / each));
    state.page = Math.max(0, Math.min(pages - 1, state.page));
    before.disabled = state.page === 0;
    after.disabled = state.page === pages - 1;
    status.textContent = `${list.length.toLocaleString("en")} of ${count.toLocaleString("en")} trials, page ${state.page + 1} of ${pages}`;
    clear(headers, [...sortable, ...shownParameters.map((n) => [n, n])].map(([by, text]) => h("th", { scope: "col", class: ["ms", "error", "seconds", "id"].includes(by) || shownParameters.includes(by) ? "num" : null, "aria-sort": state.sort === by ? (state.down ? "descending" : "ascending") : "none" },
      h("button", { type: "button", onclick: () => { state.down = state.sort === by && !state.down; state.sort = by; state.page = 0; fill(); } }, text + (state.sort === by ? (state.down ? " ▼" : " ▲") : "")))), h("th", { scope: "col" }, "reason"), h("th", { scope: "col" }, "look at it"));
    clear(body, list.slice(state.page * each, state.page * each + each).map((k) => h("tr", { class: k === bestRow || k === subjectRow ? "marked" : null }, h("td", { class: "num" }, columns.id[k]), h("td", {}, statusOf(k)), h("td", { class: "num" }, columns.ms[k] > 0 ? ms(columns.ms[k]) : "-"), h("td", { class: "num" }, statusOf(k) === "ok" || statusOf(k) === "wrong" ? number(columns.error[k]) : "-"), h("td", { class: "num" }, duration(columns.seconds[k])), h("td", {}, originOf(k)),
      shownParameters.map((n) => h("td", { class: "num" }, columns.parameters[n][k] ?? "-")), h("td", { class: "wrap" }, columns.reasons[columns.reason[k]]), h("td", {}, h("button", { type: "button", "aria-label": `Copy the command that reports trial ${columns.id[k]}`, onclick: (event) => copyText(`nestor report --trial ${columns.id[k]}${data.options || ""} -o report.html`, event.target) }, "Copy")))));
  }
  listeners.push(() => { state.page = 0; fill(); });
  fill();
  const set = (key) => (v) => { state[key] = v; state.page = 0; fill(); };
  section("trials", "All trials", "Click a heading to sort. Words look for numbers of trials and in reasons; name=value picks a parameter's value.",
    h("div", { class: "row noprint" }, choice("outcome", [["", "all"], ...columns.statuses.map((t) => [t, t])], "", set("status")), choice("origin", [["", "all"], ...columns.origins.map((t) => [t, t])], "", set("origin")),
      h("label", {}, "find", h("input", { type: "search", placeholder: shownParameters.length ? `${shownParameters[0]}=…` : "words", oninput: (event) => set("text")(event.target.value) }))),
    h("div", { class: "scroll", id: "trial-table", tabindex: 0, role: "region", "aria-label": "Table of trials" }, h("table", {}, h("thead", {}, headers), body)), h("div", { class: "row noprint" }, before, after, status));
}

function commandsSection() {
  if (!data.commands) return;
  section("commands", "Commands", "To go on from here, in a shell.", h("ul", { class: "commands" }, data.commands.map(([what, command]) => h("li", {}, h("span", { style: "flex:0 1 13rem" }, what), h("code", {}, command), h("button", { type: "button", class: "noprint", "aria-label": "Copy: " + what, onclick: (event) => copyText(command, event.target) }, "Copy")))),
    h("details", {}, h("summary", {}, "The device"), h("pre", { tabindex: 0 }, JSON.stringify(data.device, null, 2))), data.subject ? h("details", {}, h("summary", {}, "The shown trial"), h("pre", { tabindex: 0 }, JSON.stringify({ ...data.subject, samples: undefined }, null, 2))) : null);
}
