// Decisions of the ledger as sentences: when, what, by whom, why.
import { moment, words } from "../core/format.js";
import { html } from "../core/html.js";
import { link } from "../core/router.js";
import { Empty } from "./states.js";

const SAID = {
  register: "registered",
  validate: "passed its checks",
  reject: "rejected",
  promote: "promoted",
  settle: "is stable",
  roll_back: "rolled back",
  conclude: "experiment ended",
  archive: "archived",
  remove_folder: "folder removed",
  freeze: "frozen",
  unfreeze: "no longer frozen",
  distrust: "waits: its scorer drifted",
  trust: "learns again: its scorer counts",
  sign_with: "gets a new signing key",
  try_program: "is to be tried",
  reject_program: "can't be tried",
  promote_program: "promoted",
  settle_program: "is stable",
  roll_back_program: "rolled back",
};

const BEGINS = { canary: "goes on trial", probation: "goes on probation", watch: "is watched" };

const NOTHING = "Nothing was decided yet. The first decision is made when a training has made an adapter.";

/** The version a move is about, or null. */
export const versionOf = (move) => move.version ?? (programOf(move) ? null : move.experiment?.treatment) ?? null;

/** The program a move is about, or null. */
export const programOf = (move) => move.program ?? move.experiment?.programs?.treatment.name ?? null;

export function Decisions({ items, agents = true, nothing = NOTHING }) {
  if (!items.length) {
    return html`<${Empty} small>${nothing}<//>`;
  }
  return html`<ol class="happenings">${items.map(
    (one) => html`<li key=${one.sequence}>
    <time datetime=${one.at}>${moment(one.at)}</time>
    <div>
      ${agents && html`<span class="muted">${one.agent_id} </span>`}<${Subject} decision=${one} /> ${said(one.move)}
      ${one.who.startsWith("operator:") && html` <b>by ${one.who.slice("operator:".length)}</b>`}
      <div class="why">${one.reason}</div>
    </div>
  </li>`,
  )}</ol>`;
}

function Subject({ decision }) {
  const version = versionOf(decision.move);
  if (version) return html`<a href=${link("adapters", [decision.agent_id, version])}>${version}</a>`;
  const program = programOf(decision.move);
  if (program) return html`<a href=${link("programs")}>program ${program}</a>`;
  const experiment = decision.move.experiment_id;
  return experiment ? html`<a href=${link("experiments", [experiment])}>${experiment}</a>` : "agent";
}

function said(move) {
  if (move.kind === "conclude") return `ended: ${words(move.verdict)}`;
  if (move.kind === "start_experiment") return BEGINS[move.experiment.kind];
  return SAID[move.kind] ?? words(move.kind);
}
