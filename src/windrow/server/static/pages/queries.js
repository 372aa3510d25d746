// All queries: thousands, searched and sorted here.
import { html, useMemo, useState } from "../vendor/ui.js";
import { get } from "../api.js";
import { Badge, Grid, Problem, usePolled } from "../parts.js";
import { bytes, number, short } from "../words.js";

const body = (text) => text.replace(/^\s*CREATE\s+(OR\s+REPLACE\s+)?QUERY\s+\S+\s+AS\s+/i, "").replace(/\s+/g, " ");

const COLUMNS = [
  { name: "name", label: "query", value: (q) => q.name, show: (q) => html`<a href="#/query/${encodeURIComponent(q.name)}">${q.name}</a>` },
  { name: "pattern", label: "pattern", value: (q) => q.pattern, show: (q) => html`<${Badge} pattern=${q.pattern} />` },
  { name: "rate", label: "answers/s", number: true, value: (q) => q.answers_per_second ?? null, show: (q) => short(q.answers_per_second) },
  { name: "answers", label: "answers", number: true, value: (q) => q.answers ?? 0, show: (q) => short(q.answers ?? 0) },
  { name: "lag", label: "behind", number: true, wide: true, value: (q) => q.behind ?? null, show: (q) => (q.behind == null ? "–" : `${number(q.behind)} ticks`) },
  { name: "state", label: "state", number: true, wide: true, value: (q) => q.state_bytes ?? null, show: (q) => bytes(q.state_bytes) },
  { name: "shared", label: "shares with", number: true, wide: true, value: (q) => q.shared_with ?? 0, show: (q) => (q.shared_with ? number(q.shared_with) : "–") },
  { name: "health", value: (q) => q.failed || "", show: (q) => (q.failed ? html`<span class="badge failed" title=${q.failed}>failed</span>` : "well") },
  { name: "text", label: "asks", wide: true, value: (q) => q.text, show: (q) => html`<code>${body(q.text).slice(0, 160)}</code>` },
];

export function Queries({ session }) {
  const [search, set] = useState("");
  const { value, error } = usePolled(() => get("/api/queries"), 3000);
  const queries = value || [];
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return words.length ? queries.filter((q) => { const all = `${q.name} ${q.text} ${q.pattern} ${q.failed ? "failed" : ""}`.toLowerCase(); return words.every((w) => all.includes(w)); }) : queries;
  }, [search, value]);
  return html`<div class="head"><h1>Queries</h1>
    <label><span class="hidden">search</span><input type="search" placeholder="name, text, pattern or failed" value=${search} onInput=${(e) => set(e.target.value)} /></label>
    <span class="soft" role="status">${value ? `${number(found.length)} of ${number(queries.length)}` : "looking …"}</span>
    ${session.right === "admin" && html`<span class="end"><a class="button main" href="#/add">Add a query</a></span>`}</div>
  <${Problem} error=${error} />
  <${Grid} label="queries" columns=${COLUMNS} rows=${found} keyOf=${(q) => q.name} sortable height="calc(100vh - 7.5rem)" />`;
}
