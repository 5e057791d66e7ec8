// The view of one message. Its parts stay on the page while they do not change.

import { button, element, icon, iconButton, patch, place } from "./dom.js";
import { safeUrl } from "./inline.js";
import { markdown, markdownBlocks } from "./markdown.js";
import { resultCard, toolCard } from "./tool.js";

const NAMES = { user: "You", assistant: "Agent", system: "Notice", tool: "Tool" };

export class MessageView {
  /** `actions` has what a person can do with a message. */
  constructor(id, role, actions) {
    this.id = id;
    this.role = role;
    this.actions = actions;
    this.parts = new Map(); // { key, node } by item
    this.body = element("div", { className: "body" });
    this.foot = element("div", { className: "foot" });
    const article = element("article", { aria: { label: NAMES[role] ?? role } }, this.body, this.foot);
    this.node = element("li", { className: "message", dataset: { id, role } }, article);
  }

  update(message, { isReadOnly, state }) {
    const key = JSON.stringify([message.rows, [...message.results], message.isStreaming, isReadOnly, state]);
    if (key === this.key) return;
    this.key = key;
    this.message = message;
    this.isReadOnly = isReadOnly;
    this.node.classList.toggle("streaming", message.isStreaming);
    if (!this.editor) this.show(state);
  }

  show(state) {
    const { rows, results } = this.message;
    const nodes = rows.map((row) => this.part(row, results.get(row.tool_call_id)));
    place(this.body, nodes);
    patch(this.foot, [...this.marks(state), ...this.tools()]);
  }

  part(row, result) {
    const key = JSON.stringify([row.content_type, row.content, row.metadata, row.status, result, this.isReadOnly]);
    const old = this.parts.get(row.item);
    if (old?.key === key) return old.node;
    const node = old?.type === row.content_type ? renew(old.node, row, () => this.draw(row, result)) : this.draw(row, result);
    this.parts.set(row.item, { key, node, type: row.content_type });
    return node;
  }

  draw(row, result) {
    if (row.role === "system") return element("p", { className: "notice" }, icon("alert"), element("span", {}, row.content));
    switch (row.content_type) {
      case "thinking":
        return folded("thinking", "thought", "Thinking", markdown(row.content));
      case "image":
        return picture(row);
      case "file":
      case "file_reference":
        return reference(row.content, row.content || "A file");
      case "tool_call":
        return toolCard(row, result, this.isReadOnly ? null : this.actions.decide);
      case "tool_result":
        return resultCard(row);
      case "error":
        return element("p", { className: "notice bad" }, icon("alert"), element("span", {}, row.content));
      case "notification":
        return element("p", { className: "notice" }, element("span", {}, row.content));
      case "structured_data":
      case "todo_snapshot":
        return folded("data", "tool", "Data", element("pre", { className: "output", tabIndex: 0 }, row.content));
      default:
        return markdown(row.content);
    }
  }

  get text() {
    return this.message.rows.filter((row) => row.content_type === "text").map((row) => row.content).join("\n\n");
  }

  marks(state) {
    const { rows } = this.message;
    if (state === "sending") return [element("span", { className: "mark" }, "Sending…")];
    if (state === "waiting") return [element("span", { className: "mark warn" }, "Not sent yet. It is sent when the connection is back.")];
    if (state === "failed") {
      const again = button("Try again", { icon: "retry", className: "small", onclick: () => this.actions.resend(this.id) });
      const discard = button("Discard", { className: "small quiet", onclick: () => this.actions.discard(this.id) });
      return [element("span", { className: "mark bad" }, "Not sent."), again, discard];
    }
    if (rows.some((row) => row.delivery === "unknown")) {
      return [element("span", { className: "mark warn" }, "The agent did not get this message.")];
    }
    const stopped = rows.find((row) => row.metadata?.stop_reason)?.metadata.stop_reason;
    if (stopped === "length") return [element("span", { className: "mark warn" }, "The answer is longer than the model may write.")];
    return [];
  }

  tools() {
    const { rows, isStreaming } = this.message;
    const [first] = rows;
    if (isStreaming || this.role === "system" || !this.text || first.sequence === undefined) return [];
    const tools = element("div", { className: "tools", role: "group", aria: { label: "Actions for this message" } });
    const time = new Date(first.inserted_at);
    tools.append(element("time", { dateTime: first.inserted_at, title: time.toLocaleString() }, time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })));
    tools.append(iconButton("Copy", { icon: "copy", className: "copy-message", onclick: () => this.actions.copy(this.text) }));
    if (this.isReadOnly) return [tools];
    if (this.role === "user") {
      tools.append(
        iconButton("Edit", { icon: "edit", className: "edit-message", onclick: () => this.edit() }),
        iconButton("Try again", { icon: "retry", className: "retry-message", onclick: () => this.actions.replace(this.id, this.text) }),
      );
    }
    tools.append(iconButton("Fork from here", { icon: "fork", className: "fork-message", onclick: () => this.actions.fork(this.id) }));
    return [tools];
  }

  /** Shows a field with the text instead of it. */
  edit() {
    const field = element("textarea", { className: "edit-text", maxLength: 32_000, value: this.text, aria: { label: "Your message" } });
    field.rows = Math.min(14, this.text.split("\n").length + 1);
    const hint = element("p", { className: "hint" }, "Everything after this message is removed.");
    const leave = () => {
      this.editor = null;
      this.node.classList.remove("editing");
      this.show();
    };
    const cancel = () => {
      leave();
      this.foot.querySelector(".edit-message")?.focus();
    };
    const submit = () => {
      const text = field.value.trim();
      if (!text) return;
      leave();
      this.actions.replace(this.id, text);
    };
    this.editor = element("form", { className: "editor" }, field, hint);
    this.editor.append(
      element("div", { className: "choices" }, element("button", { className: "button primary" }, "Send"), button("Cancel", { className: "quiet", onclick: cancel })),
    );
    this.editor.onsubmit = (event) => {
      event.preventDefault();
      submit();
    };
    this.editor.onkeydown = (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        submit();
      }
    };
    this.node.classList.add("editing");
    this.body.replaceChildren(this.editor);
    this.foot.replaceChildren();
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

/** Draws a part again: text keeps the blocks that are the same, and what was unfolded stays so. */
function renew(old, row, draw) {
  const prose = row.content_type === "thinking" ? old.querySelector(".prose") : old;
  if (row.role !== "system" && ["text", "thinking"].includes(row.content_type)) {
    patch(prose, markdownBlocks(row.content));
    return old;
  }
  const node = draw();
  if (old.tagName === "DETAILS" && node.tagName === "DETAILS") node.open = old.open;
  return node;
}

function folded(className, symbol, title, content) {
  const summary = element("summary", {}, icon(symbol), element("span", {}, title), icon("chevron"));
  return element("details", { className: `folded ${className}` }, summary, content);
}

function reference(address, text) {
  const url = safeUrl(address);
  if (!url) return element("p", { className: "muted" }, text);
  return element("p", {}, element("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, text));
}

/** Only pictures that are part of the message are shown; others are links. */
function picture(row) {
  const { data, media_type: type } = row.metadata;
  if (!data || !/^image\/(png|jpeg|gif|webp)$/.test(type ?? "")) return reference(row.content, row.content || "A picture");
  return element("img", { className: "picture", src: `data:${type};base64,${data}`, alt: row.content || "A picture" });
}
