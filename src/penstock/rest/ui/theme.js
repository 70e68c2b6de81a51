// Runs before the first paint, so that the page never appears in the wrong theme.
(() => {
  try {
    const chosen = localStorage.getItem("penstock-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // This browser has no storage: use the system's theme.
    document.documentElement.dataset.theme = "";
  }
})();
