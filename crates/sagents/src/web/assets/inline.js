// The inline part of Markdown: emphasis, code, links. One pass over the text, whatever it contains.

import { element } from "./dom.js";

/** How deep emphasis and links are nested; markers beyond that are text. */
const DEEPEST = 24;

const ESCAPABLE = /[!-/:-@[-`{-~]/;
const URL_START = /https?:\/\/[^\s<>"`]{1,2000}/y;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/y;
const TARGET = /\(\s*(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))(?:\s+(?:"[^"\n]*"|'[^'\n]*'))?\s*\)/y;

/** The address if a browser opens it as a page or a mail, else `null`. */
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(address, children) {
  const url = safeUrl(address);
  if (!url) return element("span", {}, ...children);
  return element("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, ...children);
}

const isSpace = (char) => char === "" || /\s/u.test(char);
const isPunctuation = (char) => /[\p{P}\p{S}]/u.test(char);

/** Whether a run of markers may begin or end emphasis, by what is on both sides of it. */
function flanks(marker, before, after) {
  const left = !isSpace(after) && (!isPunctuation(after) || isSpace(before) || isPunctuation(before));
  const right = !isSpace(before) && (!isPunctuation(before) || isSpace(after) || isPunctuation(after));
  if (marker !== "_") return { opens: left, closes: right };
  return { opens: left && (!right || isPunctuation(before)), closes: right && (!left || isPunctuation(after)) };
}

const NAMES = { 1: "em", 2: "strong" };

/** What is open at a position: the bottom is the text itself, above are markers that wait for their end. */
class Stack {
  constructor() {
    this.frames = [{ marker: "", count: 0, children: [] }];
  }

  get top() {
    return this.frames.at(-1);
  }

  add(child) {
    const { children } = this.top;
    if (typeof child === "string" && typeof children.at(-1) === "string") children[children.length - 1] += child;
    else children.push(child);
  }

  open(marker, count) {
    if (this.frames.length > DEEPEST) this.add(marker.repeat(count));
    else this.frames.push({ marker, count, children: [] });
  }

  /** Makes the frames above a position text of the frame there. */
  flatten(position) {
    const frames = this.frames.splice(position + 1);
    for (const { marker, count, children } of frames) {
      this.add(marker.repeat(count));
      for (const child of children) this.add(child);
    }
  }

  /** Ends emphasis as far as there is an open marker for it, and returns how many markers are left. */
  close(marker, count) {
    let left = count;
    while (left > 0) {
      const at = this.frames.findLastIndex((frame) => frame.marker === marker);
      const bracket = this.frames.findLastIndex((frame) => frame.marker === "[");
      if (at < 1 || at < bracket) break;
      const frame = this.frames[at];
      const used = marker === "~" ? 2 : Math.min(2, frame.count, left);
      if (used > frame.count || used > left) break;
      this.flatten(at);
      const node = element(marker === "~" ? "del" : NAMES[used], {}, ...frame.children);
      frame.children = [node];
      frame.count -= used;
      left -= used;
      if (frame.count === 0) {
        this.frames.pop();
        this.add(node);
      }
    }
    return left;
  }
}

/** Where the code that starts at a run of backticks ends, or -1. Lengths without an end are remembered. */
function endOfCode(text, from, length, missing) {
  if (missing.has(length)) return -1;
  const runs = /`+/g;
  runs.lastIndex = from;
  for (let run = runs.exec(text); run; run = runs.exec(text)) if (run[0].length === length) return run.index;
  missing.add(length);
  return -1;
}

function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/** An address in a text, without the punctuation behind it. */
function bareUrl(text, at) {
  let url = match(URL_START, text, at)?.[0] ?? "";
  for (;;) {
    const isOpen = url.endsWith(")") && url.split(")").length > url.split("(").length;
    if (!isOpen && !/[.,;:!?'"*_~\]]$/.test(url)) return url;
    url = url.slice(0, -1);
  }
}

/** The nodes and texts of a line. */
export function inline(text) {
  const stack = new Stack();
  const missing = new Set();
  let at = 0;
  while (at < text.length) {
    const char = text[at];
    if (char === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) {
      stack.add(text[at + 1]);
      at += 2;
    } else if (char === "`") {
      const { length } = match(/`+/y, text, at)[0];
      const end = endOfCode(text, at + length, length, missing);
      if (end < 0) {
        stack.add("`".repeat(length));
        at += length;
      } else {
        const code = text.slice(at + length, end);
        const isPadded = code.startsWith(" ") && code.endsWith(" ") && /[^ ]/.test(code);
        stack.add(element("code", {}, isPadded ? code.slice(1, -1) : code));
        at = end + length;
      }
    } else if ("*_~".includes(char)) {
      let end = at;
      while (text[end] === char) end += 1;
      const { opens, closes } = flanks(char, text[at - 1] ?? "", text[end] ?? "");
      const left = closes ? stack.close(char, end - at) : end - at;
      if (left && opens && !(char === "~" && left < 2)) stack.open(char, left);
      else stack.add(char.repeat(left));
      at = end;
    } else if (char === "[" || (char === "!" && text[at + 1] === "[")) {
      // Pictures are shown as links: nothing is loaded from elsewhere.
      stack.open("[", 1);
      at += char === "!" ? 2 : 1;
    } else if (char === "]") {
      const open = stack.frames.findLastIndex((frame) => frame.marker === "[");
      const target = open > 0 ? match(TARGET, text, at + 1) : null;
      if (open > 0) stack.flatten(open);
      if (target) {
        const { children } = stack.frames.pop();
        stack.add(link(target[1] ?? target[2], children));
        at += 1 + target[0].length;
      } else {
        if (open > 0) stack.flatten(open - 1);
        stack.add("]");
        at += 1;
      }
    } else if (char === "<" && match(AUTOLINK, text, at)) {
      const [whole, url] = match(AUTOLINK, text, at);
      stack.add(link(url, [url.replace(/^mailto:/, "")]));
      at += whole.length;
    } else if (char === "h" && !/\w/.test(text[at - 1] ?? "") && bareUrl(text, at).length > 8) {
      const url = bareUrl(text, at);
      stack.add(link(url, [url]));
      at += url.length;
    } else {
      const [plain] = match(/[^\\`*_~[\]!<h]+|[^]/y, text, at);
      stack.add(plain);
      at += plain.length;
    }
  }
  stack.flatten(0);
  return stack.top.children;
}
