// Adapters: each agent's lineage, the chosen version with its card and decisions, and what an operator may do with it.
import { count, moment, score, signed, words } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, go, link } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { AdapterMove } from "../parts/adapter_move.js";
import { Decisions } from "../parts/decisions.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Lineage } from "../parts/lineage.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";

const CHANGES = ["adapter", "decision"];
/** Versions of each agent that are read at every change; older ones when they are asked for. */
const LISTED = 200;
/** States an operator may promote from; whether it is fit for traffic the server looks up then. */
const PROMOTABLE = new Set(["validated", "canary", "superseded", "rolled_back", "inconclusive", "aborted"]);

export function Adapters({ parts, status }) {
  const agents = useResource(apiPath(["adapters"], { limit: LISTED }), { kinds: CHANGES });
  const verification = useResource("v1/decisions/verification", { kinds: ["decision"] });
  const [asked, setAsked] = useState(null);
  const means = useMemo(() => meansOf(status.data), [status.data]);
  const shown = (agent) => {
    const open = !parts[0] || parts[0] === agent.agent_id;
    return { agent, open, chosen: (open && parts[1]) || agent.primary, means: means.get(agent.agent_id) ?? new Map() };
  };
  const done = () => {
    agents.reload();
    if (asked.version) go("adapters", [asked.agent.agent_id, asked.version]);
  };
  return html`
    <${Heading} title="Adapters" about="Each grew from the one it is joined to, the first from the base model" />
    <${Loaded} resource=${agents}>${({ items }) => html`<div class="stack">
      ${items.map((agent) => html`<${Agent} key=${agent.agent_id} ...${shown(agent)} ask=${setAsked} />`)}
      <${Verified} found=${verification.data} />
    </div>`}<//>
    ${asked && html`<${AdapterMove} ...${asked} done=${done} onClose=${() => setAsked(null)} />`}`;
}

/** What `ratchet adapters verify` says. */
function Verified({ found }) {
  if (!found) return null;
  if (!found.ok) {
    return html`<div class="banner bad" role="alert"><div><b>Not as it was decided</b>
      ${found.faults.map((fault) => html`<div>${fault}</div>`)}</div></div>`;
  }
  const signed = found.key
    ? `${count(found.signed)} of them signed, now by key ${found.key.slice(0, 8)}…`
    : "none of them signed yet";
  return html`<p class="caption">All as it was decided: ${count(found.decisions)} decisions, ${signed}.</p>`;
}

function meansOf(status) {
  const means = new Map();
  for (const one of status?.scores ?? []) {
    if (!means.has(one.agent_id)) means.set(one.agent_id, new Map());
    means.get(one.agent_id).set(one.adapter_version, one.mean);
  }
  return means;
}

function Agent({ agent, means, ask, chosen, open }) {
  const operator = may("change", useStore(session).role);
  const freezing = operator && html`<${Freezing} agent=${agent} ask=${ask} />`;
  return html`<${Card} title="Agent ${agent.agent_id}" actions=${freezing}>
    <p class="caption">${standing(agent)}</p>
    ${agent.frozen && html`<${Frozen} by=${agent.frozen} />`}
    ${agent.distrusted && html`<${Distrusted} agent=${agent} operator=${operator} ask=${ask} />`}
    <${Lineage} agent=${agent} chosen=${open ? chosen : null} means=${means} Whole=${Whole} />
    ${agent.versions.length === 1 && html`<${OnlyTheBase} />`}
    ${open && html`<${Chosen} agent=${agent} version=${chosen} operator=${operator} ask=${ask} means=${means} />`}
  <//>`;
}

function Frozen({ by: { who, since, reason } }) {
  return html`<p class="banner"><span><b>Frozen</b> since ${moment(since)} by ${who}: ${reason}</span></p>`;
}

function Distrusted({ agent, operator, ask }) {
  const { since, reason } = agent.distrusted;
  return html`<div class="banner bad" role="status"><span><b>The scorer has drifted</b>, training and experiments wait
    since ${moment(since)}: ${reason}. Mend the scorer, and they go on by themselves; or, if it was changed on purpose,
    take its scores as the new measure.</span>
    ${operator && html`<button onClick=${() => ask({ kind: "reanchor", agent })}>Take as the measure</button>`}
  </div>`;
}

function OnlyTheBase() {
  return html`<${Empty} title="Only the base model so far" commands=${["ratchet train", "ratchet demo"]}>
    A training makes the first adapter from the log of scored answers. It begins by itself when there is enough to
    learn from.
  <//>`;
}

function Chosen({ agent, version, operator, ask, means }) {
  const one = agent.versions.find((entry) => entry.version === version);
  const shown = { agent, operator, ask, mean: means.get(version) };
  if (one) return html`<${Version} key=${version} one=${one} ...${shown} />`;
  if (agent.older) return html`<${Older} key=${version} version=${version} shown=${shown} />`;
  return html`<${Nothing} agent=${agent} version=${version} />`;
}

