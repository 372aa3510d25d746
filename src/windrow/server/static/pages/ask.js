// Ask once, now.
import { html, useEffect, useState } from "../vendor/ui.js";
import { get, post } from "../api.js";
import { Bars, choices, labelOf } from "../charts.js";
import { Editor } from "../editor.js";
import { Problem, Rows } from "../parts.js";
import { counted, instant, quoted, seconds, written } from "../words.js";

// A question to begin with: over a stream that keeps rows, else over the relation of a query, else over a table.
async function example() {
  const [streams, tables, [query]] = await Promise.all([get("/api/streams"), get("/api/tables"), get("/api/queries?limit=1")]);
  const kept = streams.find((s) => s.retain), other = query || tables[0];
  if (kept) return `SELECT COUNT(*) AS n FROM ${quoted(kept.name)} [RANGE ${kept.clock === "microsecond" ? written(kept.retain) : kept.retain}]`;
  return other ? `SELECT * FROM ${quoted(other.name)}` : "";
}

export function Ask() {
  const [text, set] = useState(localStorage.getItem("asked"));
  useEffect(() => { if (text === null) example().then(set, () => set("")); }, []);
  const [isolation, isolate] = useState("snapshot");
  const [state, show] = useState({ answer: null, error: null, busy: false });
  const run = async () => {
    localStorage.setItem("asked", text);
    show((s) => ({ ...s, busy: true }));
    const begun = performance.now();
    try {
      const answer = await post("/api/ask", { query: text, isolation });
      show({ answer, error: null, busy: false, took: (performance.now() - begun) / 1000 });
    } catch (error) { show({ answer: null, error, busy: false }); }
  };
  const { answer } = state, drawn = answer && choices(answer.columns), value = drawn?.numbers[drawn.numbers.length - 1];
  return html`<div class="head"><h1>Ask</h1><span class="soft">a SELECT over kept windows, tables and the relations of queries, answered once</span>
    <span class="end"><label>Isolation <select value=${isolation} onChange=${(e) => isolate(e.target.value)}><option value="snapshot">snapshot: as of its start</option><option value="latest">latest: as of its end</option></select></label>
    <button class="main" disabled=${state.busy || !text} onClick=${run}>Ask</button></span></div>
  ${text !== null && html`<${Editor} label="question" value=${text} onChange=${set} onRun=${run} check=${false} error=${state.error} />`}
  <p class="soft">${state.busy ? "asking …" : text === "" ? "Ctrl-Enter asks. Streams declared with RETAIN, tables, archives and running queries can be read." : "Ctrl-Enter asks"}</p><${Problem} error=${state.error} />
  ${answer && html`<p class="soft" role="status">${counted(answer.total, "row")} in ${seconds(state.took)}${answer.as_of ? `, exact as of ${instant(Number(answer.as_of))}` : ""}${answer.isolation ? `, ${answer.isolation}` : ""}${answer.from ? `, from ${answer.from}` : ""}</p>
    <div class="two"><section class="panel"><${Rows} label="answer" columns=${answer.columns} rows=${answer.rows} empty="no rows" /></section>
    ${value && answer.rows.length > 1 && html`<section class="panel"><h2>${value.name}</h2><${Bars} label=${value.name} rows=${answer.rows.map((r) => ({ label: labelOf(r, drawn.others.map((c) => c.i)), value: Number(r[value.i]) }))} /></section>`}</div>`}`;
}
