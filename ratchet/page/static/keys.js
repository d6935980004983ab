// Keys for hands that stay on the keyboard: g and a letter to go, j and k to walk, / for a task, ? for this list.
// They can be switched off, for whoever speaks to the browser instead of typing.
import { html, useEffect } from "./core/html.js";
import { go } from "./core/router.js";
import { store, useStore } from "./core/store.js";
import { Dialog } from "./parts/dialog.js";
import { stepRows } from "./parts/table.js";

const KEY = "ratchet.keys";
const AFTER_G_MS = 1200;
const GO = {
  o: "overview",
  t: "tasks",
  e: "experiments",
  a: "adapters",
  p: "programs",
  m: "agreement",
  v: "evaluations",
  r: "training",
  q: "queues",
  d: "dead-letters",
  j: "jobs",
  n: "agents",
  u: "usage",
};
const OTHERS = [
  ["j  k", "next or previous row; Enter opens it"],
  ["n  p", "older, or back"],
  ["/", "look for a task by its id"],
  ["?", "this list"],
  ["Esc", "close a dialog"],
];

const on = store(stored());

function stored() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}

function switchKeys(to) {
  on.set(to);
  try {
    localStorage.setItem(KEY, to ? "on" : "off");
  } catch {
    // It lasts as long as the page, then.
  }
}

export function useKeys(views, openSheet) {
  useEffect(() => {
    let afterG = 0;
    const act = (event) => {
      if (!on.get() || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const going = GO[event.key] && Date.now() - afterG < AFTER_G_MS;
      afterG = event.key === "g" ? Date.now() : 0;
      if (going) go(GO[event.key]);
      else if (!plainKey(event.key, openSheet)) return;
      event.preventDefault();
    };
    addEventListener("keydown", act);
    return () => removeEventListener("keydown", act);
  }, []);
}

function typing(target) {
  return target.closest?.("input, textarea, select, dialog, [contenteditable]") != null;
}

function plainKey(key, openSheet) {
  const acts = {
    j: () => stepRows(1),
    k: () => stepRows(-1),
    n: () => document.querySelector('[data-key="older"]')?.click(),
    p: () => document.querySelector('[data-key="newer"]')?.click(),
    "/": lookForTask,
    "?": openSheet,
  };
  acts[key]?.();
  return key in acts;
}

function lookForTask() {
  const found = document.querySelector('[data-key="search"]');
  if (found) found.focus();
  else go("tasks", [], { look: "for" });
}

export function KeySheet({ views, onClose }) {
  const active = useStore(on);
  const title = (name) => views.find((one) => one.name === name)?.title;
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <div class="keys">
      ${Object.entries(GO).filter(([, name]) => title(name)).map(([letter, name]) =>
        html`<span><kbd>g</kbd> <kbd>${letter}</kbd></span><span>${title(name)}</span>`)}
      ${OTHERS.map(([keys, does]) => html`<span>${keys.split("  ").map((key) =>
        html`<kbd>${key}</kbd> `)}</span><span>${does}</span>`)}
    </div>
    <form method="dialog">
      <label><input type="checkbox" checked=${active}
        onChange=${(event) => switchKeys(event.target.checked)} /> Single keys are on</label>
      <div class="buttons"><button class="first" autofocus>Close</button></div>
    </form>
  <//>`;
}
