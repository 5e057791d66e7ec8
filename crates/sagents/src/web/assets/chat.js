// The open conversation: loads it, follows its events, and does what a person asks for.

import { api, uuid } from "./api.js";
import { Composer } from "./composer.js";
import { asksForDecision, Conversation, PAGE } from "./conversation.js";
import { announce, attempt, showSignIn, toast } from "./dialog.js";
import { $, button, element, iconButton, place } from "./dom.js";
import { MessageView } from "./message.js";
import { Outbox } from "./outbox.js";
import { showConnection, showHead, showTodos, showUsage } from "./panel.js";
import { Stream } from "./stream.js";

/** In pixels: how close to its end a scrolled area is at its end, and how close to its start more is loaded. */
const AT_END = 24;
const NEAR_START = 240;

export class Chat {
  /** `changed` is called when the list may look different, `navigate` to open another conversation. */
  constructor({ changed, navigate }) {
    this.changed = changed;
    this.navigate = navigate;
    this.isReadOnly = false;
    this.conversation = null;
    this.views = new Map(); // by the id of the message
    this.scroll = $("scroll");
    /** Whether new text is scrolled into view: until the person scrolls up. */
    this.sticks = true;
    this.top = 0;
    this.composer = new Composer({ send: (text) => this.send(text), editLast: () => this.editLast() });
    this.outbox = new Outbox({
      changed: (id) => this.conversation?.id === id && this.draw(),
      stored: (id, items, info) => this.stored(id, items, info),
      refused: (problem) => (problem.status === 401 ? showSignIn() : toast(problem.message)),
    });
    this.scroll.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.scroll.addEventListener("wheel", (event) => event.deltaY < 0 && this.unstick(), { passive: true });
    new ResizeObserver(() => this.sticks && this.toEnd()).observe(this.scroll.firstElementChild);
    this.scroll.addEventListener("click", (event) => copyCode(event));
    $("to-end").onclick = () => this.toEnd();
    $("older").onclick = () => attempt(() => this.loadOlder());
    $("stop").onclick = () => attempt(() => api.stop(this.conversation.id));
    $("connect").onclick = () => this.stream?.retry();
  }

  /* Opening */

  /** Opens a conversation, at a message if there is one, or the page for a new one. */
  async open(id, at) {
    if (id && id === this.conversation?.id) {
      if (at) await attempt(() => this.show(at));
      return;
    }
    const conversation = this.begin(id ? new Conversation(id) : null);
    if (!conversation) return;
    try {
      const [info, messages] = await Promise.all([api.get(id), api.messages(id, { from: "last", limit: PAGE })]);
      if (conversation !== this.conversation) return;
      conversation.info = info;
      conversation.reset(messages);
    } catch (problem) {
      if (conversation === this.conversation) this.notOpened(problem);
      return;
    }
    showHead(conversation);
    this.render();
    this.toEnd();
    this.follow();
    if (at) await attempt(() => this.show(at));
  }

  /** Shows another conversation, with nothing of it loaded. */
  begin(conversation) {
    this.stream?.close();
    this.stream = null;
    this.conversation = conversation;
    this.views.clear();
    $("messages").replaceChildren();
    showTodos([]);
    showUsage({ models: [] });
    showConnection("");
    showHead(conversation);
    this.composer.show(conversation?.isNew ? null : conversation?.id);
    this.render();
    return conversation;
  }

  notOpened(problem) {
    if (problem.status === 401) {
      showSignIn();
    } else if (problem.status === 404) {
      toast("There is no such conversation.");
      this.navigate(null);
    } else {
      toast(problem.message);
      const again = button("Try again", { icon: "retry", onclick: () => this.reopen() });
      $("tail").replaceChildren(element("div", { className: "tail-line" }, element("span", {}, "The conversation could not be loaded."), again));
    }
  }

  reopen() {
    const { id } = this.conversation;
    this.conversation = null;
    return this.open(id);
  }

  /* Events */

