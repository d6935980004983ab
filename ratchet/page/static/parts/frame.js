// A view's frame: heading, what it is about, actions; and the titled card.
import { html, useEffect, useRef } from "../core/html.js";

/** Whether a view was shown before: the first one leaves the focus where the browser has it. */
let changed = false;

/** `back`: [href, words]. The heading takes the focus when the view changes, so that a screen reader begins there. */
export function Heading({ title, about, back, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · Ratchet`;
  }, [title]);
  useEffect(() => {
    const held = document.activeElement;
    if (changed && (held === document.body || held?.closest("main"))) heading.current.focus();
    changed = true;
  }, []);
  return html`<header class="heading">
    ${back && html`<a class="crumb" href=${back[0]}>← ${back[1]}</a>`}
    <h1 tabindex="-1" ref=${heading}>${title}</h1>
    ${about && html`<span class="about">${about}</span>`}
    ${children && html`<div class="actions">${children}</div>`}
  </header>`;
}

export function Card({ title, caption, actions, children }) {
  return html`<section class="card" aria-label=${title}>
    ${title && html`<header><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${caption && html`<p class="caption">${caption}</p>`}
    ${children}
  </section>`;
}

/** `figures`: [label, value, small words below, tone][]. */
export function Tiles({ figures }) {
  return html`<dl class="tiles">
    ${figures.map(
      ([label, value, below, tone]) => html`<div class="tile" key=${label}>
      <dt>${label}${below && html`<small>${below}</small>`}</dt>
      <dd class=${tone}>${value}</dd>
    </div>`,
    )}
  </dl>`;
}

/** `pairs`: [name, value][]; those without a value are left out. */
export function Facts({ pairs }) {
  return html`<dl class="facts">
    ${pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}
  </dl>`;
}
