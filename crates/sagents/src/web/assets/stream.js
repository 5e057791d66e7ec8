// The events of a conversation. The browser connects again by itself; where it gives up, this does, with pauses.

import { api } from "./api.js";

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 15_000;

export class Stream {
  /** `handlers` has a function for each event, and `connected`, `lost` and `refused`. */
  constructor(id, cursor, handlers) {
    this.id = id;
    this.cursor = cursor;
    this.handlers = handlers;
    this.failures = 0;
    this.retry = () => {
      if (this.source?.readyState !== EventSource.OPEN) this.connect();
    };
    window.addEventListener("online", this.retry);
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource(api.eventsUrl(this.id, this.cursor));
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.handlers.connected();
    };
    source.onerror = () => {
      this.handlers.lost();
      if (source.readyState === EventSource.CLOSED) void this.again();
    };
    for (const name of ["rows", "draft", "todos", "title", "run", "usage", "gone"]) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) this.cursor = event.lastEventId;
        this.handlers[name]?.(JSON.parse(event.data));
      });
    }
  }

  /** The server refused the stream. A plain request tells why. */
  async again() {
    const pause = Math.min(FIRST_PAUSE * 2 ** this.failures, LONGEST_PAUSE);
    this.failures += 1;
    this.timer = setTimeout(() => this.connect(), pause * (0.75 + Math.random() / 2));
    try {
      await api.get(this.id);
    } catch (problem) {
      if (problem.status === 401 || problem.status === 404) {
        clearTimeout(this.timer);
        this.handlers.refused(problem);
      }
    }
  }

  close() {
    clearTimeout(this.timer);
    window.removeEventListener("online", this.retry);
    this.source.close();
  }
}
