// One query: its answer as it changes, a chart of it, its plan, with whom it shares.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { changes, get, path, post } from "../api.js";
import { Bars, Lines, choices, labelOf } from "../charts.js";
import { Badge, HeldBack, Missing, Problem, Rows, usePolled } from "../parts.js";
import { Plan, breadth } from "../plan.js";
import { go } from "../route.js";
import { bytes, counted, isTime, number, quoted, short } from "../words.js";

const NEWEST = 2000, POINTS = 600, FRESH = 1600; // milliseconds that a row is shown as new

// The rows of a stream by their instant: seconds, or ticks of the stream's own clock.
function instants(columns, rows) {
  const ts = columns.findIndex((c) => c.name === "_ts"), wall = ts >= 0 && isTime(columns[ts].type), found = new Map();
  for (const row of rows) { const list = found.get(row[ts]); if (list) list.push(row); else found.set(row[ts], [row]); }
  return [...found].map(([at, list]) => ({ at: wall ? Date.parse(/Z$/.test(at) ? at : `${at}Z`) / 1000 : at, rows: list }));
}

// The answer, kept by applying each change to it. A relation is a bag of rows; a stream is its newest rows.
function useAnswer(name, relation) {
  const [state, set] = useState({ columns: null, rows: [], tick: null, fresh: new Map(), link: "connecting", points: [] });
  useEffect(() => {
    if (relation === undefined) return undefined;
    let columns = null, bag = new Map(), list = [], points = [], shown = null;
    const fresh = new Map(); // rows by when they came
    const show = (tick, keys) => {
      const now = performance.now(), waiting = shown !== null;
      for (const key of keys) { fresh.delete(key); fresh.set(key, now); }
      shown = tick;
      if (waiting) return;
      requestAnimationFrame(() => {
        const tick = shown; shown = null;
        for (const [key, at] of fresh) { if (at > performance.now() - FRESH) break; fresh.delete(key); }
        const rows = relation ? [...bag.values()].flatMap((b) => (b.n > 0 ? Array(b.n).fill(b.row) : [])) : [...list];
        set((s) => ({ ...s, columns, rows, tick, fresh, points: relation ? [...points] : instants(columns, list) }));
      });
    };
    const note = (rows, now) => { points.push({ at: now, rows }); if (points.length > POINTS) points.shift(); };
    const reset = (event) => {
      columns = event.columns; bag = new Map(); list = event.rows.slice(-NEWEST);
      for (const row of event.rows) count(row, 1);
      note(event.rows, Date.now() / 1000);
      show(event.tick, []);
      if (!relation) get(`${path("queries", name, "results")}?limit=${NEWEST}`).then(({ rows }) => { // what came before
        const first = list[0]?.[0];
        list = [...(first === undefined ? [] : rows.filter((r) => r[0] < first)), ...list].slice(-NEWEST);
        show(event.tick, []);
      }, () => {});
    };
    const count = (row, n) => {
      const key = JSON.stringify(row), known = bag.get(key) || { row, n: 0 };
      known.n += n;
      if (known.n > 0) bag.set(key, known); else bag.delete(key);
      return key;
    };
    const change = (event) => {
      const keys = [];
      if (relation) for (const [, op, ...row] of event.rows) { const key = count(row, op); if (op > 0) keys.push(key); }
      else { list = [...list, ...event.rows].slice(-NEWEST); keys.push(...event.rows.map((r) => JSON.stringify(r))); }
      if (relation) note(event.rows.filter((r) => r[1] > 0).map((r) => r.slice(2)), Date.now() / 1000);
      show(event.tick, keys);
    };
    return changes(name, { reset, change, state: (link) => set((s) => ({ ...s, link })), end: ({ stopped }) => set((s) => ({ ...s, link: stopped ? "stopped" : "dropped" })) });
  }, [name, relation]);
  return state;
}

