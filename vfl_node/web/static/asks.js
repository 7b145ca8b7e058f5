// What waits for this node's owner: buttons, each with a confirmation. What they send names what was shown.
"use strict";
const note = document.getElementById("answer");

async function answer(address, said) {
  let text = "The node does not answer. Nothing was decided.";
  try {
    const headers = {"X-Vfl-Board": address.split("/").pop(), "Content-Type": "application/json"};
    const reply = await fetch(address, {method: "POST", headers, body: JSON.stringify(said)});
    if (reply.ok) return location.reload();
    text = (await reply.json()).message;
  } catch { /* said so */ }
  note.textContent = text;
}

for (const dialog of document.querySelectorAll("dialog[data-post]")) {
  document.querySelector(`[data-open="${dialog.id}"]`).hidden = false;
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") answer(dialog.dataset.post, Object.fromEntries(new FormData(dialog.querySelector("form"))));
    dialog.returnValue = "";  // Esc leaves it as it is
  });
}
