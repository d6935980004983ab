// Who is looking: the API token, kept in this tab only (sessionStorage) and forgotten with it.
// What the token says of itself is read to hide what would be refused; the server alone decides.
import { store } from "./store.js";

const KEY = "ratchet.token";

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function claims(token) {
  try {
    const payload = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const said = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(payload), (c) => c.charCodeAt(0))));
    return { name: String(said.sub ?? ""), role: String(said.role ?? ""), expires: Number(said.exp) || null };
  } catch {
    return { name: "", role: "", expires: null };
  }
}

function of(token) {
  return token ? { token, ...claims(token) } : { token: null, name: "", role: "operator", expires: null };
}

/** {token, name, role, expires: seconds since 1970 or null}. Without a token the fleet is this machine's own. */
export const session = store(of(stored()));

/** Why a token has to be entered, or null while none has to. */
export const entryReason = store(null);

/** Goes up by one with each sign-in and sign-out: what was read before is read again. */
export const sessionTurn = store(0);

export function signIn(token) {
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // Without storage the token lives as long as the page.
  }
  begin(of(token));
}

export function signOut() {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
  begin(of(null));
}

function begin(next) {
  session.set(next);
  entryReason.set(null);
  sessionTurn.set(sessionTurn.get() + 1);
}

/** What each role may do here; as the server's matrix has it. */
export const MAY = {
  read: new Set(["viewer", "operator"]),
  change: new Set(["operator"]),
  cancel: new Set(["submitter", "operator"]),
};

/** An unknown role may try: the server answers. */
export function may(what, role) {
  return role === "" || MAY[what].has(role);
}
