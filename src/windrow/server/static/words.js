// Numbers, times and terms for people.

// The update pattern of an edge: when its rows leave.
export const PATTERNS = { monotonic: "rows never leave", weakest: "rows leave in the order they came", weak: "a row's end is known when it comes", strict: "a row may be taken back at any time" };

export const number = (n) => (n == null ? "–" : typeof n === "number" ? n.toLocaleString("en") : String(n));

export function short(n) {
  if (n == null || Number.isNaN(n)) return "–";
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(n) >= limit) return `${+(n / (unit === "k" ? 1e3 : limit)).toPrecision(3)} ${unit}`;
  }
  return Math.abs(n) >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en") : String(+n.toPrecision(3));
}

export function bytes(n) {
  if (n == null) return "–";
  let size = n, unit = 0;
  while (size >= 1024 && unit < 4) { size /= 1024; unit += 1; }
  return `${unit ? +size.toPrecision(size < 1000 ? 3 : 4) : size} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export function seconds(s) {
  if (s == null) return "–";
  if (Math.abs(s) < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 120) return `${+s.toFixed(1)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400)} d`;
}

// Instants of the engine are microseconds since 1970, or plain ticks of a stream's own clock.
export const isWall = (instant) => instant != null && Math.abs(instant) > 1e14 && Math.abs(instant) < 4e17; // beyond: before all time
export const instant = (t) =>
  t == null || Math.abs(t) >= 4e17 ? "–" : isWall(t) ? new Date(t / 1000).toISOString().replace("T", " ").slice(0, 23).replace(/\.000$/, "") : number(t);
export const span = (ticks, clock) => (ticks == null ? "–" : clock === "microsecond" ? seconds(ticks / 1e6) : `${number(ticks)} ticks`);

export const isNumber = (type) => /^(u?int|float|double|decimal|half)/.test(type);
export const isTime = (type) => /^timestamp/.test(type);
export const cell = (value) =>
  value === null ? null : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" && !Number.isInteger(value) ? String(+value.toPrecision(9)) : String(value).replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d*?)0*(Z?)$/, (_, d, t, f, z) => `${d} ${t}${f.length > 1 ? f : ""}${z}`);
