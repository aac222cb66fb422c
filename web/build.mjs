// Bundles src/ into the package: the explorer's page, and the one that look saves. With --check, only compares what is
// there with what would be written.
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url)), rooms = join(here, "..", "src", "headscope");
const PAGES = [
  { name: "explorer", script: "src/main.js", shell: "index.html", goal: join(rooms, "explorer", "static"), isLive: true },
  { name: "saved", script: "src/saved.js", shell: "saved.html", goal: join(rooms, "report", "static"), isLive: false },
];

/** The shell of a page with the view in it; what is for models that can be asked is left out of the saved one. */
async function whole(shell, isLive) {
  const [page, view] = await Promise.all([shell, "view.html"].map((name) => readFile(join(here, name), "utf8")));
  const parts = isLive ? /<!-- (live|end) -->\n/g : /<!-- live -->\n[^]*?<!-- end -->\n/g;
  return Buffer.from(page.replace("<!-- view -->\n", () => view.replace(parts, "")));
}

const files = new Map();
for (const { name, script, shell, goal, isLive } of PAGES) {
  const { outputFiles } = await build({
    absWorkingDir: here,
    entryPoints: { script, style: `${name}.css` },
    bundle: true,
    minify: true,
    charset: "utf8",
    format: "esm",
    target: "es2022",
    outdir: goal,
    write: false,
  });
  for (const { path, contents } of outputFiles) files.set(path.replace(/(script|style)(\.\w+)$/, `${name}$2`), Buffer.from(contents));
  files.set(join(goal, shell), await whole(shell, isLive));
}

if (process.argv.includes("--check")) {
  const stale = [];
  for (const [path, contents] of files) {
    const there = await readFile(path).catch(() => null);
    if (!there?.equals(contents)) stale.push(path);
  }
  if (stale.length) {
    console.error(`${stale.join(", ")}: not what web/ builds. Mend: make web, and commit the result`);
    process.exit(1);
  }
  console.log("the built pages are those of web/");
} else {
  for (const [path, contents] of files) {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, contents);
  }
}
