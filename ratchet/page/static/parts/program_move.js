// The dialogs of try, promote and roll back of a program: what will happen, and the reason that goes into the ledger.
import { call } from "../core/api.js";
import { html } from "../core/html.js";
import { apiPath } from "../core/router.js";
import { Confirm } from "./dialog.js";

const DEALT = "where samples were dealt to all programs";

const MOVES = {
  try: {
    action: "Try",
    title: (program) => `Try ${program}?`,
    placeholder: "What should it do better?",
    says: ({ of, program }) => html`<p>Once all runners have both alike and nothing else is tried, a part of the live
      traffic of <b>${of.agent_id}</b> is answered by <b>${program}</b>, the rest by <b>${of.primary}</b>. If it proves
      better it answers by default.</p>`,
  },
  promote: {
    action: "Promote",
    title: (program) => `Promote ${program}?`,
    placeholder: "Why without an experiment?",
    says: ({ of, program }) => html`<p><b>${program}</b> answers the tasks of <b>${of.agent_id}</b> by default at once,
      without proof, ${of.primary ? html`in place of <b>${of.primary}</b>` : DEALT},
      and is watched.${of.experiment ? " The running experiment ends." : ""}</p>`,
  },
  rollback: {
    action: "Roll back",
    danger: true,
    title: (program) => `Roll back ${program}?`,
    placeholder: "What is wrong with it?",
    says: ({ of, program }) =>
      program === of.asked
        ? html`<p><b>${program}</b> is not tried.</p>`
        : html`<p><b>${program}</b> leaves the traffic of <b>${of.agent_id}</b> at once; ${falls(of, program)}</p>`,
  },
};

function falls(of, program) {
  const next = program === of.primary ? of.previous : of.primary;
  return next ? html`<b>${next}</b> answers instead.` : "samples are dealt to all programs again.";
}

/** `of`: where the agent's programs stand. */
export function ProgramMove({ kind, of, program, done, onClose }) {
  const move = MOVES[kind];
  const act = async (reason) => {
    await call(apiPath(["programs", of.agent_id, kind]), { method: "POST", body: { program, reason } });
    done();
  };
  return html`<${Confirm} title=${move.title(program)} action=${move.action} danger=${move.danger}
    reason=${move.placeholder} act=${act} onClose=${onClose}>
    ${move.says({ of, program })}
    <p class="caption">It goes into the ledger of decisions under your name.</p>
  <//>`;
}
