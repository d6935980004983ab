// Dead letters: what could not be handled, why, the way back to the queue it failed in, and the way out.
import { call } from "../core/api.js";
import { bytes, count, moment, NONE, plural } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Confirm, Dialog } from "../parts/dialog.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 100;

export function DeadLetters({ query }) {
  const path = apiPath(["dead-letters"], { cursor: query.cursor, limit: PAGE });
  const letters = useResource(path, query.cursor ? {} : { kinds: ["queues"], everyMs: 10_000 });
  const operator = may("change", useStore(session).role);
  const [shown, setShown] = useState(null);
  const [asked, setAsked] = useState(null);
  const [told, setTold] = useState(null);
  const done = (answer) => {
    setTold(answer);
    letters.reload();
  };
  return html`
    <${Heading} title="Dead letters" about=${letters.data && plural(letters.data.total, "letter")} />
    ${told && html`<${Told} answer=${told} />`}
    <${Loaded} resource=${letters}>${({ items, total, next }) =>
      total === 0
        ? html`<div class="card"><${Nothing} /></div>`
        : html`<div class="stack">
        ${operator && html`<${ByQueue} items=${items} ask=${setAsked} />`}
        <${Card} title="The oldest first"
          caption=${items.length < total && `${count(items.length)} of ${count(total)}`}>
          <${Table} label="Dead letters" rows=${items} keyOf=${(one) => one.id}
            columns=${columns(operator, setShown, setAsked)} />
          <${Pager} view="dead-letters" query=${query} next=${next} first="First" more="More" /><//>
      </div>`}<//>
    ${shown && html`<${Letter} id=${shown} onClose=${() => setShown(null)} />`}
    ${asked && html`<${Move} ...${asked} done=${done} onClose=${() => setAsked(null)} />`}`;
}

function Nothing() {
  return html`<${Empty} title="No dead letters" commands=${["ratchet dead-letters list"]}>
    What can't be handled comes here whole, with the reason: messages that are not valid, or that failed at every
    attempt.
  <//>`;
}

function Told({ answer }) {
  const did = "sent" in answer ? [answer.sent, "sent back"] : [answer.dismissed, "dismissed"];
  return html`<div class="banner" role="status"><b>${plural(did[0], "letter")} ${did[1]}</b>
    ${answer.stayed.length > 0 &&
      html`<span>${plural(answer.stayed.length, "letter")} stayed: ${answer.stayed[0].reason}</span>`}</div>`;
}

function columns(operator, show, ask) {
  const open = (event, id) => {
    event.preventDefault();
    show(id);
  };
  return [
    {
      title: "letter",
      class: "id",
      cell: (one) => html`<a href="#/dead-letters" onClick=${(event) => open(event, one.id)}>${one.id}</a>`,
    },
    { title: "failed in", class: "wide", cell: (one) => one.queue ?? NONE },
    { title: "reason", class: "wrap", cell: (one) => one.reason },
    { title: "attempts", class: "n wide", cell: (one) => count(one.attempts) },
    { title: "size", class: "n wide", cell: (one) => bytes(one.size) },
    { title: "at", class: "n wide", cell: (one) => moment(one.at) },
    ...(operator
      ? [
          {
            title: "",
            class: "n",
            cell: (one) => html`<div class="moves">${
              one.queue &&
              html`<button aria-label="Requeue ${one.id}"
                onClick=${() => ask({ kind: "requeue", ids: [one.id], from: one.queue })}>Requeue</button>`
            }<button aria-label="Dismiss ${one.id}"
              onClick=${() => ask({ kind: "dismiss", ids: [one.id] })}>Dismiss</button></div>`,
          },
        ]
      : []),
  ];
}

function ByQueue({ items, ask }) {
  const queues = [...new Set(items.map((one) => one.queue).filter(Boolean))].sort();
  const all = (kind, queue) => html`<button key=${kind + queue}
    onClick=${() => ask({ kind, queue, from: queue })}>${MOVES[kind].action} all of ${queue}</button>`;
  return html`<div class="moves">${queues.map((queue) => [all("requeue", queue), all("dismiss", queue)])}</div>`;
}

const MOVES = {
  requeue: {
    action: "Requeue",
    says: (what, from) => html`<p>${what} goes back to <b>${from}</b> and is tried again. It leaves here only when the
      broker has it there. What fails again comes back.</p>`,
  },
  dismiss: {
    action: "Dismiss",
    danger: true,
    placeholder: "Why does nobody need it?",
    says: (what) => html`<p>${what} leaves the queue and is not tried again. It is kept whole
      in <code>dismissed_letters.jsonl</code> of the logs folder, with the reason and your name.</p>`,
  },
};

function Move({ kind, ids, queue, from, done, onClose }) {
  const { action, danger, placeholder, says } = MOVES[kind];
  const act = async (reason) => {
    const body = { ...(ids ? { ids } : { queue }), ...(placeholder && { reason }) };
    done(await call(`v1/dead-letters/${kind}`, { method: "POST", body }));
  };
  return html`<${Confirm} title="${action} ${ids ? ids[0] : `all of ${from}`}?" action=${action} danger=${danger}
    reason=${placeholder} act=${act} onClose=${onClose}>
    ${says(ids ? "This letter" : "Every letter that failed there", from)}
  <//>`;
}

function Letter({ id, onClose }) {
  const letter = useResource(apiPath(["dead-letters", id]));
  return html`<${Dialog} title="Letter ${id}" onClose=${onClose}>
    <${Loaded} resource=${letter}>${(one) => html`<div class="stack">
      <p>${one.reason}</p>
      <p class="muted">${one.advice}</p>
      <${Facts} pairs=${[
        ["failed in", one.queue],
        ["at", one.at && moment(one.at)],
        ["by", one.by],
        ["attempts", one.attempts],
        ["type", one.type],
        ["message id", one.message_id],
        ["size", bytes(one.size)],
      ]} />
      <div><h3>Body${one.encoding === "base64" ? ", in base64" : ""}</h3><pre class="said">${one.body}</pre></div>
      <details><summary>Headers</summary><pre class="said">${JSON.stringify(one.headers, null, 2)}</pre></details>
    </div>`}<//>
    <form method="dialog" class="after"><div class="buttons"><button class="first" autofocus>Close</button></div></form>
  <//>`;
}