  follow() {
    const { conversation } = this;
    const handle = (action) => (data) => {
      if (conversation !== this.conversation) return;
      action(data);
      this.draw();
    };
    this.stream = new Stream(conversation.id, conversation.cursor, {
      connected: handle(() => {
        showConnection("connected");
        this.outbox.retry();
        void attempt(() => this.refresh(conversation));
      }),
      lost: handle(() => showConnection("lost")),
      refused: handle((problem) => this.notOpened(problem)),
      rows: handle(({ items, reset }) => (reset ? this.reload() : this.receive(items))),
      draft: handle(({ message_id: id, items }) => conversation.draft(id, items)),
      todos: handle(({ todos }) => showTodos(todos)),
      title: handle(({ title }) => {
        conversation.info.title = title;
        showHead(conversation);
        this.changed();
      }),
      run: handle(({ status }) => this.ran(status)),
      gone: handle(() => {
        toast("The conversation was deleted.");
        this.changed();
        this.navigate(null);
      }),
    });
  }

  receive(items) {
    if (this.reloading) {
      this.reloading.push(...items);
      return;
    }
    const asked = items.find((row) => asksForDecision(row) && !this.hasAsked(row));
    this.conversation.store(items);
    for (const row of items) this.outbox.remove(row.message_id);
    const answer = items.findLast((row) => row.role === "assistant" && row.content_type === "text" && row.delivery !== "draft");
    if (asked) announce(`The agent needs your decision: ${asked.content}`);
    else if (answer && answer.delivery !== "interrupted") announce(`Agent: ${answer.content.slice(0, 600)}`);
  }

  hasAsked(row) {
    const known = this.conversation.rows.get(row.sequence);
    return known !== undefined && asksForDecision(known);
  }

  /** Messages were removed: the last page is loaded again. Rows that arrive until then come after it. */
  async reload() {
    const { conversation } = this;
    this.reloading = [];
    const page = await attempt(() => api.messages(conversation.id, { from: "last", limit: PAGE }));
    const later = this.reloading;
    this.reloading = null;
    if (!page || conversation !== this.conversation) return;
    conversation.reset(page);
    this.receive(later);
    this.render();
  }

  ran(status) {
    const { conversation } = this;
    const wasRunning = conversation.isRunning;
    conversation.run(status);
    if (!wasRunning || conversation.isRunning) return;
    void attempt(() => this.refresh(conversation));
    this.changed();
  }

  /** What has no history among the events: it may have changed while this page was not connected. */
  async refresh({ id }) {
    const [info, todos, usage] = await Promise.all([api.get(id), api.todos(id), api.usage(id)]);
    if (this.conversation?.id !== id) return;
    this.conversation.info = info;
    showHead(this.conversation);
    showTodos(todos);
    showUsage(usage);
  }

  /* Drawing */

  /** Draws soon; what happens at once is drawn once. */
  draw() {
    this.drawing ??= setTimeout(() => {
      this.drawing = null;
      this.render();
    }, 16);
  }

  render() {
    this.noticeScroll();
    const { conversation } = this;
    const messages = conversation?.messages() ?? [];
    const known = new Set(messages.map((message) => message.id));
    const unsent = conversation ? this.outbox.of(conversation.id).filter((item) => !known.has(item.id)) : [];
    const first = unsent.find((item) => item.rewind && known.has(item.rewind));
    // An edited message and what follows it are as good as removed.
    const kept = first ? messages.slice(0, messages.findIndex((message) => message.id === first.rewind)) : messages;
    const nodes = [
      ...kept.map((message) => this.view(message)),
      ...unsent.map((item) => this.view(asMessage(item), item.state)),
    ];
    place($("messages"), nodes);
    for (const id of this.views.keys()) if (!nodes.includes(this.views.get(id).node)) this.views.delete(id);
    const isEmpty = !conversation || (conversation.isLoaded && nodes.length === 0);
    $("welcome").hidden = !isEmpty;
    $("main").classList.toggle("is-empty", isEmpty);
    $("older").hidden = !conversation?.hasOlder;
    $("composer").hidden = this.isReadOnly;
    $("stop").hidden = !conversation?.isRunning || this.isReadOnly;
    $("messages").setAttribute("aria-busy", String(Boolean(conversation?.isRunning)));
    this.renderTail(kept, unsent);
    if (this.sticks) this.toEnd();
    else this.scrolled();
  }

