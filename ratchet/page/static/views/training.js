// Training: every run that was asked for, the one under way first with its curves as they grow; how far the next one
// is; how a version was made.
import { count, moment, percent, seconds, sentence } from "../core/format.js";
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { Curves, countsOf } from "../parts/curves.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Meter } from "../parts/meter.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";

const LIMIT = 25;
const KINDS = ["training"];
const ASKED_BY = { orchestrator: "the fleet", operator: "ratchet train" };

/** `parts`: nothing, a run's id, or an agent and a version. */
export function Training({ parts, query, status }) {
  const runs = useResource(apiPath(["trainings"], { cursor: query.cursor, limit: LIMIT }), { kinds: KINDS });
  const [first, version] = parts;
  return html`
    <${Heading} title="Training" about="The log of scored answers becomes a new adapter" />
    <${Loaded} resource=${runs}>${({ items, next }) => html`<div class="stack">
      <${Waiting} />
      <${Next} learning=${status.data?.agents ?? []} />
      ${items.length === 0 && !query.cursor && html`<${NoRuns} />`}
      ${version ? html`<${Version} key=${parts.join(" ")} agent=${first} version=${version} />`
        : html`<${Chosen} id=${first ?? underWay(items)[0]?.run_id ?? items[0]?.run_id} />`}
      ${items.length > 0 && html`<${Runs} items=${items} next=${next} query=${query} />`}
    </div>`}<//>`;
}

const underWay = (items) => [
  ...items.filter((one) => one.state === "running"),
  ...items.filter((one) => one.state === "queued"),
];

function NoRuns() {
  return html`<div class="card"><${Empty} title="No training was asked for yet"
    commands=${["ratchet train", "ratchet train --queue"]}>
    One begins by itself when enough groups have something to teach. Ask for one now, in a process
    of its own, or of the fleet's trainer.
  <//></div>`;
}

/** Requests that no trainer has taken out of the queue. */
function Waiting() {
  const queues = useResource("v1/queues", { kinds: ["queues"] });
  const queue = queues.data?.items.find((one) => one.name === "training");
  if (!queue?.messages) return null;
  const there = queue.consuming ? "a trainer is there" : "and no trainer is there to take it: ratchet status";
  return html`<p class="banner" role="status"><span><b>${count(queue.messages)} asked for</b> in the queue
    <code> training</code>, ${there}</span></p>`;
}

function Next({ learning }) {
  const counted = learning.filter((one) => one.learning.wanted && !one.learning.pending);
  if (!counted.length) return null;
  return html`<${Card} title="The next training">${counted.map(
    ({ agent_id: agent, learning: { groups, wanted } }) =>
      html`<${Meter} key=${agent} label="${agent}: groups with something to learn from" value=${groups / wanted}
        words="${count(groups)} of ${count(wanted)}" />`,
  )}<//>`;
}

function Runs({ items, next, query }) {
  const active = underWay(items);
  const rows = [...active, ...items.filter((one) => !active.includes(one))];
  return html`<${Card} title="Runs">
    <${Table} label="Training runs, those under way first, then the newest" rows=${rows}
      keyOf=${(one) => `${one.agent_id} ${one.run_id}`} columns=${COLUMNS} />
    <${Pager} view="training" query=${query} next=${next} shown="${count(items.length)} runs" />
  <//>`;
}

const COLUMNS = [
  { title: "run", class: "id", cell: (one) => html`<a href=${link("training", [one.run_id])}>${one.run_id}</a>` },
  { title: "state", cell: (one) => html`<${Pill} state=${one.state} />` },
  { title: "what came of it", class: "wrap", cell: (one) => html`<${Outcome} run=${one} />` },
  { title: "agent", cell: (one) => one.agent_id },
  { title: "asked by", class: "wide", cell: askedBy },
  { title: "asked", class: "n", cell: (one) => moment(one.asked_at ?? one.ended_at) },
  { title: "took", class: "n wide", cell: (one) => seconds(one.seconds) },
];

function Outcome({ run }) {
  if (run.state === "trained")
    return html`made <${VersionLink} agent=${run.agent_id} version=${run.adapter_version} />`;
  if (run.state === "running") return howFar(run.progress);
  if (run.state === "queued") return html`<span class="muted">waits for a trainer</span>`;
  return sentence(run.reason ?? "");
}

const VersionLink = ({ agent, version }) => html`<a href=${link("adapters", [agent, version])}>${version}</a>`;

