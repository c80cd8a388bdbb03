// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  try {
    const theme = localStorage.getItem("convbench.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    /* storage is off: the system's choice holds */
  }
})();
