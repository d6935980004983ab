// The tasks that were settled lately: the newest of the list, and then whatever the stream tells. For the live charts:
// the scores of the latest, and how many were settled in each second of the last minutes.
import { call } from "./api.js";
import { listen } from "./events.js";
import { useEffect } from "./html.js";
import { store, useStore } from "./store.js";

const KEPT = 400;
const FROM_LIST = 200;
const DRAW_EVERY_MS = 500;
/** How the experiments of the fleet's own tasks begin: no user gets these answers. */
const OWN = "validation:";

/** {sequence, score, version}, in the order of their sequence numbers. */
const recent = store([]);
/** Second since 1970 → tasks settled in it. */
const settled = new Map();
const SECONDS_KEPT = 300;
let arriving = [];
let timer = null;
let users = 0;
let silent = null;

export function useRecent() {
  useEffect(() => {
    users += 1;
    if (users === 1) silent = listen(["task.settled"], heard);
    void fill();
    return () => {
      users -= 1;
      if (users === 0) silent();
    };
  }, []);
  return useStore(recent);
}

/** [second, tasks a second, as the mean of the `over` seconds up to it][], from the first that is known to `until`. */
export function settledRates(until, over) {
  if (!settled.size) return [];
  const first = Math.max(Math.min(...settled.keys()), until - SECONDS_KEPT + over);
  const rates = [];
  for (let second = first; second <= until; second += 1) {
    let sum = 0;
    for (let back = 0; back < over; back += 1) sum += settled.get(second - back) ?? 0;
    rates.push([second, sum / Math.min(over, second - first + 1)]);
  }
  return rates;
}

function count(iso, number = 1) {
  const second = Math.floor(Date.parse(iso) / 1000);
  settled.set(second, (settled.get(second) ?? 0) + number);
  if (settled.size > SECONDS_KEPT) settled.delete(settled.keys().next().value);
}

function heard({ kind, data }) {
  if (kind === "gap") return void fill();
  if (data.experiment_id?.startsWith(OWN)) return;
  count(data.at);
  arriving.push({ sequence: data.sequence, score: data.score, version: data.adapter_version });
  timer ??= setTimeout(take, DRAW_EVERY_MS);
}

function take() {
  timer = null;
  merge(arriving);
  arriving = [];
}

async function fill() {
  try {
    const { items } = await call(`v1/tasks?state=closed&own=false&limit=${FROM_LIST}`);
    if (!settled.size) items.filter((one) => one.closed_at).reverse().forEach((one) => count(one.closed_at));
    merge(items.map(({ sequence, score, adapter_version: version }) => ({ sequence, score, version })));
  } catch (problem) {
    if (!problem.kind) throw problem;
    // The view's own reading shows the problem.
  }
}

function merge(more) {
  if (!more.length) return;
  const known = new Map(recent.get().map((one) => [one.sequence, one]));
  for (const one of more) known.set(one.sequence, one);
  recent.set([...known.values()].sort((a, b) => a.sequence - b.sequence).slice(-KEPT));
}
