// Starts the page: the list beside the open conversation, whose id is the fragment of the address.

import { api } from "./api.js";
import { Chat } from "./chat.js";
import { ask, attempt, showSignIn } from "./dialog.js";
import { $, element, fillIcons } from "./dom.js";
import { List } from "./list.js";
import { showHead } from "./panel.js";

const list = new List((id, at) => {
  closeDrawer();
  void go(id, at);
});
const chat = new Chat({ changed: () => void attempt(() => list.load()), navigate: (id) => void go(id) });

const idInAddress = () => location.hash.match(/^#([0-9a-f-]{36})$/)?.[1] ?? null;

async function go(id, at) {
  const address = id ? `#${id}` : location.pathname + location.search;
  if (idInAddress() !== id) history.pushState(null, "", address);
  list.select(id);
  await chat.open(id, at);
  list.select(id);
}

/* The drawer of narrow windows */

const isNarrow = matchMedia("(max-width: 52rem)");

function openDrawer() {
  $("app").classList.add("drawer-open");
  $("menu").setAttribute("aria-expanded", "true");
  $("main").inert = true;
  $("new").focus();
}

function closeDrawer() {
  if (!$("app").classList.contains("drawer-open")) return;
  $("app").classList.remove("drawer-open");
  $("menu").setAttribute("aria-expanded", "false");
  $("main").inert = false;
  $("menu").focus();
}

isNarrow.addEventListener("change", closeDrawer);

/* The menu of a conversation */

const items = () => [...$("menu-items").querySelectorAll("[role=menuitem]")];

function openMenu() {
  const { bottom, right } = $("more").getBoundingClientRect();
  const menu = $("menu-items");
  menu.showPopover();
  menu.style.top = `${bottom + 6}px`;
  menu.style.left = `${Math.max(8, right - menu.offsetWidth)}px`;
  items()[0].focus();
}

$("more").onclick = openMenu;
$("menu-items").addEventListener("toggle", (event) => $("more").setAttribute("aria-expanded", String(event.newState === "open")));
$("menu-items").addEventListener("click", () => $("menu-items").hidePopover());
$("menu-items").addEventListener("keydown", (event) => {
  const all = items();
  const at = all.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  if (event.key === "Tab") $("menu-items").hidePopover();
  if (to === undefined) return;
  event.preventDefault();
  all.at(to % all.length).focus();
});

$("rename").onclick = async () => {
  const { conversation } = chat;
  const title = await ask({ title: "Rename the conversation", label: "Title", value: conversation.info.title ?? "", ok: "Rename" });
  if (title !== null) await update(conversation, () => api.rename(conversation.id, title || null));
};

$("archive").onclick = () => update(chat.conversation, () => api.archive(chat.conversation.id, !chat.conversation.isArchived));

async function update(conversation, call) {
  await attempt(async () => {
    conversation.info = await call();
    if (conversation === chat.conversation) showHead(conversation);
    await list.load();
  });
}

$("delete").onclick = async () => {
  const { id } = chat.conversation;
  const text = "All its messages are deleted. This cannot be undone.";
  if (!(await ask({ title: "Delete this conversation?", text, ok: "Delete", isDanger: true }))) return;
  await attempt(async () => {
    // The page leaves it first, so that its own deletion is no news to it.
    await go(null);
    await api.remove(id);
    await list.load();
  });
};

/* The sidebar */

function startNew() {
  closeDrawer();
  void go(null);
  chat.composer.focus();
}

$("new").onclick = startNew;
$("menu").onclick = openDrawer;
$("shade").onclick = closeDrawer;
$("search").onsubmit = (event) => {
  event.preventDefault();
  list.links()[0]?.focus();
};

let pause;
$("search-text").oninput = () => {
  clearTimeout(pause);
  pause = setTimeout(() => attempt(() => list.search($("search-text").value.trim())), 200);
};
$("search-text").onkeydown = (event) => {
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  list.links().find((link) => link.tabIndex === 0)?.focus();
};

for (const tab of document.querySelectorAll("[data-archived]")) {
  tab.onclick = () => {
    for (const other of document.querySelectorAll("[data-archived]")) other.setAttribute("aria-pressed", String(other === tab));
    list.archived = tab.dataset.archived;
    void attempt(() => list.load());
  };
}

/* The keyboard */

const isTyping = (target) => target.matches("input, textarea, select, [contenteditable]");

function shortcut(event) {
  const isCommand = event.ctrlKey || event.metaKey;
  if (isCommand && !event.shiftKey && event.key.toLowerCase() === "k") return focusSearch;
  if (event.altKey && event.key === "ArrowDown") return () => step(1);
  if (event.altKey && event.key === "ArrowUp") return () => step(-1);
  if (isCommand || event.altKey || isTyping(event.target)) return null;
  return { "/": focusSearch, n: startNew, "?": () => $("shortcuts").showModal() }[event.key];
}

function focusSearch() {
  if (isNarrow.matches) openDrawer();
  $("search-text").focus();
  $("search-text").select();
}

function step(by) {
  const id = list.neighbour(by);
  if (id) void go(id);
}

function escape(event) {
  if (event.target === $("search-text") && $("search-text").value) {
    event.preventDefault();
    $("search-text").value = "";
    void list.search("");
  } else if ($("app").classList.contains("drawer-open")) {
    closeDrawer();
  } else {
    chat.composer.focus();
  }
}

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.defaultPrevented) return;
  if (event.key === "Escape") {
    if (!$("menu-items").matches(":popover-open")) escape(event);
    return;
  }
  const action = shortcut(event);
  if (!action) return;
  event.preventDefault();
  action();
});
$("skip").onclick = (event) => {
  // The fragment of the address is the conversation.
  event.preventDefault();
  chat.composer.focus();
};
$("help").onclick = () => $("shortcuts").showModal();
$("shortcuts-close").onclick = () => $("shortcuts").close();

/* Who is signed in */

async function showPerson() {
  try {
    const me = await api.me();
    chat.isReadOnly = me.read_only === true;
    $("person").textContent = me.name;
    $("initials").textContent = me.initials ?? initials(me.name);
    $("sign-out").hidden = !me.sign_out;
    if (me.sign_out) $("sign-out").action = me.sign_out;
    $("who").hidden = false;
  } catch (problem) {
    if (problem.status === 401) showSignIn();
    // A server that does not know people by name has no such route.
  }
}

const initials = (name) => name.split(/\s+/, 2).map((word) => [...word][0] ?? "").join("").toUpperCase();

window.addEventListener("popstate", () => {
  list.select(idInAddress());
  void chat.open(idInAddress());
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) void attempt(() => list.load());
});

fillIcons();
await showPerson();
if (!$("sign-in").open) {
  await attempt(() => list.load());
  await go(idInAddress());
  if (!isNarrow.matches) chat.composer.focus();
}
document.documentElement.dataset.ready = "true";
