// Shown where the API asks for a token: kept in this tab only, gone with it.
import { html, useState } from "../core/html.js";
import { signIn } from "../core/session.js";
import { Command } from "./states.js";

export function TokenEntry({ reason }) {
  const [token, setToken] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) signIn(token.trim().replace(/^Bearer\s+/i, ""));
  };
  return html`<section class="card entry" aria-label="Sign in">
    <h1 tabindex="-1">Enter a token</h1>
    <p class="caption" role="alert">${reason}</p>
    <form onSubmit=${submit}>
      <label class="field">Token
        <textarea class="mono" name="token" required autofocus autocomplete="off" spellcheck=${false} rows="4"
          value=${token}
          onInput=${(event) => setToken(event.target.value)} />
      </label>
      <div><button class="first" type="submit" disabled=${!token.trim()}>Go on</button></div>
    </form>
    <p class="caption">It stays in this tab and is forgotten when you close it. An operator makes one:</p>
    <${Command} text="ratchet token issue --role viewer --name you --ttl 8h" />
  </section>`;
}
