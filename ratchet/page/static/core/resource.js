// What the page shows is read from the API with `useResource`: at once, again when the stream tells of a change of its
// kinds (at most once a second), and every few seconds where there is no stream. The last answer stays while it waits.
import { call } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";
import { listen, streamState } from "./events.js";
import { sessionTurn } from "./session.js";
import { useStore } from "./store.js";

const LEAST_MS = 1000;
const POLL_MS = 5000;
const PASSING = new Set(["away", "standby", "unable", "busy"]);
/** The newest answers, so that going back shows at once what was there. */
const KEPT = 40;
const answers = new Map();

function keep(path, data) {
  answers.delete(path);
  answers.set(path, data);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}

sessionTurn.watch(() => answers.clear());

/**
 * {data, problem, waiting, reload}. `kinds`: events that make it old.
 * `everyMs`: also read this often although there is a stream.
 */
export function useResource(path, { kinds = [], everyMs = null } = {}) {
  const turn = useStore(sessionTurn);
  const [state, setState] = useState({ path: null, data: null, problem: null, waiting: true });
  const reading = useRef({});
  const kindsKey = kinds.join(" ");

  useEffect(() => {
    const reader = newReader(path, setState);
    reading.current = reader;
    setState((old) => ({
      path,
      data: answers.get(path) ?? (old.path === path ? old.data : null),
      problem: null,
      waiting: true,
    }));
    reader.read();
    const silent = kindsKey ? listen(kindsKey.split(" "), reader.soon) : () => {};
    const poll = setInterval(() => {
      if (everyMs || reader.failing() || streamState.get() !== "live") reader.soon();
    }, everyMs ?? POLL_MS);
    const seen = () => document.hidden || reader.soon();
    document.addEventListener("visibilitychange", seen);
    return () => {
      silent();
      clearInterval(poll);
      document.removeEventListener("visibilitychange", seen);
      reader.stop();
    };
  }, [path, kindsKey, everyMs, turn]);

  const current = state.path === path ? state : { data: answers.get(path) ?? null, problem: null, waiting: true };
  return { ...current, reload: () => reading.current.read?.() };
}

/** One request at a time: what is told meanwhile has it read again afterwards, however slow the answers are. */
function newReader(path, setState) {
  let controller = null;
  let timer = null;
  let last = 0;
  let again = false;
  let failed = null;

  async function read() {
    clearTimeout(timer);
    timer = null;
    controller?.abort();
    const own = new AbortController();
    controller = own;
    last = Date.now();
    again = false;
    const outcome = await outcomeOf(path, own.signal);
    if (own.signal.aborted) return;
    controller = null;
    failed = outcome.problem?.kind ?? null;
    setState((old) => ({ path, waiting: false, data: outcome.gone ? null : old.data, ...outcome }));
    if (again) soon();
  }

  function soon() {
    if (controller) again = true;
    else if (!timer && !document.hidden) timer = setTimeout(read, Math.max(0, last + LEAST_MS - Date.now()));
  }

  return {
    read,
    soon,
    /** For a reason that may pass by itself. */
    failing: () => PASSING.has(failed),
    stop() {
      clearTimeout(timer);
      controller?.abort();
    },
  };
}

/** {data, problem: null}, or {problem, gone: there is no such thing any more}. */
async function outcomeOf(path, signal) {
  try {
    const data = await call(path, { signal });
    keep(path, data);
    return { data, problem: null };
  } catch (problem) {
    if (!problem.kind && !signal.aborted) throw problem;
    return { problem, gone: problem.status === 404 };
  }
}
