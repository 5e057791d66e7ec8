// The list of conversations, and the results of a search in its place.

import { api } from "./api.js";
import { attempt } from "./dialog.js";
import { $, button, element } from "./dom.js";

const DAY = 86_400_000;

export const nameOf = (conversation) => conversation?.title || "Untitled conversation";

export class List {
  /** `open` shows a conversation, at a message if there is one. */
  constructor(open) {
    this.open = open;
    this.node = $("conversations");
    this.archived = "false";
    this.items = [];
    this.next = null;
    this.query = "";
    this.current = null;
    this.names = new Map();
    this.node.addEventListener("keydown", (event) => this.move(event));
    this.node.addEventListener("click", (event) => this.follow(event));
  }

  async load(after) {
    const { archived } = this;
    const page = await api.list({ archived, after, limit: 30 });
    if (archived !== this.archived) return;
    this.items = after ? [...this.items, ...page.items] : page.items;
    this.next = page.next;
    for (const item of page.items) this.names.set(item.id, nameOf(item));
    if (!this.query) this.show();
  }

  select(id) {
    this.current = id;
    for (const link of this.links()) this.mark(link);
    this.rove(this.links().find((link) => link.dataset.id === id) ?? this.links()[0]);
  }

  mark(link) {
    if (link.dataset.id === this.current && !link.dataset.sequence) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }

  links() {
    return [...this.node.querySelectorAll("a")];
  }

  show() {
    const nodes = [];
    let group = "";
    for (const conversation of this.items) {
      const title = period(conversation.updated_at);
      if (title !== group) nodes.push(element("li", { className: "period", role: "presentation" }, title));
      group = title;
      nodes.push(this.entry(conversation));
    }
    if (!nodes.length) {
      nodes.push(note(this.archived === "true" ? "Nothing is archived." : "No conversations yet. Write a message to start one."));
    }
    if (this.next) nodes.push(more("Show more", () => this.load(this.next)));
    this.replace(nodes);
  }

  entry(conversation) {
    const name = element("span", { className: "name" }, nameOf(conversation));
    const link = this.link(conversation.id, name, time(conversation.updated_at));
    if (conversation.interrupted) name.after(element("span", { className: "dot", title: "Needs your decision" }, element("span", { className: "hidden" }, "needs your decision")));
    return element("li", {}, link);
  }

  link(id, ...children) {
    const link = element("a", { href: `#${id}`, dataset: { id } }, ...children);
    this.mark(link);
    return link;
  }

  /** Keeps the focus in the list when it is drawn again. */
  replace(nodes) {
    const focused = this.node.contains(document.activeElement) ? document.activeElement.dataset?.id : undefined;
    this.node.replaceChildren(...nodes);
    const links = this.links();
    const target = links.find((link) => link.dataset.id === (focused ?? this.current)) ?? links[0];
    this.rove(target);
    if (focused) target?.focus();
  }

  /** One link of the list is reached by Tab, the others by arrow keys. */
  rove(target) {
    for (const link of this.links()) link.tabIndex = link === target ? 0 : -1;
  }

  move(event) {
    const links = this.links();
    const at = links.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const target = links[Math.max(0, Math.min(to, links.length - 1))];
    this.rove(target);
    target.focus();
  }

  follow(event) {
    const link = event.target.closest("a");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    const { id, message, sequence } = link.dataset;
    this.open(id, message ? { message, sequence: Number(sequence) } : null);
  }

  /** The conversation before or behind the open one. */
  neighbour(step) {
    const at = this.items.findIndex((item) => item.id === this.current);
    return this.items[at + step]?.id;
  }

  async search(query) {
    this.query = query;
    if (query) await this.find(query);
    else this.show();
  }

  async find(query, after, shown = []) {
    const page = await api.search(query, after);
    if (this.query !== query) return;
    await this.loadNames(page.items);
    if (this.query !== query) return;
    const nodes = [...shown, ...page.items.map((row) => this.hit(row, query))];
    const count = nodes.length === 1 ? "1 message" : `${nodes.length}${page.next ? "+" : ""} messages`;
    const title = element("li", { className: "period", role: "presentation" }, nodes.length ? count : "Search");
    const rest = page.next ? [more("More results", () => this.find(query, page.next, nodes))] : [];
    this.replace([title, ...(nodes.length ? nodes : [note(`No message contains “${query}”.`)]), ...rest]);
  }

  async loadNames(rows) {
    const ids = new Set(rows.map((row) => row.conversation_id).filter((id) => !this.names.has(id)));
    const load = async (id) => this.names.set(id, nameOf(await api.get(id)));
    await Promise.allSettled([...ids].map(load));
  }

  hit(row, query) {
    const name = element("span", { className: "name" }, this.names.get(row.conversation_id) ?? "Conversation");
    const link = this.link(row.conversation_id, name, time(row.inserted_at), snippet(row.content, query));
    Object.assign(link.dataset, { message: row.message_id, sequence: row.sequence });
    link.removeAttribute("aria-current");
    return element("li", {}, link);
  }
}

/** The part of a text around the first place that matches, with all matches in it marked. */
function snippet(text, query) {
  const words = query.toLowerCase().split(/\s+/);
  const flat = text.replace(/\s+/g, " ");
  const places = words.map((word) => flat.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const from = Math.max(0, Math.min(...places, flat.length) - 32);
  const part = flat.slice(from, from + 160);
  const node = element("span", { className: "snippet" }, from > 0 ? "…" : "");
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  part.split(new RegExp(`(${escaped.join("|")})`, "giu")).forEach((piece, index) => {
    node.append(index % 2 ? element("mark", {}, piece) : piece);
  });
  return node;
}

function period(text) {
  const today = new Date().setHours(0, 0, 0, 0);
  const at = new Date(text).getTime();
  if (at >= today) return "Today";
  if (at >= today - DAY) return "Yesterday";
  return at >= today - 7 * DAY ? "Last 7 days" : "Older";
}

function time(text) {
  const at = new Date(text);
  const isToday = period(text) === "Today";
  const options = isToday ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" };
  return element("time", { dateTime: text }, new Intl.DateTimeFormat(undefined, options).format(at));
}

const note = (text) => element("li", { className: "note" }, text);

const more = (text, action) =>
  element("li", { className: "more" }, button(text, { className: "quiet", onclick: () => attempt(action) }));
