"use strict";
// Text from the run reaches the page through textContent, title and style properties only: never as HTML.

// Where this page lies, so that commands can be copied: known under file:, if the folder still has its name.
function locate() {
  const run = document.body.dataset.run, cut = document.body.dataset.cut;
  if (location.protocol !== "file:") return;
  let folder;
  try { folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, ""); } catch { return; }
  const base = cut ? folder.replace(/\/cuts\/[^/]*$/, "") : folder;
  if (base.split("/").pop() !== run || (cut && folder.split("/").pop() !== cut)) return;
  for (const place of document.querySelectorAll(".here")) {
    const path = (place.dataset.up === "1" ? base : folder) + place.dataset.inside;
    place.textContent = place.dataset.quote === "py" ? JSON.stringify(path)
      : /^[\w./-]+$/.test(path) ? path : "'" + path.replaceAll("'", "'\\''") + "'";
  }
}

function addCopyButtons() {
  for (const block of document.querySelectorAll("pre")) {
    const box = document.createElement("div"), button = document.createElement("button");
    box.className = "copyable";
    block.replaceWith(box);
    button.className = "copy";
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(block.textContent); button.textContent = "copied"; }
      catch { getSelection().selectAllChildren(block); button.textContent = "selected"; }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    box.append(block, button);
  }
}

// The same writing of quantities as sartor.core.units.Kind.show.
function show(value, kind, digits = 4) {
  const fits = kind.shown.find(([, , least]) => Math.abs(value) >= least) || kind.shown.at(-1);
  const [unit, size] = value === 0 ? [kind.own, 1] : fits;
  return (String(Number((value / size).toPrecision(digits))) + " " + unit.replace("us", "µs")).trimEnd();
}

function explore(data) {
  const slider = document.getElementById("budget"), box = document.getElementById("budget-text");
  const error = document.getElementById("budget-error"), area = document.getElementById("frontier-area");
  const slots = document.querySelectorAll("#architecture .slot");
  const scale = Object.fromEntries(Object.entries(area.dataset).map(([k, v]) => [k, Number(v)]));
  const last = data.cost.length - 1, kind = data.kinds[data.axis];

  // The shortest budget that still admits point n and not the next one.
  function budgetOf(n) {
    for (let digits = 3; digits < 16; digits++) {
      const step = 10 ** (Math.floor(Math.log10(data.cost[n])) + 1 - digits);
      const up = Number((Math.ceil(data.cost[n] / step - 1e-9) * step).toPrecision(digits));
      if (up >= data.cost[n] && (n === last || up < data.cost[n + 1])) return up;
    }
    return data.cost[n];
  }

  function parse(text) {
    const match = /^\s*(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*([A-Za-zµμ]*)\s*$/.exec(text);
    const unit = match && data.units[match[3]];
    return match && unit !== undefined ? Number(match[1] + (match[2] || "")) * unit : null;
  }

  function best(budget) {
    let n = -1;
    while (n < last && data.cost[n + 1] <= budget * (1 + 1e-9)) n++;
    return n;
  }

  function draw(n) {
    const picks = data.picks[n];
    const on = (i, who) => data.needs[i].every(([other, allowed]) => allowed.includes(who[other]));
    for (const slot of slots) {
      const i = Number(slot.dataset.choice), look = data.looks[data.which[i]][picks[i]];
      const active = on(i, picks);
      const same = active === on(i, data.chosen) && (!active || picks[i] === data.chosen[i]);
      slot.classList.toggle("changed", !same);
      slot.classList.toggle("off", !active);
      if (slot.classList.contains("block")) {
        slot.classList.toggle("se", Boolean(look.mark && active));
        slot.style.setProperty("--grow", look.grow);
        slot.style.setProperty("--tone", look.tone);
        slot.classList.toggle("dark", look.tone === 1);
        slot.title = data.names[i] + ": " + (active ? look.name : "left out");
        slot.querySelector(".bar").textContent = active ? look.text : "";
        slot.querySelector(".under").textContent = active ? look.under : "";
        slot.querySelector(".cap").textContent = active ? look.mark : "";
      } else {
        (slot.querySelector(".word") || slot).textContent = look.name;
      }
    }
  }

  function pick(n, asked) {
    const budget = asked ?? budgetOf(n);
    error.hidden = true;
    slider.value = n;
    slider.setAttribute("aria-valuetext", show(budget, kind));
    if (parse(box.value) !== budget) box.value = command(budget);  // what was typed stays as it was typed
    const left = 100 * (data.cost[n] - scale.low) / (scale.high - scale.low);
    const bottom = 100 * (data.score[n] - scale.bottom) / (scale.top - scale.bottom);
    const here = document.getElementById("here");
    here.style.left = left + "%";
    here.style.bottom = bottom + "%";
    const line = 100 * (budget - scale.low) / (scale.high - scale.low);
    document.getElementById("cursor").style.left = Math.min(100, line) + "%";
    document.getElementById("picked-score").textContent = String(Number(data.score[n].toPrecision(4))) + data.suffix;
    for (const [name, values] of Object.entries(data.costs)) {
      document.querySelector(`[data-cost="${CSS.escape(name)}"]`).textContent = show(values[n], data.kinds[name]);
      const limit = data.limits[name], over = document.querySelector(`[data-over="${CSS.escape(name)}"]`);
      const beyond = limit !== undefined && values[n] > limit * (1 + 1e-5);  // costs here have six digits
      over.textContent = beyond ? "over your " + show(limit, data.kinds[name]) : "";
      over.classList.toggle("over", beyond);
    }
    document.getElementById("cut-options").textContent = data.flag + command(budget);
    draw(n);
  }

  // As the command line reads it, without loss.
  function command(budget) {
    const exact = Number(budget.toPrecision(12));
    const [unit, size] = kind.shown.find(([, scale]) => exact >= scale) || [kind.own, 1];
    return Number((exact / size).toPrecision(12)) + unit;
  }

  function typedBudget() {
    const budget = parse(box.value);
    const n = budget === null ? -1 : best(budget);
    if (n >= 0) return pick(n, budget);
    error.textContent = budget === null
      ? `“${box.value}” is not a budget: give a number with a unit, such as ${box.getAttribute("aria-label").split("such as ")[1]}.`
      : `No network of this space needs so little: the least is ${show(data.cost[0], kind)}.`;
    error.hidden = false;
  }

  function pointed(event) {
    if (event.type === "pointermove" && event.buttons !== 1) return;
    const frame = area.getBoundingClientRect();
    const share = (event.clientX - frame.left) / frame.width;
    pick(Math.max(0, best(scale.low + share * (scale.high - scale.low))));
  }

  slider.addEventListener("input", () => pick(Number(slider.value)));
  box.addEventListener("change", typedBudget);
  box.addEventListener("keydown", (event) => { if (event.key === "Enter") typedBudget(); });
  area.addEventListener("pointerdown", pointed);
  area.addEventListener("pointermove", pointed);
  const asked = data.limits[data.axis];
  pick(data.start, best(asked) === data.start ? asked : undefined);
}

locate();
addCopyButtons();
const frontierData = document.getElementById("frontier-data");
if (frontierData) explore(JSON.parse(frontierData.textContent));
