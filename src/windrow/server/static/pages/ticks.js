// Where the time of ticks goes, and what made the slow ones slow.
import { html, useState } from "../vendor/ui.js";
import { COLOURS } from "../charts.js";
import { Grid } from "../parts.js";
import { behind, clock, instant, isWall, number, seconds, short } from "../words.js";
import { PHASES, useTicks } from "./overview.js";

const DOES = { plan: "find what is new", job: "read and compute", collect: "put answers together", archives: "update archives", commit: "make it last", sinks: "hand answers on", sweep: "delete what is superseded" };
const SHOWN = 120, BAR = 8, HEIGHT = 180;
const median = (values) => { const s = [...values].sort((a, b) => a - b); return s.length ? s[s.length >> 1] : 0; };

// A tick is slow if it takes more than twice the median. The phase that grew most says why; so do more rows or answers.
function explain(tick, ticks) {
  const usual = (of) => median(ticks.map(of));
  const total = usual((t) => t.ms.total);
  if (!(tick.ms.total > 2 * total) || ticks.length < 5) return null;
  const grown = PHASES.map((p) => [p, (tick.ms[p] ?? 0) - usual((t) => t.ms[p] ?? 0)]).sort((a, b) => b[1] - a[1])[0];
  const why = [`${grown[0]} took ${seconds(grown[1] / 1000)} longer than usual`];
  for (const what of ["rows", "answers"]) { const often = usual((t) => t[what]); if (tick[what] > 2 * often) why.push(`${short(tick[what])} ${what} instead of ${short(often)}`); }
  const before = ticks.find((t) => t.tick === tick.tick - 1);
  if (before && tick.ended - tick.ms.total / 1000 - before.ended > 2) why.push(`nothing ran for ${seconds(tick.ended - tick.ms.total / 1000 - before.ended)} before it`);
  return why.join("; ");
}

function Timeline({ ticks, chosen, choose }) {
  const totals = ticks.map((t) => t.ms.total ?? 0).sort((a, b) => a - b);
  const highest = Math.max(totals[totals.length - 1], 1), top = Math.min(highest, Math.max(1, 3 * totals[Math.floor(0.95 * (totals.length - 1))])); // a few outliers are cut off
  return html`<div class="timeline" tabindex="0" role="region" aria-label="timeline of ticks"><svg width=${Math.max(ticks.length * (BAR + 2), 200)} height=${HEIGHT + 4} role="img" aria-label="${ticks.length} ticks, the slowest ${Math.round(highest)} ms">
    ${ticks.map((t, i) => {
      let y = HEIGHT;
      const x = i * (BAR + 2);
      return html`<g class="tick" key=${t.tick} onClick=${() => choose(t.tick)}><rect class=${chosen === t.tick ? "chosen" : ""} x=${x} y="0" width=${BAR + 2} height=${HEIGHT} fill="transparent"/><title>tick ${t.tick}: ${Math.round(t.ms.total)} ms</title>
        ${PHASES.map((p, k) => { const h = Math.min(y, (HEIGHT * (t.ms[p] ?? 0)) / top); y -= h; return html`<rect x=${x + 1} y=${y} width=${BAR} height=${h} style=${{ fill: `var(${COLOURS[k]})` }}/>`; })}</g>`;
    })}</svg></div>
    <div class="legend">${PHASES.map((p, k) => html`<span><b style=${{ background: `var(${COLOURS[k]})` }}></b>${p}: ${DOES[p]}</span>`)}<span>full height ${seconds(top / 1000)}${highest > top ? `, cut off above; highest ${seconds(highest / 1000)}` : ""}</span></div>`;
}

export function Ticks({ status }) {
  const all = useTicks(status);
  const [chosen, choose] = useState(null);
  const [held, hold] = useState(null);
  const ticks = held || all, shown = ticks.slice(-SHOWN), one = ticks.find((t) => t.tick === chosen);
  const slow = shown.map((t) => [t, explain(t, ticks)]).filter(([, why]) => why).reverse();
  const columns = [
    { name: "tick", number: true, value: (t) => t.tick, show: (t) => html`<button onClick=${() => choose(t.tick)}>${number(t.tick)}</button>` },
    { name: "ended", value: (t) => t.ended, show: (t) => clock(t.ended) }, { name: "total", label: "ms", number: true, value: (t) => t.ms.total, show: (t) => short(t.ms.total) },
    ...PHASES.map((p) => ({ name: p, number: true, wide: true, value: (t) => t.ms[p] ?? 0, show: (t) => short(t.ms[p] ?? 0) })),
    { name: "rows", number: true, value: (t) => t.rows, show: (t) => short(t.rows) }, { name: "answers", number: true, value: (t) => t.answers, show: (t) => short(t.answers) }, { name: "late", number: true, value: (t) => t.late },
  ];
  if (!ticks.length) return html`<div class="head"><h1>Ticks</h1></div><div class="empty">No ticks yet: the first comes with the first rows.</div>`;
  return html`<div class="head"><h1>Ticks</h1><span class="soft">the newest ${shown.length}; median ${seconds(median(ticks.map((t) => t.ms.total)) / 1000)}</span><span class="end"><button aria-pressed=${!!held} onClick=${() => hold(held ? null : all)}>${held ? "Go on" : "Hold still"}</button></span></div>
  <section class="panel"><${Timeline} ticks=${shown} chosen=${chosen} choose=${choose} /></section>
  ${one && html`<section class="panel"><h2>Tick ${number(one.tick)}</h2><dl class="facts"><dt>ended</dt><dd>${instant(one.ended * 1e6)} UTC</dd><dt>answers up to</dt><dd>${instant(one.frontier)}${isWall(one.frontier) ? `, ${behind(one.ended - one.frontier / 1e6)}` : ""}</dd>
    <dt>took</dt><dd>${Object.entries(one.ms).map(([p, ms]) => `${p} ${short(ms)}`).join(", ")} ms</dd><dt>rows, answers</dt><dd>${number(one.rows)}, ${number(one.answers)}</dd>${explain(one, ticks) && html`<dt>why slow</dt><dd>${explain(one, ticks)}</dd>`}</dl></section>`}
  ${slow.length > 0 && html`<section class="panel"><h2>Slow ticks</h2><dl class="facts">${slow.slice(0, 8).map(([t, why]) => html`<dt>${number(t.tick)}, ${seconds(t.ms.total / 1000)}</dt><dd>${why}</dd>`)}</dl></section>`}
  <${Grid} label="ticks" columns=${columns} rows=${[...ticks].reverse()} keyOf=${(t) => t.tick} sortable />`;
}
