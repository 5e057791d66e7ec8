// Markdown as DOM nodes. Text becomes text nodes only, so nothing in a message can be markup or script.

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([\s\S]+?)\*\*|\*([^\s*](?:[\s\S]*?[^\s*])?)\*|~~([\s\S]+?)~~|\[([^\]]*)\]\(([^\s)]+)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?'"])|\\([\\`*_{}[\]()#+\-.!~|>])/g;

/** Only addresses that a browser opens as a page, or that open a mail. */
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function element(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function link(href, children) {
  const url = safeUrl(href);
  if (!url) return children;
  const node = element("a", ...children);
  node.href = url;
  node.rel = "noopener noreferrer nofollow";
  node.target = "_blank";
  return [node];
}

function inline(text, depth = 0) {
  if (depth > 8) return [text];
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , code, strong, emphasis, deleted, label, target, url, escaped] = match;
    if (match.index > end) nodes.push(text.slice(end, match.index));
    end = match.index + whole.length;
    if (code !== undefined) nodes.push(element("code", code));
    else if (strong !== undefined) nodes.push(element("strong", ...inline(strong, depth + 1)));
    else if (emphasis !== undefined) nodes.push(element("em", ...inline(emphasis, depth + 1)));
    else if (deleted !== undefined) nodes.push(element("del", ...inline(deleted, depth + 1)));
    else if (label !== undefined) nodes.push(...link(target, inline(label, depth + 1)));
    else if (url !== undefined) nodes.push(...link(url, [url]));
    else nodes.push(escaped);
  }
  nodes.push(text.slice(end));
  return nodes;
}

/** Lines of a paragraph keep their breaks: people and models write them on purpose. */
function lines(texts) {
  return texts.flatMap((text, index) => (index ? [element("br"), ...inline(text)] : inline(text)));
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const cells = (row) => row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
const starts = (line) => [FENCE, HEADING, ITEM, QUOTE, RULE].some((kind) => kind.test(line));

function blocks(source, depth) {
  const nodes = [];
  let at = 0;
  while (at < source.length) {
    const line = source[at];
    let match;
    if (!line.trim()) {
      at += 1;
    } else if ((match = line.match(FENCE))) {
      const body = [];
      for (at += 1; at < source.length && !source[at].trim().startsWith(match[1]); at += 1) body.push(source[at]);
      at += 1;
      nodes.push(element("pre", element("code", body.join("\n"))));
    } else if ((match = line.match(HEADING))) {
      nodes.push(element(`h${Math.min(match[1].length + 1, 4)}`, ...inline(match[2])));
      at += 1;
    } else if (RULE.test(line)) {
      nodes.push(element("hr"));
      at += 1;
    } else if (QUOTE.test(line)) {
      const body = [];
      for (; at < source.length && (match = source[at].match(QUOTE)); at += 1) body.push(match[1]);
      nodes.push(element("blockquote", ...(depth < 6 ? blocks(body, depth + 1) : body)));
    } else if (ITEM.test(line)) {
      const [list, next] = items(source, at, depth);
      nodes.push(list);
      at = next;
    } else if (line.includes("|") && DIVIDER.test(source[at + 1] ?? "") && source[at + 1].includes("-")) {
      const head = element("tr", ...cells(line).map((cell) => element("th", ...inline(cell))));
      const body = element("tbody");
      for (at += 2; at < source.length && source[at].includes("|"); at += 1) {
        body.append(element("tr", ...cells(source[at]).map((cell) => element("td", ...inline(cell)))));
      }
      nodes.push(element("table", element("thead", head), body));
    } else {
      const body = [line];
      for (at += 1; at < source.length && source[at].trim() && !starts(source[at]); at += 1) body.push(source[at]);
      nodes.push(element("p", ...lines(body)));
    }
  }
  return nodes;
}

function items(source, from, depth) {
  const [, indent, first] = source[from].match(ITEM);
  const list = element(/\d/.test(first) ? "ol" : "ul");
  if (list.tagName === "OL") list.start = Number.parseInt(first, 10);
  let at = from;
  while (at < source.length) {
    const match = source[at].match(ITEM);
    if (!match || match[1].length < indent.length || /\d/.test(match[2]) !== /\d/.test(first)) break;
    const body = [match[3]];
    const inner = match[1].length + match[2].length + 1;
    for (at += 1; at < source.length; at += 1) {
      const line = source[at];
      const isDeeper = line.search(/\S/) > indent.length;
      const isGap = !line.trim() && (source[at + 1] ?? "").search(/\S/) > indent.length;
      if (!isDeeper && !isGap) break;
      body.push(line.slice(Math.min(inner, Math.max(line.search(/\S/), 0))));
    }
    const parts = depth < 6 ? blocks(body, depth + 1) : body;
    const [only] = parts;
    list.append(element("li", ...(only?.tagName === "P" ? [...only.childNodes, ...parts.slice(1)] : parts)));
  }
  return [list, Math.max(at, from + 1)];
}

export function markdown(text) {
  const prose = element("div", ...blocks(text.replaceAll("\r\n", "\n").split("\n"), 0));
  prose.className = "prose";
  return prose;
}
