// Questions to a person, and messages that go away by themselves.

import { $, element, iconButton } from "./dom.js";

/** Asks, and returns the text of the field, `true` if there is none, or `null` if the person does not want to. */
export function ask({ title, text = "", label = "", value = "", ok, isDanger = false }) {
  const dialog = $("dialog");
  $("dialog-title").textContent = title;
  $("dialog-text").textContent = text;
  $("dialog-text").hidden = !text;
  $("dialog-field").hidden = !label;
  $("dialog-label").textContent = label;
  $("dialog-input").value = value;
  $("dialog-ok").textContent = ok;
  $("dialog-ok").className = `button ${isDanger ? "danger" : "primary"}`;
  dialog.returnValue = "";
  dialog.showModal();
  if (label) $("dialog-input").select();
  else $("dialog-cancel").focus();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "ok" ? (label ? $("dialog-input").value.trim() : true) : null);
  });
}

/** Shows a message for some seconds. */
export function toast(text) {
  const close = iconButton("Close this message", { icon: "close", onclick: () => node.remove() });
  const node = element("div", { className: "toast" }, element("p", {}, text), close);
  $("toasts").append(node);
  const leave = () => {
    if (node.matches(":hover, :focus-within")) setTimeout(leave, 3000);
    else node.remove();
  };
  setTimeout(leave, 9000);
}

/** Tells screen readers something that others see anyway. */
export function announce(text) {
  $("announce").textContent = text;
}

/** Runs an action and shows its failure. Returns `undefined` if it failed. */
export async function attempt(action) {
  try {
    return (await action()) ?? null;
  } catch (error) {
    if (error.status === 401) showSignIn();
    else toast(error.message);
    return undefined;
  }
}

/** The session of the person has ended. What is on the page stays until they sign in. */
export function showSignIn() {
  $("sign-in-link").href = document.querySelector('meta[name="sign-in"]').content;
  if (!$("sign-in").open) $("sign-in").showModal();
}
