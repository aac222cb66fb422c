/* The numbers of a chapter as files: rows of heads, whole tables, maps. */
const HEADING = "stack,layer,head,statistic,value,low,high,count\n";
const written = (x) => (x === null ? "" : String(x));
const csvRow = (one, row) => [quoted(data.stacks[row.head.s].name), row.head.layer, row.head.head, quoted(one.name),
  written(row.value), written(row.low), written(row.high), written(row.count)].join(",") + "\n";
const download = () => {
  const one = chosen();
  save(`${one.name.replace(/[^A-Za-z0-9]+/g, "-") || "statistic"}.csv`, [HEADING, ...shownRows().map((row) => csvRow(one, row))]);
};
const ofStatistics = (names) => {
  const asked = names.length ? data.statistics.filter((one) => names.includes(one.name)) : data.statistics;
  return [HEADING, ...asked.flatMap((one) => heads.map((head) => ({ head, ...read(one, head) }))
    .filter((row) => row.value !== undefined).map((row) => csvRow(one, row)))];
};
/* A line a head and query, a column a key; with fewer digits than the study's own maps. */
const ofMaps = async (stack) => {
  const s = data.stacks.findIndex((one) => one.name === stack);
  const [queries, keys] = data.maps.shapes[s];
  const lines = [`stack,layer,head,query,${Array.from({ length: keys }, (_, key) => `key_${key}`).join(",")}\n`];
  for (const [i, text] of data.maps.data[s].entries()) {
    const codes = await inflate(text);
    const place = `${quoted(stack)},${Math.floor(i / data.maps.heads[s])},${i % data.maps.heads[s]}`;
    for (let query = 0; query < queries; query += 1) {
      const row = Array.from(codes.subarray(query * keys, (query + 1) * keys), (code) => (code === 255 ? "" : ((code / 254) ** 2).toFixed(4)));
      lines.push(`${place},${query},${row.join(",")}\n`);
    }
  }
  return lines;
};
const ofOffsets = (stack) => {
  const s = data.stacks.findIndex((one) => one.name === stack);
  const lines = ["stack,layer,head,offset,mass\n"];
  data.offsets[s].forEach((shares, i) => shares.forEach((share, at) => lines.push([quoted(stack), Math.floor(i / data.stacks[s].heads),
    i % data.stacks[s].heads, at - (shares.length - 1) / 2, written(share)].join(",") + "\n")));
  return lines;
};
const ofTable = async (name) => [await inflate(data.tables.find((one) => one.name === name).csv)];
const MAKERS = { heads: ofStatistics, table: ([name]) => ofTable(name), map: ([stack]) => ofMaps(stack), offset: ([stack]) => ofOffsets(stack) };
const links = () => document.querySelectorAll(`a.csv[data-chapter="${chapterNumber}"]`).forEach((link) => {
  link.hidden = false;
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    save(link.getAttribute("download"), await MAKERS[link.dataset.kind](JSON.parse(link.dataset.names)));
  });
});
