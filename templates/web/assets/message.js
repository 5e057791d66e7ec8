// One message: its texts, its thinking, its tool calls with what is asked about them, and their results.

import { markdown, safeUrl } from "./markdown.js";

const STATUS = {
  pending: "waiting",
  executing: "running",
  completed: "done",
  failed: "failed",
  interrupted: "needs approval",
  cancelled: "cancelled",
};
const MARKS = {
  interrupted: "This answer was interrupted.",
  unknown: "The agent did not get this message.",
};

function element(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function button(text, className, action) {
  const node = element("button", `button ${className}`, text);
  node.type = "button";
  node.onclick = action;
  return node;
}

function json(value) {
  return typeof value === "string" ? value : JSON.stringify(value ?? {}, null, 2);
}

function folded(className, title, ...children) {
  return element("details", className, element("summary", "", title), ...children);
}

function picture(row) {
  const { data, media_type: type } = row.metadata;
  const isPicture = /^image\/(png|jpeg|gif|webp)$/.test(type ?? "");
  const url = data && isPicture ? `data:${type};base64,${data}` : safeUrl(row.content);
  if (!url) return element("p", "note", row.content || "A picture");
  if (!data) return markdown(`[${row.content}](${url})`);
  const image = element("img");
  image.src = url;
  image.alt = row.content || "A picture";
  return element("div", "prose", image);
}

function call(row, handlers) {
  const { name, arguments: values } = row.metadata;
  const asks = row.status === "interrupted" && !row.metadata.hitl_decision;
  const status = element("span", "status", STATUS[row.status] ?? row.status ?? "");
  status.dataset.status = row.status;
  const head = element("p", "call-head", element("strong", "", row.content || name), status);
  const box = element("section", asks ? "call asks" : "call", head);
  box.setAttribute("aria-label", `Tool ${name}`);
  if (!asks) {
    if (values && json(values) !== "{}") box.append(folded("result", "Arguments", element("pre", "", json(values))));
    return box;
  }
  const field = element("textarea");
  field.value = json(values);
  field.rows = Math.min(10, field.value.split("\n").length + 1);
  field.dataset.call = row.tool_call_id;
  field.setAttribute("aria-label", "Arguments, which you can change");
  const decide = async (decision) => {
    for (const node of box.querySelectorAll("button")) node.disabled = true;
    await handlers.decide(row, decision);
    for (const node of box.querySelectorAll("button")) node.disabled = false;
  };
  const approve = () => {
    if (field.value === json(values)) return decide({ decision: "approve" });
    try {
      return decide({ decision: "edit", arguments: JSON.parse(field.value) });
    } catch {
      field.setCustomValidity("These arguments are not JSON.");
      field.reportValidity();
      return undefined;
    }
  };
  field.oninput = () => field.setCustomValidity("");
  box.append(
    field,
    element("div", "decision", button("Approve", "primary", approve), button("Reject", "", () => decide({ decision: "reject" }))),
  );
  return box;
}

function part(row, handlers) {
  switch (row.content_type) {
    case "thinking":
      return folded("thinking", "Thinking", markdown(row.content));
    case "image":
      return picture(row);
    case "file_reference":
    case "file":
      return markdown(safeUrl(row.content) ? `[${row.content}](${row.content})` : row.content || "A file");
    case "tool_call":
      return call(row, handlers);
    case "tool_result": {
      if (row.metadata.is_interrupt) return "";
      const title = row.is_error ? "Error of the tool" : "Result";
      const result = folded(row.is_error ? "result error" : "result", title, element("pre", "", row.content));
      return element("div", "call", result);
    }
    case "error":
      return element("p", "error", row.content);
    case "structured_data":
    case "todo_snapshot":
      return folded("result", "Data", element("pre", "", row.content));
    default:
      return markdown(row.content);
  }
}

export function messageView(id, rows, isPartial, handlers) {
  const [first] = rows;
  const node = element("li", isPartial ? "message streaming" : "message");
  node.dataset.id = id;
  node.dataset.role = first.role;
  node.append(element("span", "hidden", { user: "You:", assistant: "Agent:", tool: "Tool:" }[first.role] ?? ""));
  node.append(...rows.map((row) => part(row, handlers)));
  const mark = MARKS[rows.find((row) => MARKS[row.delivery])?.delivery];
  if (mark) node.append(element("p", "mark", mark));
  const text = rows.filter((row) => row.content_type === "text");
  if (isPartial || !text.length) return node;
  const tools = element("div", "tools");
  if (first.role === "user") {
    tools.append(button("Edit", "quiet", () => handlers.edit(text[0])), button("Retry", "quiet", () => handlers.retry(text[0])));
  } else {
    tools.append(button("Copy", "quiet", () => handlers.copy(text.map((row) => row.content).join("\n\n"))));
  }
  tools.append(button("Fork", "quiet", () => handlers.fork(first)));
  node.append(tools);
  return node;
}
