// `ratchet report`, drawn from the data that stands in the same file: with the page's own parts, without a network.
import { count, moment, score, sentence, signed, words } from "./core/format.js";
import { html, render, useMemo } from "./core/html.js";
import { link } from "./core/router.js";
import { Chart } from "./parts/chart.js";
import { Curves, countsOf } from "./parts/curves.js";
import { programOf, versionOf } from "./parts/decisions.js";
import { Arms, Figures, Picture, Verdict } from "./parts/experiment.js";
import { Card, Facts, Tiles } from "./parts/frame.js";
import { Lineage } from "./parts/lineage.js";
import { Pill, tone } from "./parts/pill.js";
import { ByVersion, OverTime } from "./parts/scores.js";
import { Empty } from "./parts/states.js";
import { Table } from "./parts/table.js";

const BASE = "v1.0.0";
/** Always with the day: the report is read on another one. */
const dated = (iso) => moment(iso, new Date(0));
/** What a link of the page's parts leads to, as the id of an element here. */
const anchor = (...where) => link(...where).slice(1);

function Report({ report }) {
  return html`
    <header>
      <h1>Ratchet report</h1>
      <p class="muted">${dated(report.made_at)} · ${count(report.lines)} scored samples in the log</p>
      ${report.troubles.map((one) => html`<p class="trouble">${one}</p>`)}
      ${report.agents.length > 1 && html`<nav>${report.agents.map(({ agent: { agent_id: id } }) =>
        html`<a class="button" href="#agent-${encodeURIComponent(id)}">${id}</a> `)}</nav>`}
    </header>
    ${report.agents.map((one) => html`<${Agent} key=${one.agent.agent_id} of=${one} />`)}`;
}

function Agent({ of: one }) {
  const { agent, scores, older } = one;
  return html`<section class="stack" id="agent-${agent.agent_id}">
    <h2>Agent ${agent.agent_id}</h2>
    <${Summary} of=${one} />
    <${Scores} agent=${agent} scores=${scores} />
    <h3>Lineage</h3>
    <${Family} agent=${agent} scores=${scores} older=${older.versions} />
    <h3>Experiments</h3>
    <${Experiments} of=${one} />
    <h3>Training</h3>
    <${Trainings} of=${one} />
    <${Anchors} means=${scores.anchors} />
    <h3>Decisions</h3>
    <${Decisions} of=${one} />
  </section>`;
}

function Summary({ of: { agent, scores, experiments, older } }) {
  const state = agent.versions.find((one) => one.version === agent.primary)?.state;
  const ended = (outcome) => experiments.filter((one) => one.outcome === outcome).length;
  return html`<${Tiles} figures=${[
    [`${agent.frozen ? "frozen · " : ""}primary, ${words(state)}`, agent.primary, null, tone(state)],
    gain(agent.primary, scores.live),
    ["tasks answered", count(scores.tasks), `${count(scores.failed)} without a score`],
    ["adapters trained", count(agent.versions.length - 1 + older.versions)],
    ["experiments promoted / rolled back", `${ended("promoted")} / ${ended("rolled_back")}`],
  ]} />`;
}

/** Plain means of all live traffic. The proof is in the experiments. */
function gain(primary, live) {
  const [base, now] = [live[BASE], live[primary]];
  if (!base || !now || primary === BASE) return ["mean live score of the primary", score(now?.mean)];
  const change = now.mean - base.mean;
  const margin = Math.hypot(base.half_width ?? 0, now.half_width ?? 0);
  const shade = change > margin ? "good" : change < -margin ? "bad" : "";
  return ["live score over the base model's", signed(change), `${score(base.mean)} ± ${score(margin)}`, shade];
}

function Scores({ agent, scores }) {
  const names = agent.versions.map((one) => one.version).filter((one) => scores.live[one] || scores.held_out[one]);
  if (!names.length)
    return html`<${Nothing} command='ratchet submit "your task"'>No answer has been scored yet.<//>`;
  return html`<h3>Scores</h3><div class="columns">
    <${ByVersion} agent=${agent} scores=${scores} names=${names} />
    ${scores.timeline.length > 0 && html`<${OverTime} agent=${agent} periods=${scores.timeline} />`}
  </div>`;
}

function Family({ agent, scores, older }) {
  const means = new Map(Object.entries(scores.live).map(([version, { mean }]) => [version, mean]));
  if (agent.versions.length < 2)
    return html`<${Nothing} command="ratchet train">Only the base model so far. A first adapter is trained with:<//>`;
  return html`<${Card}>
    <${Lineage} agent=${agent} means=${means} />
    <${Older} number=${older} what="versions" command="ratchet adapters list" />
  <//>`;
}

