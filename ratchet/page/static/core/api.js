// Calls of the fleet's REST API: JSON in and out, problem+json as one kind of error, 401 asks for a token.
import { entryReason, session } from "./session.js";

const KINDS = { 401: "signed-out", 403: "forbidden", 404: "unknown", 409: "conflict", 410: "gone", 429: "busy" };

/** Status 0: no answer came. `kind` is what the page tells apart. */
export class ApiProblem extends Error {
  constructor(status, title, detail, retryAfter = null) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.retryAfter = retryAfter;
  }

  get kind() {
    if (this.status === 0) return "away";
    if (this.status === 503) return /standby/i.test(`${this.title} ${this.detail}`) ? "standby" : "unable";
    return KINDS[this.status] ?? "refused";
  }
}

const LONGEST_MS = 30_000;

/** The answer as an object; throws ApiProblem, also where there is none within half a minute. */
export async function call(path, { method = "GET", body, signal } = {}) {
  const late = AbortSignal.timeout(LONGEST_MS);
  const response = await request(path, { method, body, signal: signal ? AbortSignal.any([signal, late]) : late });
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem(0, "The answer broke off", "the connection ended in the middle of the answer");
  }
}

/** The response itself, once it says that all is well; throws ApiProblem where it does not. */
export async function request(path, { method = "GET", body, signal, headers = {} } = {}) {
  const { token } = session.get();
  const sent = { Accept: "application/json", ...headers };
  if (token) sent.Authorization = `Bearer ${token}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const response = await answered(path, {
    method,
    signal,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
  });
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (response.status === 401 && session.get().token === token) entryReason.set(reasonFor(problem, token));
  throw problem;
}

async function answered(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem(0, "No answer from the orchestrator", "it is stopped, or the network between is");
  }
}

async function problemOf(response) {
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  let said = {};
  try {
    said = await response.json();
  } catch {
    // Not problem+json: a proxy in between, perhaps. The status has to do.
  }
  const faults = (said.errors ?? []).map((fault) => `${fault.pointer ?? ""} ${fault.detail ?? ""}`.trim());
  const detail = [said.detail, ...faults].filter(Boolean).join("; ");
  return new ApiProblem(response.status, said.title ?? response.statusText ?? "Refused", detail, retryAfter);
}

function reasonFor(problem, token) {
  return token ? `The token was refused. ${problem.detail || problem.title}` : "This fleet's API asks for a token.";
}
