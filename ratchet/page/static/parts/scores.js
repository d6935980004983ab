// Scores from the whole log, as `ratchet report` reads it: each version's mean with its confidence interval, and the
// mean over time with who answered.
import { count, moment, NONE, score } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { Chart } from "./chart.js";
import { Card } from "./frame.js";
import { Table } from "./table.js";

const TRUNK = new Set(["stable", "superseded"]);
const COLOURS = 8;
const HEIGHT = 230;

export function ByVersion({ agent, scores: { live, held_out: golden, quality = {} }, names }) {
  const states = new Map(agent.versions.map((one) => [one.version, one.state]));
  const drawn = useMemo(() => {
    const trunk = names.map((one) => (TRUNK.has(states.get(one)) ? (live[one]?.mean ?? null) : null));
    const tasks = { values: names.map((one) => live[one]?.mean ?? null), dots: "full", shade: "effect" };
    const set = { values: names.map((one) => golden[one]?.mean ?? null), dots: "hollow", shade: "fourth" };
    const lines = [
      { label: "were primary", values: trunk, shade: "muted", width: 1.5 },
      { label: "users' tasks", errors: names.map((one) => live[one]?.half_width ?? null), ...tasks },
      { label: "golden set", errors: names.map((one) => golden[one]?.half_width ?? null), ...set },
    ];
    return { x: names.map((_, i) => i), lines: lines.filter((one) => one.values.some((value) => value !== null)) };
  }, [names.join()]);
  const ends = names.flatMap((one) => [live[one], golden[one]].filter(Boolean).flatMap(interval));
  const said = names.filter((one) => live[one]).map((one) => `${one} ${score(live[one].mean)}`);
  const caption = "Users' tasks: plain mean, 95 % interval. The proof is in the experiments.";
  return html`<${Card} title="By version" caption=${caption}>
    <${Chart} x=${drawn.x} lines=${drawn.lines} names=${names} height=${HEIGHT} xLabel="version" yLabel="mean score"
      y=${{ format: score, range: () => padded(ends) }} sentence="Mean score by version: ${said.join(", ")}" />
    <${Table} still label="Scores by version" rows=${names} keyOf=${String} columns=${[
      { title: "version", cell: (one) => one },
      { title: "tasks", class: "n", cell: (one) => count(live[one]?.tasks) },
      { title: "served", class: "n", cell: (one) => margin(quality[one]?.served) },
      { title: "single answer", class: "n", cell: (one) => margin(live[one]) },
      { title: "distinct answers", class: "n wide", cell: (one) => margin(quality[one]?.distinct) },
      { title: "golden set", class: "n", cell: (one) => margin(golden[one]) },
    ]} />
  <//>`;
}

function margin(mean) {
  if (!mean) return NONE;
  return mean.half_width === null ? score(mean.mean) : `${score(mean.mean)} ± ${score(mean.half_width)}`;
}

const interval = ({ mean, half_width: half }) => [mean - (half ?? 0), mean + (half ?? 0)];

/** From a bit below the least to a bit above the largest, at least 0.1 high, within 0 and 1. */
export function padded(values) {
  if (!values.length) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(0.1 * (high - low), (0.1 - (high - low)) / 2, 0.01);
  return [Math.max(0, low - room), Math.min(1, high + room)];
}

/** The mean over the tasks in the order they ended; below it, which version answered. */
export function OverTime({ agent, periods }) {
  const versions = agent.versions.map((one) => one.version);
  const shown = versions.filter((one) => periods.some(({ shares }) => shares[one]));
  const drawn = useMemo(() => course(periods), [periods]);
  const lines = [{ label: "mean score", values: drawn.means, shade: "effect" }];
  return html`<${Card} title="Over time" caption="Mean score by task; below: which version answered">
    <${Chart} x=${drawn.x} lines=${lines} height=${HEIGHT} xLabel="tasks" yLabel="mean score" xFormat=${count}
      y=${{ format: score, range: () => padded(drawn.means) }}
      sentence="Mean score over ${count(drawn.tasks)} tasks, from ${score(drawn.means[0])} to ${score(
        drawn.means.at(-1),
      )}" />
    <div class="shares" role="img" aria-label="Which version answered">${periods.map((one) =>
      html`<${Shares} period=${one} versions=${versions} />`)}</div>
    <ul class="key">${shown.map((one) =>
      html`<li><span class="swatch wide ${shadeOf(one, versions)}" />${one}</li>`)}</ul>
  <//>`;
}

/** At the end of each period its mean. The last one counts once it is half full: before, it is mostly noise. */
export function course(periods) {
  const full = Math.max(...periods.map((one) => one.tasks));
  const points = [];
  let tasks = 0;
  for (const period of periods) {
    tasks += period.tasks;
    if (period.mean !== null && 2 * period.tasks >= full) points.push([tasks - period.tasks / 2, period.mean]);
  }
  return { tasks, x: points.map(([at]) => at), means: points.map(([, mean]) => mean) };
}

function Shares({ period: { tasks, began, shares }, versions }) {
  const named = Object.entries(shares).sort(([a], [b]) => versions.indexOf(a) - versions.indexOf(b));
  return html`<div style=${{ flexGrow: tasks }}>${named.map(([version, part]) =>
    html`<i class=${shadeOf(version, versions)} style=${{ flexGrow: part }}
      title="${version}: ${part} of ${tasks} tasks, from ${moment(began, new Date(0))} on" />`)}</div>`;
}

/** The base model's colour is grey, the rest go round. */
function shadeOf(version, versions) {
  const index = versions.indexOf(version);
  return index < 1 ? "c0" : `c${1 + ((index - 1) % COLOURS)}`;
}
