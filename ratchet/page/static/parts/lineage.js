// The family tree of an agent's adapters: from the base model to the right, each version with its state. A column for
// each generation; the child that became the primary goes on in its parent's row.
import { score, words } from "../core/format.js";
import { html } from "../core/html.js";
import { link } from "../core/router.js";
import { tone } from "./pill.js";

const COLUMN = 200;
const ROW = 82;
const WIDTH = 160;
const HEIGHT = 58;
const TRUNK = new Set(["probation", "stable", "superseded"]);

export function Lineage({ agent, chosen, means }) {
  const places = placed(agent.versions);
  const width = COLUMN * Math.max(...[...places.values()].map((at) => at.column)) + WIDTH + 8;
  const height = ROW * Math.max(...[...places.values()].map((at) => at.row)) + HEIGHT + 8;
  const edges = agent.versions.filter((one) => places.has(one.parent));
  return html`<div class="lineage" tabindex="0" role="group" aria-label="Lineage of ${agent.agent_id}">
    <svg viewBox="0 0 ${width} ${height}" width=${width} height=${height}>
      ${edges.map((one) => html`<${Edge} key=${one.version} from=${places.get(one.parent)}
        to=${places.get(one.version)} taken=${TRUNK.has(one.state)} />`)}
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

function Edge({ from, to, taken }) {
  const [x1, y1] = [4 + from.column * COLUMN + WIDTH, 4 + from.row * ROW + HEIGHT / 2];
  const [x2, y2] = [4 + to.column * COLUMN, 4 + to.row * ROW + HEIGHT / 2];
  const bend = (x2 - x1) / 2;
  return html`<path class="edge ${taken ? "taken" : ""}"
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
