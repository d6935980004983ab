// What evaluations found: programs and versions on sets of tasks that no training sees. Ties share a rank.
import { count, moment, score } from "../core/format.js";
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { Card, Heading } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";

export function Evaluations() {
  const found = useResource("v1/evaluations", { everyMs: 30000 });
  return html`
    <${Heading} title="Evaluations" about="on tasks that no training sees" />
    <${Loaded} resource=${found}>${({ items }) =>
      items.length
        ? boards(items).map((rows) => html`<${Board} key=${boardOf(rows[0])} rows=${rows} />`)
        : html`<div class="card">
            <${Empty} title="Nothing was evaluated yet"><code>ratchet eval --set FILE</code> does.<//>
          </div>`}<//>`;
}

function Board({ rows }) {
  const { set, agent_id: agent, scorer } = rows[0];
  return html`<${Card} title=${set.name} caption=${`${count(set.tasks)} tasks of ${agent}, scored by ${scorer}`}>
    <${Table} still label=${`Standings on ${set.name}`} rows=${rows} keyOf=${nameOf} columns=${COLUMNS} />
  <//>`;
}

const boardOf = (one) => `${one.agent_id} ${one.set.sha256} ${one.scorer}`;
const nameOf = (one) => (one.program ? `${one.program} ${one.version}` : one.version);

/** The rows of each set together, in the order in which the API has them. */
function boards(items) {
  const found = new Map();
  for (const one of items) found.set(boardOf(one), [...(found.get(boardOf(one)) ?? []), one]);
  return [...found.values()];
}

const COLUMNS = [
  { title: "rank", class: "n", cell: (one) => (one.is_tied ? `${one.rank} (tie)` : one.rank) },
  { title: "program or version", class: "id", cell: nameOf },
  { title: "score", class: "n", cell: (one) => score(one.score.mean) },
  { title: "95 % interval", class: "n", cell: (one) => `${score(one.score.low)} to ${score(one.score.high)}` },
  { title: "cost of a solved task", class: "n", cell: (one) => one.cost_per_solved?.toFixed(4) ?? "–" },
  {
    title: "tokens of one",
    class: "n wide",
    cell: (one) => (one.tokens_per_solved ? count(Math.round(one.tokens_per_solved)) : "–"),
  },
  { title: "evaluated", class: "n wide", cell: (one) => moment(one.at) },
];
