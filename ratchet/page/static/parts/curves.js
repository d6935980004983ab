// A training run's curves, and what it learned from: of one that goes on as of one that has ended.
import { count, words } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { Chart } from "./chart.js";
import { Card } from "./frame.js";
import { Empty } from "./states.js";

const CURVES = {
  held_out_loss: ["Held-out loss", "of texts that are not taught, nats a token", "effect"],
  held_out_preference: ["Held-out preference", "for better answers of groups that are not taught", "effect"],
  demonstration_loss: ["Demonstrations", "loss of those that teach, nats a token", "effect"],
  reward: ["Reward", "mean score of the batch's answers", "effect"],
  loss: ["Loss", "of the policy gradient; its level says little", "effect"],
  entropy: ["Entropy", "nats a token; near zero it has collapsed", "effect"],
  kl: ["KL divergence", "from the parent, nats a token", "effect"],
  clip_fraction: ["Clipped", "share of tokens whose ratio was clipped", "fourth"],
  effective_share: ["Effective sample size", "share of the batch's tokens, by importance weights", "fourth"],
  divergence: ["Divergence", "from the policy that wrote the log, nats a token", "fourth"],
  good_log_ratio: ["Good answers", "how much likelier they have become, nats a token", "effect"],
};

/** `nothing`: what is said where there are none. */
export function Curves({ curves, nothing }) {
  const drawn = Object.entries(CURVES).filter(([name]) => curves[name]?.length);
  if (!drawn.length) return nothing && html`<div class="card"><${Empty} small>${nothing}<//></div>`;
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

/** Groups used, and what was left out by its reason, as pairs for Facts. */
export const countsOf = (counts) =>
  Object.entries(counts ?? {}).map(([name, value]) => [words(name).replace(".", ": "), count(value)]);
