// On every page of the board: light or dark, dialogs, copying.
"use strict";
const root = document.documentElement;
try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* a browser that keeps nothing */ }
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.theme = root.dataset.theme; } catch { /* likewise */ }
});
document.addEventListener("click", async event => {
  const open = event.target.closest("[data-open]"), close = event.target.closest("[data-close]"), copy = event.target.closest("[data-copy]");
  if (open) document.getElementById(open.dataset.open).showModal();
  if (close) close.closest("dialog").close();
  if (copy) {
    try { await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent); copy.textContent = "Copied"; }
    catch { copy.textContent = "Select and copy"; }
  }
});
