// The list of jobs: search while typing, filters and orders without a new page, selecting, keys. refresh.js stands before it.
"use strict";
const search = document.getElementById("search"), go = document.getElementById("compare"), picked = new Set();
const rows = () => [...document.querySelectorAll(".jobs tbody tr")];
function count() {
  for (const box of document.querySelectorAll("[name=run]")) box.checked = picked.has(box.value);
  if (!go) return;
  go.disabled = picked.size < 2 || picked.size > 6;
  go.textContent = go.disabled ? "Compare: select 2 to 6 runs" : `Compare ${picked.size} runs`;
}
document.addEventListener("change", event => {
  if (event.target.name !== "run") return;
  if (event.target.checked) picked.add(event.target.value); else picked.delete(event.target.value);
  count();
});
document.addEventListener("replaced", count);
document.getElementById("pick")?.addEventListener("submit", event => {  // also those of other pages of the list
  event.preventDefault();
  location.href = `/compare?${new URLSearchParams([...picked].map(id => ["run", id]))}`;
});
let typing;
function look() {
  const wanted = new URLSearchParams(location.search);
  wanted.delete("page");
  if (search.value.trim()) wanted.set("search", search.value.trim()); else wanted.delete("search");
  history.replaceState(null, "", wanted.size ? `/?${wanted}` : "/");
  show(location.href);
}
search?.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(look, 250); });
document.getElementById("find")?.addEventListener("submit", event => { event.preventDefault(); clearTimeout(typing); look(); });
document.addEventListener("click", event => {
  const link = event.target.closest("#chips a, #list thead a, #list nav a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  show(link.href);
});
addEventListener("popstate", () => {
  if (search) search.value = new URLSearchParams(location.search).get("search") ?? "";
  show(location.href);
});
addEventListener("keydown", event => {
  if (event.target.type === "search" || event.ctrlKey || event.metaKey || event.altKey || !search) return;
  const list = rows(), at = list.findIndex(row => row.contains(document.activeElement));
  if (event.key === "/") { event.preventDefault(); search.focus(); }
  else if (event.key === "j" || event.key === "k") list[Math.max(0, Math.min(list.length - 1, at + (event.key === "j" ? 1 : -1)))]?.querySelector("th a").focus();
  else if (event.key === "x") list[at]?.querySelector("[name=run]")?.click();
  else if (event.key === "c" && !go.disabled) go.click();
});
count();
