// What is shown around the messages: the title, the todos, the tokens and the state of the connection.

import { api } from "./api.js";
import { $, element, icon } from "./dom.js";
import { nameOf } from "./list.js";

const SYMBOLS = { pending: "circle", in_progress: "spinner", completed: "check", cancelled: "close" };
const WORDS = { pending: "to do", in_progress: "in progress", completed: "done", cancelled: "given up" };

export function showHead(conversation) {
  const info = conversation?.info;
  const title = info ? nameOf(info) : "New conversation";
  document.title = info ? title : $("brand").textContent;
  $("title").textContent = title;
  $("archived-mark").hidden = !conversation?.isArchived;
  $("more").hidden = !info;
  if (!info) return;
  $("archive-label").textContent = conversation.isArchived ? "Unarchive" : "Archive";
  $("export").href = api.exportUrl(conversation.id);
}

export function showTodos(todos) {
  $("todos").hidden = todos.length === 0;
  const done = todos.filter((todo) => ["completed", "cancelled"].includes(todo.status)).length;
  const current = todos.find((todo) => todo.status === "in_progress");
  $("todos-count").textContent = `${done} of ${todos.length} done`;
  $("todos-current").textContent = current?.content ?? "";
  Object.assign($("todos-progress"), { max: todos.length || 1, value: done });
  $("todos-list").replaceChildren(...todos.map(todoItem));
}

function todoItem({ content, status }) {
  const state = element("span", { className: "hidden" }, `${WORDS[status] ?? status}: `);
  return element("li", { dataset: { status } }, icon(SYMBOLS[status] ?? "circle"), element("span", {}, state, content));
}

const number = new Intl.NumberFormat();

export function showUsage({ models }) {
  const sum = (key) => models.reduce((total, model) => total + model[key], 0);
  const total = sum("input") + sum("output");
  $("usage").hidden = total === 0;
  $("usage-label").textContent = `${number.format(total)} tokens`;
  $("usage-rows").replaceChildren(
    ...models.map((model) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, model.model ?? "Unknown model"),
        ...["input", "cached", "output"].map((key) => element("td", {}, number.format(model[key]))),
      ),
    ),
  );
}

let timer;

/** `lost` stays until it is `connected` again, which goes away by itself. */
export function showConnection(state) {
  const line = $("connection");
  clearTimeout(timer);
  if (state === "connected" && line.dataset.state !== "lost") return;
  line.dataset.state = state;
  $("connection-text").textContent = { lost: "Connection lost. Connecting again…", connected: "Connected again." }[state] ?? "";
  $("connect").hidden = state !== "lost";
  if (state === "connected") timer = setTimeout(() => showConnection(""), 2500);
}
