// One experiment, live: the effect with its anytime-valid band, the evidence, both arms, and what is still missing.
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { Arms, Figures, Picture, Plan, Verdict } from "../parts/experiment.js";
import { Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { Loaded } from "../parts/states.js";

export function Experiment({ parts }) {
  const [id] = parts;
  const one = useResource(apiPath(["experiments", id]), { kinds: ["experiment", "decision"] });
  const title = one.data ? `${one.data.treatment} against ${one.data.control}` : "Experiment";
  const about = html`${one.data && html`<${Pill} state=${one.data.outcome} />`} ${one.data?.kind} <code>${id}</code>`;
  return html`
    <${Heading} title=${title} about=${about} back=${[link("experiments"), "Experiments"]} />
    <${Loaded} resource=${one}>${(data) => html`<div class="stack">
      ${data.decision && html`<${Figures} experiment=${data} />`}
      <${Verdict} experiment=${data} />
      <${Picture} experiment=${data} />
      ${data.decision && html`<${Arms} experiment=${data} />`}
      <${Plan} experiment=${data} />
    </div>`}<//>`;
}
