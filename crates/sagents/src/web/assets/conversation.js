// A conversation as the page knows it: the stored rows that were loaded, what the model is writing, and what is being sent.

/** How many display messages are loaded at once. */
export const PAGE = 60;

export class Conversation {
  constructor(id, { isNew = false } = {}) {
    this.id = id;
    /** Not on the server yet: it is created with the first message. */
    this.isNew = isNew;
    this.info = null;
    this.rows = new Map(); // by sequence
    this.drafts = new Map(); // items by the id of their message
    this.hasOlder = false;
    this.isLoaded = false;
    /** Of the last run of the agent: `running`, `waiting`, `finished`, `failed` or `cancelled`. */
    this.status = null;
    this.cursor = null;
  }

  get isRunning() {
    return this.status === "running";
  }

  get isArchived() {
    return Boolean(this.info?.archived_at);
  }

  get oldest() {
    return Math.min(...this.rows.keys());
  }

  /** Replaces what was loaded by the last page. */
  reset({ items, next, cursor }) {
    this.rows.clear();
    for (const row of items) this.rows.set(row.sequence, row);
    this.hasOlder = next !== null;
    this.cursor = cursor;
    this.isLoaded = true;
  }

  prepend({ items, next }) {
    for (const row of items) this.rows.set(row.sequence, row);
    this.hasOlder = next !== null;
  }

  /** New and changed rows. Those of pages that are not loaded yet are left for later. */
  store(rows) {
    for (const row of rows) {
      if (this.hasOlder && row.sequence < this.oldest) continue;
      // The response of a call may arrive behind the event of a later change.
      if (row.changed < this.rows.get(row.sequence)?.changed) continue;
      if (row.delivery !== "draft") this.complete(row.message_id);
      this.rows.set(row.sequence, row);
    }
  }

  /** Drafts of a message make place for what it became. */
  complete(messageId) {
    this.drafts.delete(messageId);
    for (const [sequence, row] of this.rows) {
      if (row.message_id === messageId && row.delivery === "draft") this.rows.delete(sequence);
    }
  }

  /** What the model has written so far. It may arrive later than the whole message. */
  draft(messageId, items) {
    const isWhole = (row) => row.message_id === messageId && ["stored", "unsaved"].includes(row.delivery);
    if ([...this.rows.values()].some(isWhole)) return;
    const asRow = (item) => ({ role: "assistant", delivery: "draft", message_id: messageId, item: item.place, ...item });
    this.drafts.set(messageId, items.map(asRow));
  }

  run(status) {
    this.status = status;
    if (!this.isRunning) this.drafts.clear();
  }

  /** The messages in order, each with its rows. Results are with the calls that they belong to. */
  messages() {
    const messages = new Map();
    const calls = new Map();
    const ordered = [...this.rows.values()].sort((one, other) => one.sequence - other.sequence);
    for (const row of ordered) {
      if (row.content_type === "tool_result" && calls.has(row.tool_call_id)) {
        calls.get(row.tool_call_id).results.set(row.tool_call_id, row);
        continue;
      }
      let message = messages.get(row.message_id);
      if (!message) {
        message = { id: row.message_id, role: row.role, rows: [], results: new Map(), isStreaming: false };
        messages.set(row.message_id, message);
      }
      message.rows.push(row);
      if (row.delivery === "draft" && this.isRunning) message.isStreaming = true;
      if (row.content_type === "tool_call") calls.set(row.tool_call_id, message);
    }
    for (const [id, items] of this.drafts) {
      const message = messages.get(id) ?? { id, role: "assistant", results: new Map() };
      messages.set(id, { ...message, rows: items, isStreaming: true });
    }
    return [...messages.values()];
  }
}

/** Whether a tool call waits for a person. */
export const asksForDecision = (row) => row.content_type === "tool_call" && row.status === "interrupted";
