// A tool call as a card: its state, its arguments and result, and the decision that a person is asked for.

import { asksForDecision } from "./conversation.js";
import { button, element, icon } from "./dom.js";
import { codeBlock } from "./markdown.js";

const STATES = {
  pending: ["Waiting", "clock"],
  executing: ["Running", "spinner"],
  completed: ["Done", "check"],
  failed: ["Failed", "alert"],
  interrupted: ["Needs your decision", "hand"],
  cancelled: ["Not run", "close"],
  unknown: ["Outcome unknown", "alert"],
};

const APPROVED = ["Approved", "clock"];
const STARTED_ELSEWHERE = "This conversation is a copy, and the tool was already started in the original. If you approve it here, it runs again.";

const DECIDED = { approve: "Approved", edit: "Changed and approved", reject: "Rejected" };
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const decidedBy = ({ by, at }) => `${by ? `by ${by}, ` : ""}${TIME.format(new Date(at))}`;

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value ?? {}, null, 2));
const isSimple = (value) => value === null || typeof value !== "object";
const isEmpty = (value) => value === null || value === undefined || asText(value) === "{}";

/** The card of a call. `decide` is missing where the person may only read. */
export function toolCard(row, result, decide) {
  const asks = asksForDecision(row);
  const { name, arguments: values } = row.metadata;
  const title = row.content || name;
  const [state, symbol] = row.status === "pending" && row.metadata.decision ? APPROVED : (STATES[row.status] ?? STATES.pending);
  const status = element("span", { className: "status", dataset: { status: row.status } }, icon(symbol), state);
  const words = element("span", { className: "card-title" }, element("strong", {}, title));
  if (name && name !== title) words.append(" ", element("code", {}, name));
  const head = [element("span", { className: "card-icon" }, icon("tool")), words, status];
  const label = { label: `Tool call: ${title}, ${state}` };
  if (asks) {
    const card = element("section", { className: "card asks", aria: label, tabIndex: -1 });
    card.append(element("div", { className: "card-head" }, ...head), question(row, card, decide));
    return card;
  }
  const given = editedArguments(row) ?? values;
  const details = element("details", { className: "card", aria: label });
  details.append(element("summary", { className: "card-head" }, ...head, icon("chevron")));
  const body = element("div", { className: "card-body" });
  if (!isEmpty(given)) body.append(argumentsOf(given));
  const decision = row.metadata.decision;
  if (decision?.at) body.append(labelled(DECIDED[decision.type], element("p", {}, decidedBy(decision))));
  const reason = decision?.reason;
  if (reason) body.append(labelled("Rejected because", element("p", {}, reason)));
  if (result && !result.metadata.is_interrupt) body.append(resultOf(result));
  if (!body.children.length) body.append(element("p", { className: "muted" }, "No arguments and no result."));
  details.append(body);
  return details;
}

/** A result whose call is not on the page. */
export const resultCard = (row) => element("div", { className: "card alone" }, element("div", { className: "card-body" }, resultOf(row)));

const editedArguments = (row) => (row.metadata.decision?.type === "edit" ? row.metadata.decision.arguments : undefined);

function labelled(text, ...children) {
  return element("div", { className: "labelled" }, element("p", { className: "label-text" }, text), ...children);
}

/** Names and values if all are plain, else JSON. */
function argumentsOf(value) {
  const isPlain = !isSimple(value) && !Array.isArray(value) && Object.values(value).every(isSimple);
  if (!isPlain) return labelled("Arguments", codeBlock(asText(value), "json"));
  const pairs = Object.entries(value).flatMap(([name, item]) => [element("dt", {}, name), element("dd", {}, String(item))]);
  return labelled("Arguments", element("dl", { className: "values" }, ...pairs));
}

function resultOf(row) {
  const isFailed = row.is_error || row.metadata.is_error === true;
  const box = labelled(isFailed ? "Error" : "Result", element("pre", { className: "output", tabIndex: 0 }, row.content || "(empty)"));
  if (isFailed) box.classList.add("failed");
  return box;
}

