// One task, whole: what was asked, its way through the fleet with the time each stretch took, every sample and why it
// has its score.
import { count, moment, NONE, percent, score, seconds, words } from "../core/format.js";
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";

const HOPS = { queued: "waited for an agent", generated: "answered", awaiting_score: "waited for a score", scored: "scored", settled: "settled" };
const WAITS = new Set(["queued", "awaiting_score"]);

export function Task({ parts }) {
  const [id] = parts;
  const task = useResource(apiPath(["tasks", id]), { kinds: ["task.settled"] });
  const state = task.data?.state;
  return html`
    <${Heading} title="Task" about=${html`<code>${id}</code> ${state && html`<${Pill} state=${state} />`}`} back=${[link("tasks"), "Tasks"]} />
    <${Loaded} resource=${task}>${(data) => html`<div class="stack">
      <div class="columns">
        <${Card} title="Asked"><${Prompt} input=${data.input} /><${Asked} task=${data} /><//>
        <${Card} title="Answer"><${Answer} task=${data} /><//>
      </div>
      <${Timeline} task=${data} />
      <${Samples} task=${data} />
    </div>`}<//>`;
}

function Prompt({ input }) {
  if (typeof input === "string") return html`<pre class="said">${input}</pre>`;
  return html`${input.map((turn, i) => html`<div class="turn" key=${i}><b>${turn.role}</b><pre class="said">${turn.content}</pre></div>`)}`;
}

function Asked({ task }) {
  return html`<div class="after"><${Facts} pairs=${[
    ["by", task.metadata.source],
    ["right answer", task.reference],
    ["criteria", task.criteria],
    ["type", task.task_type],
    ["session", task.session_id],
    ["priority", task.priority || null],
    ["admitted", `${moment(task.admitted_at)}, number ${count(task.sequence)}`],
    ["deadline", moment(task.deadline)],
  ]} /></div>`;
}

function Answer({ task }) {
  const { result, arm } = task;
  return html`
    ${result?.response != null && html`<pre class="said">${result.response}</pre>`}
    ${result?.reason && html`<p class="trouble">${result.reason}</p>`}
    ${!result && html`<${Empty} small>It is on its way. This page shows the answer when it is there.<//>`}
    <div class="after"><${Facts} pairs=${[
      ["score", result ? score(result.score) : null],
      ["agent", task.agent_id],
      ["adapter", html`<a href=${link("adapters", [task.agent_id, arm.adapter_version])}>${arm.adapter_version}</a>${arm.is_candidate ? ", the candidate" : ""}`],
      ["experiment", arm.experiment_id && html`<a href=${link("experiments", [arm.experiment_id])}>${arm.experiment_id}</a>, with probability ${percent(arm.propensity)}`],
      ["engine", task.engine],
      ["scored by", scorerOf(task)],
      ["sampling", `${count(task.sampling.n)} samples, temperature ${task.sampling.temperature}, top p ${task.sampling.top_p}, at most ${count(task.sampling.max_tokens)} tokens`],
    ]} /></div>`;
}

function scorerOf({ scorer, scoring_agent_id: agent }) {
  return scorer ? `${scorer.id}${scorer.revision ? ` at ${scorer.revision}` : ""}` : agent;
}

function Timeline({ task }) {
  const begin = Date.parse(task.admitted_at) / 1000;
  const placed = placedHops(task.hops, begin);
  const end = Math.max(...placed.map((hop) => hop.start + (hop.seconds ?? 0)), 1e-6);
  const total = placed.reduce((sum, hop) => sum + (hop.seconds ?? 0), 0);
  return html`<${Card} title="Its way" caption=${task.closed_at ? `${seconds(total)} from admission to the log` : `on its way since ${moment(task.admitted_at)}`}>
    <ol class="timeline">${placed.map((hop) => html`<li key=${hop.name}>
      <span class="hop">${HOPS[hop.name] ?? words(hop.name)}<small>${hop.service}${hop.attempts > 1 ? `, attempt ${hop.attempts}` : ""}</small></span>
      <span class="track" aria-hidden="true"><i class=${barClass(hop)} style=${barPlace(hop, end)} /></span>
      <span class="n">${hop.seconds === null ? "since then" : seconds(hop.seconds)}</span>
    </li>`)}</ol>
  <//>`;
}

/** The hops one after the other, in seconds from admission. */
function placedHops(hops, begin) {
  let reached = 0;
  return hops.map((hop) => {
    const start = Math.max(reached, Date.parse(hop.at) / 1000 - begin || 0);
    reached = start + (hop.seconds ?? 0);
    return { ...hop, start };
  });
}

const barClass = (hop) => (hop.seconds === null ? "lasts" : WAITS.has(hop.name) ? "waits" : "");

function barPlace(hop, end) {
  const left = Math.min((100 * hop.start) / end, 99);
  return { left: `${left}%`, width: `${hop.seconds === null ? 100 - left : Math.min((100 * hop.seconds) / end, 100 - left)}%` };
}

function Samples({ task }) {
  if (!task.samples.length) return null;
  const ordered = [...task.samples].sort((a, b) => Number(b.chosen) - Number(a.chosen) || (b.score ?? -1) - (a.score ?? -1) || a.index - b.index);
  return html`<${Card} title="Samples" caption=${`${count(ordered.length)} in the group; the user got the best`}>
    ${ordered.map((one) => html`<div class="sample ${one.chosen ? "chosen" : ""}" key=${one.index}>
      <div class="mark">${one.score === null ? words(one.status ?? NONE) : score(one.score)}<small>sample ${one.index}${one.chosen ? ", chosen" : ""}</small></div>
      <div><div class="say">${one.text || html`<span class="muted">(empty)</span>`}</div>
      <div class="why">${[one.reason, one.tokens !== null && `${count(one.tokens)} tokens`, one.finish_reason && `ended by ${words(one.finish_reason)}`].filter(Boolean).join(" · ")}</div></div>
    </div>`)}
  <//>`;
}
