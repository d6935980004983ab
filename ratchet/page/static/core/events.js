// What happens in the fleet, as it happens: server-sent events over fetch, since EventSource can send no token.
// Resumes with Last-Event-ID, comes back by itself, and is given up while the tab is hidden (a browser allows an
// origin six connections in all). Whoever listens is told "gap" when something may have been missed.
import { ApiProblem, request } from "./api.js";
import { sessionTurn } from "./session.js";
import { store } from "./store.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
/** The server sends a heartbeat well within this; silence for longer means a dead connection. */
const SILENCE_MS = 45_000;
const HIDDEN_MS = 30_000;

/** "live", "connecting" or "away". */
export const streamState = store("connecting");

const listeners = new Map();
let lastId = null;
let run = null;

/** Calls `told(event)` for each event of these kinds, and of "gap"; returns how to stop. */
export function listen(kinds, told) {
  const own = [...kinds, "gap"];
  for (const kind of own) listenersOf(kind).add(told);
  return () => own.forEach((kind) => listenersOf(kind).delete(told));
}

function listenersOf(kind) {
  if (!listeners.has(kind)) listeners.set(kind, new Set());
  return listeners.get(kind);
}

function tell(kind, data) {
  for (const told of [...listenersOf(kind)]) told({ kind, data });
}

/** Starts the stream; once, at the page's start. */
export function startStream() {
  let hiding = null;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(stop, HIDDEN_MS);
    else if (!run) start();
  });
  sessionTurn.watch(() => {
    lastId = null;
    stop();
    start();
  });
  start();
}

function start() {
  const controller = new AbortController();
  run = controller;
  void keepUp(controller.signal);
}

function stop() {
  run?.abort();
  run = null;
}

async function keepUp(signal) {
  let wait = FIRST_WAIT_MS;
  let missed = lastId !== null;
  while (!signal.aborted) {
    try {
      streamState.set(streamState.get() === "away" ? "away" : "connecting");
      await read(signal, () => {
        streamState.set("live");
        wait = FIRST_WAIT_MS;
        if (missed) tell("gap", {});
        missed = true;
      });
    } catch (error) {
      if (signal.aborted) return;
      streamState.set("away");
      if (error instanceof ApiProblem && error.status === 401) return;
      if (error instanceof ApiProblem && error.retryAfter) wait = Math.max(wait, error.retryAfter * 1000);
      missed = true;
    }
    await pause(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

async function read(signal, opened) {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  const headers = { Accept: "text/event-stream", ...(lastId === null ? {} : { "Last-Event-ID": lastId }) };
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await request("v1/events", { headers, signal: both });
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      parse(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Takes the stream's text in any pieces and tells each event once it is whole. */
function parser() {
  let text = "";
  return (more) => {
    text += more.replaceAll("\r", "");
    const blocks = text.split("\n\n");
    text = blocks.pop();
    blocks.forEach(tellBlock);
  };
}

function tellBlock(block) {
  let kind = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const [name, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    if (name === "event") kind = value;
    else if (name === "data") data.push(value);
    else if (name === "id") lastId = value;
  }
  if (data.length) tell(kind, parsed(data.join("\n")));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
