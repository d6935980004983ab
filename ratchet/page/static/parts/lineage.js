// The family tree of an agent's adapters: from the base model to the right, each version with its state. A column for
// each generation; the child that became the primary goes on in its parent's row.
// On a phone it is a list, the newest first. Folded away: what is out of use for good, and all but the newest of many.
import { count, score, words } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { go, link } from "../core/router.js";
import { Pill, tone } from "./pill.js";

const COLUMN = 200;
const ROW = 82;
const WIDTH = 160;
const HEIGHT = 58;
const TRUNK = new Set(["stable", "superseded"]);
/** Versions drawn at once, and those that a click brings of what is folded. */
const DRAWN = 24;
const MORE = 50;

/** `Whole` reads what was left out of the agent, `older` versions, and gives all of them to its child. */
export function Lineage({ agent, chosen, means, Whole }) {
  const { shown, folded } = useMemo(() => inSight(agent, chosen), [agent, chosen]);
  return html`<${Tree} agent=${{ ...agent, versions: shown }} chosen=${chosen} means=${means} />
    <ol class="kin">${[...shown].reverse().map((one) =>
      html`<${Kin} key=${one.version} agent=${agent.agent_id} one=${one} chosen=${chosen} means=${means} />`)}</ol>
    ${folded.length + agent.older > 0 &&
      html`<${Folded} agent=${agent} folded=${folded} shown=${shown} means=${means}
        Whole=${Whole} />`}`;
}

/** Those with an alias, the chosen one, the base, and the newest not archived; each joined to its next of kin. */
export function inSight({ versions, joins }, chosen, most = DRAWN) {
  const known = new Map(versions.map((one) => [one.version, one]));
  const base = versions.find((one) => !one.parent);
  const wanted = new Set(versions.filter((one) => one.aliases.length || one.version === chosen || one === base)
    .map((one) => one.version));
  for (const one of [...versions].reverse()) {
    if (wanted.size >= most) break;
    if (one.state !== "archived") wanted.add(one.version);
  }
  const up = (one) => known.get(one.parent) ?? known.get(joins[one.version]);
  const ancestor = (one) => {
    let parent = up(one);
    while (parent && !wanted.has(parent.version)) parent = up(parent);
    return parent?.version ?? null;
  };
  const shown = versions.filter((one) => wanted.has(one.version))
    .map((one) => ({ ...one, parent: ancestor(one), skips: ancestor(one) !== (one.parent ?? null) }));
  return { shown, folded: versions.filter((one) => !wanted.has(one.version)).reverse() };
}

function Kin({ agent, one, chosen, means }) {
  const mean = means.get(one.version);
  return html`<li><a href=${link("adapters", [agent, one.version])} class=${one.version === chosen ? "chosen" : ""}
    aria-current=${one.version === chosen ? "true" : undefined}>
    <b>${one.version}</b> <${Pill} state=${one.state} title=${one.sentence} />
    ${one.aliases.length > 0 && html`<small>${one.aliases.join(", ")}</small>`}
    ${one.parent && html`<small>from ${one.parent}</small>`}
    ${mean !== undefined && html`<small class="mean">mean score ${score(mean)}</small>`}
  </a></li>`;
}

