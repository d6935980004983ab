// Jobs of the manager, the newest first; one job with its bar, rate, time left, and why tasks of it failed.
import { call } from "../core/api.js";
import { count, moment, NONE, plural, seconds } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { apiPath, go, link } from "../core/router.js";
import { may, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { Confirm } from "../parts/dialog.js";
import { Card, Facts, Heading } from "../parts/frame.js";
import { Meter } from "../parts/meter.js";
import { Pill } from "../parts/pill.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 50;
const LIVE_MS = 2000;
const STATES = ["loading", "queued", "running", "paused", "done", "cancelled", "expired"];
const OPEN = new Set(["queued", "running", "paused"]);
const ended = (job) => job.tasks - job.waiting - job.released;

export function Jobs({ query }) {
  const asked = { state: query.state, cursor: query.cursor, limit: PAGE };
  const jobs = useResource(apiPath(["manager", "jobs"], asked), query.cursor ? {} : { everyMs: LIVE_MS });
  return html`
    <${Heading} title="Jobs" />
    <div class="filters"><label class="field">State
      <select value=${query.state ?? ""} onChange=${(event) => go("jobs", [], { state: event.target.value })}>
        <option value="">all</option>
        ${STATES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>
    </label></div>
    <div class="card"><${Loaded} resource=${jobs}>${({ items, next }) => html`
      ${items.length
        ? html`<${Table} label="Jobs, the newest first" columns=${COLUMNS} rows=${items}
            keyOf=${(one) => one.job_id} />`
        : html`<${Nothing} query=${query} />`}
      <${Pager} view="jobs" query=${query} next=${next} shown="${count(items.length)} shown" />`}<//></div>`;
}

function Nothing({ query }) {
  if (query.state || query.cursor)
    return html`<${Empty} title="No such job">None is in this state. <a href=${link("jobs")}>Show all</a>.<//>`;
  return html`<${Empty} title="No job yet" commands=${["ratchet jobs submit tasks.jsonl --priority 7 --id monday"]}>
    A job is a file of tasks, which go to the fleet by priority and in fair shares.
  <//>`;
}

const COLUMNS = [
  {
    title: "job",
    class: "id",
    cell: (one) => html`<a href=${link("jobs", [one.job_id])} title=${one.job_id}>${one.job_id}</a>`,
  },
  { title: "agent", cell: (one) => one.agent_id },
  { title: "state", cell: (one) => html`<${Pill} state=${one.state} title=${one.reason} />` },
  { title: "priority", class: "n wide", cell: (one) => count(one.priority) },
  { title: "ended", class: "n", cell: (one) => `${count(ended(one))} of ${count(one.tasks)}` },
  { title: "without answer", class: "n", cell: (one) => count(one.failed + one.expired) },
  { title: "spent", class: "n wide", cell: (one) => money(one.spent) },
  { title: "submitted", class: "n wide", cell: (one) => moment(one.created_at) },
];

export const money = (amount) => (amount === null || amount === undefined ? NONE : Number(amount).toFixed(4));

export function Job({ parts }) {
  const job = useResource(apiPath(["manager", "jobs", parts[0]]), { everyMs: LIVE_MS });
  const [act, setAct] = useState(null);
  const mayAct = may("cancel", useStore(session).role);
  return html`
    <${Heading} title=${parts[0]} back=${[link("jobs"), "Jobs"]}>
      ${mayAct && job.data && actsOf(job.data).map((one) => html`<button key=${one} onClick=${() => setAct(one)}>
        ${ACTS[one].action}</button>`)}
    <//>
    <${Loaded} resource=${job}>${(one) => html`<div class="stack">
      <${Progress} job=${one} />
      <${Failures} failures=${one.failures} />
    </div>`}<//>
    ${act && html`<${Confirm} title="${ACTS[act].action} this job?" action=${ACTS[act].action}
      danger=${act === "cancel"} act=${async () => {
        await call(`${apiPath(["manager", "jobs", parts[0], act])}`, { method: "POST" });
        job.reload();
      }} onClose=${() => setAct(null)}><p>${ACTS[act].says}</p><//>`}`;
}

const ACTS = {
  pause: { action: "Pause", says: "No further task is released. What the fleet has goes on." },
  resume: { action: "Resume", says: "Its tasks are released again, in their turn." },
  cancel: { action: "Cancel the job", says: "Tasks that wait are not run. What the fleet has ends by itself." },
  rerun: { action: "Run again", says: "Tasks that failed, expired or were cancelled are run again." },
};

function actsOf(job) {
  const again = job.failed + job.expired + job.cancelled > 0 && job.state !== "loading";
  const open = OPEN.has(job.state) ? [job.state === "paused" ? "resume" : "pause", "cancel"] : [];
  return [...open, ...(again ? ["rerun"] : [])];
}

function Progress({ job }) {
  const words = `${count(ended(job))} of ${count(job.tasks)} ended`;
  const states = ["waiting", "released", "ok", "failed", "expired", "cancelled"].filter((name) => job[name]);
  return html`<${Card} title="Progress">
    <p><${Pill} state=${job.state} /> ${job.reason}</p>
    <${Meter} label="Tasks" value=${job.tasks ? ended(job) / job.tasks : 0} words=${words} />
    <${Facts} pairs=${[
      ["tasks", states.map((name) => `${count(job[name])} ${name}`).join(", ")],
      ["rate", `${count(job.ended_last_minute)} in the last minute`],
      ["time left", timeLeft(job)],
      ["agent", job.agent_id],
      ["priority", count(job.priority)],
      ["budget", job.budget && `${money(job.spent)} of ${money(job.budget)} spent, ${money(job.reserved)} reserved`],
      ["submitted", moment(job.created_at)],
      ["deadline", OPEN.has(job.state) && moment(job.deadline)],
    ].map(([name, value]) => [name, value || null])} />
  <//>`;
}

function timeLeft(job) {
  if (!OPEN.has(job.state) && !job.released) return null;
  return job.seconds_left === null ? "not known: none ended within the last minute" : seconds(job.seconds_left);
}

function Failures({ failures }) {
  const rows = Object.entries(failures).map(([reason, number]) => ({ reason, number }));
  if (!rows.length) return null;
  return html`<${Card} title="Why tasks have no answer" caption=${plural(rows.length, "reason")}>
    <${Table} still label="Failures by reason" rows=${rows} keyOf=${(one) => one.reason} columns=${[
      { title: "tasks", class: "n", cell: (one) => count(one.number) },
      { title: "reason", class: "wrap", cell: (one) => one.reason },
    ]} />
  <//>`;
}
