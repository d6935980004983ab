// Agreement: scorer and auditor side by side, how often they differ, each beside people; and answers to label, blind.
import { call } from "../core/api.js";
import { count, NONE, percent, score, signed } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Chart } from "../parts/chart.js";
import { Card, Facts, Heading, Tiles } from "../parts/frame.js";
import { Empty, Loaded, Trouble } from "../parts/states.js";
import { Table } from "../parts/table.js";

const EVERY_MS = 10_000;
const UNIT = { format: score, range: () => [0, 1] };
const PAIR = [
  ["The first is better", 1],
  ["As good", 0.5],
  ["The second is better", 0],
];
const SINGLE = Array.from({ length: 11 }, (_, at) => [String(at), at / 10]);

export function Agreement() {
  const who = useStore(session);
  const agreement = useResource("v1/agreement", { kinds: ["task.settled"], everyMs: EVERY_MS });
  return html`
    <${Heading} title="Agreement"
      about="The scorer teaches and decides; the auditor and people say whether it is right" />
    <${Loaded} resource=${agreement}>${({ items }) => html`<div class="stack">
      ${items.map((agent) => html`<${Agent} key=${agent.agent_id} agent=${agent} />`)}
      ${may("change", who.role) && html`<${Labelling} done=${agreement.reload} />`}
    </div>`}<//>`;
}

function Agent({ agent }) {
  const { latest } = agent;
  if (!latest) {
    return html`<${Card} title=${agent.agent_id}><${Empty} title="Nobody audits yet"
      commands=${["ratchet up --auditor verifier:exact", "ratchet label"]}>
      A second scorer that never teaches sees a share of the answers, and can stop what only the scorer likes.
    <//><${Beside} agent=${agent} /><//>`;
  }
  return html`
    <${Tiles} figures=${[
      [`${agent.agent_id}: scorer`, score(latest.judge), `newest ${count(latest.tasks)} audits`],
      ["auditor", score(latest.auditor), agent.auditor ?? "none answered yet"],
      ["order two answers differently", share(latest.discordance), "half would be chance"],
      ["not scored by the auditor", count(agent.unscored), null, agent.unscored > latest.tasks / 10 ? "bad" : null],
    ]} />
    <div class="columns"><${Means} agent=${agent} /><${Disagreement} agent=${agent} /></div>
    <${Card} title="Beside people" caption="Labels given blind: ratchet label, or below. They decide nothing.">
      <${Beside} agent=${agent} />
    <//>`;
}

function Means({ agent: { agent_id: id, windows } }) {
  const drawn = useDrawn(windows, [
    ["scorer", "judge", "effect"],
    ["auditor", "auditor", "fourth"],
  ]);
  return html`<${Card} title="Scorer and auditor" caption="Mean scores of the same answers, over the audited tasks">
    <${Chart} x=${drawn.x} lines=${drawn.lines} y=${UNIT} xLabel="audited tasks" yLabel="mean score" xFormat=${count}
      sentence="Scorer and auditor of ${id} over ${count(drawn.x.at(-1))} audited tasks" />
  <//>`;
}

function Disagreement({ agent: { agent_id: id, windows } }) {
  const drawn = useDrawn(windows, [["differently", "discordance", "harm"]]);
  return html`<${Card} title="Disagreement"
    caption="How often they order two answers to a task differently; 0.5 is chance">
    <${Chart} x=${drawn.x} lines=${drawn.lines} y=${UNIT} xLabel="audited tasks" yLabel="share of pairs"
      xFormat=${count}
      sentence="Disagreement of scorer and auditor of ${id}, now ${share(windows.at(-1)?.discordance)}" />
  <//>`;
}

function useDrawn(windows, series) {
  return useMemo(() => {
    let tasks = 0;
    const x = windows.map((one) => {
      tasks += one.tasks;
      return tasks;
    });
    return {
      x,
      lines: series.map(([label, name, shade]) => ({ label, values: windows.map((one) => one[name]), shade })),
    };
  }, [windows]);
}

const estimate = (one) => (one ? `${signed(one.value)} (${signed(one.low)} … ${signed(one.high)})` : NONE);
const share = (value) => (value === null || value === undefined ? NONE : percent(value));

function Beside({ agent }) {
  const rows = ["judge", "auditor"].flatMap((who) =>
    ["answers", "pairs"].map((kind) => ({
      name: `${who === "judge" ? "scorer" : who}, ${kind}`,
      ...agent[`${who}_by_${kind}`],
    })),
  );
  return html`<${Table} still label="Beside people" rows=${rows} keyOf=${(one) => one.name} columns=${[
    { title: "who", cell: (one) => one.name },
    { title: "labels", class: "n", cell: (one) => count(one.labels) },
    { title: "rank correlation", class: "n", cell: (one) => estimate(one.rank) },
    { title: "kappa", class: "n wide", cell: (one) => estimate(one.kappa) },
    { title: "likes length", class: "n", cell: (one) => estimate(one.by_length) },
    { title: "likes late ones", class: "n wide", cell: (one) => estimate(one.by_position) },
  ]} />`;
}

/** One answer at a time, or two: blind to the version and to what anybody gave it. */
function Labelling({ done }) {
  const [pairs, setPairs] = useState(false);
  const [skip, setSkip] = useState(0);
  const [problem, setProblem] = useState(null);
  const next = useResource(apiPath(["labels", "next"], { pairs, skip: skip || null }));
  const give = async (value) => {
    const { task_id, answers } = next.data.found;
    const other = pairs ? { other: answers[1].sample } : {};
    try {
      await call(apiPath(["labels"]), {
        method: "POST",
        body: { task_id, sample: answers[0].sample, score: value, ...other },
      });
      setProblem(null);
      next.reload();
      done();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<${Card} title="Label answers" caption="You see neither who answered nor what it was given"
    actions=${html`<label><input type="checkbox" checked=${pairs}
      onChange=${(event) => { setPairs(event.target.checked); setSkip(0); }} /> Two at a time</label>`}>
    ${problem && html`<${Trouble} problem=${problem} />`}
    <${Loaded} resource=${next}>${({ found }) =>
      found
        ? html`<${Shown} found=${found} />
          <div class="buttons">${(pairs ? PAIR : SINGLE).map(
            ([words, value]) => html`<button key=${words} onClick=${() => give(value)}>${words}</button>`,
          )}<button onClick=${() => setSkip(skip + 1)}>Skip</button></div>`
        : html`<${Empty} small title="Nothing is left to label">
            The newest answers are, or none were given yet.
          <//>`}<//>
  <//>`;
}

function Shown({ found: { input, criteria, reference, answers } }) {
  const asked = typeof input === "string" ? input : input.map((one) => `${one.role}: ${one.content}`).join("\n");
  return html`<${Facts} pairs=${[
    ["question", html`<pre class="said">${asked}</pre>`],
    ["criteria", criteria],
    ["reference", reference],
    ...answers.map((one, at) => [
      answers.length > 1 ? `answer ${at + 1}` : "answer",
      html`<pre class="said">${one.text}</pre>`,
    ]),
  ]} />`;
}
