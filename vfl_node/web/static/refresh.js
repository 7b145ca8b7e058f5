// Every second, while the page is looked at: fetch it again and show what has changed.
const silent = document.querySelector(".silent");
async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href);
      if (answer.status === 401) return location.reload();
      if (answer.redirected) return location.replace(answer.url);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const now = document.querySelector("main"), next = page.querySelector("main");
      if (next && now.innerHTML !== next.innerHTML) now.replaceWith(next);
      silent.hidden = true;
    } catch {
      silent.hidden = false;
    }
  }
  setTimeout(refresh, 1000);
}
setTimeout(refresh, 1000);
