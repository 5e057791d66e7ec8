// Helpers that build DOM nodes. Texts become text nodes only.

/** The element with this id. */
export const $ = (id) => document.getElementById(id);

/** A new element: `element("p", { className: "note" }, "text", node)`. */
export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  const { dataset, aria, ...rest } = properties;
  Object.assign(node, rest);
  Object.assign(node.dataset, dataset);
  for (const [key, value] of Object.entries(aria ?? {})) node.setAttribute(`aria-${key}`, value);
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

const PATHS = {
  archive: "M3 7.5h18M5 7.5V18a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2V7.5M4 4h16v3.5H4zM10 12h4",
  alert: "M12 8v5M12 16.5v.01M12 3.5 2.8 19.5h18.4z",
  check: "m5 12.5 4.5 4.5L19 7.5",
  chevron: "m9 6 6 6-6 6",
  circle: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16Z",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 8v4.5l3 1.5",
  close: "m6 6 12 12M18 6 6 18",
  copy: "M9 9h10v11H9zM15 9V5H5v11h4",
  delete: "M4 7h16M9.5 7V4.5h5V7M6.5 7l.8 13h9.4l.8-13M10.5 11v5.5M13.5 11v5.5",
  down: "M12 5v14M6 13l6 6 6-6",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  edit: "M4 20h4L19.5 8.5l-4-4L4 16zM13.5 6.5l4 4",
  fork: "M6 4v16M6 14c0-4 12-2 12-7M18 7V4M15.5 6 18 3.5 20.5 6",
  hand: "M8 12V6.5a1.5 1.5 0 0 1 3 0V11m0-5.5a1.5 1.5 0 0 1 3 0V11m0-3.5a1.5 1.5 0 0 1 3 0V15a6 6 0 0 1-6 6c-3 0-4.200-1.5-6.5-5.5-.8-1.4 1.200-2.6 2.200-1.300L8 16",
  leave: "M10 4.5H5.5v15H10M15 8l4 4-4 4M19 12H9.5",
  menu: "M4 7h16M4 12h16M4 17h10",
  more: "M5.5 12h.01M12 12h.01M18.5 12h.01",
  plus: "M12 5v14M5 12h14",
  retry: "M4.5 12a7.5 7.5 0 1 0 2.5-5.6M4.5 4v4h4",
  search: "M11 4.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM16 16l4.5 4.5",
  send: "M12 19V5M6 11l6-6 6 6",
  spinner: "M12 4a8 8 0 0 1 8 8",
  stop: "M7.5 7.5h9v9h-9z",
  thought: "M12 4a6 6 0 0 0-3.5 10.900V17h7v-2.100A6 6 0 0 0 12 4ZM9.5 20h5",
  tool: "M14.5 6.5a4 4 0 0 0-5.300 4.900L4 16.6 7.4 20l5.200-5.200a4 4 0 0 0 4.900-5.300L15 12l-3-3z",
};

/** A picture beside a text, which screen readers leave out. */
export function icon(name) {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("class", `icon icon-${name}`);
  node.setAttribute("viewBox", "0 0 24 24");
  node.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  node.append(path);
  return node;
}

/** A button with an icon and a text. */
export function button(text, { icon: name, className = "", onclick }) {
  const node = element("button", { type: "button", className: `button ${className}`, onclick });
  node.append(...(name ? [icon(name)] : []), element("span", { className: "label" }, text));
  return node;
}

/** A button that is only an icon; its text is its name and its tooltip. */
export function iconButton(text, { icon: name, className = "", onclick }) {
  const node = element("button", { type: "button", className: `icon-button ${className}`, title: text, onclick, aria: { label: text } });
  node.append(icon(name));
  return node;
}

/** Puts the icons into buttons of the page that have a `data-icon`. */
export function fillIcons() {
  for (const node of document.querySelectorAll("[data-icon]")) node.prepend(icon(node.dataset.icon));
}

/** Makes the children of a node equal to others; equal ones stay, with their state and selection. */
export function patch(node, children) {
  children.forEach((child, index) => {
    const old = node.childNodes[index];
    if (old === child) return;
    if (!old) node.append(child);
    else if (!old.isEqualNode(child)) old.replaceWith(child);
  });
  while (node.childNodes.length > children.length) node.lastChild.remove();
}

/** Makes nodes the children of a node. One that is in its place already is not moved, and keeps the focus. */
export function place(node, children) {
  children.forEach((child, index) => {
    if (node.childNodes[index] !== child) node.insertBefore(child, node.childNodes[index] ?? null);
  });
  while (node.childNodes.length > children.length) node.lastChild.remove();
}
