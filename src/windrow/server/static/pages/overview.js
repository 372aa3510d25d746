// How the engine is doing, as figures and as charts that move.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { get } from "../api.js";
import { Lines } from "../charts.js";
import { Figure, HeldBack } from "../parts.js";
import { bytes, counted, instant, isWall, number, seconds, short } from "../words.js";

export const PHASES = ["plan", "job", "collect", "archives", "commit", "sinks", "sweep"];
const KEPT = 600, DRAWN = 240, TOO_FEW = "drawn from the second tick on";

// The newest ticks, gathered while the page is open.
export function useTicks(status) {
  const [ticks, set] = useState([]);
  const newest = useRef(-1), busy = useRef(false);
  useEffect(() => {
    if (!status || busy.current) return;
    busy.current = true;
    if (status.ticks < newest.current) { newest.current = -1; set([]); } // another server: it counts anew
    get(`/api/ticks?after=${newest.current}`).then((more) => {
      if (!more.length) return;
      newest.current = more[more.length - 1].tick;
      set((before) => [...before, ...more].slice(-KEPT));
    }, () => {}).finally(() => { busy.current = false; });
  }, [status]);
  return ticks;
}

// What the status says now, kept since the page was opened.
function useSamples(status) {
  const samples = useRef([]);
  if (status && samples.current[samples.current.length - 1]?.now_us !== status.now_us) {
    samples.current = [...samples.current, status].slice(-KEPT);
  }
  return samples.current;
}

const streamSum = (s, name) => Object.values(s.streams || {}).reduce((sum, one) => sum + (one[name] || 0), 0);

// What does not go on by itself or is tried again and again: streams, tables and sinks.
const troubles = (s) => [
  ...Object.entries(s.streams || {}).filter(([, one]) => one.error).map(([name, one]) => [`Stream ${name} stands still:`, one.error, "streams"]),
  ...Object.entries(s.tables || {}).filter(([, one]) => one.error).map(([name, one]) => [`Table ${name} cannot be read:`, one.error, "streams"]),
  ...Object.entries(s.sinks || {}).flatMap(([query, each]) => Object.entries(each).filter(([, one]) => one.error || one.hanging_since || one.missing)
    .map(([name, one]) => [`Sink ${name} of ${query} fails:`, one.error || one.given_up || (one.missing ? "it is not there" : "it does not come back"), `query/${encodeURIComponent(query)}`])),
];

