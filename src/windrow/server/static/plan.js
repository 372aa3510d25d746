// A plan as a graph: rows flow upwards, an edge has the colour of its update pattern, a bar the share of the cost.
import { html } from "./vendor/ui.js";
import { PATTERNS, short } from "./words.js";

const GAP_X = 22, GAP_Y = 46, WIDTH = 244, LINE = 15;
const wrap = (text, width = 35) => {
  const lines = [];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + word.length < width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word.length > width ? `${word.slice(0, width - 1)}…` : word);
  }
  return lines.length > 4 ? [...lines.slice(0, 3), `${lines[3].slice(0, width - 1)}…`] : lines;
};

function place(node, left, depth, rows) {
  const lines = [...wrap(node.arguments || ""), ...(node.state !== "none" ? wrap(`${node.state}: ${short(node.estimate.state_rows)} ${node.estimate.state_rows === 1 ? "row" : "rows"}`) : [])].filter(Boolean);
  const height = 2 * LINE + lines.length * LINE + 20;
  rows[depth] = Math.max(rows[depth] || 0, height);
  let at = left;
  const inputs = (node.inputs || []).map((input) => {
    const placed = place(input, at, depth + 1, rows);
    at = placed.right + GAP_X;
    return placed;
  });
  const right = Math.max(left + WIDTH, at - (inputs.length ? GAP_X : 0));
  const middle = inputs.length ? (inputs[0].x + inputs[inputs.length - 1].x) / 2 : left;
  return { node, lines, height, depth, x: inputs.length ? Math.max(left, middle) : left, right, inputs };
}

// How many boxes stand side by side.
export const breadth = (node) => (node.inputs?.length ? node.inputs.reduce((sum, i) => sum + breadth(i), 0) : 1);

const flat = (p) => [p, ...p.inputs.flatMap(flat)];

export function Plan({ explained, label = "plan" }) {
  const root = explained?.plan;
  if (!root) return null;
  const rows = [], placed = place(root, 8, 0, rows), all = flat(placed);
  const tops = rows.reduce((t, h, i) => [...t, t[i] + h + GAP_Y], [8]);
  const total = all.reduce((sum, p) => sum + p.node.estimate.cost, 0) || 1;
  const per = explained.clock?.unit === "tick" ? "tick" : "s";
  const width = Math.max(...all.map((p) => p.x + WIDTH)) + 12, height = tops[rows.length] - GAP_Y + 8;
  return html`<div class="plan" tabindex="0" role="region" aria-label=${label}>
    <svg style=${{ width: `${width}px`, maxWidth: `max(100%, ${Math.round(0.6 * width)}px)` }} viewBox="0 0 ${width} ${height}" role="img" aria-label=${describe(root)}>
      ${all.flatMap((p) => p.inputs.map((i) => {
        const x1 = i.x + WIDTH / 2, y1 = tops[i.depth], x2 = p.x + WIDTH / 2, y2 = tops[p.depth] + p.height, m = (y1 + y2) / 2;
        return html`<g style=${{ color: `var(--${i.node.pattern})` }}><path d="M${x1} ${y1} C${x1} ${m} ${x2} ${m} ${x2} ${y2}" fill="none" stroke="currentColor" stroke-width="1.8"/>
          <text class="edge" x=${x2 > x1 ? x1 - 7 : x1 + 7} y=${y1 - 9} text-anchor=${x2 > x1 ? "end" : "start"} style=${{ fill: "currentColor" }}>${i.node.pattern} · ${short(i.node.estimate.rows_out)}/${per}</text></g>`;
      }))}
      ${all.map((p) => {
        const y = tops[p.depth], share = p.node.estimate.cost / total;
        return html`<g style=${{ color: `var(--${p.node.pattern})` }}>
          <rect class="box" x=${p.x} y=${y} width=${WIDTH} height=${p.height} rx="7" stroke="currentColor"/>
          <text class="title" x=${p.x + 11} y=${y + 19}>${p.node.operator}</text>
          ${p.lines.map((line, i) => html`<text class="small" x=${p.x + 11} y=${y + 36 + i * LINE}>${line}</text>`)}
          <rect class="cost" x=${p.x + 11} y=${y + p.height - 15} width=${Math.max(1, share * (WIDTH - 108))} height="7" rx="2"/>
          <text class="small" x=${p.x + WIDTH - 11} y=${y + p.height - 8} text-anchor="end">cost ${short(p.node.estimate.cost)}</text>
        </g>`;
      })}
    </svg>
    <div class="legend">${Object.entries(PATTERNS).map(([k, why]) => html`<span><b style=${{ background: `var(--${k})` }}></b>${k}: ${why}</span>`)}<span><b style=${{ background: "var(--soft)" }}></b>share of the cost (rows touched a ${per === "s" ? "second" : "tick"}, estimated)</span></div>
  </div>`;
}

const describe = (node) => `${node.operator}, ${node.pattern}${node.inputs?.length ? `, from ${node.inputs.map(describe).join(" and ")}` : ""}`;
