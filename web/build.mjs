// Bundles src/ into the package: the explorer's page, the one that look saves, and the script of the page of studies.
// With --check, only compares the files of the package with what would be written.
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(fileURLToPath(import.meta.url)), packages = join(root, "..", "src", "headscope");
const explorer = join(packages, "explorer", "static"), report = join(packages, "report", "static");
const PAGES = [
  { name: "explorer", script: "src/main.js", format: "esm", shell: "index.html", folder: explorer, isLive: true },
  { name: "saved", script: "src/saved.js", format: "esm", shell: "saved.html", folder: report, isLive: false },
  { name: "study", script: "src/report/main.js", format: "iife", shell: null, folder: report },  // templates of the package are its shell
];

/** The shell of a page with the view in it; parts that need a live model are left out of the saved one. */
async function wholePage(shell, isLive) {
  const [page, view] = await Promise.all([shell, "view.html"].map((name) => readFile(join(root, name), "utf8")));
  const parts = isLive ? /<!-- (live|end) -->\n/g : /<!-- live -->\n[^]*?<!-- end -->\n/g;
  return Buffer.from(page.replace("<!-- view -->\n", () => view.replace(parts, "")));
}

const files = new Map();
for (const { name, script, format, shell, folder, isLive } of PAGES) {
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: { script, ...(shell ? { style: `${name}.css` } : {}) },
    bundle: true,
    minify: true,
    charset: "utf8",
    format,
    target: "es2022",
    outdir: folder,
    write: false,
  });
  for (const { path, contents } of outputFiles) files.set(path.replace(/(script|style)(\.\w+)$/, `${name}$2`), Buffer.from(contents));
  if (shell) files.set(join(folder, shell), await wholePage(shell, isLive));
}

if (process.argv.includes("--check")) {
  const stale = [];
  for (const [path, contents] of files) {
    const present = await readFile(path).catch(() => null);
    if (!present?.equals(contents)) stale.push(path);
  }
  if (stale.length) {
    console.error(`${stale.join(", ")}: differs from what web/ builds. Run make web, and commit the result`);
    process.exit(1);
  }
  console.log("the built pages match web/");
} else {
  for (const [path, contents] of files) {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, contents);
  }
}
