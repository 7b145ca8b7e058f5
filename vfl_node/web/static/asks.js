// The page of a job that waits for this node's owner: two buttons, each with a confirmation. What they send names what was shown.
"use strict";
const address = `/api/jobs/${document.getElementById("job").dataset.job}`, note = document.getElementById("answer");

async function answer(what, said) {
  let text = "The node does not answer. Nothing was decided.";
  try {
    const headers = {"X-Vfl-Board": what, "Content-Type": "application/json"};
    const reply = await fetch(`${address}/${what}`, {method: "POST", headers, body: JSON.stringify(said)});
    if (reply.ok) return location.reload();
    text = (await reply.json()).message;
  } catch { /* said so */ }
  note.textContent = text;
}

for (const what of ["approve", "refuse"]) {
  document.querySelector(`[data-open=${what}]`).hidden = false;
  document.getElementById(what).addEventListener("close", ({target}) => {
    if (target.returnValue === "yes") answer(what, Object.fromEntries(new FormData(target.querySelector("form"))));
    target.returnValue = "";  // Esc leaves it as it is
  });
}
