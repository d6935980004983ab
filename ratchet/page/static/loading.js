// Loads the page once more where a part of it did not come: the network changed, or the page was updated in between.
// After the second time it says so. Not a module: it has to be there when one fails.
{
  const KEY = "ratchet.loads";
  const MOST = 2;
  addEventListener(
    "error",
    (event) => {
      if (!(event.target instanceof HTMLScriptElement)) return;
      let loads = MOST;
      try {
        loads = Number(sessionStorage.getItem(KEY) ?? 0);
        sessionStorage.setItem(KEY, String(loads + 1));
      } catch {
        // Without storage nobody counts, so it is not tried.
      }
      if (loads < MOST) location.reload();
      else document.getElementById("page").textContent = "A part of this page could not be loaded. Load it again.";
    },
    true,
  );
}
