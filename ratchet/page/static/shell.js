// The frame around every view: navigation with what needs a look, whether it is live, the theme, the token, the keys.
import { signOut, entryReason, session } from "./core/session.js";
import { streamState } from "./core/events.js";
import { count } from "./core/format.js";
import { html, useEffect, useErrorBoundary, useState } from "./core/html.js";
import { useResource } from "./core/resource.js";
import { link, place } from "./core/router.js";
import { useStore } from "./core/store.js";
import { shown, switchTheme } from "./core/theme.js";
import { KeySheet, useKeys } from "./keys.js";
import { ApprovalBanner } from "./parts/approvals.js";
import { Heading } from "./parts/frame.js";
import { Empty } from "./parts/states.js";
import { TokenEntry } from "./parts/token_entry.js";
import { Adapters } from "./views/adapters.js";
import { Agents } from "./views/agents.js";
import { Agreement } from "./views/agreement.js";
import { DeadLetters } from "./views/dead_letters.js";
import { Evaluations } from "./views/evaluations.js";
import { Experiment } from "./views/experiment.js";
import { Experiments } from "./views/experiments.js";
import { Job, Jobs } from "./views/jobs.js";
import { Overview } from "./views/overview.js";
import { Programs } from "./views/programs.js";
import { Queues } from "./views/queues.js";
import { Task } from "./views/task.js";
import { Tasks } from "./views/tasks.js";
import { Training } from "./views/training.js";
import { Usage } from "./views/usage.js";

export const VIEWS = [
  { name: "overview", title: "Overview", view: Overview },
  { name: "tasks", title: "Tasks", view: Tasks, one: Task },
  { name: "experiments", title: "Experiments", view: Experiments, one: Experiment },
  { name: "adapters", title: "Adapters", view: Adapters, one: Adapters },
  { name: "programs", title: "Programs", view: Programs },
  { name: "agreement", title: "Agreement", view: Agreement },
  { name: "evaluations", title: "Evaluations", view: Evaluations },
  { name: "training", title: "Training", view: Training, one: Training },
  { name: "queues", title: "Queues", view: Queues },
  { name: "dead-letters", title: "Dead letters", view: DeadLetters },
];
/** Views of a fleet that has a manager. */
export const MANAGERS_VIEWS = [
  { name: "jobs", title: "Jobs", view: Jobs, one: Job },
  { name: "agents", title: "Agents", view: Agents },
  { name: "usage", title: "Usage", view: Usage },
];
const viewsOf = (status) => (status?.has_manager ? [...VIEWS, ...MANAGERS_VIEWS] : VIEWS);

const MARK = new URL("mark.svg", import.meta.url).href;
const STATUS_KINDS = ["task.settled", "decision", "queues", "training"];
const STATUS_EVERY_MS = 5000;
const STREAM_WORDS = { live: "Live", connecting: "Connecting …", away: "Not connected" };

export function Shell() {
  const here = useStore(place);
  const reason = useStore(entryReason);
  const [sheet, setSheet] = useState(false);
  const status = useResource("v1/status", { kinds: STATUS_KINDS, everyMs: STATUS_EVERY_MS });
  const views = viewsOf(status.data);
  useKeys(views, () => setSheet(true));
  useEffect(() => scrollTo(0, 0), [here.view, here.parts.join("/")]);
  return html`<div class="shell">
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <${Side} key=${here.view} here=${here} status=${status.data} openSheet=${() => setSheet(true)} />
    <main id="content" class="main" tabindex="-1">
      ${reason ? html`<${TokenEntry} reason=${reason} />` : html`<${Content} here=${here} status=${status} />`}
    </main>
    ${sheet && html`<${KeySheet} views=${views} onClose=${() => setSheet(false)} />`}
  </div>`;
}

