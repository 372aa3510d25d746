// Bundle the libraries that the console is served with: `npm ci && npm run vendor` in this directory.
// The console's own modules are plain files in src/windrow/server/static and are not built.
import { build } from "esbuild";
import { readFileSync, writeFileSync, copyFileSync } from "node:fs";

const out = "../src/windrow/server/static/vendor/";
const bundles = {
  ui: `export { h, render, Fragment, createContext } from "preact";
       export { useState, useEffect, useMemo, useRef, useCallback, useContext, useLayoutEffect } from "preact/hooks";
       import { h } from "preact"; import htm from "htm"; export const html = htm.bind(h);`,
  chart: `import uPlot from "uplot"; export default uPlot;`,
  editor: `export { EditorState, Compartment, Prec } from "@codemirror/state";
       export { EditorView, keymap, lineNumbers, drawSelection, placeholder, highlightActiveLine } from "@codemirror/view";
       export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
       export { autocompletion, completionKeymap, closeBrackets } from "@codemirror/autocomplete";
       export { linter, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
       export { HighlightStyle, syntaxHighlighting, bracketMatching } from "@codemirror/language";
       export { tags } from "@lezer/highlight";
       export { sql, SQLDialect } from "@codemirror/lang-sql";`,
};
for (const [name, contents] of Object.entries(bundles)) {
  await build({
    stdin: { contents, resolveDir: "." },
    bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", outfile: `${out}${name}.js`,
  });
}
copyFileSync("node_modules/uplot/dist/uPlot.min.css", `${out}chart.css`);
const lock = JSON.parse(readFileSync("package-lock.json"));
const used = ["preact", "htm", "uplot", ...Object.keys(lock.packages).map((p) => p.replace("node_modules/", ""))
  .filter((p) => /^(@codemirror|@lezer|@marijn|crelt|style-mod|w3c-keyname)/.test(p))];
const notices = used.map((name) => {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`));
  const text = ["LICENSE", "LICENSE.md", "license"].map((f) => { try { return readFileSync(`node_modules/${name}/${f}`, "utf8"); } catch { return ""; } }).find(Boolean);
  return `${name} ${version}, ${license}\n\n${(text || "").trim()}\n`;
});
writeFileSync(`${out}LICENSES.txt`, notices.join("\n----\n\n"));
