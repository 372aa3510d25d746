// Numbers, times and terms for people.

// The update pattern of an edge: when its rows leave.
export const PATTERNS = { monotonic: "rows never leave", weakest: "rows leave in the order they came", weak: "a row's end is known when it comes", strict: "a row may be taken back at any time" };

// A number of things: "1 row", "2,000 rows".
export const counted = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

export const number = (n) => (n == null ? "–" : typeof n === "number" ? n.toLocaleString("en") : String(n));

export function short(n) {
  if (n == null || Number.isNaN(n)) return "–";
  if (Math.abs(n) >= 1e15) return (+n).toExponential(2);
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
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

// How far answers are behind now. Rows may carry times to come: a clock that is fast, or local times read as UTC.
export const behind = (s) => (s < -1 ? `${seconds(-s)} ahead of now` : `${seconds(Math.max(0, s))} behind now`);

export function seconds(s) {
  if (s == null) return "–";
  if (Math.abs(s) < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 120) return `${+s.toFixed(1)} s`;
  if (s >= 3600 && s % 3600 === 0) return s % 86400 ? `${s / 3600} h` : `${s / 86400} d`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400)} d`;
}

// Instants of the engine are microseconds since 1970, or plain ticks of a stream's own clock. Times are in UTC on all pages, as in answers.
export const isWall = (instant) => instant != null && Math.abs(instant) > 1e14 && Math.abs(instant) < 4e17; // beyond: before all time
export const instant = (t) =>
  t == null || Math.abs(t) >= 4e17 ? "–" : isWall(t) ? new Date(t / 1000).toISOString().replace("T", " ").slice(0, 23).replace(/\.000$/, "") : number(t);
export const span = (ticks, clock) => (ticks == null ? "–" : clock === "microsecond" ? seconds(ticks / 1e6) : `${number(ticks)} ticks`);

// The words in which one declares a type. What Arrow calls otherwise and CQL has no word for stays as it is.
const TYPES = { int8: "TINYINT", int16: "SMALLINT", int32: "INTEGER", int64: "BIGINT", uint8: "UTINYINT", uint16: "USMALLINT", uint32: "UINTEGER", uint64: "UBIGINT", float: "FLOAT", double: "DOUBLE", string: "VARCHAR", bool: "BOOLEAN", binary: "BLOB", "date32[day]": "DATE", "time64[us]": "TIME" };
export const typeName = (type) => TYPES[type] ?? type.replace(/^timestamp\[\w+, tz=.*\]$/, "TIMESTAMPTZ").replace(/^timestamp\[\w+\]$/, "TIMESTAMP").replace(/^decimal128\((.*)\)$/, "DECIMAL($1)").replace(/^list<\w+: (.*)>$/, (_, of) => `${typeName(of)}[]`);

// A name as one writes it.
export const quoted = (name) => (/^[a-z_]\w*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

// A length of time as one writes it in a window: the largest unit that divides it.
export const written = (us) => { for (const [unit, of] of [["DAY", 864e8], ["HOUR", 36e8], ["MINUTE", 6e7], ["SECOND", 1e6]]) if (us >= of && us % of === 0) return `${us / of} ${unit}${us === of ? "" : "S"}`; return `${us} MICROSECONDS`; };
const iso = (seconds) => new Date(seconds * 1000).toISOString();
export const clock = (seconds) => iso(seconds).slice(11, 19);

// Marks of an axis of time: by the second, or with the day where there are several; what would be the same is written once.
export function marks(ticks) {
  const [from, next] = ticks, days = ticks[ticks.length - 1] - from > 86400;
  const text = !days ? clock : next - from < 86400 ? (t) => iso(t).slice(5, 16).replace("T", " ") : (t) => iso(t).slice(0, 10);
  return ticks.map(text).map((mark, i, all) => (mark === all[i - 1] ? "" : mark));
}

export const isNumber = (type) => /^(u?int|float|double|decimal|half)/.test(type);
export const isTime = (type) => /^timestamp/.test(type);
export const cell = (value) =>
  value === null ? null : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" && !Number.isInteger(value) ? String(+value.toPrecision(9)) : String(value).replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d*?)0*(Z?)$/, (_, d, t, f, z) => `${d} ${t}${f.length > 1 ? f : ""}${z}`);
