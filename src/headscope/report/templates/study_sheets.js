/* For the whole page, once: tables that can be sorted by a click, and files that are made when they are asked for. */
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...children);
  return element;
};
const sheets = () => document.querySelectorAll("table.sheet").forEach((table) => {
  const body = table.tBodies[0];
  const first = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const name = cell.textContent;
    const button = make("button", { type: "button" }, name);
    cell.replaceChildren(button);
    const keyOf = (row) => {
      const key = row.cells[column].dataset.key;
      return key === undefined ? null : cell.classList.contains("words") ? key : Number(key);
    };
    button.addEventListener("click", () => {
      const was = cell.getAttribute("aria-sort");
      const falls = was === null ? !cell.classList.contains("words") : was === "ascending";
      [...table.tHead.rows[0].cells].forEach((other) => {
        other.removeAttribute("aria-sort");
        other.firstChild.textContent = other.firstChild.textContent.replace(/ [\u2191\u2193]$/, "");
      });
      cell.setAttribute("aria-sort", falls ? "descending" : "ascending");
      button.textContent = name + (falls ? " \u2193" : " \u2191");
      const order = new Map(first.map((row, i) => [row, i]));
      body.replaceChildren(...[...first].sort((a, b) => {
        const [x, y] = [keyOf(a), keyOf(b)];
        if (x === y) return order.get(a) - order.get(b);
        if (x === null || y === null) return x === null ? 1 : -1;
        return (x < y ? -1 : 1) * (falls ? -1 : 1);
      }));
    });
  });
});
const inflate = async (text) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
const save = (name, parts) => {
  const link = make("a", { download: name });
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
/* On paper nothing can be opened: what is folded is printed too, and folded again afterwards. */
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((part) => { part.open = true; });
});
window.addEventListener("afterprint", () => { folded.forEach((part) => { part.open = false; }); });
