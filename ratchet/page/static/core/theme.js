// Light, dark, or as the system has it: a switch that stays (localStorage), and a store for what is drawn on canvas.
import { store } from "./store.js";

const KEY = "ratchet.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** "light" or "dark": what is shown now. */
export const shown = store(now());

function now() {
  return document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
}

system.addEventListener("change", () => shown.set(now()));

export function switchTheme() {
  const next = now() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // It lasts as long as the page, then.
  }
  shown.set(next);
}

/** A colour of tokens.css as it is now. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
