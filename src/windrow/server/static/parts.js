// What pages are made of.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/ui.js";
import { cell, isNumber, isWall, PATTERNS, seconds } from "./words.js";

export const Badge = ({ pattern }) => (pattern ? html`<span class="badge ${pattern}" title=${PATTERNS[pattern]}>${pattern}</span>` : null);

// A page about something that is not there.
export const Missing = ({ name, error, all, where }) => html`<div class="head"><h1>${name}</h1></div><${Problem} error=${error} /><p><a href="#/${where}">${all}</a></p>`;

export function Problem({ error }) {
  if (!error) return null;
  return html`<div class="note bad" role="alert">
    <strong>${error.line ? `line ${error.line}, column ${error.column}: ` : ""}${error.message}</strong>
    ${error.detail && html`<pre>${error.detail}</pre>`}${error.hint && html`<div>${error.hint}</div>`}
  </div>`;
}

// Run `load` now, and again every `every` milliseconds while the page is seen; what it gave last, its error, and
// whether nobody answered: that is told once, above all pages.
export function usePolled(load, every, deps = []) {
  const [state, set] = useState({ value: null, error: null, away: false });
  useEffect(() => {
    let timer, stopped = false;
    const look = async () => {
      clearTimeout(timer);
      try {
        const value = await load();
        if (!stopped) set({ value, error: null, away: false });
      } catch (error) {
        if (!stopped) set((before) => ({ value: before.value, error: error.status ? error : null, away: !error.status }));
      }
      if (!stopped && every && !document.hidden) timer = setTimeout(look, every);
    };
    const seen = () => { if (!document.hidden) look(); };
    look();
    document.addEventListener("visibilitychange", seen);
    return () => { stopped = true; clearTimeout(timer); document.removeEventListener("visibilitychange", seen); };
  }, deps);
  return state;
}

const ROW = 32;

// A table of any number of rows, of which only those in sight are in the document.
// columns: [{ name, label, number, wide, value(row), show(row), sort }]
// Rows that the server sorts and sends by pages: `from` and `total` say which ones `rows` are, `onView` is told which
// are in sight and in which order they are wanted.
export function Grid({ columns, rows, label, keyOf, isNew, sortable = false, initial = null, height, empty = "nothing yet", from = 0, total = null, onView = null }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [order, setOrder] = useState(initial);
  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight || 600 });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    measure();
    return () => { observer.disconnect(); element.removeEventListener("scroll", measure); };
  }, []);
  const sorted = useMemo(() => {
    const column = order && columns.find((c) => c.name === order.name);
    if (!column || onView) return rows;
    const value = column.value;
    return [...rows].sort((a, b) => {
      const x = value(a), y = value(b);
      const less = x == null ? (y == null ? 0 : -1) : y == null ? 1 : x < y ? -1 : x > y ? 1 : 0;
      return order.down ? -less : less;
    });
  }, [rows, order, columns]);
  const first = Math.max(0, Math.floor(view.top / ROW) - 8);
  const count = total ?? sorted.length, last = Math.min(count, Math.ceil((view.top + view.height) / ROW) + 8);
  useEffect(() => onView?.(first, order), [first, order]);
  const choose = (name) => setOrder(order?.name === name ? { name, down: !order.down } : { name, down: true });
  return html`<div class="grid" ref=${box} tabindex="0" role="region" aria-label=${label} style=${height ? { maxHeight: height } : {}}>
    <table aria-rowcount=${count + 1} aria-label=${label}>
      <thead><tr>${columns.map((c) => html`<th scope="col" class="${c.number ? "n" : ""} ${c.wide ? "wide" : ""}"
        aria-sort=${order?.name === c.name ? (order.down ? "descending" : "ascending") : undefined}>
        ${sortable ? html`<button onClick=${() => choose(c.name)}>${c.label ?? c.name}${order?.name === c.name ? (order.down ? " ↓" : " ↑") : ""}</button>` : c.label ?? c.name}</th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="spacer" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${first * ROW}px` }}></td></tr>`}
        ${Array.from({ length: Math.max(0, last - first) }, (_, i) => sorted[first + i - from]).map((row, i) => (row === undefined
          ? html`<tr key=${`wait ${first + i}`} aria-hidden="true"><td colspan=${columns.length}>…</td></tr>`
          : html`<tr key=${keyOf ? keyOf(row) : first + i} aria-rowindex=${first + i + 2} class=${isNew?.(row) ? "new" : ""}>
          ${columns.map((c) => html`<td class="${c.number ? "n" : ""} ${c.wide ? "wide" : ""}">${c.show ? c.show(row) : shown(c.value(row))}</td>`)}</tr>`))}
        ${last < count && html`<tr class="spacer" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${(count - last) * ROW}px` }}></td></tr>`}
      </tbody>
    </table>
    ${!count && html`<div class="empty">${empty}</div>`}
  </div>`;
}

function shown(value) {
  if (value === null || value === undefined) return html`<span class="null">null</span>`;
  const text = cell(value);
  return text.length > 40 ? html`<span title=${text}>${text}</span>` : text; // a cell that is too narrow tells it all when pointed at
}

// Rows as the API sends them: arrays beside a list of columns.
export function Rows({ columns, rows, label, ...rest }) {
  const described = useMemo(
    () => columns.map((c, i) => ({ name: `${i}`, label: c.name, number: isNumber(c.type), value: (row) => row[i] })), [columns]);
  return html`<${Grid} columns=${described} rows=${rows} label=${label} ...${rest} sortable />`;
}

// Why answers stand still, where they do: one clock for all queries, and it waits for the stream that is least far.
export function HeldBack({ status }) {
  const names = status?.held_back_by ?? [], streams = Object.entries(status?.streams ?? {});
  if (!names.length) return null;
  const silent = names.filter((n) => status.streams[n] && status.streams[n].greatest == null), wall = isWall(status.frontier);
  const behind = Math.max(...streams.map(([, s]) => s.greatest ?? -Infinity)) - status.frontier;
  if (!silent.length && !(wall && behind > 3e7)) return null;
  return html`<div class="note warn" role="status"><strong>Answers wait for rows of ${names.join(", ")}.</strong> ${silent.length ? "No row has come from there yet," : `Other streams are ${seconds(behind / 1e6)} further,`} and
    answers go only as far as all streams are known. <code>IDLE AFTER</code> in the declaration of a stream lets time go on while it is silent. <a href="#/streams">Look at the streams</a></div>`;
}

export const Figure = ({ label, value, note, bad }) =>
  html`<div class="panel ${String(value).length > 10 ? "broad" : ""}"><div class="soft">${label}</div><div class="figure ${bad ? "bad" : ""}">${value}</div><div class="soft">${note || "\u00a0"}</div></div>`;
