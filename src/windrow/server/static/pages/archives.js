// Archives: which there are, how their rows lie on disk, and their rows by key.
import { html, useState } from "../vendor/ui.js";
import { get, path } from "../api.js";
import { Figure, Grid, Problem, Rows, usePolled } from "../parts.js";
import { bytes, instant, number, seconds, short, span } from "../words.js";

const COLUMNS = [
  { name: "name", label: "archive", value: (a) => a.name, show: (a) => html`<a href="#/archive/${encodeURIComponent(a.name)}">${a.name}</a>` },
  { name: "keys", label: "key", value: (a) => a.keys.join(", "), show: (a) => html`<code>${a.keys.join(", ")}</code>` },
  { name: "rows", number: true, value: (a) => a.status.rows, show: (a) => short(a.status.rows) },
  { name: "bytes", label: "size", number: true, wide: true, value: (a) => a.status.bytes, show: (a) => bytes(a.status.bytes) },
  { name: "as_of", label: "as of", value: (a) => a.status.as_of, show: (a) => instant(a.status.as_of) },
  { name: "every", label: "updated every", number: true, wide: true, value: (a) => a.every, show: (a) => span(a.every, a.clock) },
  { name: "waiting", number: true, wide: true, value: (a) => a.status.waiting, show: (a) => short(a.status.waiting) },
  { name: "layout", wide: true, value: (a) => a.status.layout },
  { name: "health", value: (a) => a.failed || "", show: (a) => (a.failed ? html`<span class="badge failed" title=${a.failed}>failed</span>` : "well") },
];

export function Archives() {
  const { value, error } = usePolled(() => get("/api/archives"), 3000);
  if (!value) return error ? html`<${Problem} error=${error} />` : html`<p class="waiting">looking …</p>`;
  return html`<div class="head"><h1>Archives</h1><span class="soft">rows of queries on disk, found by key</span></div>
    ${value.length ? html`<${Grid} label="archives" columns=${COLUMNS} rows=${value} keyOf=${(a) => a.name} sortable />`
      : html`<div class="panel empty">No archive is declared. <code>CREATE ARCHIVE recent AS SELECT … KEY k EVERY '10 minutes'</code> keeps the rows of a query on disk.</div>`}`;
}

const FEW = 12; // parts on a side up to which a cell has room for a number

// Where rows lie: a row of cells for each part of insertion time, a column for each part of expiration time.
function Layout({ layout, old }) {
  const { insertions, expirations, rows } = layout, most = Math.max(...rows, 1), numbers = Math.max(insertions, expirations) <= FEW;
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  return html`<h3>${layout.layout}${old ? ", running empty" : ""}</h3>
    <div class="scroll" tabindex="0" role="region" aria-label="rows by sub-index"><table class="cells ${numbers ? "" : "small"}" aria-label="rows by sub-index, ${layout.layout}">
      <thead><tr><td></td>${range(expirations).map((e) => html`<th scope="col">${numbers ? `ends ${e + 1}` : e + 1}</th>`)}</tr></thead>
      <tbody>${range(insertions).map((g) => html`<tr><th scope="row">${numbers ? `comes ${g + 1}` : g + 1}</th>${range(expirations).map((e) => {
        const i = g * expirations + e;
        return html`<td class=${rows[i] ? "" : "none"} style=${{ background: `color-mix(in srgb, var(--accent) ${Math.round((32 * rows[i]) / most)}%, transparent)` }} title="${number(rows[i])} rows, ${bytes(layout.bytes[i])}">${numbers ? short(rows[i]) : ""}</td>`;
      })}</tr>`)}</tbody></table></div>`;
}

const WAYS = [["key", "one key"], ["range", "a range of keys"], ["all", "all rows"]];

function Ends({ keys, name, label, values, set }) {
  return html`<div class="ends" role="group" aria-label=${label}><span class="soft">${label}</span>${keys.map((k, i) => html`<label>${k}<input type="text" name="${name}-${k}" value=${values[i] || ""} placeholder=${i || name !== "key" ? "any" : ""}
    onInput=${(e) => { const next = [...values]; next[i] = e.target.value; set(next); }} /></label>`)}</div>`;
}

