// Dialogs on the browser's own <dialog>: it keeps the focus inside, closes on Escape, and gives the focus back.
import { html, useEffect, useId, useRef, useState } from "../core/html.js";
import { Trouble } from "./states.js";

export function Dialog({ title, onClose, children }) {
  const own = useRef(null);
  const name = useId();
  useEffect(() => {
    const before = document.activeElement;
    own.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  const outside = (event) =>
    event.target === own.current && event.clientX > 0 && leaves(event, own.current) && onClose();
  return html`<dialog ref=${own} aria-labelledby=${name} onClose=${onClose} onClick=${outside}>
    <h2 id=${name}>${title}</h2>
    ${children}
  </dialog>`;
}

function leaves(event, dialog) {
  const box = dialog.getBoundingClientRect();
  return (
    event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom
  );
}

/**
 * Asks before a change, and for the reason where `reason` says what it is for. `act(reason)` does it; its problem is
 * shown here, and the dialog stays.
 */
export function Confirm({ title, children, action, danger = false, reason = null, act, onClose }) {
  const [said, setSaid] = useState("");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setProblem(null);
    try {
      await act(said.trim());
      onClose();
    } catch (error) {
      if (!error.kind) throw error;
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <div>${children}</div>
      ${
        reason &&
        html`<label class="field">Reason
        <textarea required autofocus maxlength="2000" value=${said} placeholder=${reason}
          onInput=${(e) => setSaid(e.target.value)} />
      </label>`
      }
      ${problem && html`<${Trouble} problem=${problem} />`}
      <div class="buttons">
        <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${danger ? "danger" : "first"} disabled=${busy || (reason && !said.trim())}>
          ${busy ? "Working …" : action}
        </button>
      </div>
    </form>
  <//>`;
}
