// Where the page is: the part of the address after #, as in #/tasks/t-1?state=open. Links are plain links.
import { store } from "./store.js";

export const place = store(parsed());

function parsed() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return {
    view: parts[0] ?? "overview",
    parts: parts.slice(1),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener("hashchange", () => place.set(parsed()));

/** link("tasks", ["t-1"], {state: "open"}) → "#/tasks/t-1?state=open"; empty values are left out. */
export const link = (view, parts = [], query = {}) => `#/${written([view, ...parts], query)}`;

/** apiPath(["tasks"], {limit: 50}) → "v1/tasks?limit=50", relative to the page. */
export const apiPath = (parts, query = {}) => `v1/${written(parts, query)}`;

export function go(...where) {
  location.hash = link(...where);
}

function written(parts, query) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return parts.map(encodeURIComponent).join("/") + (kept.length ? `?${new URLSearchParams(kept)}` : "");
}
