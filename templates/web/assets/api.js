// The HTTP calls of the page. Everything goes to the origin that the page came from.

const base = new URL("../", import.meta.url);

export class Problem extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? problem?.title ?? "The server could not be reached.");
    this.status = status;
  }
}

export const page = (path = "") => new URL(path, base).pathname;

async function call(method, path, body) {
  const headers = { accept: "application/json", "x-requested-with": "fetch" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(`api/${path}`, base), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new Problem(0);
  }
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => null));
  return response.status === 204 ? null : response.json();
}

const query = (values) => {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined && value !== null);
  return entries.length ? `?${new URLSearchParams(entries)}` : "";
};

const conversation = (id, rest = "") => `conversations/${encodeURIComponent(id)}${rest}`;

export const api = {
  me: () => call("GET", "me"),
  list: (options) => call("GET", `conversations${query(options)}`),
  search: (q, after) => call("GET", `search${query({ q, after })}`),
  create: (id) => call("POST", "conversations", { id }),
  get: (id) => call("GET", conversation(id)),
  rename: (id, title) => call("PATCH", conversation(id), { title }),
  remove: (id) => call("DELETE", conversation(id)),
  archive: (id, archived) => call("POST", conversation(id, archived ? "/archive" : "/unarchive")),
  fork: (id, at, newId) => call("POST", conversation(id, "/fork"), { at, id: newId }),
  rewind: (id, to) => call("POST", conversation(id, "/rewind"), { to }),
  messages: (id, options) => call("GET", conversation(id, `/messages${query(options)}`)),
  send: (id, messageId, text) => call("POST", conversation(id, "/messages"), { id: messageId, text }),
  stop: (id) => call("POST", conversation(id, "/stop")),
  decide: (id, callId, decision) =>
    call("POST", conversation(id, `/tool_calls/${encodeURIComponent(callId)}/decision`), decision),
  todos: (id) => call("GET", conversation(id, "/todos")),
  usage: (id) => call("GET", conversation(id, "/usage")),
  exportUrl: (id) => new URL(`api/${conversation(id, "/export")}`, base).href,
  events: (id, after) => new EventSource(new URL(`api/${conversation(id, `/events${query({ after })}`)}`, base)),
};

/** A UUID of version 7: the time first, so that ids sort by it. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const time = BigInt(Date.now());
  for (let index = 0; index < 6; index += 1) bytes[index] = Number((time >> BigInt(8 * (5 - index))) & 255n);
  bytes[6] = (bytes[6] & 15) | 112;
  bytes[8] = (bytes[8] & 63) | 128;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
}
