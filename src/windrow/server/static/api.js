// The server's API: requests, errors with a place, rows without rounding, events that resume.

export class Fault extends Error {
  constructor(status, error) {
    super(error.message || "the request failed");
    Object.assign(this, { status, detail: error.detail, hint: error.hint, line: error.line, column: error.column });
  }
}

// Integers beyond 2^53 stay the digits that were sent, where the browser tells them.
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
      ? context.source : value);
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Fault(0, { message: "the server does not answer", hint: "it may be starting again" });
  }
  const text = await response.text();
  if (response.ok) return [parse(text), response.headers];
  let error = {};
  try { error = JSON.parse(text).error; } catch { /* not ours: a proxy's */ }
  if (response.status === 401 && path !== "/api/login") dispatchEvent(new Event("logged-out"));
  throw new Fault(response.status, error);
}

export const get = async (path) => (await request(path))[0];
export const post = async (path, body) =>
  (await request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }))[0];

// A page of a long list: its rows, where it begins, and how many there are in all.
export async function page(path, from, words) {
  const [rows, headers] = await request(`${path}?${new URLSearchParams({ ...words, offset: from })}`);
  return { rows, from, total: Number(headers.get("windrow-found")) };
}

export const path = (kind, name, ...rest) => ["/api", kind, encodeURIComponent(name), ...rest].join("/");

// The answer of a query as it changes. The first event is a `reset` with the present answer; after a break the
// browser comes back with the number of the last event it saw. It is live from the first event on: an open connection
// has shown nothing yet.
export function changes(name, handlers) {
  const source = new EventSource(`${path("queries", name, "changes")}?after=-1`);
  let told = null;
  const tell = (state) => { if (state !== told) handlers.state?.(told = state); };
  for (const kind of ["begin", "reset", "change", "end"]) {
    source.addEventListener(kind, (event) => {
      if (kind === "end") source.close(); else tell("live");
      handlers[kind]?.(parse(event.data));
    });
  }
  source.onerror = () => tell(source.readyState === EventSource.CLOSED ? "gone" : "reconnecting");
  return () => source.close();
}
