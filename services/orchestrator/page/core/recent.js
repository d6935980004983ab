// The tasks that were settled lately: the newest of the list, and then whatever the stream tells. For the live charts.
import { call } from "./api.js";
import { listen } from "./events.js";
import { useEffect } from "./html.js";
import { store, useStore } from "./store.js";

const KEPT = 400;
const FROM_LIST = 200;
const DRAW_EVERY_MS = 500;

/** {sequence, score, version}, in the order of their sequence numbers. */
const recent = store([]);
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

function heard({ kind, data }) {
  if (kind === "gap") return void fill();
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
    const { items } = await call(`v1/tasks?state=closed&limit=${FROM_LIST}`);
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
