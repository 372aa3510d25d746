// Streams and tables: how fast, how skewed, what the newest rows look like.
import { html, useMemo, useState } from "../vendor/ui.js";
import { get, path } from "../api.js";
import { Grid, HeldBack, Problem, Rows, usePolled } from "../parts.js";
import { bytes, cell, counted, instant, number, short, span, typeName } from "../words.js";

// The share of the most frequent value of each column, in the rows that are shown.
function skew(columns, rows) {
  return columns.map((c, i) => {
    const counts = new Map();
    for (const row of rows) counts.set(row[i], (counts.get(row[i]) || 0) + 1);
    const [value, n] = [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), [null, 0]);
    return { column: c.name, type: typeName(c.type), distinct: counts.size, value, share: rows.length ? n / rows.length : 0 };
  });
}

function Sample({ kind, name, label }) {
  const { value, error } = usePolled(() => get(`${path(kind, name, "rows")}?limit=1000`), kind === "streams" ? 5000 : 0, [kind, name]);
  const found = useMemo(() => (value ? skew(value.columns, value.rows) : []), [value]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!value) return html`<p class="soft">looking …</p>`;
  const columns = [
    { name: "column", value: (s) => s.column }, { name: "type", value: (s) => s.type, wide: true }, { name: "distinct", number: true, value: (s) => s.distinct },
    { name: "value", label: "most frequent", value: (s) => cell(s.value) }, { name: "share", number: true, value: (s) => s.share, show: (s) => `${(100 * s.share).toFixed(1)} %` },
  ];
  return html`<h3>${label}, ${number(value.rows.length)} of ${number(value.total)}</h3><${Rows} label="${label} of ${name}" columns=${value.columns} rows=${[...value.rows].reverse()} height="18rem" />
    ${value.rows.length > 0 && html`<h3>Skew in these rows</h3><${Grid} label="skew of ${name}" columns=${columns} rows=${found} height="14rem" />`}`;
}

// Where rows come from, as one declares it.
function source({ source: kind, ...options }) {
  const said = Object.entries(options).map(([name, value]) => `${name} => '${value}'`).join(", ");
  return said ? `${kind} (${said})` : kind;
}

const Columns = ({ columns, time }) => columns.map((c) => html`<span class="column"><code>${c.name}</code> <span class="soft">${typeName(c.type)}${c.name === time ? ", its time" : ""}</span></span>`);

function Stream({ stream }) {
  const [shown, show] = useState(false);
  const s = stream.status;
  return html`<section class="panel"><div class="head"><h2>${stream.name}</h2>${s.idle && html`<span class="badge warn">idle</span>`}${s.late > 0 && html`<a class="badge warn" href="#/aside">${number(s.late)} late</a>`}${s.quarantined > 0 && html`<a class="badge failed" href="#/aside">${number(s.quarantined)} in quarantine</a>`}
    <span class="end"><button aria-expanded=${shown} onClick=${() => show(!shown)}>Newest rows</button></span></div>
    ${s.error && html`<div class="note bad" role="alert"><strong>This stream stands still.</strong><pre>${s.error}</pre></div>`}
    <div class="two"><dl class="facts">
      <dt>rows a second</dt><dd>${short(s.rows_per_second)}</dd><dt>rows</dt><dd>${number(s.rows)}</dd><dt>newest time</dt><dd>${instant(s.greatest)}</dd><dt>answers are</dt><dd>${s.lag == null ? "–" : s.lag <= stream.slack + 1 ? "up to date" : `${span(s.lag, stream.clock)} behind it`}</dd>
      ${s.source_lag != null && html`<dt>not read yet</dt><dd>${number(s.source_lag)} rows</dd>`}</dl>
    <dl class="facts"><dt>source</dt><dd>${stream.source ? source(stream.source) : "rows are pushed"}</dd>
      <dt>within</dt><dd>${stream.slack ? span(stream.slack, stream.clock) : "rows come in order"}</dd><dt>retain</dt><dd>${stream.retain == null ? "nothing" : span(stream.retain, stream.clock)}${s.kept_bytes ? `, ${bytes(s.kept_bytes)}` : ""}</dd><dt>idle after</dt><dd>${stream.idle_after == null ? "never" : span(stream.idle_after, "microsecond")}</dd>
      <dt>columns</dt><dd><${Columns} columns=${stream.columns} time=${stream.time} /></dd></dl></div>
    ${shown && (stream.retain == null ? html`<p class="soft">This stream keeps no rows; declare it with RETAIN to see some here.</p>` : html`<${Sample} kind="streams" name=${stream.name} label="Newest rows" />`)}</section>`;
}

function Table({ table }) {
  const [shown, show] = useState(false);
  const s = table.status;
  return html`<section class="panel"><div class="head"><h2>${table.name}</h2><span class="soft">${table.rows != null ? counted(table.rows, "row") : ""}${table.retroactive ? ", retroactive" : ""}</span>${s.error && html`<span class="badge failed" title=${s.error}>cannot be read</span>`}
    <span class="end"><button aria-expanded=${shown} onClick=${() => show(!shown)}>Rows</button></span></div>
    <dl class="facts"><dt>columns</dt><dd><${Columns} columns=${table.columns} /></dd>${s.version_us && html`<dt>read</dt><dd>${instant(s.version_us)}</dd>`}</dl>
    ${shown && html`<${Sample} kind="tables" name=${table.name} label="Rows" />`}</section>`;
}

export function Streams({ session, status }) {
  const { value, error } = usePolled(() => Promise.all([get("/api/streams"), get("/api/tables")]), 2000);
  if (!value) return error ? html`<${Problem} error=${error} />` : html`<p class="waiting">looking …</p>`;
  const [streams, tables] = value;
  return html`<div class="head"><h1>Streams and tables</h1></div><${HeldBack} status=${status} />
    ${streams.map((s) => html`<${Stream} key=${s.name} stream=${s} />`)}${tables.map((t) => html`<${Table} key=${t.name} table=${t} />`)}
    ${!streams.length && !tables.length && html`<div class="empty">Nothing is declared yet. ${session.right === "admin" ? html`<a href="#/add">Declare a stream</a>, or` : "An administrator can declare a stream, or"} give <code>windrow serve</code> a script.</div>`}`;
}
