// Programs: what runs now, which of an agent's programs answers and what an operator may do about it, and all of them
// side by side, out of the log.
import { count, NONE, percent, plural, score, seconds, words } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Approvals } from "../parts/approvals.js";
import { Card, Heading } from "../parts/frame.js";
import { Pill } from "../parts/pill.js";
import { ProgramMove } from "../parts/program_move.js";
import { Rollouts } from "../parts/rollouts.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";

const ENDED_SHOWN = 12;

export function Programs({ status }) {
  const compared = useResource("v1/programs", { kinds: ["task.settled"] });
  const now = useResource("v1/rollouts", { kinds: ["rollout"] });
  const inFleet = new Set(status.data?.agents.map((one) => one.agent_id));
  return html`
    <${Heading} title="Programs" about="What answers tasks in sandboxes: scripts, coding agents, teams of them" />
    <${Loaded} resource=${compared}>${(data) => html`<div class="stack">
      <${Approvals} />
      ${now.data && html`<${Now} rollouts=${now.data} />`}
      ${data.items.length ? tables(data.items).map(([key, one], at, all) =>
        html`<${Agent} key=${key} figures=${one} stands=${inFleet.has(one[0].agent_id)
          && one[0].agent_id !== all[at - 1]?.[1][0].agent_id} />`)
        : html`<${Card}><${Empty} title="No program has answered a task yet"
            commands=${["ratchet up --programs examples/own-program/programs.toml"]}>
            An agent may be a program, run once for each sample, and learned from as any answer is.<//><//>`}
    </div>`}<//>`;
}

/** Of each agent and scorer: what different ones think can't be held against each other. */
function tables(items) {
  const found = new Map();
  for (const one of items) {
    const key = JSON.stringify([one.agent_id, one.scorer]);
    found.set(key, [...(found.get(key) ?? []), one]);
  }
  return [...found];
}

function Now({ rollouts: { items, runners } }) {
  const running = items.filter((one) => one.state === "running");
  const ended = items.filter((one) => one.state !== "running").slice(-ENDED_SHOWN);
  if (!running.length && !ended.length) return null;
  const waiting = runners.reduce((sum, one) => sum + one.waiting, 0);
  const places = runners.reduce((sum, one) => sum + one.at_once, 0);
  const caption = `${count(running.length)} of ${count(places)} at once run, ${count(waiting)} wait`;
  return html`<${Card} title="Now" caption=${caption}><${Rollouts} rollouts=${[...ended, ...running]} /><//>`;
}

/** `stands`: its standing is shown; an agent that left the fleet has none, and one is enough of each. */
function Agent({ figures, stands }) {
  const [{ agent_id: agent, scorer }] = figures;
  const by = scorer ? `Scored by ${scorer.id} at ${scorer.revision}. ` : "";
  const caption = `${by}Mean score over tasks with its 95 % interval; cost a rollout. Not all answered the same tasks`;
  return html`<${Card} title=${agent} caption=${caption}>
    ${stands && html`<${Standing} agent=${agent} />`}
    <${Table} still label="Programs of ${agent}" rows=${figures} keyOf=${(one) => one.program} columns=${[
      { title: "program", cell: (one) => one.program },
      { title: "rollouts", class: "n", cell: (one) => count(one.rollouts) },
      { title: "score", class: "n", cell: (one) => interval(one.score) },
      { title: "tokens", class: "n", cell: (one) => count(one.sampled_tokens) },
      { title: "calls", class: "n wide", cell: (one) => (one.calls === null ? NONE : one.calls.toFixed(1)) },
      { title: "time", class: "n wide", cell: (one) => seconds(one.seconds) },
      { title: "ended", class: "wide", cell: (one) => ends(one) },
      { title: "breaks", class: "wide", cell: (one) => counts(one.breaks) },
    ]} />
  <//>`;
}

function Standing({ agent }) {
  const { data, reload } = useResource(apiPath(["programs", agent]), { kinds: ["decision"] });
  return data && html`<${Standings} of=${data} reload=${reload} />`;
}

function Standings({ of, reload }) {
  const operator = may("change", useStore(session).role);
  const [asked, setAsked] = useState(null);
  const rows = standings(of);
  if (!rows.length) return null;
  const ask = (kind, program) => setAsked({ kind, program });
  const answers = of.primary ? html`<b>${of.primary}</b> answers by default` : "Samples are dealt to all programs";
  const running = of.experiment && html` (<a href=${link("experiments", [of.experiment.experiment_id])}>${
    of.experiment.kind
  }</a>)`;
  return html`<p>${answers}${of.candidate && html`, <b>${of.candidate}</b> is tried against it`}${running}${
    of.asked && html`, <b>${of.asked}</b> waits to be tried`
  }.</p>
  <${Table} still label="Which program of ${of.agent_id} answers" rows=${rows} keyOf=${(one) => one.name} columns=${[
    { title: "program", cell: (one) => one.name },
    { title: "stands", cell: (one) => (one.state ? html`<${Pill} state=${one.state} title=${one.sentence} />` : NONE) },
    ...(operator
      ? [{ title: "moves", cell: (one) => html`<${Moves} of=${of} program=${one.name} ask=${ask} />` }]
      : []),
  ]} />
  ${asked && html`<${ProgramMove} ...${asked} of=${of} done=${reload} onClose=${() => setAsked(null)} />`}`;
}

/** Those that were tried or chosen, and then what else runners have. */
function standings({ items, runs }) {
  const named = new Set(items.map((one) => one.name));
  return [...items, ...Object.keys(runs).filter((name) => !named.has(name)).map((name) => ({ name }))];
}

function Moves({ of, program, ask }) {
  const tried = of.candidate ?? of.asked;
  const inTraffic = [of.primary, of.candidate, of.asked].includes(program);
  return html`<div class="moves">
    ${!inTraffic && of.primary && !tried && html`<button onClick=${() => ask("try", program)}>Try</button>`}
    ${program !== of.primary && html`<button onClick=${() => ask("promote", program)}>Promote</button>`}
    ${inTraffic && html`<button onClick=${() => ask("rollback", program)}>Roll back</button>`}
  </div>`;
}

function interval(one) {
  if (!one) return NONE;
  return one.high === null ? score(one.mean) : `${score(one.mean)} ± ${score(one.high - one.mean)}`;
}

function ends({ ended, rollouts }) {
  const parts = Object.entries(ended);
  if (parts.length === 1) return words(parts[0][0]);
  return parts.map(([state, number]) => `${percent(number / rollouts)} ${words(state)}`).join(", ");
}

function counts(kinds) {
  return Object.entries(kinds).map(([kind, number]) => plural(number, words(kind), words(kind))).join(", ") || NONE;
}
