// The HTTP calls of the page. All go to the server that the page came from.

const root = new URL("../", import.meta.url);

/** An error of a call: what the server says about it, or that there was no response (status 0). */
export class Problem extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? problem?.title ?? (status ? `The server replied with ${status}.` : "The server cannot be reached."));
    this.status = status;
  }

  /** Whether the same call may succeed later. */
  get isTransient() {
    return [0, 429, 502, 503, 504].includes(this.status);
  }
}

async function call(method, path, body) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(`api/${path}`, root), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new Problem(0);
  }
  const text = await response.text().catch(() => "");
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // A proxy may reply with something else than JSON; its status tells enough.
  }
  if (!response.ok) throw new Problem(response.status, value);
  return value;
}

const query = (values) => {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined && value !== null);
  return entries.length ? `?${new URLSearchParams(entries)}` : "";
};

const conversation = (id, rest = "") => `conversations/${encodeURIComponent(id)}${rest}`;

export const api = {
  me: () => call("GET", "me"),
  list: (options) => call("GET", `conversations${query(options)}`),
  search: (q, after) => call("GET", `search${query({ q, after, limit: 30 })}`),
  create: (id) => call("POST", "conversations", { id }),
  get: (id) => call("GET", conversation(id)),
  rename: (id, title) => call("PATCH", conversation(id), { title }),
  remove: (id) => call("DELETE", conversation(id)),
  archive: (id, isArchived) => call("POST", conversation(id, isArchived ? "/archive" : "/unarchive")),
  fork: (id, at, forkId) => call("POST", conversation(id, "/fork"), { at, id: forkId }),
  rewind: (id, to) => call("POST", conversation(id, "/rewind"), { to }),
  messages: (id, options) => call("GET", conversation(id, `/messages${query(options)}`)),
  send: (id, messageId, text) => call("POST", conversation(id, "/messages"), { id: messageId, text }),
  run: (id) => call("POST", conversation(id, "/run")),
  stop: (id) => call("POST", conversation(id, "/stop")),
  decide: (id, callId, decision) =>
    call("POST", conversation(id, `/tool_calls/${encodeURIComponent(callId)}/decision`), decision),
  todos: (id) => call("GET", conversation(id, "/todos")),
  usage: (id) => call("GET", conversation(id, "/usage")),
  exportUrl: (id) => new URL(`api/${conversation(id, "/export")}`, root).href,
  eventsUrl: (id, after) => new URL(`api/${conversation(id, `/events${query({ after })}`)}`, root).href,
};

/** A UUID of version 7. The server stores what is sent twice with one id only once. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const time = Date.now();
  for (let index = 0; index < 6; index += 1) bytes[index] = Math.floor(time / 256 ** (5 - index)) % 256;
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
}
