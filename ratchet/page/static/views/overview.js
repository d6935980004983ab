// The fleet at a glance: figures, live charts, each agent with what it runs, the latest decisions.
import {
  compact,
  count,
  eValue,
  moment,
  NONE,
  percent,
  plural,
  rate,
  score,
  seconds,
  sentence,
  signed,
  words,
} from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { settledRates, useRecent } from "../core/recent.js";
import { useResource } from "../core/resource.js";
import { link } from "../core/router.js";
import { Chart } from "../parts/chart.js";
import { Decisions } from "../parts/decisions.js";
import { Card, Heading, Tiles } from "../parts/frame.js";
import { Meter } from "../parts/meter.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";

const STAGES = {
  queue: "waits for an agent",
  generate: "is answered",
  score_queue: "waits for a score",
  score: "is scored",
  total: "from admission to result",
};
const MEAN_OVER = 20;
const LEAST_POINTS = 5;
const RATE_OVER_S = 5;
const NOT_SCORED = "Too few tasks have a score yet.";
const SCORE_AXIS = {
  format: (value) => value.toFixed(2),
  range: (low, high) => [Math.max(0, Math.floor(20 * low - 0.6) / 20), Math.min(1, Math.ceil(20 * high + 0.6) / 20)],
};
const RATE_AXIS = {
  format: (value) => Number(value.toPrecision(3)).toLocaleString("en"),
  range: (low, high) => [0, Math.max(1, high * 1.15)],
};

export function Overview({ status }) {
  const decisions = useResource("v1/decisions?limit=8", { kinds: ["decision"] });
  return html`
    <${Heading} title="Overview" about=${status.data && `as of ${moment(status.data.at)}`} />
    <${Loaded} resource=${status}>${(data) => html`<div class="stack">
      <${Tiles} figures=${figuresOf(data)} />
      ${data.no_copies && html`<p class="banner bad" role="status">${sentence(data.no_copies)}</p>`}
      ${data.tasks.known === 0 ? html`<${NoTasks} />`
        : html`<div class="columns"><${LiveScores} agents=${data.agents} /><${LiveRate} at=${data.at} /></div>`}
      <div class="sides">
        <div class="stack">
          ${data.agents.map(
            (agent) =>
              html`<${Agent} key=${agent.agent_id} agent=${agent} scores=${data.scores} quality=${data.quality} />`,
          )}
          <${Stages} stages=${data.stages} />
        </div>
        <${Card} title="Latest decisions"><${Loaded} resource=${decisions}>${({ items }) =>
          html`<${Decisions} items=${items} />`}<//><//>
      </div>
    </div>`}<//>`;
}

function figuresOf({ tasks, stages, dead_letters: dead, unroutable }) {
  const total = stages.find((one) => one.stage === "total");
  const lost = tasks.failed + tasks.expired;
  return [
    ["tasks a second, last minute", rate(tasks.per_s)],
    ["open", count(tasks.open), tasks.open ? `oldest ${seconds(tasks.oldest_open_s)}` : null],
    [
      "answered since the start",
      compact(tasks.answered),
      tasks.known > tasks.answered ? `of ${compact(tasks.known)} ever, with the fleet's own` : null,
    ],
    ["failed or expired", compact(lost), null, lost ? "warn" : null],
    ["time to a result, median", seconds(total?.p50 ?? null), total?.p95 ? `p95 ${seconds(total.p95)}` : null],
    ["dead letters", count(dead), unroutable ? `${count(unroutable)} unroutable` : null, dead ? "bad" : null],
  ];
}

function NoTasks() {
  return html`<div class="card"><${Empty} title="No task has come yet"
    commands=${['ratchet submit "sort: dbcae" --samples 8 --reference abcde', "ratchet demo"]}>
    Send one, and watch it here. The demo shows the whole loop: answers, scores, training, and an adapter that proves
    itself.
  <//></div>`;
}

function LiveScores({ agents }) {
  const recent = useRecent();
  const tried = agents.map((one) => one.candidate).filter(Boolean).join(" ");
  const drawn = useMemo(() => movingMeans(recent.filter((one) => one.score !== null), tried), [recent, tried]);
  if (!drawn) return html`<${Card} title="Scores"><${Empty} small>${NOT_SCORED}<//><//>`;
  return html`<${Card} title="Scores" caption="Of the answers users got: the moving mean of ${MEAN_OVER} tasks">
    <${Chart} sentence="Moving mean of the scores of the latest tasks; now ${score(drawn.last)}" x=${drawn.x}
      lines=${drawn.lines} y=${SCORE_AXIS} xLabel="task" yLabel="score" xFormat=${count} />
  <//>`;
}