  view(message, state) {
    let view = this.views.get(message.id);
    if (!view) {
      view = new MessageView(message.id, message.role, this.actions);
      this.views.set(message.id, view);
    }
    view.update(message, { isReadOnly: this.isReadOnly, state });
    return view.node;
  }

  /** Below the messages: that the agent works, or that its answer is not complete. */
  renderTail(messages, unsent) {
    const { conversation } = this;
    const last = messages.at(-1);
    const key = JSON.stringify([conversation?.id, conversation?.status, last?.id, last?.isStreaming, last?.rows, unsent.length]);
    if (key === this.tailKey) return;
    this.tailKey = key;
    const tail = $("tail");
    if (!conversation?.isLoaded || !last || unsent.length) {
      tail.replaceChildren();
    } else if (conversation.isRunning) {
      const dots = element("span", { className: "dots", aria: { hidden: "true" } }, element("i"), element("i"), element("i"));
      const line = element("div", { className: "tail-line working" }, dots, element("span", {}, "The agent is working"));
      tail.replaceChildren(...(last.isStreaming ? [] : [line]));
    } else {
      const text = unfinished(last, conversation.status);
      const proceed = button("Continue", { icon: "retry", className: "small continue", onclick: () => this.continue() });
      const line = text && element("div", { className: "tail-line" }, element("span", {}, text), this.isReadOnly ? null : proceed);
      tail.replaceChildren(...(line ? [line] : []));
    }
  }

  /* Scrolling */

  noticeScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    if (scrollHeight - scrollTop - clientHeight < AT_END) this.sticks = true;
    else if (scrollTop < this.top - 1) this.sticks = false;
    this.top = scrollTop;
  }

  unstick() {
    const { scrollHeight, clientHeight } = this.scroll;
    if (scrollHeight > clientHeight) this.sticks = false;
  }

  scrolled() {
    this.noticeScroll();
    $("to-end").hidden = this.sticks;
    if (this.scroll.scrollTop < NEAR_START && this.conversation?.hasOlder) void attempt(() => this.loadOlder());
  }

  toEnd() {
    this.sticks = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.top = this.scroll.scrollTop;
    $("to-end").hidden = true;
  }

  /** Loads the page before the oldest message. What is in view stays where it is. */
  async loadOlder(limit = PAGE) {
    const { conversation } = this;
    if (conversation.isLoadingOlder || !conversation.hasOlder) return;
    conversation.isLoadingOlder = true;
    try {
      const page = await api.messages(conversation.id, { from: `before:${conversation.oldest}`, limit });
      if (conversation !== this.conversation) return;
      conversation.prepend(page);
      const behind = this.scroll.scrollHeight - this.scroll.scrollTop;
      this.sticks = false;
      this.render();
      this.scroll.scrollTop = this.scroll.scrollHeight - behind;
      this.top = this.scroll.scrollTop;
    } finally {
      conversation.isLoadingOlder = false;
    }
  }

  /** Scrolls to a message, and loads it before if needed. */
  async show({ message, sequence }) {
    const { conversation } = this;
    while (conversation === this.conversation && conversation.hasOlder && conversation.oldest > sequence) {
      await this.loadOlder(Math.min(1000, conversation.oldest - sequence + PAGE));
    }
    if (conversation !== this.conversation) return;
    const holder = conversation.messages().find(({ id, results }) => id === message || [...results.values()].some((row) => row.message_id === message));
    const node = holder && this.views.get(holder.id)?.node;
    if (!node) return;
    for (const other of $("messages").querySelectorAll(".found")) other.classList.remove("found");
    node.classList.add("found");
    node.tabIndex = -1;
    node.focus({ preventScroll: true });
    this.sticks = false;
    node.scrollIntoView({ block: "center" });
    this.scrolled();
  }

  /* What a person does */

  send(text) {
    let { conversation } = this;
    const isNew = !conversation;
    if (isNew) {
      conversation = this.begin(new Conversation(uuid(), { isNew: true }));
      conversation.isLoaded = true;
    }
    this.sticks = true;
    void this.outbox.add({ id: uuid(), conversation: conversation.id, text, isNew });
  }

  /** What was sent is stored. A conversation that was created by it can be followed now. */
  stored(id, items, info) {
    const { conversation } = this;
    if (info) this.changed();
    if (conversation?.id !== id) return;
    if (info) {
      conversation.info = info;
      conversation.isNew = false;
      showHead(conversation);
      this.composer.show(id);
      this.navigate(id);
      this.follow();
    }
    if (items.length) this.receive(items);
    this.draw();
  }

  async continue() {
    await attempt(() => api.run(this.conversation.id));
    this.composer.focus();
  }

  /** Opens the editor of the person's last message. */
  editLast() {
    const last = [...this.views.values()].findLast((view) => view.role === "user" && view.node.querySelector(".edit-message"));
    last?.edit();
    return Boolean(last);
  }

  actions = {
    copy: async (text) => {
      await attempt(() => navigator.clipboard.writeText(text));
      announce("Copied.");
    },
    fork: (message) =>
      attempt(async () => {
        const { conversation } = await api.fork(this.conversation.id, { through: message }, uuid());
        this.changed();
        this.navigate(conversation.id);
        announce("This is the fork.");
      }),
    replace: (message, text) => {
      this.sticks = true;
      void this.outbox.add({ id: uuid(), conversation: this.conversation.id, text, rewind: message });
      this.composer.focus();
    },
    resend: (id) => this.outbox.deliver(id),
    discard: (id) => {
      this.outbox.remove(id);
      this.draw();
      this.composer.focus();
    },
    decide: async (row, decision) => {
      const { conversation } = this;
      const decided = await attempt(() => api.decide(conversation.id, row.tool_call_id, decision));
      if (!decided) return false;
      if (!decided.claimed) toast("Somebody else has decided already.");
      if (conversation === this.conversation) {
        this.receive(decided.items ?? []);
        this.draw();
        this.composer.focus();
      }
      return true;
    },
  };
}

/** A message of the outbox as one to show. */
const asMessage = ({ id, text }) => ({
  id,
  role: "user",
  rows: [{ message_id: id, item: 0, role: "user", content_type: "text", content: text, metadata: {} }],
  results: new Map(),
  isStreaming: false,
});

/** Why the last message is not the end of an answer, if it is not. */
function unfinished(last, status) {
  if (last.rows.some(asksForDecision)) return null;
  if (last.rows.some((row) => ["interrupted", "draft"].includes(row.delivery))) {
    return status === "cancelled" ? "Stopped." : "This answer was interrupted.";
  }
  if (last.rows.some((row) => row.content_type === "error") || last.role === "system" || status === "failed") return "The agent failed.";
  if (status === "cancelled") return "Stopped.";
  if (last.role === "user") return "There is no answer yet.";
  if (last.rows.some((row) => row.content_type === "tool_call")) return "The agent has not gone on after this.";
  return null;
}

async function copyCode(event) {
  const target = event.target.closest(".copy-code");
  if (!target) return;
  const code = target.closest(".code").querySelector("code").textContent;
  if ((await attempt(() => navigator.clipboard.writeText(code))) === undefined) return;
  announce("Copied.");
  const done = iconButton("Copied", { icon: "check", className: "copy-code" });
  target.replaceWith(done);
  done.focus();
  setTimeout(() => done.replaceWith(target), 1500);
}
