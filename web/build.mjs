// Bundles src/ into the package's static folder; with --check, only compares what is there with what would be written.
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const goal = join(here, "..", "src", "headscope", "explorer", "static");

const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: { explorer: "src/main.js", "explorer-style": "explorer.css" },
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "esm",
  target: "es2022",
  outdir: goal,
  write: false,
});
const files = new Map(outputFiles.map(({ path, contents }) => [path.replace("explorer-style.css", "explorer.css"), Buffer.from(contents)]));
files.set(join(goal, "index.html"), await readFile(join(here, "index.html")));

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
  console.log("the explorer's built files are those of web/");
} else {
  await mkdir(goal, { recursive: true });
  for (const [path, contents] of files) await writeFile(path, contents);
}
