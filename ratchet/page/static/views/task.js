// One task, whole: what was asked, its way through the fleet with the time each stretch took, every sample and why it
// has its score.
import { call } from "../core/api.js";
import { count, moment, NONE, percent, plural, score, seconds, words } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Confirm } from "../parts/dialog.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Rollouts } from "../parts/rollouts.js";
import { Empty, Loaded } from "../parts/states.js";

const HOPS = {
  queued: "waited for an agent",
  generated: "answered",
  awaiting_score: "waited for a score",
  scored: "scored",
  settled: "settled",
};
/** What a task's `select` gives the user; without one it is the best. */
const GOT = { majority: "what most said", judge: "the judge's first", "first-passing": "the first that passes" };
const WAITS = new Set(["queued", "awaiting_score"]);

export function Task({ parts }) {
  const [id] = parts;
  const task = useResource(apiPath(["tasks", id]), { kinds: ["task.settled"] });
  const state = task.data?.state;
  const asks = may("cancel", useStore(session).role);
  const [cancels, setCancels] = useState(false);
  return html`
    <${Heading} title="Task" about=${html`<code>${id}</code> ${state &&
      html`<${Pill} state=${state} />`}`} back=${[link("tasks"), "Tasks"]}>
      ${state === "open" && asks &&
        html`<button type="button" class="danger" onClick=${() => setCancels(true)}>Cancel the task</button>`}
    <//>
    ${cancels && html`<${CancelTask} id=${id} done=${task.reload} onClose=${() => setCancels(false)} />`}
    <${Loaded} resource=${task}>${(data) => html`<div class="stack">
      <div class="columns">
        <${Card} title="Asked"><${Prompt} input=${data.input} /><${Asked} task=${data} /><//>
        <${Card} title="Answer"><${Answer} task=${data} /><//>
      </div>
      <${Timeline} task=${data} />
      ${data.state === "open" && html`<${AtWork} id=${id} />`}
      <${Feedback} given=${data.feedback} />
      <${Samples} task=${data} />
    </div>`}<//>`;
}

function CancelTask({ id, done, onClose }) {
  const act = async () => {
    await call(apiPath(["tasks", id]), { method: "DELETE" });
    done();
  };
  return html`<${Confirm} title="Cancel this task?" action="End it" danger act=${act} onClose=${onClose}>
    <p>Its rollouts end, who asked is told that it was cancelled, and no training learns from it.</p>
  <//>`;
}

function Prompt({ input }) {
  if (typeof input === "string") return html`<pre class="said">${input}</pre>`;
  return html`${input.map((turn, i) =>
    html`<div class="turn" key=${i}><b>${turn.role}</b><pre class="said">${saidBy(turn)}</pre></div>`)}`;
}

function Asked({ task }) {
  return html`<div class="after"><${Facts} pairs=${[
    ["by", task.metadata.source],
    ["right answer", task.reference],
    ["criteria", task.criteria],
    ["chosen by", task.select && [task.select, task.pass_score].filter(Boolean).join(" ")],
    ["type", task.task_type],
    ["session", task.session_id],
    ["priority", task.priority || null],
    ["admitted", `${moment(task.admitted_at)}, number ${count(task.sequence)}`],
    ["deadline", moment(task.deadline)],
  ]} /></div>`;
}

