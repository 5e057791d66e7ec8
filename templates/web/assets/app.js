// The page: a list of conversations, and one of them open. What it shows of a conversation is what the server has
// stored; text that the model is still writing is on top of that.

import { api, page, uuid } from "./api.js";
import { messageView } from "./message.js";

const $ = (id) => document.getElementById(id);
const list = { archived: "exclude", next: null, items: [], query: "" };

/** The open conversation. */
let open = null;

class Conversation {
  constructor(id) {
    this.id = id;
    this.info = null;
    this.rows = new Map(); // by sequence
    this.partials = new Map(); // by message
    this.older = null;
    this.running = false;
    this.editing = null;
    this.stream = null;
    this.cursor = null;
  }

  get isArchived() {
    return Boolean(this.info?.archived_at);
  }

  /** The rows of each message, in order. A whole row of a message replaces its drafts. */
  groups() {
    const groups = new Map();
    for (const row of [...this.rows.values()].sort((a, b) => a.sequence - b.sequence)) {
      const last = groups.get(row.message_id);
      if (last) last.push(row);
      else groups.set(row.message_id, [row]);
    }
    return groups;
  }

  store(rows, reset) {
    if (reset) this.rows.clear();
    for (const row of rows) {
      if (row.delivery !== "draft") {
        this.partials.delete(row.message_id);
        for (const [sequence, other] of this.rows) {
          if (other.message_id === row.message_id && other.delivery === "draft") this.rows.delete(sequence);
        }
      }
      this.rows.set(row.sequence, row);
    }
  }

  close() {
    this.stream?.close();
  }
}

/* Errors and dialogs */

function toast(text) {
  const node = document.createElement("p");
  node.className = "toast";
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.onclick = () => node.remove();
  node.append(text, close);
  $("toasts").append(node);
  setTimeout(() => node.remove(), 8000);
}

async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (error.status === 401) location.reload();
    toast(error.message);
    return undefined;
  }
}

function ask({ title, text, label, value, ok }) {
  $("dialog-title").textContent = title;
  $("dialog-text").textContent = text ?? "";
  $("dialog-text").hidden = !text;
  $("dialog-field").hidden = !label;
  $("dialog-label").textContent = label ?? "";
  $("dialog-input").value = value ?? "";
  $("dialog-ok").textContent = ok;
  const dialog = $("dialog");
  dialog.returnValue = "";
  dialog.showModal();
  if (label) $("dialog-input").select();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "ok" ? (label ? $("dialog-input").value : true) : null);
  });
}

/* The list */

const name = (conversation) => conversation.title || "Untitled conversation";

function when(text) {
  const time = new Date(text);
  const days = (Date.now() - time) / 86_400_000;
  const options = days < 1 ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" };
  return new Intl.DateTimeFormat(undefined, options).format(time);
}

function entry(id, title, time, isCurrent) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = page(`c/${id}`);
  if (isCurrent) link.setAttribute("aria-current", "page");
  const label = document.createElement("span");
  label.className = "name";
  label.textContent = title;
  const at = document.createElement("time");
  at.className = "when";
  at.dateTime = time;
  at.textContent = when(time);
  link.append(label, at);
  link.onclick = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(id);
  };
  item.append(link);
  return { item, link, label };
}

function showList() {
  const nodes = list.items.map((conversation) => {
    const { item, label } = entry(conversation.id, name(conversation), conversation.updated_at, conversation.id === open?.id);
    if (conversation.interrupted) {
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.textContent = "waits for you";
      label.append(badge);
    }
    return item;
  });
  if (!nodes.length) nodes.push(note(list.archived === "only" ? "Nothing is archived." : "No conversations yet."));
  if (list.next) nodes.push(more("More conversations", () => loadList(list.next)));
  $("conversations").replaceChildren(...nodes);
}

function note(text) {
  const item = document.createElement("li");
  item.className = "note";
  item.textContent = text;
  return item;
}

function more(text, action) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button quiet";
  button.textContent = text;
  button.onclick = () => attempt(action);
  item.append(button);
  return item;
}

async function loadList(after) {
  const loaded = await api.list({ archived: list.archived, after });
  list.items = after ? [...list.items, ...loaded.items] : loaded.items;
  list.next = loaded.next;
  if (!list.query) showList();
}

