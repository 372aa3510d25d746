// Charts that move: uPlot for lines and areas over time, plain boxes for bars.
import { html, useEffect, useMemo, useRef } from "./vendor/ui.js";
import uPlot from "./vendor/chart.js";
import { bytes, cell, isNumber, isTime, marks, short } from "./words.js";

export const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

// Where the axis of values begins and ends: at zero, unless lines far from it would be flat (`fit`).
function range(fit, low, high) {
  if (fit && low > 0 && high < 2 * low) { const pad = (high - low || high) / 10; return [low - pad, high + pad]; }
  return [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : low < 0 ? 0 : 1];
}

// times: seconds (or ticks if `wall` is false); series: [{ label, values, colour }]
export function Lines({ label, times, series, wall = true, stacked = false, fit = false, height = series.length > 1 || stacked ? 170 : 196, format = short }) {
  const box = useRef(null), chart = useRef(null), latest = useRef(series);
  latest.current = series;
  const names = series.map((s) => s.label).join("\u0000");
  const data = useMemo(() => [times, ...(stacked ? stack(series) : series.map((s) => s.values))], [times, series, stacked]);
  useEffect(() => {
    const make = () => {
      chart.current?.destroy();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
      chart.current = new uPlot({
        width: box.current.clientWidth || 400, height, tzDate: (t) => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"), cursor: { points: { size: 5 } }, legend: { show: series.length > 1 || stacked },
        scales: { x: { time: wall }, y: { range: (_, low, high) => range(fit, low, high) } },
        axes: [wall ? { ...axis, values: (_, ticks) => marks(ticks), space: 80 } : axis, { ...axis, size: 76, values: (_, ticks) => ticks.map((t) => format(t)), ...(format === bytes && { incrs: BINARY }) }],
        series: [{}, ...series.map((s, i) => {
          const stroke = colour(s.colour || COLOURS[i % COLOURS.length]);
          const own = (_, v, n, at) => (at == null || stacked ? format(latest.current[i].values[at ?? latest.current[i].values.length - 1]) : format(v)); // not pointed at: the newest
          return { label: s.label, stroke, width: stacked ? 0 : 1.6, value: own, points: { show: false }, fill: stacked ? `${stroke}b3` : series.length === 1 && !fit ? `${stroke}26` : undefined };
        })],
        bands: stacked ? series.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : [],
      }, data, box.current);
    };
    make();
    const observer = new ResizeObserver(() => chart.current?.setSize({ width: box.current.clientWidth, height }));
    observer.observe(box.current);
    addEventListener("theme", make);
    return () => { observer.disconnect(); removeEventListener("theme", make); chart.current?.destroy(); chart.current = null; };
  }, [names, wall, stacked, height]);
  useEffect(() => { chart.current?.setData(data); }, [data]);
  const newest = series.map((s) => `${s.label} ${format(s.values[s.values.length - 1])}`).slice(0, 8).join(", ");
  return html`<div class="chart" ref=${box} role="img" aria-label=${`${label}: ${newest}`}></div>`;
}

function stack(series) {
  const sums = new Array(series[0]?.values.length ?? 0).fill(0);
  const stacked = series.map((s) => s.values.map((v, i) => (sums[i] += v ?? 0)));
  return stacked;
}

export function Bars({ rows, label, most = 30 }) {
  const shownRows = rows.filter((r) => r.value != null).sort((a, b) => b.value - a.value).slice(0, most);
  const top = Math.max(...shownRows.map((r) => Math.abs(r.value)), 1e-300);
  if (!shownRows.length) return html`<div class="empty">nothing to draw yet</div>`;
  return html`<div class="bars" role="img" aria-label=${`${label}: ${shownRows.slice(0, 5).map((r) => `${r.label} ${short(r.value)}`).join(", ")}`}>
    ${shownRows.map((r) => html`<span>${r.label}</span><i class=${r.value < 0 ? "neg" : ""} style=${{ width: `${(100 * Math.abs(r.value)) / top}%` }}></i><span>${short(r.value)}</span>`)}
  </div>`;
}

// What can be drawn from columns: a number over time or as bars, split by the others.
export function choices(columns) {
  const numbers = columns.map((c, i) => ({ ...c, i })).filter((c) => isNumber(c.type) && !["_ts", "_op"].includes(c.name));
  const others = columns.map((c, i) => ({ ...c, i })).filter((c) => !isNumber(c.type) && !isTime(c.type));
  return { numbers, others };
}

export const labelOf = (row, indexes) => indexes.map((i) => cell(row[i]) ?? "null").join(" · ") || "all";