/** Of all, and of the versions on trial, named in `names`. */
function movingMeans(scored, names) {
  if (scored.length < LEAST_POINTS) return null;
  const mean = (list) => list.reduce((sum, one) => sum + one.score, 0) / list.length;
  const upTo = (list) => (list.length < LEAST_POINTS ? null : mean(list.slice(-MEAN_OVER)));
  const all = scored.map((_, i) => upTo(scored.slice(Math.max(0, i - MEAN_OVER), i + 1)));
  const onTrial = new Set(names.split(" "));
  const tried = [];
  const candidate = scored.map((one) => {
    if (!onTrial.has(one.version)) return null;
    tried.push(one);
    return upTo(tried);
  });
  const lines = [{ label: "all", values: all, shade: "effect" }];
  if (tried.length >= LEAST_POINTS) lines.push({ label: "candidate's", values: candidate, shade: "fourth" });
  return { x: scored.map((one) => one.sequence), lines, last: all.at(-1) };
}

function LiveRate({ at }) {
  const recent = useRecent();
  const points = useMemo(() => settledRates(Math.floor(Date.parse(at) / 1000) - 1, RATE_OVER_S), [at, recent.length]);
  return html`<${Card} title="Throughput" caption="Tasks settled a second: the mean of ${RATE_OVER_S} s">
    ${points.length < 2 ? html`<${Empty} small>Measuring …<//>` : html`<${RateChart} points=${points} />`}
  <//>`;
}

function RateChart({ points }) {
  const drawn = useMemo(
    () => ({
      x: points.map((one) => one[0]),
      lines: [{ label: "tasks/s", values: points.map((one) => one[1]), shade: "effect" }],
    }),
    [points],
  );
  return html`<${Chart} sentence="Tasks settled a second; now ${rate(points.at(-1)[1])}" xTime x=${drawn.x}
    lines=${drawn.lines} y=${RATE_AXIS} xLabel="time" yLabel="tasks/s" xFormat=${clock} />`;
}

const clock = (second) => new Date(second * 1000).toTimeString().slice(0, 8);

function Agent({ agent, scores, quality }) {
  const served = quality.filter((one) => one.agent_id === agent.agent_id);
  const own = scores.filter((one) => one.agent_id === agent.agent_id);
  const states = html`${agent.distrusted && html`<${Pill} state="scorer drifted" />`}
    ${agent.frozen && html`<${Pill} state="frozen" />`}`;
  return html`<${Card} title=${`Agent ${agent.agent_id}`} actions=${states}>
    <div class="stack">
      <p>Primary <a href=${link("adapters", [agent.agent_id, agent.primary])}><b>${agent.primary}</b></a>${
        agent.candidate &&
        html`, candidate <a href=${link("adapters", [agent.agent_id, agent.candidate])}><b>${agent.candidate}</b></a>`
      }${agent.program && html` · by <a href=${link("programs")}>program <b>${agent.program}</b></a>`}${
        agent.program_candidate && html`, against which <b>${agent.program_candidate}</b> is tried`
      }${agent.shared_learning && " · learns from all tenants"} · <${Replicas} replicas=${agent.replicas} /></p>
      ${agent.unaudited && html`<p class="banner">${sentence(agent.unaudited)}</p>`}
      ${agent.experiment_id && html`<${Running} agent=${agent} />`}
      ${agent.watch && html`<${Watch} agent=${agent} />`}
      ${agent.cascade && html`<${Cascade} cascade=${agent.cascade} />`}
      <${Learning} learning=${agent.learning} />
      <${Versions} scores=${own} served=${served} primary=${agent.primary} />
      <${Samples} samples=${agent.samples} />
    </div>
  <//>`;
}

function Replicas({ replicas }) {
  const refused = replicas.flatMap((one) => Object.entries(one.refused));
  if (!replicas.length) return html`<span class="muted">no replica has reported lately</span>`;
  return html`<span class="muted">${count(replicas.length)} ${replicas.length === 1 ? "replica" : "replicas"}</span>${
    refused.length > 0 &&
    html`<span class="bad" title=${refused.map((one) => one.join(": ")).join("; ")}>, ${refused[0][0]} refused</span>`
  }`;
}

function Running({ agent }) {
  const { candidate, experiment_id: id, units, gain, harm, threshold } = agent;
  return html`<div>
    <a href=${link("experiments", [id])}>Experiment ${id}</a> <span class="muted">· ${plural(units, "unit")}</span>
    ${candidate && html`<${Evidence} label="better in score" value=${gain} of=${threshold} shade="good" />`}
    <${Evidence} label="harm" value=${harm} of=${threshold} shade="bad" />
  </div>`;
}

