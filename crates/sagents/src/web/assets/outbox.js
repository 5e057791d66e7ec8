// Messages on their way to the server. Each has its id from the start, so it can be sent again and is stored once.

import { api } from "./api.js";

const KEY = "outbox";
const LONGEST_PAUSE = 10_000;
const TRIES_IN_CONFLICT = 6;

export class Outbox {
  /** `changed` is called with a conversation's id when the state of one of its messages changes. */
  constructor({ changed, stored, refused }) {
    this.changed = changed;
    this.stored = stored;
    this.refused = refused;
    this.items = read().map((item) => ({ ...item, state: "failed", tries: 0 }));
  }

  of(conversationId) {
    return this.items.filter((item) => item.conversation === conversationId);
  }

  /** `rewind` is the message that this one takes the place of. */
  add({ id, conversation, text, isNew = false, rewind = null }) {
    this.items.push({ id, conversation, text, isNew, rewind, state: "sending", tries: 0 });
    this.save();
    return this.deliver(id);
  }

  remove(id) {
    const item = this.items.find((other) => other.id === id);
    if (!item) return;
    clearTimeout(item.timer);
    this.items = this.items.filter((other) => other !== item);
    this.save();
  }

  /** Tries again what waits for the connection. */
  retry() {
    for (const item of this.items) if (item.state === "waiting") void this.deliver(item.id);
  }

  async deliver(id) {
    const item = this.items.find((other) => other.id === id);
    if (!item) return;
    clearTimeout(item.timer);
    this.set(item, "sending");
    try {
      if (item.isNew) await this.create(item);
      if (item.rewind) await this.rewind(item);
      const { items } = await api.send(item.conversation, item.id, item.text);
      this.remove(item.id);
      this.stored(item.conversation, items);
    } catch (problem) {
      this.failed(item, problem);
    }
  }

  async create(item) {
    const info = await api.create(item.conversation);
    item.isNew = false;
    this.save();
    this.stored(item.conversation, [], info);
  }

  async rewind(item) {
    try {
      await api.rewind(item.conversation, { before: item.rewind });
    } catch (problem) {
      // An earlier attempt has done it, and its response was lost.
      if (problem.status !== 404 || item.tries === 0) throw problem;
    }
    item.rewind = null;
    this.save();
  }

  failed(item, problem) {
    item.tries += 1;
    // The agent may still be stopping.
    const isConflict = problem.status === 409 && item.tries < TRIES_IN_CONFLICT;
    if (problem.isTransient || isConflict) {
      const pause = Math.min(500 * 2 ** item.tries, LONGEST_PAUSE);
      item.timer = setTimeout(() => this.deliver(item.id), pause);
      this.set(item, isConflict ? "sending" : "waiting");
    } else {
      this.set(item, "failed");
      this.refused(problem);
    }
  }

  set(item, state) {
    item.state = state;
    this.changed(item.conversation);
  }

  save() {
    const items = this.items.map(({ id, conversation, text, isNew, rewind }) => ({ id, conversation, text, isNew, rewind }));
    write(items);
  }
}

/* The storage of the tab: a reload loses nothing, and nobody who opens the browser later reads it. */

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
}

function write(items) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(items));
  } catch {
    // Without a storage a reload loses what was not sent.
  }
}
