// What jobs took and cost, by day, agent or job.
import { count } from "../core/format.js";
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, go } from "../core/router.js";
import { Card, Heading } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { money } from "./jobs.js";

const KEYS = ["day", "agent", "job"];

export function Usage({ query }) {
  const by = KEYS.includes(query.by) ? query.by : "day";
  const usage = useResource(apiPath(["manager", "usage"], { by, limit: 50 }), { everyMs: 5000 });
  const currency = usage.data?.currency;
  return html`
    <${Heading} title="Usage" about=${currency && `in ${currency}`} />
    <div class="filters"><label class="field">By
      <select value=${by} onChange=${(event) => go("usage", [], { by: event.target.value })}>
        ${KEYS.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label></div>
    <${Loaded} resource=${usage}>${({ items }) => html`<${Card}
      title=${by === "day" ? "The newest days" : `The ${by}s that cost most`}
      caption="What came to nothing cost nothing">
      ${items.length
        ? html`<${Table} still label="Usage by ${by}" rows=${items} keyOf=${(one) => one.key} columns=${columns(by)} />`
        : html`<${Empty} small>No job has been answered yet.<//>`}
    <//>`}<//>`;
}

const columns = (by) => [
  { title: by, class: "id", cell: (one) => one.key },
  { title: "tasks", class: "n", cell: (one) => count(one.tasks) },
  { title: "prompt tokens", class: "n wide", cell: (one) => count(one.prompt_tokens) },
  { title: "sampled tokens", class: "n", cell: (one) => count(one.sampled_tokens) },
  { title: "spent", class: "n", cell: (one) => money(one.spent) },
];