function Answer({ task }) {
  const { result } = task;
  return html`
    ${result?.response != null && html`<pre class="said">${result.response}</pre>`}
    ${result?.reason && html`<p class="trouble">${result.reason}</p>`}
    ${!result && html`<${Empty} small>It is on its way. This page shows the answer when it is there.<//>`}
    <div class="after"><${Facts} pairs=${[
      ["score", result ? score(result.score) : null],
      ["votes", result?.votes],
      ["agent", task.agent_id],
      ["answered by", task.cascade?.served === "big" ? `${result?.agent_id}, in its place` : null],
      ["adapter", task.arm && html`<${Adapter} agent=${task.agent_id} arm=${task.arm} />`],
      ["experiment", task.arm?.experiment_id && html`<${Assigned} arm=${task.arm} />`],
      ["engine", task.engine],
      ["scored by", scorerOf(task)],
      ["sampling", samplingOf(task.sampling)],
    ]} /></div>`;
}

function Adapter({ agent, arm }) {
  const { adapter_version: version, is_candidate: tried } = arm;
  return html`<a href=${link("adapters", [agent, version])}>${version}</a>${tried ? ", the candidate" : ""}`;
}

function Assigned({ arm }) {
  const { experiment_id: id, propensity } = arm;
  return html`<a href=${link("experiments", [id])}>${id}</a>, with probability ${percent(propensity)}`;
}

function samplingOf({ n, temperature, top_p: topP, max_tokens: most }) {
  return `${plural(n, "sample")}, temperature ${temperature}, top p ${topP}, at most ${count(most)} tokens`;
}

function scorerOf({ scorer, scoring_agent_id: agent }) {
  return scorer ? `${scorer.id}${scorer.revision ? ` at ${scorer.revision}` : ""}` : agent;
}

function Timeline({ task }) {
  const begin = Date.parse(task.admitted_at) / 1000;
  const placed = placedHops(task.hops, begin);
  const end = Math.max(...placed.map((hop) => hop.start + (hop.seconds ?? 0)), 1e-6);
  const total = placed.reduce((sum, hop) => sum + (hop.seconds ?? 0), 0);
  const caption = task.closed_at
    ? `${seconds(total)} from admission to the log`
    : `on its way since ${moment(task.admitted_at)}`;
  return html`<${Card} title="Its way" caption=${caption}>
    <ol class="timeline">${placed.map((hop) => html`<${Hop} key=${hop.name} hop=${hop} end=${end} />`)}</ol>
  <//>`;
}

function Hop({ hop, end }) {
  const again = hop.attempts > 1 ? `, attempt ${hop.attempts}` : "";
  return html`<li>
    <span class="hop">${HOPS[hop.name] ?? words(hop.name)}<small>${hop.service}${again}</small></span>
    <span class="track" aria-hidden="true"><i class=${barClass(hop)} style=${barPlace(hop, end)} /></span>
    <span class="n">${hop.seconds === null ? "since then" : seconds(hop.seconds)}</span>
  </li>`;
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
  return {
    left: `${left}%`,
    width: `${hop.seconds === null ? 100 - left : Math.min((100 * hop.seconds) / end, 100 - left)}%`,
  };
}

/** What programs are at, while the task is open; nothing where none answers it. */
function AtWork({ id }) {
  const { data } = useResource(apiPath(["rollouts"], { task_id: id }), { kinds: ["rollout"] });
  if (!data?.items.length) return null;
  const running = data.items.filter((one) => one.state === "running").length;
  const caption = `${count(running)} run now, ${count(data.items.length - running)} ended`;
  return html`<${Card} title="Rollouts" caption=${caption}>
    <${Rollouts} rollouts=${data.items} ofTask />
  <//>`;
}

function Samples({ task }) {
  if (!task.samples.length) return null;
  const ordered = [...task.samples].sort(
    (a, b) => Number(b.chosen) - Number(a.chosen) || (b.score ?? -1) - (a.score ?? -1) || a.index - b.index,
  );
  const caption = `${count(ordered.length)} in the group; the user got ${GOT[task.select] ?? "the best"}`;
  return html`<${Card} title="Samples" caption=${caption}>
    ${ordered.map((one) => html`<${Sample} key=${one.index} one=${one} />`)}
  <//>`;
}

function Sample({ one }) {
  const why = [
    one.reason,
    one.parts && Object.entries(one.parts).map(([part, given]) => `${part} ${score(given)}`).join(", "),
    one.tokens !== null && plural(one.tokens, "token"),
    one.finish_reason && `ended by ${words(one.finish_reason)}`,
    one.program && `by ${one.program}`,
    one.ended && (one.says ? `${words(one.ended)}: ${one.says}` : words(one.ended)),
    one.place && `place ${one.place} of the judge`,
    one.usage && plural(one.usage.calls, "call"),
    one.usage?.seconds && seconds(one.usage.seconds),
    ...Object.entries(one.usage?.roles ?? {}).map(([role, part]) =>
      `${role} ${part.adapter_version}: ${plural(part.calls, "call")}, ${plural(part.sampled_tokens, "token")}`),
    ...(one.foreign ?? []).map((part) =>
      `${part.role} ${part.model}: ${plural(part.calls, "call")}, ${plural(part.sampled_tokens, "token")}`),
    one.untaught && `not trained on: ${one.untaught}`,
  ];
  return html`<div class="sample ${one.chosen ? "chosen" : ""}">
    <div class="mark ${one.score === null ? "warn" : ""}">
      ${one.score === null ? words(one.status ?? NONE) : score(one.score)}
      <small>sample ${one.index}${one.chosen ? ", chosen" : ""}</small>
    </div>
    <div>
      <div class="say">${one.text || html`<span class="muted">(empty)</span>`}</div>
      <div class="why">${why.filter(Boolean).join(" · ")}</div>
      ${one.artifact && html`<${Artifact} artifact=${one.artifact} />`}
      ${one.tool_audit && html`<${ToolAudit} audit=${one.tool_audit} />`}
      ${one.segments && html`<${Conversation} segments=${one.segments} />`}
      ${one.unreadable && html`<div class="why">${one.unreadable}</div>`}
    </div>
  </div>`;
}

