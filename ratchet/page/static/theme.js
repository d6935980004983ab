// Puts the chosen theme on the document before anything is drawn, so that nothing flashes.
// Not a module: those wait until the document was read.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("ratchet.theme");
  } catch {
    // Storage is off in this browser: the system's theme it is.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
