// Queues: what waits where, and who is there to take it.
import { compact, count, moment, seconds } from "../core/format.js";
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { link } from "../core/router.js";
import { Card, Heading } from "../parts/frame.js";
import { Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";

export function Queues() {
  const queues = useResource("v1/queues", { kinds: ["queues"], everyMs: 4000 });
  return html`
    <${Heading} title="Queues" about=${queues.data && `the broker, as of ${moment(queues.data.at)}`} />
    <${Loaded} resource=${queues}>${({ items }) => html`<div class="stack">
      <${Card} title="The way of a task"><${List} label="Queues"
        rows=${items.filter((one) => one.retry_after_s === null)} columns=${COLUMNS} /><//>
      <${Card} title="Waiting to be tried again"
        caption="What failed for a reason that may pass goes here, and back to its queue after the time">
        <${List} label="Retry ladder" rows=${items.filter((one) => one.retry_after_s !== null)} columns=${RUNGS} /><//>
    </div>`}<//>`;
}

function List({ label, rows, columns }) {
  return html`<${Table} still label=${label} rows=${rows} keyOf=${(one) => one.name} columns=${columns} />`;
}

const waiting = {
  title: "waiting",
  class: "n",
  cell: (one) =>
    one.messages === null ? html`<span class="bad">missing</span>` : html`<b>${count(one.messages)}</b>`,
};

const COLUMNS = [
  {
    title: "queue",
    class: "id",
    cell: (one) =>
      one.name === "dead-letters"
        ? html`<a href=${link("dead-letters")}>${one.name}</a>`
        : html`<span class="mono">${one.name}</span>`,
  },
  waiting,
  { title: "limit", class: "n wide", cell: (one) => compact(one.max_length) },
  { title: "consumers", class: "n", cell: (one) => consumersOf(one) },
  { title: "holds", class: "wrap wide", cell: (one) => html`${one.about} <span class="muted">${one.message}</span>` },
  { title: "from", class: "wide", cell: (one) => one.producers.join(", ") },
  { title: "to", class: "wide", cell: (one) => one.consumers.join(", ") },
];

const RUNGS = [
  { title: "queue", class: "id", cell: (one) => html`<span class="mono">${one.name}</span>` },
  waiting,
  { title: "for", class: "n", cell: (one) => seconds(one.retry_after_s) },
];

/** Queues that an application, or a person, may empty whenever it likes. */
const UNHURRIED = new Set(["results", "dead-letters"]);

/** A queue that waits with nobody to take from it wants a look. */
function consumersOf(one) {
  const alone = one.consuming === 0 && one.messages > 0 && !UNHURRIED.has(one.name) && one.consumers.length > 0;
  return alone
    ? html`<span class="bad" title="It waits, and nobody takes from it">none</span>`
    : count(one.consuming);
}