/** What is asked, and the ways to decide: approve, change the arguments first, or reject. */
function question(row, card, decide) {
  const { arguments: values, interrupt_data: data } = row.metadata;
  const body = element("div", { className: "card-body" });
  const asked = data?.question ?? data?.message;
  const head = element("div", {}, element("p", { className: "question" }, typeof asked === "string" ? asked : "The agent wants to use this tool. Allow it?"));
  if (row.metadata.started_elsewhere) head.append(element("p", { className: "hint bad" }, STARTED_ELSEWHERE));
  body.append(head);
  const shown = isEmpty(values) ? "" : argumentsOf(values);
  if (!decide) {
    body.append(shown, element("p", { className: "muted" }, "Only the owner of the conversation can decide."));
    return body;
  }
  const settle = async (decision) => {
    for (const node of body.querySelectorAll("button, textarea")) node.disabled = true;
    card.focus();
    if (await decide(row, decision)) return;
    for (const node of body.querySelectorAll("button, textarea")) node.disabled = false;
  };
  const choices = element("div", { className: "choices" });
  const back = (focused) => {
    body.replaceChildren(body.firstChild, shown, choices);
    choices.querySelector(focused).focus();
  };
  choices.append(
    button("Approve", { className: "primary approve", icon: "check", onclick: () => settle({ type: "approve" }) }),
    button("Edit", { className: "edit-arguments", icon: "edit", onclick: () => editing(body, values, settle, () => back(".edit-arguments")) }),
    button("Reject", { className: "reject", icon: "close", onclick: () => rejecting(body, shown, settle, () => back(".reject")) }),
  );
  body.append(shown, choices);
  return body;
}

/** A field with its buttons in place of the choices. Escape goes back. */
function form(body, before, { label, field, hint, ok, className, submit, cancel }) {
  field.id = `field-${crypto.randomUUID()}`;
  hint.id = `${field.id}-hint`;
  field.setAttribute("aria-describedby", hint.id);
  const node = element("form", { className: "card-form" });
  node.append(
    element("label", { className: "label-text", htmlFor: field.id }, label),
    field,
    hint,
    element("div", { className: "choices" }, element("button", { className: `button ${className}` }, ok), button("Cancel", { className: "quiet", onclick: cancel })),
  );
  node.onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
  node.onkeydown = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      submit();
    }
  };
  body.replaceChildren(body.firstChild, ...before, node);
  field.focus();
}

function editing(body, values, settle, cancel) {
  const field = element("textarea", { className: "json", spellcheck: false, value: asText(values) });
  field.rows = Math.min(12, field.value.split("\n").length + 1);
  const hint = element("p", { className: "hint" }, "JSON. The tool runs with these arguments.");
  const fault = () => {
    try {
      JSON.parse(field.value);
      return null;
    } catch (error) {
      return `This is not JSON: ${error.message}`;
    }
  };
  const check = () => {
    const text = fault();
    field.setAttribute("aria-invalid", String(text !== null));
    hint.classList.toggle("bad", text !== null);
    hint.textContent = text ?? "JSON. The tool runs with these arguments.";
    return text === null;
  };
  const submit = () => {
    if (check()) void settle({ type: "edit", arguments: JSON.parse(field.value) });
    else field.focus();
  };
  field.oninput = check;
  form(body, [], { label: "Arguments", field, hint, ok: "Approve with changes", className: "primary", submit, cancel });
}

function rejecting(body, shown, settle, cancel) {
  const field = element("textarea", { rows: 2, maxLength: 2000 });
  const hint = element("p", { className: "hint" }, "The agent reads the reason. It may be empty.");
  const submit = () => void settle({ type: "reject", reason: field.value.trim() || null });
  form(body, [shown], { label: "Reason", field, hint, ok: "Reject", className: "danger", submit, cancel });
}
