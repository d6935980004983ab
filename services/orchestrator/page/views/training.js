// Training: how far the next one is, and the curves of each run that made an adapter.
import { count, moment, words } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { Chart } from "../parts/chart.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Meter } from "../parts/meter.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";

const CURVES = {
  reward: ["Reward", "mean score of the batch's answers", "effect"],
  loss: ["Loss", "of the policy gradient; its level says little", "effect"],
  entropy: ["Entropy", "nats a token; near zero it has collapsed", "effect"],
  kl: ["KL divergence", "from the parent, nats a token", "effect"],
  clip_fraction: ["Clipped", "share of tokens whose ratio was clipped", "fourth"],
  effective_share: ["Effective sample size", "share of the batch, by importance weights", "fourth"],
};

export function Training({ parts, status }) {
  const agents = useResource("v1/adapters", { kinds: ["adapter", "decision", "training"] });
  return html`
    <${Heading} title="Training" about="The log of scored answers becomes a new adapter" />
    <${Loaded} resource=${agents}>${({ items }) =>
      html`<${Runs} agents=${items} parts=${parts} learning=${status.data?.agents ?? []} />`}<//>`;
}

function Runs({ agents, parts, learning }) {
  const runs = agents.flatMap((agent) =>
    agent.versions.filter((one) => one.sha256).map((one) => ({ ...one, agent_id: agent.agent_id })),
  );
  runs.sort((a, b) => b.version.localeCompare(a.version, "en", { numeric: true }));
  const [agentId, version] = parts;
  const chosen = version ? runs.find((one) => one.agent_id === agentId && one.version === version) : runs[0];
  return html`<div class="stack">
    <${Next} learning=${learning} />
    ${
      runs.length === 0 &&
      html`<div class="card"><${Empty} title="No training has made an adapter yet"
        commands=${["ratchet train", "ratchet train --queue"]}>
      One begins by itself when enough groups have something to teach. Ask for one now, in a process
      of its own, or of the fleet's trainer.
    <//></div>`
    }
    ${version && !chosen &&
      html`<div class="card"><${Empty} title="No run made ${version} of ${agentId}">Choose one below.<//></div>`}
    ${chosen && html`<${Run} key=${chosen.agent_id + chosen.version} run=${chosen} />`}
    ${runs.length > 0 && html`<${Card} title="Runs"><${Table} label="Training runs, the newest first" rows=${runs}
      keyOf=${(one) => `${one.agent_id} ${one.version}`} columns=${COLUMNS} /><//>`}
  </div>`;
}

const COLUMNS = [
  { title: "made", cell: (one) => html`<a href=${link("training", [one.agent_id, one.version])}>${one.version}</a>` },
  { title: "agent", cell: (one) => one.agent_id },
  { title: "from", cell: (one) => one.parent },
  { title: "stands", cell: (one) => html`<${Pill} state=${one.state} title=${one.sentence} />` },
  { title: "since", class: "n", cell: (one) => moment(one.since) },
];

function Next({ learning }) {
  const asked = learning.filter((one) => one.learning.wanted || one.learning.pending);
  if (!asked.length) return null;
  return html`<${Card} title="The next training">${asked.map(
    ({ agent_id: agent, learning: { groups, wanted, pending } }) => html`<div class="stack" key=${agent}>
    ${
      pending
        ? html`<p><${Pill} state="running" /> ${agent}: <code>${pending}</code></p>`
        : html`<${Meter} label="${agent}: groups with something to learn from" value=${groups / wanted}
          words="${count(groups)} of ${count(wanted)}" />`
    }
  </div>`,
  )}<//>`;
}

function Run({ run }) {
  const detail = useResource(apiPath(["adapters", run.agent_id, run.version]));
  return html`<${Loaded} resource=${detail}>${({ card, training }) => html`<div class="stack">
    <${Card} title=${`How ${run.version} was made`} caption=${card && `${card.algorithm}, ${moment(card.created)}`}>
      <div class="columns">
        <${Facts} pairs=${factsOf(card)} />
        <${Facts} pairs=${countsOf(training)} />
      </div>
      ${card && html`<${Details} card=${card} />`}
    <//>
    <${Curves} curves=${training?.curves ?? {}} />
  </div>`}<//>`;
}

function Details({ card: { hyperparameters, metrics } }) {
  return html`<details class="after">
    <summary>Hyperparameters and final metrics</summary>
    <pre class="said">${JSON.stringify({ hyperparameters, metrics }, null, 2)}</pre>
  </details>`;
}

function countsOf(training) {
  const named = Object.entries(training?.counts ?? {});
  return named.map(([name, value]) => [words(name).replace(".", ": "), count(value)]);
}

function factsOf(card) {
  if (!card) return [["card", "there is none: its folder was removed, or it came without one"]];
  const { data, parent, run_id: run } = card;
  return [
    ["from", parent],
    ["data", `${count(data.groups)} groups, ${count(data.samples)} samples`],
    ["window", data.first && `${moment(data.first)} to ${moment(data.last)}`],
    ["run", run && html`<code>${run}</code>`],
  ];
}

function Curves({ curves }) {
  const drawn = Object.entries(CURVES).filter(([name]) => curves[name]?.length);
  if (!drawn.length) return html`<div class="card"><${Empty} small>This run left no curves.<//></div>`;
  return html`<div class="thirds">${drawn.map(([name, [title, caption, shade]]) =>
    html`<${Curve} key=${name} title=${title} caption=${caption} shade=${shade} points=${curves[name]} />`)}</div>`;
}

function Curve({ title, caption, shade, points }) {
  const drawn = useMemo(
    () => ({
      x: points.map((one) => one[0]),
      lines: [{ label: title.toLowerCase(), values: points.map((one) => one[1]), shade }],
    }),
    [points],
  );
  const last = points.at(-1)[1];
  return html`<${Card} title=${title} caption=${caption}>
    <${Chart} sentence="${title}: from ${figure(points[0][1])} to ${figure(last)}" x=${drawn.x} lines=${drawn.lines}
      height=${170}
      y=${{ format: figure }} xLabel="step" yLabel=${title.toLowerCase()} xFormat=${count} />
  <//>`;
}

const figure = (value) =>
  value === 0 ? "0" : Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
