// Markdown as DOM nodes. Text becomes text nodes only, so nothing in a message can be markup or script.

import { element, iconButton } from "./dom.js";
import { inline } from "./inline.js";

/** How deep quotes and lists are nested; what is deeper is text. */
const DEEPEST = 8;

const FENCE = /^ {0,3}(`{3,}(?!.*`)|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: +|$)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const QUOTE = /^ {0,3}> ?/;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const DIVIDER = /^\|?(?: *:?-+:? *\|)* *:?-+:? *\|?$/;

const indentOf = (line) => line.length - line.trimStart().length;
const isNumbered = (marker) => /\d/.test(marker);

/** A message as a block of prose. */
export function markdown(text) {
  return element("div", { className: "prose" }, ...markdownBlocks(text));
}

/** The blocks of a message. */
export function markdownBlocks(text) {
  return blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function blocks(lines, depth) {
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const [node, next] = line.trim() ? block(lines, at, depth) : [null, at + 1];
    if (node) nodes.push(node);
    at = next;
  }
  return nodes;
}

/** The block that begins at a line, and where the next one begins. */
function block(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fence(lines, at);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (RULE.test(line)) return [element("hr"), at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

const isBlockStart = (lines, at) =>
  [FENCE, HEADING, RULE, QUOTE, ITEM].some((kind) => kind.test(lines[at])) || isTable(lines, at);

function fence(lines, from) {
  const [, marker, info] = lines[from].match(FENCE);
  const indent = indentOf(lines[from]);
  const isEnd = (line) => {
    const end = line.trim();
    return end.length >= marker.length && end === marker[0].repeat(end.length);
  };
  const code = [];
  let at = from + 1;
  for (; at < lines.length && !isEnd(lines[at]); at += 1) code.push(lines[at].slice(Math.min(indent, indentOf(lines[at]))));
  return [codeBlock(code.join("\n"), info.trim().split(" ")[0]), at + 1];
}

/** The button is handled by the page, for all blocks at once. */
export function codeBlock(code, language) {
  const copy = iconButton("Copy code", { icon: "copy", className: "copy-code" });
  const head = element("div", { className: "code-head" }, element("span", {}, language || "text"), copy);
  const pre = element("pre", { tabIndex: 0 }, element("code", {}, code));
  return element("div", { className: "code" }, head, pre);
}

function heading(line) {
  const [start, marks] = line.match(HEADING);
  const text = line.slice(start.length).trim();
  const end = text.search(/(?<=^|\s)#+$/);
  const level = Math.min(marks.length + 2, 6);
  return element(`h${level}`, {}, ...inline(end < 0 ? text : text.slice(0, end).trimEnd()));
}

function quote(lines, from, depth) {
  const inner = [];
  let at = from;
  for (; at < lines.length && QUOTE.test(lines[at]); at += 1) inner.push(lines[at].replace(QUOTE, ""));
  return [element("blockquote", {}, ...blocks(inner, depth + 1)), at];
}

function list(lines, from, depth) {
  const [, , first] = lines[from].match(ITEM);
  const node = element(isNumbered(first) ? "ol" : "ul");
  if (isNumbered(first)) node.start = Number.parseInt(first, 10);
  const indent = indentOf(lines[from]);
  let at = from;
  while (at < lines.length) {
    const found = lines[at].match(ITEM);
    if (!found || found[1].length > indent + 3 || found[1].length < indent) break;
    if (isNumbered(found[2]) !== isNumbered(first) || RULE.test(lines[at])) break;
    const width = found[1].length + found[2].length + 1;
    const inner = [lines[at].slice(found[0].length)];
    for (at += 1; at < lines.length && belongs(lines, at, found[1].length); at += 1) {
      inner.push(lines[at].slice(Math.min(width, indentOf(lines[at]))));
    }
    node.append(item(blocks(inner, depth + 1)));
    while (at < lines.length && !lines[at].trim() && ITEM.test(nextText(lines, at))) at += 1;
  }
  return [node, at];
}

const nextText = (lines, at) => lines.slice(at, at + 3).find((line) => line.trim()) ?? "";

/** Whether a line is part of the item whose marker has this indent. */
function belongs(lines, at, indent) {
  const line = lines[at];
  if (line.trim()) return indentOf(line) > indent || !(isBlockStart(lines, at) || !lines[at - 1].trim());
  const next = nextText(lines, at);
  return next !== "" && indentOf(next) > indent;
}

/** A task box, and no paragraph around a single line. */
function item(parts) {
  const [first, ...rest] = parts;
  if (first?.tagName !== "P") return element("li", {}, ...parts);
  const node = element("li", {}, ...first.childNodes, ...rest);
  const text = node.firstChild;
  const box = text?.nodeType === Node.TEXT_NODE && text.data.match(/^\[([ xX])\] /);
  if (box) {
    text.data = text.data.slice(4);
    const isDone = box[1] !== " ";
    node.prepend(element("input", { type: "checkbox", checked: isDone, disabled: true, aria: { label: isDone ? "done" : "not done" } }));
    node.className = "task";
  }
  return node;
}

function isTable(lines, at) {
  const divider = lines[at + 1]?.trim() ?? "";
  return lines[at].includes("|") && divider.includes("|") && divider.includes("-") && DIVIDER.test(divider);
}

function cells(line) {
  const texts = [""];
  for (const part of line.trim().match(/\\.|`[^`]*`|[^]/g) ?? []) {
    if (part === "|") texts.push("");
    else texts[texts.length - 1] += part === "\\|" ? "|" : part;
  }
  if (!texts[0].trim()) texts.shift();
  if (texts.length && !texts.at(-1).trim()) texts.pop();
  return texts.map((text) => text.trim());
}

function table(lines, from) {
  const sides = cells(lines[from + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : "start"));
  const row = (line, name) =>
    element("tr", {}, ...cells(line).map((cell, column) => element(name, { dataset: { side: sides[column] ?? "start" } }, ...inline(cell))));
  const body = element("tbody");
  const head = element("thead", {}, row(lines[from], "th"));
  let at = from + 2;
  for (; at < lines.length && lines[at].includes("|"); at += 1) body.append(row(lines[at], "td"));
  return [element("div", { className: "table", tabIndex: 0 }, element("table", {}, head, body)), at];
}

/** Line breaks stay: people and models write them on purpose. */
function paragraph(lines, from) {
  let at = from + 1;
  while (at < lines.length && lines[at].trim() && !isBlockStart(lines, at)) at += 1;
  const text = lines.slice(from, at).map((line) => line.trim()).join("\n");
  return [element("p", {}, ...withBreaks(inline(text))), at];
}

function withBreaks(nodes) {
  return nodes.flatMap((node) => {
    if (typeof node !== "string") {
      if (node.tagName !== "CODE") node.replaceChildren(...withBreaks([...node.childNodes].map((child) => child.data ?? child)));
      return [node];
    }
    return node.split("\n").flatMap((line, index) => (index ? [element("br"), line] : [line]));
  });
}