// The first columns of a key that are filled in; the rest may stay open.
const filled = (values) => { const end = values.findIndex((v) => !v); return (end < 0 ? values : values.slice(0, end)).filter(Boolean); };

function Probe({ archive }) {
  const [way, go] = useState("key"), [key, setKey] = useState([]), [low, setLow] = useState([]), [high, setHigh] = useState([]);
  const [state, show] = useState({ busy: false });
  const run = async (event) => {
    event.preventDefault();
    show((s) => ({ ...s, busy: true }));
    const asked = new URLSearchParams({ limit: 1000 }), begun = performance.now();
    const ends = way === "key" ? { key } : way === "range" ? { low, high } : {};
    for (const [end, values] of Object.entries(ends)) for (const v of filled(values)) asked.append(end, v);
    try {
      const answer = await get(`${path("archives", archive.name, way === "all" ? "rows" : "probe")}?${asked}`);
      show({ answer, busy: false, took: (performance.now() - begun) / 1000 });
    } catch (error) { show({ error, busy: false }); }
  };
  const { answer } = state;
  return html`<section class="panel"><h2>Rows</h2><form class="probe" onSubmit=${run}>
      <label>Find <select value=${way} onChange=${(e) => go(e.target.value)}>${WAYS.map(([v, said]) => html`<option value=${v}>${said}</option>`)}</select></label>
      ${way === "key" && html`<${Ends} keys=${archive.keys} name="key" label="with" values=${key} set=${setKey} />`}
      ${way === "range" && html`<${Ends} keys=${archive.keys} name="low" label="from" values=${low} set=${setLow} /><${Ends} keys=${archive.keys} name="high" label="to, included" values=${high} set=${setHigh} />`}
      <button class="main" disabled=${state.busy}>${way === "all" ? "Scan" : "Probe"}</button></form>
    <${Problem} error=${state.error} />
    ${answer && html`<p class="soft" role="status">${number(answer.total)} rows in ${seconds(state.took)}, as of ${instant(Number(answer.as_of))}${answer.rows.length < answer.total ? `; ${number(answer.rows.length)} are shown` : ""}</p>
      <${Rows} label="rows of ${archive.name}" columns=${answer.columns} rows=${answer.rows} height="26rem" empty="no rows" />`}</section>`;
}

export function ArchivePage({ args }) {
  const { value, error } = usePolled(() => get("/api/archives"), 3000);
  if (!value) return error ? html`<${Problem} error=${error} />` : html`<p class="waiting">looking …</p>`;
  const archive = value.find((a) => a.name.toLowerCase() === (args[0] || "").toLowerCase());
  if (!archive) return html`<div class="head"><h1>${args[0]}</h1></div><div class="empty">There is no archive of this name.</div>`;
  const s = archive.status, current = archive.layouts[0];
  return html`<div class="head"><h1>${archive.name}</h1><span class="soft">key ${archive.keys.join(", ")}; updated every ${span(archive.every, archive.clock)}</span></div>
  ${archive.failed && html`<div class="note bad" role="alert"><strong>This archive has stopped:</strong> ${archive.failed}</div>`}
  <div class="cards">
    <${Figure} label="rows" value=${short(s.rows)} note=${s.waiting ? `${short(s.waiting)} wait for the next update` : ""} />
    <${Figure} label="size" value=${bytes(s.bytes)} note="on disk" />
    <${Figure} label="as of" value=${instant(s.as_of)} note="the last update" />
    <${Figure} label="updates" value=${number(s.updates)} note="since the engine began" />
    <${Figure} label="a row lives" value=${span(archive.lifetime, archive.clock)} note="at most" />
  </div>
  <${Probe} archive=${archive} />
  <div class="two"><section class="panel"><h2>Layout</h2>
    ${current ? html`<p class="soft">Rows by the part of time in which they come and the part in which they end. An update opens ${current.insertions + current.expirations - 1} of ${current.insertions * current.expirations} sub-indices.</p>${archive.layouts.map((l, i) => html`<${Layout} layout=${l} old=${i > 0} />`)}`
      : html`<div class="empty">no update yet: it comes with the first multiple of ${span(archive.every, archive.clock)} that time reaches</div>`}</section>
  <section class="panel"><h2>Query</h2><pre class="wrap">${archive.text}</pre></section></div>`;
}