/** The part of a text around the first place that matches. */
function snippet(text, query) {
  const at = text.toLowerCase().indexOf(query.toLowerCase());
  const node = document.createElement("span");
  node.className = "snippet";
  if (at < 0) {
    node.textContent = text.slice(0, 120);
    return node;
  }
  const mark = document.createElement("mark");
  mark.textContent = text.slice(at, at + query.length);
  node.append((at > 30 ? "…" : "") + text.slice(Math.max(0, at - 30), at), mark, text.slice(at + query.length, at + 120));
  return node;
}

async function search(query, after, shown = []) {
  list.query = query;
  if (!query) {
    showList();
    return;
  }
  const found = await api.search(query, after);
  if (list.query !== query) return;
  const titles = new Map(list.items.map((conversation) => [conversation.id, name(conversation)]));
  const nodes = found.items.map((row) => {
    const { item, link } = entry(row.conversation_id, titles.get(row.conversation_id) ?? "Conversation", row.inserted_at, false);
    link.append(snippet(row.content, query));
    return item;
  });
  const all = [...shown, ...nodes];
  const rest = found.next ? [more("More results", () => search(query, found.next, all))] : [];
  $("conversations").replaceChildren(...(all.length ? [...all, ...rest] : [note("No message contains this.")]));
}

/* The open conversation */

function isAtEnd() {
  const { scrollTop, scrollHeight, clientHeight } = $("scroll");
  return scrollHeight - scrollTop - clientHeight < 80;
}

const shown = new Map(); // what is on the page, by message

function render() {
  if (!open) return;
  const stays = isAtEnd();
  const groups = open.groups();
  for (const [id, items] of open.partials) {
    if (!groups.has(id)) groups.set(id, items);
  }
  const nodes = [];
  for (const [id, rows] of groups) {
    const partial = open.partials.get(id);
    const items = partial ?? rows;
    const key = JSON.stringify(items);
    let view = shown.get(id);
    if (view?.key !== key) {
      const node = messageView(id, items, Boolean(partial), handlers);
      if (view) keepOpen(view.node, node);
      view = { key, node };
      shown.set(id, view);
    }
    nodes.push(view.node);
  }
  for (const id of shown.keys()) if (!groups.has(id)) shown.delete(id);
  const messages = $("messages");
  const focused = document.activeElement?.closest?.(".message")?.dataset.id;
  nodes.forEach((node, index) => {
    if (messages.children[index] !== node) messages.insertBefore(node, messages.children[index] ?? null);
  });
  while (messages.children.length > nodes.length) messages.lastChild.remove();
  if (focused && !document.activeElement.closest(".message")) {
    messages.querySelector(`[data-id="${CSS.escape(focused)}"] button`)?.focus();
  }
  $("older").hidden = !open.older;
  $("stop").hidden = !open.running;
  $("send").disabled = open.running;
  showEmpty(nodes.length === 0);
  if (stays) $("scroll").scrollTop = $("scroll").scrollHeight;
}

/** What a person has unfolded or typed stays when a message is drawn again. */
function keepOpen(old, node) {
  const details = [...node.querySelectorAll("details")];
  [...old.querySelectorAll("details")].forEach((before, index) => {
    if (details[index]) details[index].open = before.open;
  });
  for (const before of old.querySelectorAll("textarea[data-call]")) {
    const after = node.querySelector(`textarea[data-call="${CSS.escape(before.dataset.call)}"]`);
    if (after) after.value = before.value;
  }
}

function showEmpty(isEmpty) {
  const empty = $("empty");
  empty.replaceChildren();
  if (!isEmpty) return;
  const title = document.createElement("h2");
  const text = document.createElement("p");
  title.textContent = open ? "What can I do for you?" : "Your conversations";
  text.textContent = open ? "Answers arrive as they are written, and are kept." : "Open one, or start a new one.";
  empty.append(title, text);
}

function showHead() {
  const info = open?.info;
  document.title = info ? name(info) : "Conversations";
  $("title").textContent = info ? name(info) : "Conversations";
  $("actions").hidden = !info;
  $("composer").hidden = !info;
  if (!info) return;
  $("archive").textContent = open.isArchived ? "Unarchive" : "Archive";
  $("export").href = api.exportUrl(open.id);
}

