// While the page is looked at: fetch it again, and show the parts that have changed. Focus and what is typed stay.
"use strict";
const silent = document.querySelector(".silent");
let asked = 0;
async function show(address) {
  const turn = ++asked;
  try {
    const answer = await fetch(address);
    if (answer.status === 401) return location.reload();
    if (!answer.ok) throw new Error(answer.statusText);
    if (answer.redirected) return location.replace(answer.url);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== asked) return;
    const parts = page.querySelectorAll("[data-live]");
    for (const next of parts.length ? parts : page.querySelectorAll("main")) {
      const now = document.getElementById(next.id);
      if (!now) return location.reload();
      if (now.innerHTML !== next.innerHTML) replace(now, next);
    }
    silent.hidden = true;
  } catch {
    silent.hidden = false;
  }
}
function replace(now, next) {
  const focused = now.contains(document.activeElement) && document.activeElement.id;
  now.replaceWith(next);
  next.dispatchEvent(new Event("replaced", {bubbles: true}));
  if (focused) document.getElementById(focused)?.focus({preventScroll: true});
}
async function refresh() {
  if (!document.hidden) await show(location.href);
  setTimeout(refresh, 1000 * (document.querySelector("[data-every]")?.dataset.every ?? 1));
}
setTimeout(refresh, 1000);
addEventListener("visibilitychange", () => document.hidden || show(location.href));
