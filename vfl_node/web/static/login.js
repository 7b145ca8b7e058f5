// A link is /login#ticket=…&to=/jobs/…: what follows # is sent to nobody, and is gone from the address before anything else.
const asked = new URLSearchParams(location.hash.slice(1));
async function enter(ticket, to) {
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/login", {method: "POST", body: ticket});
  if (answer.ok) return location.replace(/^\/([a-z0-9-][a-z0-9.\/-]*)?$/.test(to) ? to : "/");
  document.getElementById("said").textContent = "This link was used already, or is too old: vfl-node board --config FILE prints another.";
}
if (asked.has("ticket")) enter(asked.get("ticket"), asked.get("to"));
