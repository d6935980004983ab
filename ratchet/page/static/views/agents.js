// Agents that are registered with the manager: kind, state and why, and the figures of the one that is chosen.
import { call } from "../core/api.js";
import { count, moment, score } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Confirm } from "../parts/dialog.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";
import { money } from "./jobs.js";

const PAGE = 50;
const LIVE_MS = 3000;

export function Agents({ query }) {
  const path = apiPath(["manager", "agents"], { cursor: query.cursor, limit: PAGE });
  const agents = useResource(path, { everyMs: LIVE_MS });
  const mayRemove = may("cancel", useStore(session).role);
  const [leaving, setLeaving] = useState(null);
  return html`
    <${Heading} title="Agents" about="registered while the fleet runs" />
    <${Loaded} resource=${agents}>${({ items, next }) => html`<div class="stack">
      <div class="card">
        ${items.length
          ? html`<${Table} label="Agents, by name" columns=${columns(mayRemove && setLeaving)} rows=${items}
              keyOf=${(one) => one.name} />`
          : html`<${Nothing} />`}
        <${Pager} view="agents" query=${query} next=${next} first="First" more="More"
          shown="${count(items.length)} shown" />
      </div>
      ${items.some((one) => one.name === query.agent) &&
        html`<${Figures} agent=${items.find((one) => one.name === query.agent)} />`}
    </div>`}<//>
    ${leaving && html`<${Confirm} title="Remove ${leaving}?" action="Remove" danger act=${async () => {
      await call(apiPath(["manager", "agents", leaving]), { method: "DELETE" });
      agents.reload();
    }} onClose=${() => setLeaving(null)}><p>It takes no further job. The jobs that it has go on.</p><//>`}`;
}

function Nothing() {
  return html`<${Empty} title="No agent is registered" commands=${["ratchet agents add agent.toml"]}>
    An agent is a program, the model of one of the fleet's agents, and a kind. Nothing is restarted for it.
  <//>`;
}

function columns(remove) {
  return [
    {
      title: "agent",
      class: "id",
      cell: (one) => html`<a href=${link("agents", [], { agent: one.name })}>${one.name}</a>`,
    },
    { title: "kind", cell: (one) => one.kind },
    { title: "model", class: "wide", cell: (one) => one.model },
    { title: "state", cell: (one) => html`<${Pill} state=${one.state} title=${one.reason} />` },
    { title: "why", class: "wrap wide", cell: (one) => one.reason },
    { title: "changed", class: "n wide", cell: (one) => moment(one.changed_at) },
    ...(remove
      ? [
          {
            title: "",
            class: "n",
            cell: (one) =>
              one.state !== "retired" &&
              html`<button aria-label="Remove ${one.name}" onClick=${() => remove(one.name)}>Remove</button>`,
          },
        ]
      : []),
  ];
}

function Figures({ agent }) {
  const figures = useResource(apiPath(["manager", "agents", agent.name, "metrics"]), { everyMs: LIVE_MS });
  return html`<${Card} title=${agent.name} caption=${agent.reason}>
    <${Loaded} resource=${figures}>${(one) => html`<${Facts} pairs=${[
      ["open jobs", count(one.jobs)],
      ["tasks", ["waiting", "released", "ok", "failed", "expired", "cancelled"]
        .map((name) => `${count(one[name])} ${name}`).join(", ")],
      ["rate", `${count(one.ended_last_minute)} in the last minute`],
      ["mean score", one.mean_score !== null && score(one.mean_score)],
      ["tokens", `${count(one.prompt_tokens)} given, ${count(one.sampled_tokens)} sampled`],
      ["spent", `${money(one.spent)}${agent.budget ? ` of ${money(agent.budget)}` : ""}`],
      ["version", agent.adapter_version ?? "the one in traffic"],
      ["revision", count(agent.revision)],
    ].map(([name, value]) => [name, value || null])} />`}<//>
  <//>`;
}