/** The newest first. */
function Experiments({ of: { experiments, older } }) {
  if (!experiments.length)
    return html`<${Nothing} command="ratchet train">
      No experiment yet. One begins by itself once an adapter is trained and validated:<//>`;
  return html`${experiments.toReversed().map((one) => html`<${Experiment} key=${one.experiment_id} of=${one} />`)}
    <${Older} number=${older.experiments} what="experiments" command="ratchet experiment list" />`;
}

function Experiment({ of: one }) {
  const when = `${dated(one.began_at)} ${one.ended ? `to ${dated(one.ended.at)}` : "until now"}`;
  return html`<section class="stack experiment" id=${anchor("experiments", [one.experiment_id])}>
    <h4>${one.treatment} against ${one.control} <${Pill} state=${one.outcome} />
      <small class="muted">${one.kind} ${one.experiment_id} · ${when}</small></h4>
    ${one.decision && html`<${Figures} experiment=${one} />`}
    <${Picture} experiment=${one} />
    ${one.decision && html`<${Arms} experiment=${one} />`}
    <${Verdict} experiment=${one} />
  </section>`;
}

function Trainings({ of: { agent, training } }) {
  if (!training.length)
    return html`<${Nothing} command="ratchet train">No training yet. Once enough answers are scored:<//>`;
  return training.toReversed().map(
    (run) => html`<section class="stack" id=${anchor("adapters", [agent.agent_id, run.version])}>
    <${Card} title=${run.version}>
      <${Facts} pairs=${[...factsOf(run.card), ...countsOf(run.counts)]} />
    <//>
    <${Curves} curves=${run.curves} nothing="No curves beside this adapter (training_report.json)." />
  </section>`,
  );
}

function factsOf(card) {
  if (!card) return [];
  const { algorithm, parent, created, data } = card;
  const used = data.samples ? `${count(data.groups)} groups, ${count(data.samples)} samples` : null;
  return [["algorithm", algorithm], ["from", parent], ["made", dated(created)], ["data", used]];
}

/** Fixed answers, scored again and again. */
function Anchors({ means }) {
  const drawn = useMemo(
    () => ({
      x: means.map((_, i) => i + 1),
      lines: [
        { label: "anchors", values: means, shade: "effect" },
        { label: "the first time", values: means.map(() => means[0]), dashed: true },
      ],
    }),
    [means],
  );
  if (!means.length) return null;
  const drift = `${signed(means.at(-1) - means[0])} since the first time`;
  const caption = `Mean score of the same fixed answers, scored again and again, ${drift}: a move is the scorer's`;
  return html`<h3>Anchors</h3><${Card} caption=${caption}>
    <${Chart} x=${drawn.x} lines=${drawn.lines} y=${{ format: score }} xLabel="run" yLabel="mean score"
      xFormat=${count} sentence="Mean score of the anchors: ${drift}" />
  <//>`;
}

/** The newest first, with their evidence. */
function Decisions({ of: { decisions, older } }) {
  if (!decisions.length) return html`<div class="card"><${Empty} small>Nothing has been decided yet.<//></div>`;
  return html`<${Card}>
    <${Table} still label="Decisions" rows=${decisions.toReversed()} keyOf=${(one) => one.sequence}
      columns=${DECISION} />
    <${Older} number=${older.decisions} what="decisions" command="ratchet adapters history" />
  <//>`;
}

const DECISION = [
  { title: "#", cell: (one) => one.sequence },
  { title: "when", class: "id", cell: (one) => dated(one.at) },
  { title: "move", class: "id", cell: (one) => words(one.move.kind) },
  { title: "version", class: "id", cell: (one) => versionOf(one.move) ?? programOf(one.move) ?? "–" },
  { title: "by", class: "wrap", cell: (one) => one.who },
  { title: "reason and evidence", class: "wrap", cell: Reason },
];

function Reason({ reason, move, evidence, sha256 }) {
  return html`${sentence(reason)} <details>
    <summary>evidence</summary>
    <pre class="said">${JSON.stringify({ move, evidence, sha256 }, null, 1)}</pre>
  </details>`;
}

function Nothing({ command, children }) {
  return html`<div class="card"><${Empty} small commands=${[command]}>${children}<//></div>`;
}

/** What stands where more is than is shown. */
function Older({ number, what, command }) {
  return number > 0 && html`<p class="muted">${count(number)} older ${what} are not here: <code>${command}</code></p>`;
}

const data = JSON.parse(document.getElementById("data").textContent);
render(html`<${Report} report=${data} />`, document.getElementById("page"));
