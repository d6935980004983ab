// Experiments, the newest first: what was tried against what, and how it ended.
import { moment } from "../core/format.js";
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 50;
const CHANGES = ["decision", "experiment"];

export function Experiments({ query }) {
  const list = useResource(apiPath(["experiments"], { agent_id: query.agent, cursor: query.cursor, limit: PAGE }), {
    kinds: CHANGES,
  });
  return html`
    <${Heading} title="Experiments" about="An adapter or program takes over once live traffic proves it better" />
    <div class="card"><${Loaded} resource=${list}>${({ items, next }) =>
      items.length
        ? html`<${List} items=${items} /><${Pager} view="experiments" query=${query} next=${next} />`
        : html`<${Nothing} />`}<//></div>`;
}

function Nothing() {
  return html`<${Empty} title="No experiment has run yet" commands=${["ratchet train", "ratchet demo"]}>
    One begins by itself when a training has made an adapter that passes its checks. Ask for a
    training, or see all of it in the demo.
  <//>`;
}

const COLUMNS = [
  {
    title: "experiment",
    class: "id",
    cell: (one) => html`<a href=${link("experiments", [one.experiment_id])}>${one.experiment_id}</a>`,
  },
  { title: "outcome", cell: (one) => html`<${Pill} state=${one.outcome} />` },
  { title: "kind", class: "wide", cell: (one) => one.kind },
  {
    title: "tried",
    cell: (one) =>
      one.of === "programs"
        ? html`<a href=${link("programs")}>${one.treatment}</a>`
        : html`<a href=${link("adapters", [one.agent_id, one.treatment])}>${one.treatment}</a>`,
  },
  { title: "against", cell: (one) => one.control },
  { title: "agent", class: "wide", cell: (one) => one.agent_id },
  { title: "began", class: "n", cell: (one) => moment(one.began_at) },
  { title: "ended", class: "n wide", cell: (one) => (one.ended ? moment(one.ended.at) : "–") },
  {
    title: "why",
    class: "text wide",
    cell: (one) => (one.ended ? html`<span title=${one.ended.reason}>${one.ended.reason}</span>` : "–"),
  },
];

function List({ items }) {
  return html`<${Table} label="Experiments, the newest first" columns=${COLUMNS} rows=${items}
    keyOf=${(one) => one.experiment_id} />`;
}
