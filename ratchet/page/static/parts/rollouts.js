// Rollouts of programs while they run, and how the newest ended.
import { count, NONE, seconds } from "../core/format.js";
import { html } from "../core/html.js";
import { link } from "../core/router.js";
import { Pill } from "./pill.js";
import { Table } from "./table.js";

/** `rollouts`: items of v1/rollouts. `ofTask`: they are all one task's, which need not be named. */
export function Rollouts({ rollouts, ofTask = false }) {
  const task = { title: "task", cell: (one) => html`<a href=${link("tasks", [one.task_id])}>${one.task_id}</a>` };
  return html`<${Table} still label="Rollouts" rows=${rollouts} keyOf=${(one) => `${one.task_id} ${one.sample}`}
    columns=${[
      ...(ofTask ? [] : [task]),
      { title: "sample", class: "n", cell: (one) => one.sample },
      { title: "program", cell: (one) => one.program },
      { title: "state", cell: (one) => html`<${Pill} state=${one.state} title=${one.says} />` },
      { title: "time", class: "n", cell: (one) => seconds(one.seconds) },
      { title: "calls", class: "n", cell: (one) => count(one.calls) },
      { title: "tokens", class: "n", cell: (one) => count(one.sampled_tokens) },
      { title: "why", class: "wide", cell: (one) => one.says ?? NONE },
    ]} />`;
}