function Watch({ agent: { watch, since_base: since } }) {
  return html`<div>
    <a href=${link("experiments", [watch.experiment_id])}>Watched</a> beside ${watch.control}
    <span class="muted"> · ${plural(watch.units, "unit")}</span>
    <${Evidence} label="harm of ${watch.treatment}" value=${watch.harm} of=${watch.threshold} shade="bad" />
    ${
      since &&
      html`<p class="muted">Since v1.0.0: score ${signed(since.score)}, ${since.length.toFixed(2)} times the length,
      ${` ${since.latency.toFixed(2)}`} times the latency.</p>`
    }
  </div>`;
}

/** The share that the small model answers in place of a big one, what that saves, and the proof for more. */
function Cascade({ cascade: { big, share, next_share: next, frozen, share_answered: answered, saved, evidence: of } }) {
  return html`<div>
    May answer <b>${percent(share)}</b> in place of ${big}${frozen && html` <${Pill} state="frozen" />`}
    <span class="muted"> · ${answered === null ? "none" : percent(answered)} answered so far${
      saved !== null && html`, ${compact(saved)} saved against ${big} alone`
    } · ${plural(of.units, "unit")}</span>
    ${
      next !== null &&
      html`<${Evidence} label="for ${percent(next)}" value=${of.not_worse} of=${of.raise_at} shade="good" />`
    }
    <${Evidence} label="harm of the cascade" value=${of.worse} of=${of.fall_at} shade="bad" />
  </div>`;
}

function Evidence({ label, value, of, shade }) {
  const words = `e ${eValue(value)} of ${count(of)}`;
  return html`<${Meter} label=${label} value=${evidence(value, of)} words=${words} shade=${shade} />`;
}

/** How far on a logarithmic way from 1 to the e-value that decides. */
const evidence = (value, of) => (value ? Math.log(Math.max(1, value)) / Math.log(of) : 0);

function Learning({ learning }) {
  if (learning.pending)
    return html`<p><${Pill} state="running" /> training <a
      href=${link("training", [learning.pending])}>${learning.pending}</a></p>`;
  if (!learning.wanted) return null;
  return html`<${Meter} label="groups for the next training" value=${learning.groups / learning.wanted}
    words=${`${count(learning.groups)} of ${count(learning.wanted)}`} />`;
}

function Samples({ samples: { now, usual, saved_samples: saved, saved_tokens: tokens } }) {
  if (now === usual && !saved) return null;
  return html`<p>${count(now)} of ${count(usual)} answers a task
    <span class="muted"> · ${compact(saved)} answers, ${compact(tokens)} tokens saved</span></p>`;
}

/** A row for each version; what users are served is known only where it was measured. */
function Versions({ scores, served, primary }) {
  const named = new Map([...scores, ...served].map((one) => [one.adapter_version, { version: one.adapter_version }]));
  for (const one of scores) Object.assign(named.get(one.adapter_version), { scored: one });
  for (const one of served) Object.assign(named.get(one.adapter_version), { served: one });
  if (!named.size) return null;
  return html`<${Table} still label="Scores by version since the orchestrator's start, with 95 % intervals"
    rows=${[...named.values()]} keyOf=${(one) => one.version} columns=${[
      {
        title: "version",
        cell: (one) => html`${one.version}${one.version === primary && html` <span class="muted">primary</span>`}`,
      },
      { title: "tasks", class: "n wide", cell: (one) => (one.served ? count(one.served.served.tasks) : NONE) },
      { title: "samples", class: "n wide", cell: (one) => (one.scored ? count(one.scored.samples) : NONE) },
      { title: "served", class: "n", cell: (one) => interval(one.served?.served) },
      {
        title: "single answer",
        class: "n",
        cell: (one) => (one.served ? interval(one.served.single) : score(one.scored.mean)),
      },
      { title: "distinct answers", class: "n wide", cell: (one) => interval(one.served?.distinct) },
    ]} />`;
}

function interval(one) {
  if (!one) return NONE;
  return one.high === null ? score(one.mean) : `${score(one.mean)} ± ${score(one.high - one.mean)}`;
}

function Stages({ stages }) {
  const known = stages.filter((one) => one.count > 0);
  return html`<${Card} title="Where the time goes" caption="Over the last minute">
    ${
      known.length === 0
        ? html`<${Empty} small>No task in the last minute.<//>`
        : html`<${Table} still label="Seconds by stage" rows=${known} keyOf=${(one) => one.stage} columns=${[
            { title: "a task", cell: (one) => STAGES[one.stage] ?? words(one.stage) },
            { title: "tasks", class: "n wide", cell: (one) => count(one.count) },
            { title: "median", class: "n", cell: (one) => seconds(one.p50) },
            { title: "p95", class: "n", cell: (one) => (one.p95 === null ? NONE : seconds(one.p95)) },
          ]} />`
    }
  <//>`;
}
