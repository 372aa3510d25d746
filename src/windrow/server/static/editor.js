// A CQL editor: colours, completion of names, errors where they are, Ctrl-Enter runs.
import { html, useEffect, useRef } from "./vendor/ui.js";
import { get, post } from "./api.js";

const WORDS = `select from where group by having order limit distinct as and or not in exists between like is null case when then else end join left right full outer inner on using union all except intersect
create query stream table template drop explain format timestamp within idle after retain range rows slide partition by now unbounded internal istream dstream rstream wstream with valid retroactive shed importance keep at most
asof tumble hop session interval values cast count sum avg min max frequent filter over true false if replace view sink for to every archive key`;
const TYPES = "bigint integer int smallint double float decimal varchar text boolean timestamp date time blob hugeint uuid json second seconds minute minutes hour hours day days millisecond milliseconds microseconds";
let loading;
const library = () => (loading ||= import("./vendor/editor.js"));

async function names() {
  try {
    const [streams, tables] = await Promise.all([get("/api/streams"), get("/api/tables")]);
    return Object.fromEntries([...streams, ...tables].map((s) => [s.name, s.columns.map((c) => c.name)]));
  } catch { return {}; }
}

// With `check`, what the server says of the text is marked while one types; without, `error` is what it said last.
export function Editor({ value, onChange, onRun, label, check = true, onChecked, error = null, autofocus = true, readOnly = false }) {
  const box = useRef(null), view = useRef(null), now = useRef({});
  now.current = { onChange, onRun, onChecked };
  useEffect(() => {
    let gone = false;
    (async () => {
      const [cm, schema] = await Promise.all([library(), readOnly ? {} : names()]);
      if (gone) return;
      view.current = new cm.EditorView({ parent: box.current, state: cm.EditorState.create({ doc: value, extensions: extensions(cm, schema) }) });
      if (autofocus && !readOnly) view.current.focus();
    })();
    return () => { gone = true; view.current?.destroy(); view.current = null; };
  }, []);
  useEffect(() => {
    const v = view.current;
    if (v && v.state.doc.toString() !== value) v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
  }, [value]);

  useEffect(() => {
    if (!check) library().then((cm) => view.current?.dispatch(cm.setDiagnostics(view.current.state, error ? marked(view.current.state.doc, error) : [])));
  }, [error]);

  function extensions(cm, schema) {
    const dialect = cm.SQLDialect.define({ keywords: WORDS.replace(/\s+/g, " "), types: TYPES, doubleQuotedStrings: false, operatorChars: "*+-%<>!=&|~^/$" });
    const t = cm.tags;
    const colours = cm.HighlightStyle.define([
      { tag: t.keyword, color: "var(--c3)", fontWeight: "600" }, { tag: t.typeName, color: "var(--c4)" }, { tag: [t.string, t.special(t.string)], color: "var(--c2)" },
      { tag: [t.number, t.bool, t.null], color: "var(--c6)" }, { tag: t.comment, color: "var(--soft)", fontStyle: "italic" },
    ]);
    const run = { key: "Mod-Enter", run: () => { now.current.onRun?.(); return true; } };
    const nonce = document.querySelector("meta[name=style-nonce]").content;
    return [
      cm.EditorView.cspNonce.of(nonce), cm.EditorView.contentAttributes.of({ "aria-label": label }), cm.EditorView.lineWrapping,
      cm.EditorState.readOnly.of(readOnly), cm.Prec.highest(cm.keymap.of([run])), cm.sql({ dialect, schema, upperCaseKeywords: true }), cm.syntaxHighlighting(colours),
      ...(readOnly ? [] : [cm.lineNumbers(), cm.history(), cm.closeBrackets(), cm.bracketMatching(), cm.autocompletion(), cm.lintGutter(),
        cm.keymap.of([...cm.completionKeymap, ...cm.historyKeymap, ...cm.lintKeymap, ...cm.defaultKeymap])]),
      cm.EditorView.updateListener.of((u) => { if (u.docChanged) now.current.onChange?.(u.state.doc.toString()); }),
      cm.EditorView.theme({
        "&": { color: "var(--text)" }, ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)", padding: "10px 0" },
        ".cm-gutters": { background: "transparent", color: "var(--soft)", border: "none" }, "&.cm-focused .cm-cursor": { borderLeftColor: "var(--text)" },
        ".cm-tooltip": { background: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" }, ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--mark)", color: "var(--text)" },
        ".cm-diagnostic": { fontFamily: "inherit" }, "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--mark) !important" },
      }),
      ...(check && !readOnly ? [cm.linter(diagnose, { delay: 400 })] : []),
    ];
  }

  async function diagnose(v) {
    const text = v.state.doc.toString();
    if (!text.trim()) { now.current.onChecked?.([], null); return []; }
    try {
      now.current.onChecked?.(await post("/api/check", { script: text }), null);
      return [];
    } catch (error) {
      now.current.onChecked?.(null, error);
      return marked(v.state.doc, error);
    }
  }
  return html`<div class="editor" ref=${box}></div>`;
}

// An error as the editor marks it: the word at its place; all of the text if the text is wrong and no place is said.
function marked(doc, error) {
  const mark = (from, to) => [{ from, to, severity: "error", message: message(error) }];
  if (!error.line) return error.status === 400 ? mark(0, doc.length) : [];
  const line = doc.line(Math.min(error.line, doc.lines)), from = Math.min(line.from + error.column - 1, line.to);
  const word = /^[\w"]+/.exec(doc.sliceString(from, line.to));
  return mark(from, Math.min(line.to, from + (word ? word[0].length : 1)));
}

const message = (error) => [error.message, error.detail, error.hint].filter(Boolean).join("\n");
