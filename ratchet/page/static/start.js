// The page's first module: starts the stream of events and draws the shell.
import { startStream } from "./core/events.js";
import { html, render } from "./core/html.js";
import { Shell } from "./shell.js";

render(html`<${Shell} />`, document.getElementById("page"));
startStream();

try {
  sessionStorage.removeItem("ratchet.loads"); // all of it came: see loading.js
} catch {
  // Nothing was counted.
}
