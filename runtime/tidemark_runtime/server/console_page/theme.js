// Before anything is drawn, so that the page does not flash: the theme that was chosen here before.
"use strict";

// theme: "light", "dark", or "auto" as the system has it.
function setTheme(theme) {
  const media = { light: "not all", dark: "all" };
  document.documentElement.dataset.theme = theme;
  document.getElementById("dark").media = media[theme] ?? "(prefers-color-scheme: dark)";
}

(() => {
  let saved = null;
  try {
    saved = localStorage.getItem("tidemark-theme");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  setTheme(saved === "light" || saved === "dark" ? saved : "auto");
})();
