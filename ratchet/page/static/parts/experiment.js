// One experiment drawn: the effect with its anytime-valid band, the evidence, both arms, what is still missing. In the
// page and in `ratchet report` alike; `experiment` is as GET /v1/experiments/{id} gives it.
import {
  count,
  eValue,
  moment,
  NONE,
  percent,
  plural,
  score,
  seconds,
  sentence,
  signed,
  words,
} from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { Chart } from "./chart.js";
import { Card, Facts, Tiles } from "./frame.js";
import { Empty } from "./states.js";
import { Table } from "./table.js";

const LEAST_SPAN = 0.05;
const SAME_SHARE = 1e-6;
const LOWEST_E = 0.01;
const HIGHEST_E = 1e9;
const HEIGHT = 230;
const OLD_ALPHA = 0.05;
const needs = (threshold) =>
  `${count(threshold)} is what at most ${percent(1 / threshold)} of false verdicts needs, however often one looks.`;
const NOT_THE_PROOF = "Plain means of finished units; while the share rises, the effect is the proof, not they.";
const EVIDENCE_AXIS = {
  log: true,
  format: eValue,
  range: (low, high) => [
    Math.max(LOWEST_E, 10 ** Math.floor(Math.log10(low))),
    Math.min(HIGHEST_E, 10 ** Math.ceil(Math.log10(Math.max(high, 100)) + 0.1)),
  ],
};

const WEEK_S = 7 * 86_400;
const WEEKLY =
  "It is judged by the traffic of the days that it runs. Where weekends bring other tasks than working days, set " +
  "RATCHET_EXPERIMENT_MIN_AGE_S to a week (604800).";

const VERDICTS = {
  continue: "Neither proved nor refuted yet: the experiment goes on.",
  promote: "The candidate is proved better: it becomes the primary.",
  roll_back: "The candidate is proved harmful: the other version takes all traffic.",
  abort: "The measurement itself is broken, so it proves nothing: the experiment ends without a winner.",
  inconclusive: "The budget is spent without proof: the primary stays.",
  stable: "It was watched to the end without proof of harm: the primary stays.",
};

export function Picture({ experiment }) {
  const { history, trouble } = experiment;
  if (trouble) return html`<div class="card"><p class="trouble">${trouble}</p></div>`;
  if (!history.length) return html`<div class="card"><${NoUnit} /></div>`;
  return html`<div class="columns">
    <${Effect} experiment=${experiment} />
    <${Evidence} experiment=${experiment} />
  </div>`;
}

function NoUnit() {
  const command = 'ratchet submit "sort: dbcae" --samples 8 --reference abcde';
  return html`<${Empty} title="No unit has finished yet" commands=${[command]}>
    The picture begins with the first task that was assigned to either version and has its scores.
  <//>`;
}

export function Figures({ experiment }) {
  const { evidence, band } = experiment.decision;
  const canary = experiment.kind === "canary";
  return html`<${Tiles} figures=${[
    ["effect on the score", signed(band.effect), `${signed(band.low)} to ${signed(band.high)}`],
    [
      "units finished",
      count(evidence.units),
      experiment.plan ? `of at most ${count(experiment.plan.max_units)}` : null,
    ],
    ["traffic to it", percent(evidence.share)],
    ...(canary
      ? [["e-value: better", eValue(evidence.gain_score), `promotes at ${count(experiment.plan?.promote_at ?? 20)}`]]
      : []),
    ...(canary && evidence.kept_length != null
      ? [["e-value: within limits", eValue(kept(evidence)), `least of length, latency, refusals`]]
      : []),
    ...(evidence.gain_audit != null
      ? [["e-value: no loss by the auditor", eValue(evidence.gain_audit), `${signed(evidence.audit_effect)} by it`]]
      : []),
    ...(evidence.gain_served != null
      ? [["e-value: served no worse", eValue(evidence.gain_served), `${signed(evidence.served_effect)} in it`]]
      : []),
    ["e-value: harm", eValue(evidence.harm), `rolls back at ${count(experiment.plan?.roll_back_at ?? 20)}`],
  ]} />`;
}

const kept = (evidence) => Math.min(evidence.kept_length, evidence.kept_latency, evidence.kept_refused);

export function Verdict({ experiment }) {
  const { decision, ended, kind, plan } = experiment;
  return html`<${Card} title=${ended ? "How it ended" : "How it stands"}>
    ${decision && html`<p><b>${VERDICTS[decision.verdict] ?? ""}</b> ${sentence(decision.reason)}</p>`}
    ${ended && html`<p class="muted">${ending(experiment)}</p>`}
    ${!decision && !ended && html`<p class="muted">Nothing has finished since ${moment(experiment.began_at)}.</p>`}
    ${kind === "canary" && plan?.min_age_s < WEEK_S && html`<p class="muted">${WEEKLY}</p>`}
  <//>`;
}

function ending({ outcome, ended, decision }) {
  const why = decision?.reason === ended.reason ? "" : `: ${ended.reason}`;
  const { at, by, decision: number } = ended;
  return sentence(`${words(outcome)} ${moment(at)} by ${by}, decision ${number}${why}`);
}