/** All of an agent's versions, read once. */
function Whole({ agent, children }) {
  return html`<${Loaded} resource=${useResource(apiPath(["adapters", agent]))}>${children}<//>`;
}

/** One that is not among those that were read. */
function Older({ version, shown }) {
  const { data, problem, waiting } = useResource(apiPath(["adapters", shown.agent.agent_id, version]));
  if (data) return html`<${Version} one=${data} ...${shown} />`;
  return !waiting && problem && html`<${Nothing} agent=${shown.agent} version=${version} />`;
}

function Nothing({ agent, version }) {
  return html`<${Empty} small title="${agent.agent_id} has no ${version}">Choose one above.<//>`;
}

function standing(agent) {
  const parts = [`primary ${agent.primary}`];
  if (agent.candidate) parts.push(`candidate ${agent.candidate}`);
  if (agent.previous) parts.push(`a roll-back restores ${agent.previous}`);
  if (agent.cool_down_until && Date.parse(agent.cool_down_until) > Date.now())
    parts.push(`next experiment from ${moment(agent.cool_down_until)}`);
  return parts.join(" · ");
}

function Freezing({ agent, ask }) {
  return agent.frozen
    ? html`<button onClick=${() => ask({ kind: "unfreeze", agent })}>Unfreeze</button>`
    : html`<button onClick=${() => ask({ kind: "freeze", agent })}>Freeze</button>`;
}

function Version({ agent, one, operator, ask, mean }) {
  const detail = useResource(apiPath(["adapters", agent.agent_id, one.version]), { kinds: CHANGES });
  return html`<section class="version" aria-label="Version ${one.version}">
    <header>
      <h2>${one.version} <${Pill} state=${one.state} title=${one.sentence} /></h2>
      ${operator && html`<${Moves} agent=${agent} one=${one} ask=${ask} />`}
    </header>
    <p class="caption">${one.sentence}</p>
    <${Loaded} resource=${detail}>${(data) => html`<div class="columns">
      <div><h3>Made of</h3><${Made} data=${data} mean=${mean} /></div>
      <div><h3>Decisions</h3><${Decisions} items=${[...data.decisions].reverse()} agents=${false}
        nothing="Nothing was decided about it yet." /></div>
    </div>`}<//>
  </section>`;
}

function Moves({ agent, one, ask }) {
  const { version, state, can_serve: there } = one;
  const serving = version === agent.primary || version === agent.candidate;
  const falls = version === agent.candidate ? agent.primary : agent.previous;
  const promote = () => ask({ kind: "promote", agent, version });
  const rollBack = () => ask({ kind: "rollback", agent, version, falls });
  return html`<div class="actions">
    ${there && PROMOTABLE.has(state) && html`<button onClick=${promote}>Promote</button>`}
    ${serving && falls && html`<button onClick=${rollBack}>Roll back</button>`}
  </div>`;
}

function Made({ data, mean }) {
  const { card } = data;
  return html`<${Facts} pairs=${[
    ["mean score", mean === undefined ? null : `${score(mean)} since the orchestrator's start`],
    ["grew from", data.parent && html`<a href=${link("adapters", [data.agent_id, data.parent])}>${data.parent}</a>`],
    ["took over from", data.replaced],
    [
      "trained with",
      card && html`${card.algorithm}, <a href=${link("training", [data.agent_id, data.version])}>its curves</a>`,
    ],
    ["since v1.0.0", data.since_base && changed(data.since_base)],
    ["learned from", card && `${count(card.data.groups)} groups, ${count(card.data.samples)} samples`],
    ["made", card && moment(card.created)],
    ["base model", card && `${card.base.name}${card.base.revision ? ` at ${card.base.revision.slice(0, 12)}` : ""}`],
    ["sha256", data.sha256 && html`<code title=${data.sha256}>${data.sha256.slice(0, 16)}…</code>`],
    ["files", data.can_serve ? null : "its folder was removed"],
    ["experiments", data.outcomes.length === 0 ? null : html`<${Outcomes} all=${data.outcomes} />`],
    ["made of", data.sha256 || data.parent ? null : "the base model, as it is: no adapter"],
  ]} />`;
}

const changed = ({ score: gain, length, latency }) =>
  `score ${signed(gain)}, ${length.toFixed(2)} times the length, ${latency.toFixed(2)} times the latency`;

function Outcomes({ all }) {
  return all.map((one) => html`<div key=${one.decision}>
    <a href=${link("experiments", [one.experiment_id])}>${one.kind}</a>: ${words(one.verdict)}, ${moment(one.at)}
  </div>`);
}
