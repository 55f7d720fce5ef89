"use strict";
// One transaction in full, in a dialog: its fields, its callbacks, its money, and the code that began it.

let detailId = null;
let detail = null;

async function openDetail(id) {
  detailId = id;
  $("detail-code").hidden = true;
  $("detail-callbacks").replaceChildren();
  await loadDetail();
  if (detail && !$("detail").open) $("detail").showModal();
}

async function loadDetail() {
  if (!detailId) return;
  const answer = await read(`/sandbox/transactions/${detailId}`);
  if (!answer) { $("detail").close(); return; }
  if (answer.id === detailId) { detail = answer; renderDetail(); }
}

function factsOf(thing) {
  const account = state.accounts.find((each) => each.tenant_id === thing.tenant_id);
  return {
    Status: thing.status,
    Amount: `KES ${money(thing.amount)} (fee ${money(thing.fee)})`,
    Phone: local(thing.phone),
    Reference: thing.reference || "none",
    Description: thing.description || "none",
    Id: thing.id,
    Account: account ? account.label : thing.tenant_id,
    Outcome: thing.outcome.replaceAll("_", " "),
    Result: thing.result_code ? `${thing.result_code}: ${thing.result_desc}` : "none yet",
    Receipt: thing.receipt || "none",
    [thing.type === "B2C" ? "Paid from" : "Pay to"]: `${thing.shortcode} (${thing.transaction_type})`,
    Created: moment(thing.created_at),
    Updated: moment(thing.updated_at),
    "Next step": thing.next_step_at ? moment(thing.next_step_at) : "none planned",
    "Callback URL": thing.callback_url || "none",
  };
}

function renderDetail() {
  put($("detail-title"), `${detail.type === "WALLET_TOPUP" ? "Top-up" : detail.type} of KES ${money(detail.amount)}: ${detail.status}`);
  $("detail-facts").replaceChildren(...Object.entries(factsOf(detail)).flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
  $("detail-prompt").hidden = !detail.prompt;
  const due = detail.callback_due_at ? ` The next attempt is at ${moment(detail.callback_due_at)}.` : "";
  put($("detail-callback-note"), due.trim());
  keyed($("detail-callbacks"), detail.callbacks, (thing) => thing.id, buildCallback, () => {}, detail.callback_url ? "None was sent yet." : "This payment has no callback URL.");
  const moved = (thing) => { const row = make("li"); row.append(make("b", "number", `KES ${money(thing.amount)}`), ` ${thing.kind.replaceAll("_", " ")} · ${clock(thing.at)}`); return row; };
  const rows = detail.ledger.map(moved);
  $("detail-ledger").replaceChildren(...(rows.length ? rows : [make("li", "empty", "No money has moved.")]));
}

$("detail").addEventListener("close", () => { detailId = detail = null; });
$("detail-curl").addEventListener("click", () => copy(asCurl(requestOf(detail)), $("detail-code")));
$("detail-python").addEventListener("click", () => copy(asPython(requestOf(detail)), $("detail-code")));
$("detail-phone").addEventListener("click", async () => {
  const { phone } = detail;
  $("detail").close();
  await chooseNumber(phone);
  $("number").focus();
});
document.querySelectorAll("[data-act]").forEach((button) => button.addEventListener("click", async () => {
  await actOnPrompt(button.dataset.act, detailId);
  await loadDetail();
  $("detail").querySelector("[data-close]").focus();
}));
