// Tables: a caption for screen readers, right-aligned figures, and j and k to walk the rows' links.
import { html } from "../core/html.js";
import { link } from "../core/router.js";

/**
 * `columns`: {title, cell(row), class}; `keyOf(row)` names a row for good. Each row's first link opens it.
 */
export function Table({ label, columns, rows, keyOf, still = false }) {
  return html`<div class="table">
    <table class=${still ? "still" : ""}>
      <caption class="unseen">${label}</caption>
      <thead><tr>${columns.map((one) =>
        html`<th scope="col" class=${one.class} key=${one.title}>${one.title}</th>`)}</tr></thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${keyOf(row)}>
          ${columns.map((one) =>
            html`<td class=${one.class} key=${one.title} data-label=${one.title}>${one.cell(row)}</td>`)}
        </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Moves the focus to the next (+1) or previous (−1) row that has a link. */
export function stepRows(step) {
  const links = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  if (!links.length) return;
  const here = links.findIndex((one) => one.closest("tr").contains(document.activeElement));
  const next = here < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(here + step, 0), links.length - 1);
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
}

/** Below a paged list; `query` is the view's, `next` the API's cursor; `first` and `more`: what the ways are called. */
export function Pager({ view, query, next, shown, first = "Newest", more = "Older" }) {
  if (!query.cursor && !next) return null;
  return html`<nav class="pager" aria-label="Pages">
    ${query.cursor &&
      html`<a class="button" data-key="newest" href=${link(view, [], { ...query, cursor: null })}>${first}</a>`}
    ${query.cursor && html`<button data-key="newer" onClick=${() => history.back()}>← Back</button>`}
    ${next && html`<a class="button" data-key="older" href=${link(view, [], { ...query, cursor: next })}>${more} →</a>`}
    <span class="where">${shown}</span>
  </nav>`;
}
