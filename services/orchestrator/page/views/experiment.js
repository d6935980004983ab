// One experiment, live: the effect with its anytime-valid band, the evidence, both arms, and what is still missing.
import { count, eValue, moment, NONE, percent, score, seconds, sentence, signed, words } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { Chart } from "../parts/chart.js";
import { Card, Facts, Heading, Tiles } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";

const LEAST_SPAN = 0.05;
const LOWEST_E = 0.01;
const HIGHEST_E = 1e9;

const VERDICTS = {
  continue: "Neither proved nor refuted yet: the experiment goes on.",
  promote: "The candidate is proved better: it becomes the primary.",
  roll_back: "The candidate is proved harmful: the other version takes all traffic.",
  abort: "The measurement itself is broken, so it proves nothing: the experiment ends without a winner.",
  inconclusive: "The budget is spent without proof: the primary stays.",
  stable: "The probation is over without proof of harm: the new primary stays.",
};

export function Experiment({ parts }) {
  const [id] = parts;
  const one = useResource(apiPath(["experiments", id]), { kinds: ["experiment", "decision"] });
  return html`
    <${Heading} title=${one.data ? `${one.data.treatment} against ${one.data.control}` : "Experiment"} back=${[link("experiments"), "Experiments"]}
      about=${html`${one.data && html`<${Pill} state=${one.data.outcome} />`} ${one.data?.kind} <code>${id}</code>`} />
    <${Loaded} resource=${one}>${(data) => html`<div class="stack">
      ${data.decision && html`<${Figures} experiment=${data} />`}
      <${Verdict} experiment=${data} />
      ${data.trouble && html`<div class="card"><p class="trouble">${data.trouble}</p></div>`}
      ${data.history.length > 0 ? html`<div class="columns"><${Effect} experiment=${data} /><${Evidence} experiment=${data} /></div>`
        : !data.trouble && html`<div class="card"><${Empty} title="No unit has finished yet" commands=${['ratchet submit "sort: dbca" --reference abcd']}>The picture begins with the first task that was assigned to either version and has its scores.<//></div>`}
      ${data.decision && html`<${Arms} experiment=${data} />`}
      <${Plan} experiment=${data} />
    </div>`}<//>`;
}

function Figures({ experiment }) {
  const { evidence, band } = experiment.decision;
  const canary = experiment.kind === "canary";
  return html`<${Tiles} figures=${[
    ["effect on the score", signed(band.effect), `${signed(band.low)} to ${signed(band.high)}`],
    ["units finished", count(evidence.units), experiment.plan ? `of at most ${count(experiment.plan.max_units)}` : null],
    ["traffic to it", percent(evidence.share)],
    ...(canary ? [["e-value: better", eValue(evidence.gain_score), `promotes at ${count(experiment.plan?.promote_at ?? 20)}`]] : []),
    ["e-value: harm", eValue(evidence.harm), `rolls back at ${count(experiment.plan?.roll_back_at ?? 20)}`],
  ]} />`;
}

function Verdict({ experiment }) {
  const { decision, ended } = experiment;
  return html`<${Card} title=${ended ? "How it ended" : "How it stands"}>
    ${decision && html`<p><b>${VERDICTS[decision.verdict] ?? words(decision.verdict)}</b> ${sentence(decision.reason)}</p>`}
    ${ended && html`<p class="muted">${words(experiment.outcome)} ${moment(ended.at)} by ${ended.by}, decision ${ended.decision}${decision?.reason === ended.reason ? "" : `: ${ended.reason}`}</p>`}
    ${!decision && !ended && html`<p class="muted">It has begun ${moment(experiment.began_at)}; nothing has finished yet.</p>`}
  <//>`;
}