/** Not made before it is opened, and what was left out of the agent is not read before. */
function Folded({ agent, folded, shown, means, Whole }) {
  const apart = new Set(shown.map((one) => one.version));
  const [open, setOpen] = useState(false);
  return html`<details class="folded" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${count(folded.length + agent.older)} older or archived</summary>
    ${open && (agent.older
      ? html`<${Whole} agent=${agent.agent_id}>${({ versions }) => html`<${Listed} agent=${agent.agent_id}
          all=${versions.filter((one) => !apart.has(one.version)).reverse()} means=${means} />`}<//>`
      : html`<${Listed} agent=${agent.agent_id} all=${folded} means=${means} />`)}
  </details>`;
}

/** The newest first, so many at a time, and any of them by its name. */
function Listed({ agent, all, means }) {
  const [most, setMost] = useState(MORE);
  const [version, setVersion] = useState("");
  const find = (event) => {
    event.preventDefault();
    if (version.trim()) go("adapters", [agent, version.trim()]);
  };
  return html`
      ${all.length > MORE && html`<form onSubmit=${find}><label class="field">Version
        <input class="mono" placeholder="v1.0.42" value=${version}
          onInput=${(event) => setVersion(event.target.value)} />
      </label><button>Show</button></form>`}
      <ol>${all.slice(0, most).map((one) =>
        html`<${Kin} key=${one.version} agent=${agent} one=${one} means=${means} />`)}</ol>
      ${all.length > most && html`<div class="pager"><button onClick=${() => setMost(most + MORE)}>More</button>
        <span class="where">${count(most)} of ${count(all.length)}</span></div>`}`;
}

function Tree({ agent, chosen, means }) {
  const places = placed(agent.versions);
  const width = COLUMN * Math.max(...[...places.values()].map((at) => at.column)) + WIDTH + 8;
  const height = ROW * Math.max(...[...places.values()].map((at) => at.row)) + HEIGHT + 8;
  const edges = agent.versions.filter((one) => places.has(one.parent));
  return html`<div class="lineage" tabindex="0" role="group" aria-label="Lineage of ${agent.agent_id}">
    <svg viewBox="0 0 ${width} ${height}" width=${width} height=${height}>
      ${edges.map((one) => html`<${Edge} key=${one.version} from=${places.get(one.parent)}
        to=${places.get(one.version)} taken=${TRUNK.has(one.state)} skips=${one.skips} />`)}
      ${agent.versions.map(
        (one) => html`<${Node} key=${one.version} agent=${agent.agent_id} one=${one} at=${places.get(one.version)}
        chosen=${one.version === chosen} mean=${means.get(one.version)} />`,
      )}
    </svg>
  </div>`;
}

/** version → {column, row}; whose parent is not among them begins a tree of its own. */
export function placed(versions) {
  const known = new Set(versions.map((one) => one.version));
  const children = new Map();
  for (const one of versions) {
    const parent = known.has(one.parent) ? one.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  const places = new Map();
  let rows = 0;
  const waiting = [...(children.get(null) ?? [])].reverse().map((one) => ({ one, column: 0, row: null }));
  while (waiting.length) {
    const { one, column, row } = waiting.pop();
    const place = { column, row: row ?? rows };
    places.set(one.version, place);
    rows = Math.max(rows, place.row + 1);
    const own = [...(children.get(one.version) ?? [])].sort(
      (a, b) => Number(!TRUNK.has(a.state)) - Number(!TRUNK.has(b.state)),
    );
    own
      .slice(1)
      .reverse()
      .forEach((child) => waiting.push({ one: child, column: column + 1, row: null }));
    if (own.length) waiting.push({ one: own[0], column: column + 1, row: place.row });
  }
  return places;
}

function Edge({ from, to, taken, skips }) {
  const [x1, y1] = [4 + from.column * COLUMN + WIDTH, 4 + from.row * ROW + HEIGHT / 2];
  const [x2, y2] = [4 + to.column * COLUMN, 4 + to.row * ROW + HEIGHT / 2];
  const bend = (x2 - x1) / 2;
  return html`<path class="edge ${taken ? "taken" : ""} ${skips ? "skips" : ""}"
    d="M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}" />`;
}

function Node({ agent, one, at, chosen, mean }) {
  const [x, y] = [4 + at.column * COLUMN, 4 + at.row * ROW];
  const alias = one.aliases.join(", ");
  const shown = mean === undefined ? null : score(mean);
  const name = [one.version, words(one.state), alias, shown && `mean score ${shown}`].filter(Boolean).join(", ");
  return html`<a href=${link("adapters", [agent, one.version])} class=${chosen ? "chosen" : ""} aria-label=${name}
    aria-current=${chosen ? "true" : undefined}>
    <g class=${tone(one.state)}>
      <title>${`${one.version}: ${one.sentence}`}</title>
      <rect class="box" x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx="9" />
      <text class="name" x=${x + 12} y=${y + 22}>${one.version}</text>
      <text class="mean" x=${x + WIDTH - 11} y=${y + 22}
        text-anchor="end">${shown}</text>
      <${Lamp} shade=${tone(one.state)} x=${x + 17} y=${y + 41} />
      <text class="state" x=${x + 28} y=${y + 45}>${words(one.state)}</text>
      <text class="alias" x=${x + WIDTH - 11} y=${y + 45} text-anchor="end">${alias === "previous" ? "" : alias}</text>
    </g>
  </a>`;
}

function Lamp({ shade, x, y }) {
  const shapes = {
    good: html`<circle class="lamp" cx=${x} cy=${y} r="4" />`,
    under: html`<circle class="lamp" cx=${x} cy=${y} r="3.6" fill-opacity="0" stroke-width="1.6" /><path class="lamp"
      d="M${x},${y - 3.6}a3.6,3.6 0 0 1 0,7.2z" />`,
    bad: html`<path class="lamp" d="M${x - 3.6},${y - 3.6}l7.2,7.2m0,-7.2l-7.2,7.2" stroke-width="2"
      stroke-linecap="round" />`,
    over: html`<circle class="lamp" cx=${x} cy=${y} r="3.6" fill-opacity="0" stroke-width="1.6" />`,
  };
  return shapes[shade];
}
