// The field for a message. What is typed is kept for each conversation.

import { $ } from "./dom.js";

export class Composer {
  /** `send` takes the text; `editLast` is called on the up key in an empty field. */
  constructor({ send, editLast }) {
    this.key = "";
    this.field = $("composer-text");
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit(send);
    });
    this.field.addEventListener("input", () => {
      this.keep();
      this.fit();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.submit(send);
      } else if (event.key === "ArrowUp" && !this.field.value && editLast()) {
        event.preventDefault();
      }
    });
    window.addEventListener("resize", () => this.fit());
  }

  submit(send) {
    const text = this.field.value.trim();
    if (!text) return;
    this.field.value = "";
    this.keep();
    this.fit();
    send(text);
  }

  /** Shows the draft of a conversation. */
  show(id) {
    this.key = `draft:${id ?? "new"}`;
    this.field.value = stored(this.key);
    this.fit();
  }

  focus() {
    this.field.focus();
  }

  keep() {
    try {
      if (this.field.value) sessionStorage.setItem(this.key, this.field.value);
      else sessionStorage.removeItem(this.key);
    } catch {
      // Without a storage the draft is lost when another conversation is opened.
    }
    $("send").disabled = !this.field.value.trim();
  }

  fit() {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
    $("send").disabled = !this.field.value.trim();
  }
}

function stored(key) {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}
