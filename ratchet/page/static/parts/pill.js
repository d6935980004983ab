// A state as a mark and a word: the shape says it too, for whoever can't tell the colours.
import { html } from "../core/html.js";
import { words } from "../core/format.js";

const TONES = {
  ok: "good",
  finished: "good",
  stable: "good",
  promoted: "good",
  ready: "good",
  done: "good",
  settled: "good",
  unharmed: "good",
  trained: "under",
  validated: "under",
  canary: "under",
  open: "under",
  running: "under",
  installing: "under",
  paused: "warn",
  frozen: "warn",
  limit: "warn",
  lost: "warn",
  unscorable: "warn",
  broken: "bad",
  rejected: "bad",
  rolled_back: "bad",
  failed: "bad",
  expired: "bad",
  refused: "bad",
};

const SHAPES = {
  good: html`<circle cx="5" cy="5" r="4.5" fill="currentColor" />`,
  under: html`<circle cx="5" cy="5" r="4" fill="none" stroke="currentColor" stroke-width="1.4" /><path
    d="M5 1a4 4 0 0 1 0 8z" fill="currentColor" />`,
  warn: html`<path d="M5 .6 9.6 9H.4z" fill="currentColor" />`,
  bad: html`<path d="M1 1 9 9M9 1 1 9" stroke="currentColor" stroke-width="2" stroke-linecap="round" />`,
  over: html`<circle cx="5" cy="5" r="3.8" fill="none" stroke="currentColor" stroke-width="1.6" />`,
};

export const tone = (state) => TONES[state] ?? "over";

export function Mark({ of }) {
  return html`<svg viewBox="0 0 10 10" aria-hidden="true">${SHAPES[of]}</svg>`;
}

export function Pill({ state, title }) {
  const shade = tone(state);
  return html`<span class="pill ${shade}" title=${title}><${Mark} of=${shade} />${words(state)}</span>`;
}
