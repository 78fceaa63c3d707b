// Copies what the page of the API's description loads into build/, each under a name that holds
// its hash, and compressed besides; writes manifest.json: plain name to hashed name.
//
// swagger-ui-dist is one bundle already: it needs no inline style, no evaluated code and nothing
// from elsewhere. The package that it depends on only counts installations, by a script that
// `npm ci --ignore-scripts` does not run.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

const OUT = "build";
const VIEWER = "node_modules/swagger-ui-dist";
const FILES = {
  "docs.js": "src/docs.js",
  "viewer.js": `${VIEWER}/swagger-ui-bundle.js`,
  "style.css": `${VIEWER}/swagger-ui.css`,
};

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT);

const { version, license } = JSON.parse(await readFile(`${VIEWER}/package.json`));
const licences = [`swagger-ui-dist ${version} (${license})\n`];
for (const file of ["LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt"]) {
  licences.push(await readFile(`${VIEWER}/${file}`, "utf8"));
}

const contents = { "licences.txt": Buffer.from(licences.join("\n")) };
for (const [name, path] of Object.entries(FILES)) contents[name] = await readFile(path);

const manifest = {};
for (const [name, content] of Object.entries(contents)) {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 8);
  const [stem, suffix] = name.split(".");
  manifest[name] = `${stem}.${hash}.${suffix}`;
  await writeFile(`${OUT}/${manifest[name]}`, content);
  await writeFile(`${OUT}/${manifest[name]}.gz`, gzipSync(content, { level: 9 }));
}
await writeFile(`${OUT}/manifest.json`, `${JSON.stringify(manifest, null, 2)}\n`);
