// Rows that were set aside: those that came too late, and those that could not be read.
import { html, useMemo, useState } from "../vendor/ui.js";
import { get, path } from "../api.js";
import { Figure, Grid, Problem, Rows, usePolled } from "../parts.js";
import { number, span } from "../words.js";

const MOST = 1000;

const QUARANTINE = [
  { name: "tick", number: true, wide: true, value: (r) => r.tick, show: (r) => number(r.tick) },
  { name: "file", value: (r) => r.file, show: (r) => html`<span title=${r.file}>${(r.file || "").split("/").pop()}</span>` },
  { name: "position", value: (r) => r.position },
  { name: "reason", value: (r) => r.reason, show: (r) => html`<span title=${r.reason}>${r.reason}</span>` },
  { name: "text", label: "what is written", value: (r) => r.text, show: (r) => html`<code title=${r.text}>${r.text}</code>` },
];

const asObjects = (answer) => answer.rows.map((row) => Object.fromEntries(answer.columns.map((c, i) => [c.name, row[i]])));

const more = (answer) => (answer.rows.length < answer.total ? `the newest ${number(answer.rows.length)} of ${number(answer.total)}` : number(answer.total));

function Quarantine({ name, count }) {
  const { value, error } = usePolled(() => get(`${path("streams", name, "quarantine")}?limit=${MOST}`), 0, [name, count]);
  const rows = useMemo(() => (value ? asObjects(value).reverse() : []), [value]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!value) return html`<p class="soft">looking …</p>`;
  return html`<h3>In quarantine, ${more(value)}</h3><${Grid} label="quarantine of ${name}" columns=${QUARANTINE} rows=${rows} height="20rem" sortable />`;
}

function Late({ name, count }) {
  const { value, error } = usePolled(() => get(`${path("streams", name, "late")}?limit=${MOST}`), 0, [name, count]);
  const rows = useMemo(() => (value ? [...value.rows].reverse() : []), [value]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!value) return html`<p class="soft">looking …</p>`;
  return html`<h3>Late or too far ahead, ${more(value)}</h3><${Rows} label="late rows of ${name}" columns=${value.columns} rows=${rows} height="20rem" />`;
}

function Stream({ stream }) {
  const s = stream.status, [shown, show] = useState(s.quarantined > 0 ? "quarantine" : "late");
  const ways = [["quarantine", "In quarantine", s.quarantined], ["late", "Late", s.late]].filter(([, , n]) => n > 0);
  return html`<section class="panel"><div class="head"><h2>${stream.name}</h2><span class="soft">${stream.slack ? `rows may come ${span(stream.slack, stream.clock)} late` : "no row may come late"}${stream.source ? `; source: ${stream.source.source}` : ""}</span>
    <span class="end">${ways.length > 1 && ways.map(([what, label, n]) => html`<button aria-pressed=${shown === what} onClick=${() => show(what)}>${label}: ${number(n)}</button>`)}</span></div>
    ${s.error && html`<div class="note bad" role="alert"><strong>This stream stands still.</strong><pre>${s.error}</pre></div>`}
    ${shown === "quarantine" && s.quarantined > 0 && html`<${Quarantine} name=${stream.name} count=${s.quarantined} />`}
    ${shown === "late" && s.late > 0 && html`<${Late} name=${stream.name} count=${s.late} />`}</section>`;
}

export function Aside() {
  const { value, error } = usePolled(() => get("/api/streams"), 2000);
  if (!value) return error ? html`<${Problem} error=${error} />` : html`<p class="waiting">looking …</p>`;
  const sum = (name) => value.reduce((n, s) => n + (s.status[name] || 0), 0), rows = sum("rows");
  const concerned = value.filter((s) => s.status.late || s.status.quarantined || s.status.error);
  const share = (n) => (n && rows ? `${((100 * n) / rows).toPrecision(2)} % of the rows` : "");
  return html`<div class="head"><h1>Set aside</h1><span class="soft">rows that no answer has in it, kept for you to look at</span></div>
  <div class="cards">
    <${Figure} label="late rows" value=${number(sum("late"))} note=${share(sum("late"))} bad=${sum("late") > 0} />
    <${Figure} label="in quarantine" value=${number(sum("quarantined"))} note=${share(sum("quarantined"))} bad=${sum("quarantined") > 0} />
    <${Figure} label="streams concerned" value=${number(concerned.length)} note="of ${number(value.length)}" />
  </div>
  ${concerned.map((s) => html`<${Stream} key=${s.name} stream=${s} />`)}
  ${!concerned.length && html`<div class="panel empty">Nothing was set aside. Rows come here that are later than WITHIN allows, further ahead than AHEAD allows, or unreadable in a stream with ON ERROR QUARANTINE.</div>`}`;
}