function Chart({ columns, rows, points, periodic, stream }) {
  const { numbers, others } = useMemo(() => choices(columns), [columns]);
  const [chosen, setKind] = useState(null), [y, setY] = useState(null), [by, setBy] = useState(null);
  if (!numbers.length) return html`<div class="empty">no column holds numbers</div>`;
  const kind = chosen ?? (stream && points.length > 2 ? "lines" : "bars");
  const value = numbers.find((c) => c.name === y) || numbers[numbers.length - 1];
  const split = by === "" ? [] : others.filter((c) => by === null || c.name === by).map((c) => c.i);
  const clock = periodic ? columns.findIndex((c) => c.name === "_ts") : -1, newest = clock < 0 ? null : rows.at(-1)?.[clock];
  const bars = rows.filter((r) => clock < 0 || r[clock] === newest).map((r) => ({ label: labelOf(r, split), value: Number(r[value.i]) }));
  const highest = new Map();
  for (const bar of bars) if (!(highest.get(bar.label)?.value >= bar.value)) highest.set(bar.label, bar);
  return html`<div class="head"><label>Draw <select value=${kind} onChange=${(e) => setKind(e.target.value)}><option value="bars">${stream && !periodic ? "newest rows, as bars" : "now, as bars"}</option><option value="lines">over time</option></select></label>
    <label>of <select value=${value.name} onChange=${(e) => setY(e.target.value)}>${numbers.map((c) => html`<option>${c.name}</option>`)}</select></label>
    ${others.length > 0 && html`<label>by <select value=${by ?? "*"} onChange=${(e) => setBy(e.target.value === "*" ? null : e.target.value)}><option value="*">${others.map((c) => c.name).join(", ")}</option>${others.length > 1 && others.map((c) => html`<option>${c.name}</option>`)}<option value="">nothing</option></select></label>`}</div>
    ${kind === "bars" ? html`<${Bars} label=${value.name} rows=${[...highest.values()]} />${highest.size < bars.length && html`<p class="soft">the highest of the rows that go by one name</p>`}` : html`<${OverTime} points=${points} value=${value} split=${split} />`}`;
}

function OverTime({ points, value, split }) {
  const sums = new Map();
  for (const p of points) for (const r of p.rows) { const label = labelOf(r, split); sums.set(label, (sums.get(label) || 0) + 1); }
  const labels = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([l]) => l).sort();
  const held = {}, series = labels.map((label) => ({ label, values: [] }));
  for (const p of points) {
    for (const r of p.rows) held[labelOf(r, split)] = Number(r[value.i]);
    series.forEach((s) => s.values.push(held[s.label] ?? null));
  }
  if (points.length < 2) return html`<div class="empty">waiting for changes …</div>`;
  const times = points.map((p) => p.at);
  return html`<${Lines} label="${value.name} over time" fit height=${320} times=${times} wall=${times[0] > 1e8} series=${series} />`;
}

// With whom a query shares what: rows, cells and predicates of aggregates, joins and their synopses, or a dataflow.
function Sharing({ sharing }) {
  if (!sharing?.shared || !(sharing.queries > 1)) return html`<p class="soft">It runs by itself${sharing?.why ? `: ${sharing.why}` : ""}.</p>`;
  const others = Array.isArray(sharing.with) ? { "its dataflow": sharing.with } : sharing.with;
  const named = (names, all) => (names.length ? html`${names.slice(0, 12).map((n, i) => html`${i ? ", " : ""}<a href="#/query/${encodeURIComponent(n)}">${n}</a>`)}${all > 12 ? ` and ${number(all - 12)} more` : ""}` : "nobody");
  const { saves } = sharing, fewer = saves?.passes ?? saves?.joins;
  return html`<dl class="facts"><dt>queries</dt><dd>${number(sharing.queries)} as one${sharing.rows ? ` over ${sharing.rows}` : sharing.join ? `: ${sharing.join}` : ""}</dd>
    ${Object.entries(others).map(([what, names]) => html`<dt>${what} with</dt><dd>${named(names, sharing.others?.[what] ?? names.length)}</dd>`)}
    ${fewer != null && html`<dt>saves</dt><dd>${saves.instead_of} ${saves.joins != null ? "joins" : "passes over the rows"} become ${fewer}</dd>`}
    ${(sharing.operators ?? []).map((o) => html`<dt>${o.operator}</dt><dd>${{ all: "once for all", "by query": "rows told apart by query", "by cell": "rows told apart by who wants them" }[o.shared] ?? o.shared} <span class="soft">${o.detail}</span></dd>`)}</dl>`;
}

