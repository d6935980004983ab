// Tasks, the newest first: a page of them at a time, whatever their number; by state and agent; and one by its id.
import { count, moment, NONE, score } from "../core/format.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, go, link } from "../core/router.js";
import { Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 50;
const STATES = ["open", "closed", "ok", "failed", "expired", "cancelled"];

export function Tasks({ query, status }) {
  const own = query.own ? undefined : "false";
  const asked = { state: query.state, agent_id: query.agent, own, cursor: query.cursor, limit: PAGE };
  const tasks = useResource(apiPath(["tasks"], asked), { kinds: query.cursor ? [] : ["task.settled"] });
  const known = status.data?.tasks.known;
  return html`
    <${Heading} title="Tasks" about=${known !== undefined && `${count(known)} known to the index`} />
    <${Filters} query=${query} agents=${status.data?.agents ?? []} />
    <div class="card"><${Loaded} resource=${tasks}>${({ items, next }) => html`
      ${items.length ? html`<${List} items=${items} />` : html`<${Nothing} query=${query} more=${next !== null} />`}
      <${Pager} view="tasks" query=${query} next=${next} shown="${count(items.length)} shown" />`}<//></div>`;
}

function Nothing({ query, more }) {
  if (more) return html`<${Empty} small>None among the latest; there are older tasks.<//>`;
  if (query.state || query.agent || query.cursor)
    return html`<${Empty} title="No such task">None is in this state. <a href=${link("tasks")}>Show all</a>.<//>`;
  return html`<${Empty} title="No task has come yet"
    commands=${['ratchet submit "sort: dbcae" --samples 8 --reference abcde', "ratchet submit --file tasks.jsonl"]}>
    Send one from a shell, or publish JSON to the queue <code>tasks</code>, or POST it to <code>v1/tasks</code>.
  <//>`;
}

/** With `look` in the query the field for an id takes the focus, after the heading of a new view has had it. */
function Filters({ query, agents }) {
  const [id, setId] = useState("");
  const field = useRef(null);
  useEffect(() => {
    if (query.look) field.current.focus();
  }, [query.look]);
  const change = (part) => go("tasks", [], { state: query.state, agent: query.agent, own: query.own, ...part });
  const search = (event) => {
    event.preventDefault();
    if (id.trim()) go("tasks", [id.trim()]);
  };
  return html`<div class="filters">
    <label class="field">State
      <select value=${query.state ?? ""} onChange=${(event) => change({ state: event.target.value })}>
        <option value="">all</option>
        ${STATES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label>
    ${
      agents.length > 1 &&
      html`<label class="field">Agent
      <select value=${query.agent ?? ""} onChange=${(event) => change({ agent: event.target.value })}>
        <option value="">all</option>
        ${agents.map(({ agent_id: one }) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label>`
    }
    <label class="field">Asked by
      <select value=${query.own ?? ""} onChange=${(event) => change({ own: event.target.value })}>
        <option value="">users</option>
        <option value="all">users and the fleet itself</option>
      </select>
    </label>
    <form role="search" onSubmit=${search}>
      <label class="field">Task id
        <input data-key="search" class="mono" type="search" value=${id} ref=${field}
          onInput=${(event) => setId(event.target.value)} />
      </label>
      <button type="submit">Open</button>
    </form>
  </div>`;
}

const COLUMNS = [
  {
    title: "task",
    class: "id",
    cell: (one) => html`<a href=${link("tasks", [one.task_id])} title=${one.task_id}>${one.task_id}</a>`,
  },
  { title: "state", cell: (one) => html`<${Pill} state=${one.state} title=${one.reason} />` },
  { title: "input", class: "text", cell: (one) => one.input ?? NONE },
  {
    title: "answer",
    class: "text wide",
    cell: (one) => one.response ?? html`<span class="muted">${one.reason ?? NONE}</span>`,
  },
  { title: "score", class: "n", cell: (one) => score(one.score) },
  { title: "version", class: "wide", cell: (one) => one.adapter_version ?? NONE },
  { title: "admitted", class: "n wide", cell: (one) => moment(one.admitted_at) },
];

function List({ items }) {
  return html`<${Table} label="Tasks, the newest first" columns=${COLUMNS} rows=${items}
    keyOf=${(one) => one.task_id} />`;
}