function Content({ here, status }) {
  const trouble = status.data?.trouble;
  return html`
    ${trouble && html`<${NotReady} trouble=${trouble} />`}
    <${ApprovalBanner} />
    <${View} here=${here} status=${status} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

function View({ here, status }) {
  const found = [...VIEWS, ...MANAGERS_VIEWS].find((one) => one.name === here.view);
  const Drawn = here.parts.length && found ? found.one : found?.view;
  if (!Drawn) return html`<${Nowhere} />`;
  return html`<${Standing} key=${`${here.view} ${here.parts.length > 0}`}>
    <${Drawn} parts=${here.parts} query=${here.query} status=${status} />
  <//>`;
}

function Nowhere() {
  return html`<${Heading} title="Nowhere" /><div class="card">
    <${Empty} title="There is no such view">Choose one of the views at the side.<//>
  </div>`;
}

/** A fault in one view leaves the others usable. */
function Standing({ children }) {
  const [fault] = useErrorBoundary((error) => console.error(error));
  if (!fault) return children;
  return html`<${Heading} title="A fault of this page" /><div class="card" role="alert">
    <p class="trouble">${String(fault)}</p>
    <p class="after"><button onClick=${() => location.reload()}>Load the page again</button></p>
  </div>`;
}

/** The orchestrator answers, but says that it can't do its work. */
function NotReady({ trouble }) {
  return html`<div class="banner" role="status"><b>The fleet is not ready</b> <span>${trouble}</span></div>`;
}

function Side({ here, status, openSheet }) {
  const badges = badgesOf(status);
  const [open, setOpen] = useState(false);
  return html`<header class="side">
    <a class="brand" href=${link("overview")}><img src=${MARK} alt="" />Ratchet</a>
    <button class="menu-button" aria-expanded=${open ? "true" : "false"} aria-controls="views"
      onClick=${() => setOpen(!open)}>Menu ${badges["dead-letters"]}</button>
    <nav id="views" class=${open ? "open" : ""} aria-label="Views"><div class="menu">
      ${viewsOf(status).map(({ name, title }) => html`<${Entry} key=${name} name=${name} title=${title}
        badge=${badges[name]} current=${here.view === name} />`)}
    </div></nav>
    <${Foot} openSheet=${openSheet} />
  </header>`;
}

function Entry({ name, title, badge, current }) {
  return html`<a href=${link(name)} aria-current=${current ? "page" : undefined}>
    <span class="label">${title}</span>${badge}
  </a>`;
}

function badgesOf(status) {
  if (!status) return {};
  const running = status.agents.filter((agent) => agent.experiment_id).length;
  return {
    tasks: html`<${Badge} number=${status.tasks.open} what="open" />`,
    experiments: html`<${Badge} number=${running} what="running" />`,
    "dead-letters": html`<${Badge} number=${status.dead_letters} what="waiting" shade="bad" />`,
  };
}

function Badge({ number, what, shade = "" }) {
  if (!number) return null;
  return html`<span class="badge ${shade}" title=${what}>${count(number)}<span class="unseen"> ${what}</span></span>`;
}

function Foot({ openSheet }) {
  const stream = useStore(streamState);
  const theme = useStore(shown);
  const who = useStore(session);
  return html`<div class="foot">
    ${who.token && html`<span class="who muted">${who.name || "token"} · ${who.role || "role unknown"}<${Expiry}
      at=${who.expires} /></span>`}
    <span class="live live-${stream}" role="status">${STREAM_WORDS[stream]}</span>
    <div class="tools">
      <button class="quiet" onClick=${switchTheme}
        aria-label="Switch to ${theme === "dark" ? "light" : "dark"}">${theme === "dark" ? "Light" : "Dark"}</button>
      <button class="quiet" onClick=${openSheet} aria-label="Keys"><kbd>?</kbd></button>
      ${who.token && html`<button class="quiet" onClick=${signOut}>Sign out</button>`}
    </div>
  </div>`;
}

function Expiry({ at }) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 15_000);
    return () => clearInterval(timer);
  }, []);
  if (!at || at - now > 900) return null;
  const said = at > now ? `token ends in ${Math.ceil((at - now) / 60)} min` : "token has expired";
  return html`<span class="warn"> · ${said}</span>`;
}