export function QueryPage({ args: [name], session, status }) {
  const { value: query, error } = usePolled(() => get(path("queries", name)), 5000, [name]);
  const answer = useAnswer(name, query?.relation);
  const [problem, fail] = useState(null);
  const sure = useRef(null);
  const drop = async () => { try { await post("/api/execute", { script: `DROP QUERY ${quoted(query.name)}` }); go("queries"); } catch (e) { fail(e); } };
  if (!query) return error ? html`<${Missing} name=${name} error=${error} all="All queries" where="queries" />` : html`<p class="waiting">looking …</p>`;
  const isNew = (row) => answer.fresh.has(JSON.stringify(row));
  const link = { live: ["", "live"], connecting: ["wait", "connecting"], reconnecting: ["wait", "reconnecting"], dropped: ["bad", "dropped"], stopped: ["bad", "stopped"], gone: ["bad", "disconnected"] }[answer.link];
  return html`<div class="head"><h1>${query.name}</h1><${Badge} pattern=${query.pattern} />
    <span class="soft">${query.relation ? "a relation" : "a stream"} over ${[...query.streams, ...query.tables].map((s) => html`<a href="#/streams">${s}</a> `)}</span>
    <span role="status" data-link=${answer.link}><span class="dot ${link[0]}"></span> ${link[1]}</span>
    ${session.right === "admin" && answer.link !== "dropped" && html`<span class="end"><a class="button" href="#/add/${encodeURIComponent(query.name)}">Replace</a><button class="bad" onClick=${() => sure.current.showModal()}>Drop</button></span>`}</div>
  <${Problem} error=${problem || (query.failed ? { message: "this query has stopped", detail: query.failed, hint: "drop it, or replace it" } : null)} />
  ${answer.link === "dropped" ? html`<div class="note warn" role="status"><strong>This query was dropped.</strong> What is shown is the last that came. <a href="#/queries">All queries</a></div>` : html`<${HeldBack} status=${status} />`}
  ${query.quality && Object.entries(query.quality).some(([, q]) => !q.exact) && html`<div class="note warn" role="status">Answers are approximate: ${Object.entries(query.quality).map(([what, q]) => `${number(q.rows_shed)} of ${number(q.rows_seen)} rows were shed for ${what}`).join("; ")}.</div>`}
  <div class="two">
    <section class="panel"><h2>Answer <span class="soft">${answer.columns ? counted(answer.rows.length, "row") : ""}${answer.tick != null ? `, tick ${number(answer.tick)}` : ""}</span></h2>
      ${answer.columns ? html`<${Rows} label="answer" columns=${answer.columns} rows=${query.relation ? answer.rows : [...answer.rows].reverse()} isNew=${isNew} empty=${query.relation ? "no rows now" : query.plan.clock.kind === "periodic" ? "nothing yet: the next answer comes with the next period" : "nothing yet"} height="32rem" initial=${query.relation ? { name: "0", down: false } : null} />` : html`<div class="empty">${answer.link === "stopped" ? "a query that has stopped has no answer" : "waiting for the answer …"}</div>`}</section>
    <section class="panel"><h2>Chart</h2>${answer.columns ? html`<${Chart} columns=${answer.columns} rows=${answer.rows} points=${answer.points} periodic=${query.plan.clock.kind === "periodic"} stream=${!query.relation} />` : html`<div class="empty">${answer.link === "stopped" ? "a query that has stopped has no answer" : "waiting for the answer …"}</div>`}</section>
  </div>
  <div class="two">
    <section class="panel ${breadth(query.plan.plan) > 2 ? "whole" : ""}"><h2>Plan <span class="soft">cost ${short(query.plan.cost)}, ${query.plan.clock.kind}</span></h2><${Plan} explained=${query.plan} label="plan" /></section>
    <div class="stack"><section class="panel"><h2>Text</h2><pre class="wrap" tabindex="0">${query.text}</pre></section>
      <section class="panel"><h2>Figures</h2><dl class="facts"><dt>answer rows</dt><dd>${number(query.status.answers ?? 0)}, ${short(query.status.answers_per_second)} a second</dd><dt>state</dt><dd>${bytes(query.status.state_bytes)}</dd><dt>sinks</dt><dd>${number(query.status.sinks ?? 0)}</dd></dl></section>
      <section class="panel"><h2>Sharing</h2><${Sharing} sharing=${query.sharing} /></section></div>
  </div>
  <details class="panel"><summary>EXPLAIN</summary><pre tabindex="0">${query.explain}</pre></details>
  <dialog ref=${sure} aria-label="drop ${query.name}"><h2>Drop ${query.name}?</h2><p>Its windows and its answer go with it.</p>
    <form method="dialog" class="head"><button>Keep it</button><button class="bad" onClick=${drop}>Drop it</button></form></dialog>`;
}
