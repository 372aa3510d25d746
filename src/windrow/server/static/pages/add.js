// Add a query, or replace one: errors where they are and the plan while one types.
import { html, useState, useEffect } from "../vendor/ui.js";
import { get, path, post } from "../api.js";
import { Editor } from "../editor.js";
import { Badge, Problem } from "../parts.js";
import { Plan } from "../plan.js";
import { go } from "../route.js";
import { quoted, short } from "../words.js";

const sharers = ({ with: others, others: counts }) => Math.max(0, ...Object.values(counts ?? {}), ...(Array.isArray(others) ? [others] : Object.values(others ?? {})).map((names) => names.length));

// What there is to add where nothing is declared.
const FIRST = `-- Rows come from files that appear in a directory; without FROM they are pushed: POST /api/push/reading
CREATE STREAM reading (sensor VARCHAR, celsius DOUBLE, ts TIMESTAMP)
TIMESTAMP BY ts WITHIN 5 SECONDS RETAIN 1 HOUR;
-- FROM csv (path => 'readings');

CREATE QUERY warm AS
SELECT sensor, AVG(celsius) AS mean, MAX(celsius) AS high
FROM reading [RANGE 1 MINUTE SLIDE 10 SECONDS]
GROUP BY sensor;
`;

export function AddQuery({ args: [replaced], session }) {
  const [text, set] = useState(null);
  const [checked, setChecked] = useState({ found: null, error: null });
  const [error, fail] = useState(null);
  const [busy, work] = useState(false);
  useEffect(() => {
    if (replaced) get(path("queries", replaced)).then((q) => set(`DROP QUERY ${quoted(q.name)};\n\n${q.text.trim().replace(/;?$/, ";")}\n`), fail);
    else get("/api/streams").then(([stream]) => set(stream ? `CREATE QUERY my_query AS\nSELECT COUNT(*) AS n\nFROM ${quoted(stream.name)} [RANGE ${stream.clock === "tick" ? "60 SLIDE 10" : "1 MINUTE SLIDE 10 SECONDS"}]\n`
      : FIRST), fail);
  }, []);
  const run = async () => {
    work(true); fail(null);
    try {
      const found = await post("/api/check", { script: text });
      await post("/api/execute", { script: text });
      const made = found.filter((f) => f.statement === "query");
      go(...(made.length ? ["query", made[made.length - 1].name] : [found.some((f) => ["stream", "table"].includes(f.statement)) ? "streams" : "queries"]));
    } catch (e) { fail(e); } finally { work(false); }
  };
  const plans = (checked.found || []).filter((f) => f.plan);
  if (session.right !== "admin") return html`<div class="head"><h1>Add a query</h1></div><div class="note warn">This token may only read. To try a query once, <a href="#/ask">ask</a>.</div>`;
  return html`<div class="head"><h1>${replaced ? `Replace ${replaced}` : "Add a query"}</h1>
    <span class="end"><button class="main" disabled=${busy || text === null} onClick=${run}>${replaced ? "Replace" : "Register"}</button></span></div>
  <${Problem} error=${error} />
  ${text !== null && html`<${Editor} label="CQL" value=${text} onChange=${set} onRun=${run} onChecked=${(found, e) => { setChecked({ found, error: e }); if (!e) fail(null); }} />`}
  <p class="soft" role="status">${checked.error ? html`<span class="badge failed">line ${checked.error.line ?? "?"}</span> ${checked.error.message}${checked.error.hint ? ` — ${checked.error.hint}` : ""}`
    : checked.found ? "no errors; Ctrl-Enter registers it" : "Ctrl-Enter registers it"}</p>
  ${plans.map((f) => html`<section class="panel"><h2>${f.name} <${Badge} pattern=${f.plan.pattern} /> <span class="soft">cost ${short(f.plan.cost)}${f.plan.sharing?.shared ? `, would share with ${sharers(f.plan.sharing)}` : ""}</span></h2><${Plan} explained=${f.plan} label="plan of ${f.name}" /></section>`)}`;
}
