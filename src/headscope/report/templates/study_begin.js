/* Begin: what is chosen first, and who listens to what. */
const choose = (value) => {
  const [kind, i] = value.split(":");
  state.colouring = kind === "colouring" ? Number(i) : null;
  if (kind === "statistic") state.statistic = Number(i);
  byId("statistic").value = value;
  paintGrids();
  paintTable();
  showCard();
  if (state.head) tell(state.head);
};
links();
if (!data.statistics.length || !heads.length) {
  byId("readout").textContent = "This study has no heads.";
  return;
}
[byId("explore"), byId("table")].forEach((part) => part.querySelectorAll(".tools").forEach((tools) => { tools.hidden = false; }));
const options = () => {
  const found = new Map();
  const add = (group, value, text, name) =>
    found.set(group, [...(found.get(group) || []), make("option", { value, "data-name": name }, text)]);
  data.colourings.forEach((one, i) => add("what is known of heads", `colouring:${i}`, one.title, one.title));
  GROUPS.forEach((group) => found.set(group, []));
  data.statistics.forEach((one, i) => add(one.group, `statistic:${i}`, plainName(one), one.name));
  return [...found].filter(([, some]) => some.length).map(([label, some]) => make("optgroup", { label }, ...some));
};
byId("statistic").append(...options());
byId("statistic").addEventListener("change", (event) => choose(event.target.value));
byId("fit").addEventListener("change", (event) => { state.fit = event.target.checked; paintGrids(); });
byId("filter").addEventListener("input", paintTable);
byId("least").addEventListener("input", paintTable);
byId("download").addEventListener("click", download);
document.querySelectorAll(`a.head[data-chapter="${chapterNumber}"]`).forEach((link) => link.addEventListener("click", () => {
  const head = heads.find((one) => one.label === link.dataset.head);
  const statistic = data.statistics.findIndex((one) => one.name === link.dataset.statistic);
  if (statistic >= 0) choose(`statistic:${statistic}`);
  if (head) select(head);
}));
buildGrids();
buildTable();
// Under a tall grid the pictures of a head would be out of sight: then they go beside it.
if (data.stacks.reduce((layers, stack) => layers + stack.layers, 0) > 14) {
  byId("side").prepend(byId("does"));
  byId("side").append(byId("pictures"));
}
state.statistic = Math.max(0, data.statistics.findIndex((one) => one.name === "previous"));
choose(data.colourings.length ? "colouring:0" : `statistic:${state.statistic}`);
state.head = shownRows().length ? shownRows()[0].head : heads[0];
select(state.head);
