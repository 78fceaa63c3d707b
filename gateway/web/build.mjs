// Bundles the script and style of each page into build/, under a name that holds its hash, and
// writes manifest.json, which maps plain names to hashed names.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";

const OUT = "build";
const PACKAGES = [
  "@novnc/novnc",
  "@xterm/xterm",
  "@xterm/addon-fit",
  "@xterm/addon-search",
  "@xterm/addon-unicode11",
  "@xterm/addon-web-links",
];
const LICENCES = {
  "@novnc/novnc": ["LICENSE.txt", "docs/LICENSE.MPL-2.0"],
};

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT);

const result = await build({
  entryPoints: [
    "src/open.js",
    "src/starting.js",
    "src/retry.js",
    "src/reopen.js",
    "src/signed-out.js",
    "src/soon.js",
    "src/terminal.js",
    "src/desktop.js",
    "src/frame.js",
    "src/pages.css",
    "src/terminal.css",
    "src/icon.svg",
  ],
  outdir: OUT,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome111", "firefox113", "safari16.4"],
  loader: { ".svg": "copy" },
  entryNames: "[name].[hash]",
  assetNames: "[name].[hash]",
  legalComments: "none",
  metafile: true,
  logLevel: "error",
});

const manifest = {};
for (const [path, output] of Object.entries(result.metafile.outputs)) {
  if (output.entryPoint) manifest[basename(output.entryPoint)] = basename(path);
}

const licences = [];
for (const name of PACKAGES) {
  const { version, license } = JSON.parse(await readFile(`node_modules/${name}/package.json`));
  licences.push(`${name} ${version} (${license})\n`);
  for (const file of LICENCES[name] ?? ["LICENSE"]) {
    licences.push(await readFile(`node_modules/${name}/${file}`, "utf8"));
  }
}
const text = licences.join("\n");
const hash = createHash("sha256").update(text).digest("hex").slice(0, 8);
manifest["licences.txt"] = `licences.${hash}.txt`;
await writeFile(`${OUT}/${manifest["licences.txt"]}`, text);
await writeFile(`${OUT}/manifest.json`, `${JSON.stringify(manifest, null, 2)}\n`);