function askedBy({ asked_by: who }) {
  return ASKED_BY[who] ?? who?.replace(/^api:/, "API: ");
}

function howFar(progress) {
  if (!progress?.steps) return `${progress?.stage ?? "starting"} ${progress?.share ? percent(progress.share) : ""} …`;
  const { step, steps, seconds_left: left } = progress;
  const rest = left === null ? "" : `, ${left < 1 ? "almost done" : `${seconds(Math.round(left))} left`}`;
  return `step ${count(step)} of ${count(steps)}${rest}`;
}

function Progress({ progress }) {
  if (!progress?.steps) return html`<p class="muted">${howFar(progress)}</p>`;
  const { stage, step, steps } = progress;
  return html`<${Meter} label=${stage} value=${step / steps} words=${howFar(progress)} />`;
}

function Chosen({ id }) {
  return id === undefined ? null : html`<${Run} key=${id} id=${id} />`;
}

function Run({ id }) {
  const detail = useResource(apiPath(["trainings", id]), { kinds: KINDS });
  return html`<${Loaded} resource=${detail}>${(run) => html`<div class="stack">
    <${Card} title=${titleOf(run)} caption=${askedFor(run)} actions=${html`<${Pill} state=${run.state} />`}>
      ${run.state === "running" && html`<${Progress} progress=${run.progress} />`}
      ${run.reason && html`<p class="trouble">${sentence(run.reason)}</p>`}
      <div class="columns after">
        <${Facts} pairs=${factsOfRun(run)} />
        <${Facts} pairs=${countsOf(run.counts)} />
      </div>
      <${Details} of=${run} />
    <//>
    <${Curves} curves=${run.curves} nothing=${run.state === "trained" && "This run left no curves."} />
  </div>`}<//>`;
}

const TITLES = {
  queued: "A training waits for a trainer",
  running: "A training is under way",
  refused: "A training was refused",
  failed: "A training failed",
};

const titleOf = (run) => TITLES[run.state] ?? `A training made ${run.adapter_version}`;

function askedFor(run) {
  const by = askedBy(run);
  const said = [run.agent_id, by && `asked for by ${by}`, run.asked_at && moment(run.asked_at)];
  return said.filter(Boolean).join(", ") + (run.why ? `: ${run.why}` : "");
}

function factsOfRun(run) {
  return [
    ["run", html`<code>${run.run_id}</code>`],
    ["made", run.adapter_version &&
      html`<${VersionLink} agent=${run.agent_id} version=${run.adapter_version} />`],
    ["from", run.parent_version],
    ["algorithm", run.algorithm],
    ["ended", run.ended_at && moment(run.ended_at)],
    ["took", run.seconds === null ? null : `${seconds(run.seconds)} from the request on`],
    ["attempts", run.attempts > 1 ? `${count(run.attempts)}: its process died and it was taken up again` : null],
    ["last heard of", run.progress && moment(run.progress.at)],
  ];
}

/** How a version was made, also one whose run is no longer on record. */
function Version({ agent, version }) {
  const detail = useResource(apiPath(["adapters", agent, version]));
  return html`<${Loaded} resource=${detail}>${({ card, training }) => html`<div class="stack">
    <${Card} title=${`How ${version} was made`} caption=${card && `${card.algorithm}, ${moment(card.created)}`}>
      <div class="columns">
        <${Facts} pairs=${factsOfCard(card)} />
        <${Facts} pairs=${countsOf(training?.counts)} />
      </div>
      ${card && html`<${Details} of=${card} />`}
    <//>
    <${Curves} curves=${training?.curves ?? {}} nothing="This run left no curves." />
  </div>`}<//>`;
}

function Details({ of: { hyperparameters, metrics } }) {
  if (!Object.keys(hyperparameters).length && !Object.keys(metrics).length) return null;
  return html`<details class="after">
    <summary>Hyperparameters and final metrics</summary>
    <pre class="said">${JSON.stringify({ hyperparameters, metrics }, null, 2)}</pre>
  </details>`;
}

function factsOfCard(card) {
  if (!card) return [["card", "there is none: its folder was removed, or it came without one"]];
  const { data, parent, run_id: run } = card;
  return [
    ["from", parent],
    ["data", `${count(data.groups)} groups, ${count(data.samples)} samples`],
    ["window", data.first && `${moment(data.first)} to ${moment(data.last)}`],
    ["run", run && html`<code>${run}</code>`],
  ];
}
