// All queries: thousands, of which the server searches, sorts and sends those in sight.
import { html, useState } from "../vendor/ui.js";
import { page } from "../api.js";
import { Badge, Grid, Problem, usePolled } from "../parts.js";
import { bytes, number, short, span } from "../words.js";

const PAGE = 200;

const body = (text) => text.replace(/^\s*CREATE\s+(OR\s+REPLACE\s+)?QUERY\s+\S+\s+AS\s+/i, "").replace(/\s+/g, " ");

const COLUMNS = [
  { name: "name", label: "query", value: (q) => q.name, show: (q) => html`<a href="#/query/${encodeURIComponent(q.name)}">${q.name}</a>` },
  { name: "pattern", label: "pattern", value: (q) => q.pattern, show: (q) => html`<${Badge} pattern=${q.pattern} />` },
  { name: "rate", label: "answers/s", number: true, value: (q) => q.answers_per_second ?? null, show: (q) => short(q.answers_per_second) },
  { name: "answers", label: "answers", number: true, value: (q) => q.answers ?? 0, show: (q) => short(q.answers ?? 0) },
  { name: "late", label: "late", number: true, wide: true, value: (q) => q.deadline?.late ?? 0, show: (q) => (q.deadline?.late ? html`<span class="badge warn">${late(q)}</span>` : "no") },
  { name: "state", label: "state", number: true, wide: true, value: (q) => q.state_bytes ?? null, show: (q) => (q.shared_with ? html`<span class="soft" title="kept once, with those it shares with">${bytes(q.state_bytes)}</span>` : bytes(q.state_bytes)) },
  { name: "shared", label: "shares with", number: true, wide: true, value: (q) => q.shared_with ?? 0, show: (q) => (q.shared_with ? number(q.shared_with) : "–") },
  { name: "failed", label: "health", value: (q) => q.failed || "", show: (q) => (q.failed ? html`<span class="badge failed" title=${q.failed}>failed</span>` : "well") },
  { name: "text", label: "asks", wide: true, value: (q) => q.text, show: (q) => html`<code>${body(q.text).slice(0, 160)}</code>` },
];

const late = (q) => span(q.deadline.late, q.unit);

export function Queries({ session, status }) {
  const [search, set] = useState("");
  const [{ from, order }, look] = useState({ from: 0, order: null });
  const words = { limit: PAGE, ...(search.trim() && { search }), ...(order && { sort: order.name, down: order.down }) };
  const { value, error } = usePolled(() => page("/api/queries", from, words), 3000, [search, from, order]);
  const seen = (first, order) => look({ from: Math.max(0, Math.floor(first / 50) * 50 - 50), order });
  return html`<div class="head"><h1>Queries</h1>
    <label><span class="hidden">search</span><input type="search" placeholder="name, text, pattern or failed" value=${search} onInput=${(e) => set(e.target.value)} /></label>
    <span class="soft" role="status">${value ? `${number(value.total)} of ${number(status?.counts.queries ?? value.total)}` : "looking …"}</span>
    ${session.right === "admin" && html`<span class="end"><a class="button main" href="#/add">Add a query</a></span>`}</div>
  <${Problem} error=${error} />
  <${Grid} label="queries" columns=${COLUMNS} rows=${value?.rows ?? []} from=${value?.from} total=${value?.total ?? 0} onView=${seen} keyOf=${(q) => q.name} sortable empty=${!value ? "looking …" : search.trim() ? "no query has this in its name, text or pattern" : session.right === "admin" ? html`No query yet: <a href="#/add">add one</a>, or press <kbd>n</kbd>.` : "no query yet"} height="calc(100vh - 7.5rem)" />`;
}
