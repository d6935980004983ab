// What a view shows instead of content: that it waits, what went wrong and what to do, what to type while it is empty.
import { sentence } from "../core/format.js";
import { html, useState } from "../core/html.js";

/**
 * The three in one: `children(data)` once there is data. A problem beside older data is shown above it.
 */
export function Loaded({ resource, children }) {
  const { data, problem, waiting, reload } = resource;
  if (data) return html`${problem && html`<${Trouble} problem=${problem} again=${reload} stale />`}${children(data)}`;
  if (problem) return html`<div class="card"><${Trouble} problem=${problem} again=${reload} /></div>`;
  return waiting ? html`<p class="waiting" role="status">Reading …</p>` : null;
}

const ADVICE = {
  away: [
    "The orchestrator does not answer",
    "It is stopped, or the network between is. Start the fleet with: ratchet up. This page goes on by itself.",
  ],
  standby: [
    "This orchestrator is on standby",
    "Another one leads the fleet; open its address, or wait until this one takes over.",
  ],
  unable: ["The fleet can't do this now", "The page tries again by itself."],
  "signed-out": ["A token is needed", "Enter one to go on."],
  forbidden: [
    "Your role does not allow this",
    "Ask an operator for a token of the role that does: ratchet token issue --role operator.",
  ],
  unknown: ["There is no such thing", "It may have been removed, or the address has a mistake."],
  gone: ["It is no longer kept", "The oldest lines of the logs make room for the newest."],
  conflict: ["The rules of the registry forbid it", ""],
  busy: ["Too many requests", "The page slows down and goes on by itself."],
  refused: ["The request was refused", ""],
};

export function Trouble({ problem, again, stale = false }) {
  const [title, advice] = ADVICE[problem.kind] ?? ADVICE.refused;
  const said = problem.detail || problem.title;
  return html`<div class=${stale ? "banner bad" : "trouble"} role="alert">
    <b>${title}</b>
    <span> ${sentence(said)} ${advice}${stale ? " What is shown is older." : ""}</span>
    ${again && html`<p><button onClick=${again}>Try again</button></p>`}
  </div>`;
}

/** `commands`: what to type, each with a button that copies it. */
export function Empty({ title, children, commands = [], small = false }) {
  return html`<div class="empty ${small ? "small" : ""}">
    ${title && html`<h2>${title}</h2>`}
    <p>${children}</p>
    ${commands.length > 0 && html`<div class="commands">${commands.map((it) => html`<${Command} text=${it} />`)}</div>`}
  </div>`;
}

export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return html`<div class="command">
    <code>${text}</code>
    ${navigator.clipboard &&
      html`<button class="quiet" aria-label="Copy ${text}" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
  </div>`;
}
