// A share as a bar with its words: how full, how far.
import { html } from "../core/html.js";

/** `value` from 0 to 1; more is drawn as full. */
export function Meter({ label, value, words, shade = "" }) {
  const full = Math.round(100 * Math.min(1, Math.max(0, value)));
  return html`<div class="meter" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
    aria-valuenow=${full} aria-valuetext=${words}>
    <div class="meter-words"><span class="muted">${label}</span><span class="n">${words}</span></div>
    <div class="bar"><i class=${shade} style=${{ width: `${full}%` }} /></div>
  </div>`;
}