function Effect({ experiment }) {
  const { history, treatment, control } = experiment;
  const { units, band } = history.at(-1);
  const level = percent(1 - (experiment.plan?.alpha ?? OLD_ALPHA));
  const drawn = useMemo(() => {
    const of = (end) => history.map((one) => one.band[end]);
    return {
      band: { upper: 0, lower: 1, label: `${level} band` },
      x: history.map((one) => one.units),
      marks: rises(history),
      lines: [
        { label: "upper end", values: of("high"), shade: "none", key: false },
        { label: "lower end", values: of("low"), shade: "none", key: false },
        { label: "effect", values: of("effect"), shade: "effect" },
        { label: "no difference", values: history.map(() => 0), dashed: true },
      ],
    };
  }, [history]);
  const always = `Each end of the band holds at all times with ${level}: look as often as you like.`;
  const caption = `Score of ${treatment} minus score of ${control}, over finished units. ${always}`;
  const between = `between ${signed(band.low)} and ${signed(band.high)}`;
  return html`<${Card} title="Effect" caption=${caption}>
    <${Chart} x=${drawn.x} lines=${drawn.lines} band=${drawn.band} y=${effectAxis(band)} height=${HEIGHT}
      xLabel="finished units" yLabel="effect" xFormat=${count} marks=${drawn.marks}
      sentence="Effect ${signed(band.effect)}, ${between} after ${plural(units, "unit")}" />
  <//>`;
}

/** Where the share of traffic rose, and to what: [units, share][]. */
export function rises(history) {
  let highest = history[0].share;
  const rose = history.filter(({ share }) => {
    const higher = share > highest + SAME_SHARE;
    if (higher) highest = share;
    return higher;
  });
  return rose.map(({ units, share }) => [units, percent(share)]);
}

/** The wide early bands are cut off, so that the end can be read. */
function effectAxis({ low, high, effect }) {
  const span = Math.min(1, Math.max(LEAST_SPAN, 1.5 * Math.max(Math.abs(low), Math.abs(high), Math.abs(effect))));
  const format = (value) => (value === 0 ? "0" : signed(value).replace(/0$/, ""));
  return { format, range: () => [-span, span] };
}

function Evidence({ experiment }) {
  const { history, plan, kind } = experiment;
  const threshold = (kind === "canary" ? plan?.promote_at : plan?.roll_back_at) ?? 20;
  const { units, gain, harm } = history.at(-1);
  const drawn = useMemo(() => {
    const of = (side) => history.map((one) => Math.min(Math.max(one[side], LOWEST_E), HIGHEST_E));
    const better = { label: "better in score", values: of("gain"), shade: "gain" };
    const worse = { label: "harm", values: of("harm"), shade: "harm" };
    const needed = { label: `verdict at ${threshold}`, values: history.map(() => threshold), dashed: true };
    return {
      x: history.map((one) => one.units),
      lines: kind === "canary" ? [better, worse, needed] : [worse, needed],
    };
  }, [history, threshold]);
  const found = `better ${eValue(gain)}, harm ${eValue(harm)}`;
  const said = `After ${plural(units, "unit")}: ${found}; a verdict needs ${threshold}`;
  return html`<${Card} title="Evidence" caption=${`E-values on a logarithmic scale. ${needs(threshold)}`}>
    <${Chart} x=${drawn.x} lines=${drawn.lines} y=${EVIDENCE_AXIS} height=${HEIGHT}
      xLabel="finished units" yLabel="e-value" xFormat=${count}
      sentence=${said} />
  <//>`;
}

export function Arms({ experiment }) {
  const { candidate, primary } = experiment.decision.evidence;
  const rows = [
    { version: experiment.treatment, role: "tried", ...candidate },
    { version: experiment.control, role: "against", ...primary },
  ];
  return html`<${Card} title="Both arms"
    caption=${NOT_THE_PROOF}>
    <${Table} still label="Both arms" rows=${rows} keyOf=${(one) => one.role} columns=${[
      {
        title: experiment.of === "programs" ? "program" : "version",
        cell: (one) => html`${one.version} <span class="muted">${one.role}</span>`,
      },
      { title: "units", class: "n", cell: (one) => count(one.units) },
      { title: "score", class: "n", cell: (one) => score(one.score) },
      { title: "success", class: "n", cell: (one) => (one.success === null ? NONE : percent(one.success)) },
      { title: "tokens", class: "n wide", cell: (one) => (one.length === null ? NONE : one.length.toFixed(1)) },
      { title: "latency", class: "n", cell: (one) => seconds(one.latency_s) },
      ...["calls", "turns"].filter((name) => rows.some((one) => one[name] != null))
        .map((name) => ({ title: name, class: "n wide", cell: (one) => one[name]?.toFixed(1) ?? NONE })),
      ...(rows.some((one) => one.refused != null)
        ? [{ title: "refused", class: "n wide", cell: (one) => (one.refused == null ? NONE : percent(one.refused)) }]
        : []),
    ]} />
  <//>`;
}

const times = (factor) => `×${factor.toFixed(2)}`;

export function Plan({ experiment }) {
  const { plan, running } = experiment;
  const limits = plan?.limits;
  const canary = experiment.kind === "canary";
  return html`<${Card} title="Plan" caption="Fixed before the first unit">
    <${Facts} pairs=${[
      ["agent", experiment.agent_id],
      ["began", `${moment(experiment.began_at)}, decision ${experiment.began_by_decision}`],
      ["first task", count(running.first_sequence)],
      ["traffic", plan && plan.ramp.map((step) => percent(step.share)).join(" → ")],
      ["least units of each arm", plan && count(plan.min_units_per_arm)],
      ["least age", plan && canary ? seconds(plan.min_age_s) : null],
      ["loss of success to rule out", plan && experiment.kind === "canary" ? percent(plan.success_margin) : null],
      ["length at most", limits && canary ? times(limits.length) : null],
      ["latency at most", limits && canary ? times(limits.latency) : null],
      ["growth of refusals to rule out", limits && canary ? percent(limits.refused) : null],
      ["candidate number", plan && canary ? count(plan.nth) : null],
      ["aborts on a wrong ratio at", plan && count(plan.abort_at)],
    ]} />
  <//>`;
}
