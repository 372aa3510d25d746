// The console: who is logged in, which page is shown, what every page has around it.
import { html, render, useEffect, useRef, useState } from "./vendor/ui.js";
import { get, post } from "./api.js";
import { usePolled, Problem } from "./parts.js";
import { go, useRoute } from "./route.js";
import { behind, isWall, short } from "./words.js";
import { Overview } from "./pages/overview.js";
import { Queries } from "./pages/queries.js";
import { QueryPage } from "./pages/query.js";
import { AddQuery } from "./pages/add.js";
import { Streams } from "./pages/streams.js";
import { ArchivePage, Archives } from "./pages/archives.js";
import { Aside } from "./pages/aside.js";
import { Ask } from "./pages/ask.js";
import { Ticks } from "./pages/ticks.js";

const PAGES = [
  ["overview", "Overview", Overview, "o"], ["queries", "Queries", Queries, "q"], ["streams", "Streams and tables", Streams, "s"],
  ["archives", "Archives", Archives, "r"], ["aside", "Set aside", Aside, "x"], ["ask", "Ask", Ask, "a"], ["ticks", "Ticks", Ticks, "t"],
];
const OTHERS = { query: [QueryPage, "queries"], add: [AddQuery, "queries"], archive: [ArchivePage, "archives"] }; // and the page they belong to

function useTheme() {
  const [theme, set] = useState(localStorage.getItem("theme") || "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    dispatchEvent(new Event("theme"));
  }, [theme]);
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)"), tell = () => dispatchEvent(new Event("theme"));
    system.addEventListener("change", tell);
    return () => system.removeEventListener("change", tell);
  }, []);
  return [theme, set];
}

function Login({ onEnter }) {
  const [error, fail] = useState(null);
  const enter = async (event) => {
    event.preventDefault();
    try { await post("/api/login", { token: new FormData(event.target).get("token").trim() }); onEnter(); } catch (e) { fail(e); }
  };
  return html`<main class="login"><div class="panel"><h1>windrow</h1><p class="soft">Log in with a token of this server. The link that <code>windrow serve</code> printed does it for you.</p>
    <${Problem} error=${error} />
    <form onSubmit=${enter}><label for="token">Token</label><input id="token" name="token" type="password" required autocomplete="current-password" autofocus />
    <button class="main">Log in</button></form></div></main>`;
}

function useKeys(show) {
  useEffect(() => {
    let before = "";
    const press = (event) => {
      const typing = event.target.closest("input, select, textarea, [contenteditable], .cm-editor");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = before === "g" && PAGES.find((p) => p[3] === event.key);
      if (page) go(page[0]);
      else if (event.key === "n") go("add");
      else if (event.key === "?") show();
      else if (event.key === "/") { const box = document.querySelector("input[type=search]"); if (box) { event.preventDefault(); box.focus(); } else go("queries"); }
      before = event.key;
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

// What stands beside the name of a page.
function counted(name, s) {
  const n = !s ? 0 : name === "queries" || name === "archives" ? s.counts[name] : name === "aside" ? Object.values(s.streams).reduce((sum, one) => sum + one.late + one.quarantined, 0) : 0;
  return n ? html`<span class="soft">${short(n)}</span>` : null;
}

function Console({ session, onLeave }) {
  const [page, ...rest] = useRoute();
  const [theme, setTheme] = useTheme();
  const keys = useRef(null);
  useKeys(() => keys.current?.showModal());
  const status = usePolled(() => get("/api/status?queries=false"), 1000);
  const s = status.value, lag = s && isWall(s.frontier) ? (s.now_us - s.frontier) / 1e6 : null;
  const known = PAGES.find((p) => p[0] === page) || (OTHERS[page] ? null : PAGES[0]);
  const Page = known ? known[2] : OTHERS[page][0], current = known ? known[0] : OTHERS[page][1];
  const title = known ? known[1] : rest[0] || "Add a query";
  useEffect(() => { document.title = `${title} · windrow`; }, [title]);
  useEffect(() => { document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); }, [current]); // on a phone the pages are wider than the screen
  const lost = status.away || status.error;
  const [dot, said] = lost ? ["wait", "reconnecting"] : !s ? ["wait", "connecting"] : s.error ? ["bad", "stopped"] : s.running ? ["", "running"] : ["wait", "not started"];
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>to the content</a>
  <div class="frame"><header class="side">
    <a class="brand" href="#/overview"><img src="/static/icon.svg" alt="" />windrow</a>
    <nav aria-label="pages">${PAGES.map(([name, label]) => html`<a href="#/${name}" aria-current=${current === name ? "page" : undefined}>${label}
      ${counted(name, s)}</a>`)}</nav>
    <div class="foot">
      <div aria-live="polite"><span class="dot ${dot}"></span> ${said}${session.runtime ? `, ${session.runtime}` : ""}</div>
      ${lag != null && !lost && html`<div>${behind(lag)}</div>`}
      <div>${session.right === "admin" ? "administrator" : "may only read"}</div>
      <label>Theme <select value=${theme} onChange=${(e) => setTheme(e.target.value)}><option value="auto">system</option><option value="light">light</option><option value="dark">dark</option></select></label>
      <button class="keys" onClick=${() => keys.current.showModal()}>Keys</button>
      <button onClick=${onLeave}>Log out</button>
    </div></header>
  <main id="main" tabindex="-1">
    ${lost && html`<div class="note warn" role="status"><strong>The server does not answer; trying again.</strong> ${status.error?.message ?? "What is shown is the last that came."}</div>`}
    ${s?.error && html`<div class="note bad" role="alert"><strong>The engine has stopped.</strong><pre>${s.error}</pre></div>`}
    <${Page} key=${`${page}/${rest.join("/")}`} args=${rest} session=${session} status=${s} />
  </main></div>
  <dialog ref=${keys} aria-label="keys"><h2>Keys</h2><dl class="facts">
    ${PAGES.map(([, label, , key]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${label}</dd>`)}
    <dt><kbd>/</kbd></dt><dd>search queries</dd><dt><kbd>n</kbd></dt><dd>add a query</dd><dt><kbd>Ctrl</kbd> <kbd>Enter</kbd></dt><dd>run what is in the editor</dd></dl>
    <form method="dialog"><p><button>Close</button></p></form></dialog>`;
}

function Root() {
  const [session, set] = useState(undefined);
  const look = () => get("/api/session").then(set, (e) => (e.status === 401 ? set(null) : setTimeout(look, 1000)));
  useEffect(() => {
    look();
    const out = () => set(null);
    addEventListener("logged-out", out);
    return () => removeEventListener("logged-out", out);
  }, []);
  if (session === undefined) return html`<p class="waiting">windrow</p>`;
  const leave = () => post("/api/logout", {}).finally(() => set(null));
  return session ? html`<${Console} session=${session} onLeave=${leave} />` : html`<${Login} onEnter=${look} />`;
}

const place = document.getElementById("console");
place.textContent = "";
render(html`<${Root} />`, place);