export function Overview({ status, session }) {
  const ticks = useTicks(status).slice(-DRAWN), samples = useSamples(status);
  if (!status) return html`<p class="waiting">looking …</p>`;
  const first = samples[0], last = samples[samples.length - 1], past = (last.now_us - first.now_us) / 1e6;
  const rate = status.rows_per_second ?? (past > 0 ? (streamSum(last, "rows") - streamSum(first, "rows")) / past : 0);
  const lag = isWall(status.frontier) ? (status.now_us - status.frontier) / 1e6 : null;
  const late = streamSum(status, "late"), aside = streamSum(status, "quarantined"), failed = Object.keys(status.failed || {}).length;
  const times = ticks.map((t) => t.ended), at = samples.map((s) => s.now_us / 1e6);
  const sampled = samples.slice(1).map((s, i) => (streamSum(s, "rows") - streamSum(samples[i], "rows")) / Math.max(1e-3, (s.now_us - samples[i].now_us) / 1e6));
  return html`<div class="head"><h1>Overview</h1><span class="soft">${status.frontier == null || instant(status.frontier) === "–" ? (status.counts.streams ? "no answer yet" : "nothing is declared yet") : `answers are complete up to ${instant(status.frontier)}${lag == null ? "" : " UTC"}`}</span></div>
  <div class="cards">
    <${Figure} label="rows a second" value=${short(rate)} note="${short(streamSum(status, "rows"))} so far" />
    <${Figure} label=${lag < -1 ? "ahead of now" : "behind now"} value=${lag == null ? "–" : seconds(lag < -1 ? -lag : Math.max(0, lag))} note=${lag != null ? "" : instant(status.frontier) === "–" ? "no answer yet" : "time is in ticks"} />
    <${Figure} label="tick" value=${status.tick_ms?.total != null ? seconds(status.tick_ms.total / 1000) : number(status.ticks)} note=${counted(status.ticks, "tick")} />
    <${Figure} label="queries" value=${number(status.counts.queries)} note=${failed ? `${failed} failed` : `${short(status.answers)} answers`} bad=${failed > 0} />
    <${Figure} label="state" value=${bytes(status.state?.bytes)} note=${status.state?.runs != null ? counted(status.state.runs, "run") : ""} />
    <${Figure} label="memory" value=${bytes(status.memory_bytes)} note="of this process" />
    <${Figure} label="set aside" value=${number(late + aside)} note=${late + aside ? html`<a href="#/aside">look at them</a>` : "late or unreadable"} bad=${late + aside > 0} />
  </div>
  ${!status.counts.streams && !status.counts.tables && html`<div class="note">This engine has no stream yet. ${session.right === "admin" ? html`<a href="#/add">Declare one</a> with <code>CREATE STREAM</code>, or give` : "Give"} <code>windrow serve</code> a script.</div>`}
  <${HeldBack} status=${status} />
  ${Object.entries(status.failed || {}).map(([name, why]) => html`<div class="note bad" role="alert"><strong>${name} has stopped:</strong> ${why}</div>`)}
  ${troubles(status).map(([what, why, where]) => html`<div class="note bad" role="alert"><strong>${what}</strong> <a href="#/${where}">look at it</a><pre>${why}</pre></div>`)}
  ${status.shedding?.gates && Object.values(status.shedding.gates).some((g) => g.shedding) && html`<div class="note warn" role="status">Ticks take longer than their budget: the least important rows are being shed.</div>`}
  <div class="two">
    <section class="panel"><h2>Rows a second</h2>${ticks.length > 1
      ? html`<${Lines} label="rows a second" times=${times} series=${[{ label: "rows/s", values: rates(ticks, "rows") }]} />`
      : at.length < 3 ? html`<div class="empty">looking …</div>` : html`<${Lines} label="rows a second" times=${at.slice(1)} series=${[{ label: "rows/s", values: sampled }]} />`}</section>
    <section class="panel"><h2>Tick time by phase, ms</h2>${ticks.length > 1 ? html`<${Lines} label="milliseconds" stacked times=${times}
      series=${PHASES.map((p) => ({ label: p, values: ticks.map((t) => t.ms[p] ?? 0) }))} />` : html`<div class="empty">${TOO_FEW}</div>`}</section>
    <section class="panel"><h2>Behind now, seconds</h2>${ticks.length < 2 ? html`<div class="empty">${TOO_FEW}</div>` : ticks.some((t) => isWall(t.frontier))
      ? html`<${Lines} label="seconds behind now" times=${times} series=${[{ label: "lag", values: ticks.map((t) => (isWall(t.frontier) ? t.ended - t.frontier / 1e6 : null)) }]} />`
      : html`<div class="empty">${ticks.some((t) => instant(t.frontier) !== "–") ? "the streams have clocks of their own: time is counted in ticks" : "no answer yet"}</div>`}</section>
    <section class="panel"><h2>State and memory</h2>${at.length < 2 ? html`<div class="empty">looking …</div>` : html`<${Lines} label="bytes" times=${at} format=${bytes}
      series=${[{ label: "state", values: samples.map((s) => s.state?.bytes ?? null) }, { label: "memory", values: samples.map((s) => s.memory_bytes ?? null) }]} />`}</section>
    <section class="panel"><h2>Answer rows a second</h2>${ticks.length > 1 ? html`<${Lines} label="answer rows a second" times=${times} series=${[{ label: "answers/s", values: rates(ticks, "answers"), colour: "--c3" }]} />` : html`<div class="empty">${TOO_FEW}</div>`}</section>
    <section class="panel"><h2>Late rows</h2>${ticks.length > 1 ? html`<${Lines} label="late rows a tick" times=${times} series=${[{ label: "late", values: ticks.map((t) => t.late), colour: "--c2" }]} />` : html`<div class="empty">${TOO_FEW}</div>`}</section>
  </div>`;
}

const rates = (ticks, what) => ticks.map((t, i) => (i ? t[what] / Math.max(0.01, t.ended - ticks[i - 1].ended) : null));