function showTodos(todos) {
  const box = $("todos");
  box.hidden = !todos.length;
  const items = document.createElement("ul");
  for (const todo of todos) {
    const item = document.createElement("li");
    item.dataset.status = todo.status;
    item.textContent = todo.content;
    items.append(item);
  }
  box.replaceChildren(items);
}

function showUsage(usage) {
  const count = (key) => usage.models.reduce((sum, model) => sum + model[key], 0);
  const number = new Intl.NumberFormat();
  const [input, output] = [count("input"), count("output")];
  $("usage").textContent = input + output ? `${number.format(input)} tokens in, ${number.format(output)} out` : "";
  $("usage").title = usage.models.map((model) => `${model.model ?? "unknown model"}: ${number.format(model.input)} in, ${number.format(model.output)} out`).join("\n");
}

const refreshUsage = async (conversation) => {
  const usage = await api.usage(conversation.id);
  if (conversation === open) showUsage(usage);
};

async function openConversation(id) {
  open?.close();
  shown.clear();
  $("messages").replaceChildren();
  $("todos").hidden = true;
  $("usage").textContent = "";
  $("connection").textContent = "";
  stopEditing();
  open = id ? new Conversation(id) : null;
  showHead();
  showList();
  if (!open) {
    showEmpty(true);
    return;
  }
  const conversation = open;
  try {
    const [info, messages, todos] = await Promise.all([api.get(id), api.messages(id), api.todos(id)]);
    if (conversation !== open) return;
    conversation.info = info;
    conversation.older = messages.next;
    conversation.cursor = messages.cursor;
    conversation.store(messages.items, false);
    showTodos(todos);
  } catch (error) {
    if (conversation !== open) return;
    open = null;
    history.replaceState(null, "", page());
    toast(error.status === 404 ? "There is no such conversation." : error.message);
    showHead();
    showEmpty(true);
    return;
  }
  showHead();
  render();
  $("scroll").scrollTop = $("scroll").scrollHeight;
  follow(conversation);
  void attempt(() => refreshUsage(conversation));
  $("composer-text").focus();
}

/** The browser connects again by itself, with the id of the last event that it saw. */
function follow(conversation) {
  const stream = api.events(conversation.id, conversation.cursor);
  conversation.stream = stream;
  const on = (type, handle) =>
    stream.addEventListener(type, (event) => {
      if (conversation !== open) return;
      handle(JSON.parse(event.data));
      render();
    });
  stream.onopen = () => {
    if (conversation === open) $("connection").textContent = "";
  };
  stream.onerror = () => {
    if (conversation !== open) return;
    conversation.partials.clear();
    $("connection").textContent = "Connection lost. Trying again…";
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => conversation === open && follow(conversation), 3000);
  };
  on("rows", ({ items, reset }) => {
    conversation.store(items, reset);
    announce(items);
  });
  on("partial", ({ message_id, items }) => {
    conversation.partials.set(message_id, items.map((item) => ({ role: "assistant", delivery: "draft", ...item })));
  });
  on("todos", ({ todos }) => showTodos(todos));
  on("title", ({ title }) => {
    conversation.info.title = title;
    showHead();
    void attempt(loadList);
  });
  on("run", ({ running }) => {
    conversation.running = running;
    if (running) return;
    conversation.partials.clear();
    void attempt(() => refreshUsage(conversation));
    void attempt(loadList);
  });
  on("gone", () => go(null));
}

/** For screen readers: whole answers and questions, not every word. */
function announce(rows) {
  const last = rows.findLast((row) => row.delivery === "stored" && row.role === "assistant");
  if (!last) return;
  const asks = last.status === "interrupted";
  $("announce").textContent = asks ? `A tool waits for your decision: ${last.content}` : last.content.slice(0, 500);
}

/* What a person does */

const handlers = {
  edit(row) {
    open.editing = row.message_id;
    $("editing").hidden = false;
    $("composer-text").value = row.content;
    grow();
    $("composer-text").focus();
  },
  retry(row) {
    return attempt(async () => {
      await api.rewind(open.id, { before: row.message_id });
      await api.send(open.id, uuid(), row.content);
    });
  },
  fork(row) {
    return attempt(async () => {
      const { conversation } = await api.fork(open.id, { through: row.message_id }, uuid());
      await loadList();
      go(conversation.id);
    });
  },
  async copy(text) {
    await navigator.clipboard?.writeText(text);
    $("announce").textContent = "Copied.";
  },
  decide(row, decision) {
    const conversation = open;
    return attempt(async () => {
      const { claimed } = await api.decide(conversation.id, row.tool_call_id, decision);
      if (!claimed) toast("Somebody else has decided already.");
    });
  },
};

