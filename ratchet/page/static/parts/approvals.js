// What programs ask people: a banner while any question is open, and the questions with what to answer.
import { call } from "../core/api.js";
import { moment, plural } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, link } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Card, Facts } from "./frame.js";
import { Trouble } from "./states.js";

const KINDS = { kinds: ["approval"], everyMs: 15_000 };

export function ApprovalBanner() {
  const { data } = useResource("v1/approvals", KINDS);
  const open = data?.items.length ?? 0;
  return open > 0 && html`<p class="banner" role="status"><a href=${link("programs")}>${
    plural(open, "question waits", "questions wait")} for a person</a></p>`;
}

export function Approvals() {
  const { data, reload } = useResource("v1/approvals", KINDS);
  if (!data?.items.length) return null;
  return html`<${Card} title="Waiting for a person"
    caption="Each of these rollouts has ended its process, and goes on with the answer">
    ${data.items.map((one) => html`<${Question} key=${one.approval_id} of=${one} done=${reload} />`)}
  <//>`;
}

function Question({ of, done }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(null);
  const answers = may("change", useStore(session).role);
  const decide = async (decision, said = text) => {
    try {
      const path = apiPath(["approvals", of.approval_id]);
      await call(path, { method: "POST", body: { decision, text: said } });
      done();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<section aria-label="Question of ${of.task_id}">
    <${Facts} pairs=${[
      ["task", html`<a href=${link("tasks", [of.task_id])}>${of.task_id}</a>, sample ${of.sample}, by ${of.program}`],
      ["question", html`<pre class="said">${of.question}</pre>`],
      ["so far", of.answer && html`<pre class="said">${of.answer}</pre>`],
      ["changed", of.patch && html`<pre class="said">${of.patch}</pre>`],
      ["until", moment(of.until)],
    ]} />
    ${problem && html`<${Trouble} problem=${problem} />`}
    ${answers && html`<label>What the program is told besides
        <textarea rows="2" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <div class="buttons">
        ${of.options.map((one) => html`<button key=${one} onClick=${() => decide("approve", one)}>${one}</button>`)}
        <button onClick=${() => decide("approve")}>Approve</button>
        <button onClick=${() => decide("reject")}>Reject</button>
        ${!of.ends && html`<button onClick=${() => decide("edit")} disabled=${!text}>Edit</button>`}
      </div>`}
  </section>`;
}