function Effect({ experiment }) {
  const { history, treatment, control } = experiment;
  const last = history.at(-1).band;
  const span = Math.min(1, Math.max(LEAST_SPAN, 1.5 * Math.max(Math.abs(last.low), Math.abs(last.high), Math.abs(last.effect))));
  const drawn = useMemo(() => ({
    x: history.map((one) => one.units),
    lines: [
      { label: "upper end", values: history.map((one) => one.band.high), shade: "none", key: false },
      { label: "lower end", values: history.map((one) => one.band.low), shade: "none", key: false },
      { label: "effect", values: history.map((one) => one.band.effect), shade: "effect" },
      { label: "no difference", values: history.map(() => 0), dashed: true },
    ],
  }), [history]);
  return html`<${Card} title="Effect" caption="Score of ${treatment} minus score of ${control}, over finished units. Each end of the band holds at all times with 95 %: look as often as you like.">
    <${Chart} sentence="Effect ${signed(last.effect)}, between ${signed(last.low)} and ${signed(last.high)} after ${history.at(-1).units} units"
      x=${drawn.x} lines=${drawn.lines} band=${{ upper: 0, lower: 1, label: "95 % band" }} height=${230}
      y=${{ format: (value) => (value === 0 ? "0" : signed(value).replace(/0$/, "")), range: () => [-span, span] }} xLabel="finished units" yLabel="effect" xFormat=${count} />
  <//>`;
}

function Evidence({ experiment }) {
  const { history, plan, kind } = experiment;
  const threshold = (kind === "canary" ? plan?.promote_at : plan?.roll_back_at) ?? 20;
  const drawn = useMemo(() => {
    const kept = (value) => Math.min(Math.max(value, LOWEST_E), HIGHEST_E);
    const gain = { label: "better in score", values: history.map((one) => kept(one.gain)), shade: "gain" };
    const harm = { label: "harm", values: history.map((one) => kept(one.harm)), shade: "harm" };
    return {
      x: history.map((one) => one.units),
      lines: [...(kind === "canary" ? [gain] : []), harm, { label: `verdict at ${threshold}`, values: history.map(() => threshold), dashed: true }],
    };
  }, [history, threshold]);
  const last = history.at(-1);
  const range = (low, high) => [Math.max(LOWEST_E, 10 ** Math.floor(Math.log10(low))), 10 ** Math.ceil(Math.log10(Math.max(high, 100)) + 0.1)];
  return html`<${Card} title="Evidence" caption="E-values on a logarithmic scale: 20 is what one false verdict in twenty needs, however often one looks.">
    <${Chart} sentence="E-values after ${last.units} units: better ${eValue(last.gain)}, harm ${eValue(last.harm)}; a verdict needs ${threshold}"
      x=${drawn.x} lines=${drawn.lines} height=${230} y=${{ log: true, format: eValue, range }} xLabel="finished units" yLabel="e-value" xFormat=${count} />
  <//>`;
}

function Arms({ experiment }) {
  const { candidate, primary } = experiment.decision.evidence;
  const rows = [{ version: experiment.treatment, role: "tried", ...candidate }, { version: experiment.control, role: "against", ...primary }];
  return html`<${Card} title="Both arms" caption="Plain means of finished units; under a share that rises they may differ from the effect, which is the proof.">
    <${Table} still label="Both arms" rows=${rows} keyOf=${(one) => one.role} columns=${[
      { title: "version", cell: (one) => html`${one.version} <span class="muted">${one.role}</span>` },
      { title: "units", class: "n", cell: (one) => count(one.units) },
      { title: "score", class: "n", cell: (one) => score(one.score) },
      { title: "success", class: "n", cell: (one) => (one.success === null ? NONE : percent(one.success)) },
      { title: "tokens", class: "n wide", cell: (one) => (one.length === null ? NONE : one.length.toFixed(1)) },
      { title: "latency", class: "n", cell: (one) => seconds(one.latency_s) },
    ]} />
  <//>`;
}

function Plan({ experiment }) {
  const { plan, running } = experiment;
  return html`<${Card} title="Plan" caption="Fixed before the first unit">
    <${Facts} pairs=${[
      ["agent", experiment.agent_id],
      ["began", `${moment(experiment.began_at)}, decision ${experiment.began_by_decision}`],
      ["first task", count(running.first_sequence)],
      ["traffic", plan && plan.ramp.map((step) => percent(step.share)).join(" → ")],
      ["least units of each arm", plan && count(plan.min_units_per_arm)],
      ["loss of success to rule out", plan && experiment.kind === "canary" ? percent(plan.success_margin) : null],
      ["aborts on a wrong ratio at", plan && count(plan.abort_at)],
    ]} />
  <//>`;
}