function stopEditing() {
  if (open) open.editing = null;
  $("editing").hidden = true;
}

function grow() {
  const field = $("composer-text");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

async function send() {
  const field = $("composer-text");
  const text = field.value.trim();
  const conversation = open;
  if (!text || !conversation || conversation.running) return;
  const { editing } = conversation;
  // Kept until it is stored, with one id, so that a repeat is not sent twice.
  conversation.outgoing = conversation.outgoing?.text === text ? conversation.outgoing : { id: uuid(), text };
  $("send").disabled = true;
  const sent = await attempt(async () => {
    if (editing) await api.rewind(conversation.id, { before: editing });
    return api.send(conversation.id, conversation.outgoing.id, text);
  });
  $("send").disabled = false;
  if (!sent) return;
  conversation.outgoing = null;
  if (conversation !== open) return;
  stopEditing();
  field.value = "";
  grow();
  $("scroll").scrollTop = $("scroll").scrollHeight;
}

function go(id) {
  $("app").classList.remove("menu-open");
  $("menu").setAttribute("aria-expanded", "false");
  const path = page(id ? `c/${id}` : "");
  if (location.pathname !== path) history.pushState(null, "", path);
  return openConversation(id);
}

const idInPath = () => location.pathname.match(/\/c\/([0-9a-f-]{36})$/)?.[1] ?? null;

function listen() {
  $("new").onclick = () =>
    attempt(async () => {
      const { id } = await api.create(uuid());
      await loadList();
      await go(id);
    });
  $("search").onsubmit = (event) => event.preventDefault();
  let pause;
  $("search-text").oninput = (event) => {
    clearTimeout(pause);
    pause = setTimeout(() => attempt(() => search(event.target.value.trim())), 250);
  };
  for (const tab of document.querySelectorAll(".tab")) {
    tab.onclick = () => {
      for (const other of document.querySelectorAll(".tab")) other.setAttribute("aria-pressed", String(other === tab));
      list.archived = tab.dataset.archived;
      void attempt(loadList);
    };
  }
  $("menu").onclick = () => {
    const isOpen = $("app").classList.toggle("menu-open");
    $("menu").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) $("new").focus();
  };
  $("main").addEventListener("click", (event) => {
    if (event.target === $("main")) $("app").classList.remove("menu-open");
  });
  $("older").onclick = () =>
    attempt(async () => {
      const conversation = open;
      const { items, next } = await api.messages(conversation.id, { after: conversation.older });
      if (conversation !== open) return;
      const before = $("scroll").scrollHeight - $("scroll").scrollTop;
      conversation.store(items, false);
      conversation.older = next;
      render();
      $("scroll").scrollTop = $("scroll").scrollHeight - before;
    });
  $("rename").onclick = async () => {
    const title = await ask({ title: "Rename", label: "Title", value: open.info.title, ok: "Rename" });
    if (title === null) return;
    await attempt(async () => {
      open.info = await api.rename(open.id, title.trim() || null);
      showHead();
      await loadList();
    });
  };
  $("archive").onclick = () =>
    attempt(async () => {
      open.info = await api.archive(open.id, !open.isArchived);
      showHead();
      await loadList();
    });
  $("delete").onclick = async () => {
    const text = "It is deleted with all its messages. This cannot be undone.";
    if (!(await ask({ title: "Delete this conversation?", text, ok: "Delete" }))) return;
    await attempt(async () => {
      await api.remove(open.id);
      await loadList();
      await go(null);
    });
  };
  $("composer").onsubmit = (event) => {
    event.preventDefault();
    void send();
  };
  $("composer-text").oninput = grow;
  $("composer-text").onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void send();
    } else if (event.key === "Escape") {
      stopEditing();
    }
  };
  $("cancel-edit").onclick = stopEditing;
  $("stop").onclick = () => attempt(() => api.stop(open.id));
  window.onpopstate = () => openConversation(idInPath());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") $("app").classList.remove("menu-open");
  });
}

async function start() {
  listen();
  const me = await attempt(() => api.me());
  if (me) $("who").textContent = me.name;
  await attempt(() => loadList());
  await openConversation(idInPath());
}

void start();
