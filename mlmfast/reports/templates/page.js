"use strict";
// What is chosen stands behind the # of the address, so that a link leads to the same view.
const chosen = new URLSearchParams(location.hash.slice(1));
const controls = ["show", "sort", "find", "list"].map((id) => document.getElementById(id)).filter(Boolean);
const list = document.getElementById("utterance-list");
const utterances = [...list.children];

const orders = {
  change: () => 0,
  value: (a, b) => b.dataset.value - a.dataset.value,
  place: (a, b) => a.dataset.place - b.dataset.place,
  id: (a, b) => a.dataset.id.localeCompare(b.dataset.id, undefined, { numeric: true }),
};

function showUtterances() {
  const verdict = chosen.get("show"), words = (chosen.get("find") ?? "").toLowerCase();
  for (const item of utterances) {
    item.hidden = (verdict && item.dataset.verdict !== verdict) || !item.textContent.toLowerCase().includes(words);
  }
  list.append(...[...utterances].sort(orders[chosen.get("sort") || "change"]));
  const shown = utterances.filter((item) => !item.hidden).length;
  document.getElementById("num-shown").value = `${shown} shown`;
}

function showHeatMap() {
  const select = document.getElementById("list");
  if (!select) return;
  for (const map of document.querySelectorAll(".heat-map")) map.hidden = map.dataset.list !== select.value;
}

function choose(name, value) {
  if (value) chosen.set(name, value);
  else chosen.delete(name);
  history.replaceState(null, "", chosen.toString() ? `#${chosen}` : location.pathname + location.search);
  showUtterances();
  showHeatMap();
}

for (const control of controls) {
  const value = chosen.get(control.id);
  if (value !== null) control.value = value;
  if (control.selectedIndex === -1) {
    control.selectedIndex = 0;
    chosen.delete(control.id);
  }
  control.addEventListener("input", () => choose(control.id, control.value));
  control.form.addEventListener("submit", (event) => event.preventDefault());
}

for (const link of document.querySelectorAll(".to-tokens")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const select = document.getElementById("list");
    select.value = link.closest(".utterance").dataset.id;
    choose("list", select.value);
    document.getElementById("tokens").scrollIntoView();
  });
}

function tell(event) {
  const cell = event.target.closest(".heat-map .cell");
  if (!cell) return;
  document.querySelector(".cell.chosen")?.classList.remove("chosen");
  cell.classList.add("chosen");
  const nats = Number(cell.title.replace("\u2212", "-"));
  const percent = Number((100 * Math.exp(nats)).toPrecision(2));
  document.getElementById("token").value = `${cell.textContent}: log-probability ${cell.title}, probability ${percent}%`;
}
document.addEventListener("pointerover", tell);
document.addEventListener("click", tell);

showUtterances();
showHeatMap();
