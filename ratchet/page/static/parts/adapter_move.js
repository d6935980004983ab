// The dialogs of promote, roll back, freeze, unfreeze and a new measure: what will happen, and the reason that goes
// into the ledger.
import { call } from "../core/api.js";
import { html } from "../core/html.js";
import { apiPath } from "../core/router.js";
import { Confirm } from "./dialog.js";

const MOVES = {
  promote: {
    action: "Promote",
    title: (agent, version) => `Promote ${version}?`,
    placeholder: "Why without an experiment?",
    says: ({
      agent,
      version,
    }) => html`<p><b>${version}</b> becomes the primary of <b>${agent.agent_id}</b> at once, without proof, in place of
      <b> ${agent.primary}</b>, and is watched beside it.
      ${agent.experiment ? " The running experiment ends." : ""}</p>`,
  },
  rollback: {
    action: "Roll back",
    danger: true,
    title: (agent, version) => `Roll back ${version}?`,
    placeholder: "What is wrong with it?",
    says: ({
      agent,
      version,
      falls,
    }) => html`<p><b>${version}</b> leaves the traffic of <b>${agent.agent_id}</b> at once;
      <b> ${falls}</b> answers instead.</p>`,
  },
  freeze: {
    action: "Freeze",
    title: (agent) => `Freeze ${agent.agent_id}?`,
    placeholder: "Why should nothing change now?",
    says: () =>
      html`<p>No experiment starts and nothing is promoted until it is lifted. Roll-backs still happen.</p>`,
  },
  unfreeze: {
    action: "Unfreeze",
    title: (agent) => `Unfreeze ${agent.agent_id}?`,
    placeholder: "Why may it change again?",
    says: () => html`<p>Experiments start again, and what they prove better is promoted.</p>`,
  },
  reanchor: {
    action: "Take as the measure",
    title: (agent) => `Take the scorer of ${agent.agent_id} as it is now?`,
    placeholder: "Was the judge changed on purpose?",
    says: () =>
      html`<p>Its scores become the new measure, and training and experiments go on with them. If the change was not
      meant, mend the scorer instead: they go on by themselves once it is back.</p>`,
  },
};

export function AdapterMove({ kind, agent, version, falls, done, onClose }) {
  const move = MOVES[kind];
  const act = async (reason) => {
    const body = kind === "promote" || kind === "rollback" ? { version, reason } : { reason };
    await call(apiPath(["adapters", agent.agent_id, kind]), { method: "POST", body });
    done();
  };
  return html`<${Confirm} title=${move.title(agent, version)} action=${move.action} danger=${move.danger}
    reason=${move.placeholder} act=${act} onClose=${onClose}>
    ${move.says({ agent, version, falls })}
    <p class="caption">It goes into the ledger of decisions under your name.</p>
  <//>`;
}