/** What it left in its workspace: the patch, the files that were wanted, and what is in neither. */
function Artifact({ artifact }) {
  const files = Object.entries(artifact.files ?? {});
  const leftOut = Object.entries(artifact.left_out ?? {});
  return html`<details class="conversation"><summary>What it changed</summary>
    <div class="turn"><pre>${artifact.patch || "(nothing)"}</pre></div>
    ${files.map(([path, text]) => html`<div class="turn"><b>${path}</b><pre>${text}</pre></div>`)}
    ${leftOut.map(([path, why]) => html`<div class="why">${path}: ${why}</div>`)}
  </details>`;
}

/** What it did with our tools, as the recorder wrote it down. */
function ToolAudit({ audit }) {
  const did = Object.entries(audit.operations).map(([name, times]) => `${name} ${times}`);
  const how = [audit.failed && `${count(audit.failed)} failed`, audit.refused && `${count(audit.refused)} refused`];
  return html`<details class="conversation"><summary>What its tools did</summary>
    <div class="why">${[...did, ...how.filter(Boolean)].join(" · ")}</div>
    ${audit.changed.length > 0 && html`<div class="why">changed: ${audit.changed.join(", ")}</div>`}
    ${audit.commits.length > 0 && html`<div class="why">commits: ${audit.commits.join(", ")}</div>`}
    <div class="why">${plural(audit.count, "line")} of the audit; the last has sha256 ${audit.sha256}</div>
  </details>`;
}

/** Turn by turn; what was sampled has its number of tokens. */
function Conversation({ segments }) {
  const many = segments.length > 1;
  return html`<details class="conversation"><summary>Turn by turn, ${plural(segments.length, "segment")}</summary>
    ${segments.map((segment, index) => html`
      <div class="why">${many ? `segment ${index + 1}: ` : ""}
        ${segment.role ? `${segment.role} ${segment.adapter_version}; ` : ""}
        ${segment.broke ? `${words(segment.broke)}; ` : ""}
        ${plural(segment.prompt_tokens, "token")} before, ${count(segment.sampled_tokens)} sampled,
        ${" "}${count(segment.given_tokens)} given in between</div>
      ${segment.turns.map((turn) => html`<details class="turn">
        <summary>${[turn.role, ...callOf(turn)].join(", ")}</summary>
        <div class="say">${saidBy(turn)}</div>
      </details>`)}`)}
  </details>`;
}

/** What the call took that a turn was sampled by. */
function callOf({ tokens, prompt_tokens: before, seconds: took }) {
  if (tokens === null) return [];
  const given = typeof before === "number" ? ` behind ${count(before)}` : "";
  return [`${plural(tokens, "token")}${given}`, ...(typeof took === "number" ? [seconds(took)] : [])];
}

function saidBy({ content, reasoning, tool_calls: calls }) {
  const called = (calls || []).map((call) => call.function || call)
    .map(({ name, arguments: given }) => `${name}(${given})`);
  return [reasoning && `(${reasoning})`, content, ...called].filter(Boolean).join("\n");
}

function Feedback({ given }) {
  if (!given.length) return null;
  return html`<${Card} title="Feedback" caption="What the application said of it; training takes it for the score">
    <ol class="happenings">${given.map((one) => html`<li key=${one.feedback_id}>
      <time datetime=${one.timestamp}>${moment(one.timestamp)}</time>
      <div>
        <b>${score(one.score)}</b> for sample ${one.sample}${one.given_by ? ` by ${one.given_by}` : ""}
        <div class="why">${one.reason}</div>
        ${one.correction && html`<pre>${one.correction}</pre>`}
      </div>
    </li>`)}</ol>
  <//>`;
}
