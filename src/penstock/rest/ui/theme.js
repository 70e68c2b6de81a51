// Runs before anything is painted, so that a chosen theme never flashes up in the other one.
(() => {
  try {
    const chosen = localStorage.getItem("penstock-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is switched off in this browser: the system's theme it is.
    document.documentElement.dataset.theme = "";
  }
})();
