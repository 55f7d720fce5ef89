"use strict";
// The phone: the open prompts of one number or of all, and what it was told before.

const ENDED = ["SUCCESS", "FAILED", "CANCELLED", "EXPIRED"];
let shown = null;
// The newest prompt, and the one that somebody turned to: when a newer one comes, that is shown.
let newest = null, turnedTo = null;
let past = [];
const ignored = new Set();

const mine = (thing) => here(thing) && (!view.number || thing.phone === view.number);
// Newest first: it is the one that somebody waits for. The arrows lead to the others.
const openPrompts = () => state.transactions.filter((thing) => thing.prompt && here(thing) && !ignored.has(thing.id));

function renderNumbers() {
  const open = new Map();
  openPrompts().forEach((thing) => open.set(thing.phone, (open.get(thing.phone) || 0) + 1));
  const known = state.accounts.filter(here).flatMap((account) => account.phones);
  const numbers = [...new Set([...open.keys(), ...(view.number ? [view.number] : []), ...known])];
  const text = (phone) => `${local(phone)}${open.get(phone) ? ` (${open.get(phone)} open)` : ""}`;
  setOptions($("number"), [["", "All numbers"], ...numbers.map((phone) => [phone, text(phone)])], view.number);
  put($("owner"), view.number ? local(view.number) : "");
  put($("idle-text"), view.number ? `Prompts for ${local(view.number)} appear here.` : "PIN prompts appear here as your code sends them.");
}

function buildMessage(thing) {
  const item = make("li"), head = make("b");
  head.append(make("span", "", local(thing.phone)), make("span", "number", clock(thing.updated_at, false)));
  const paid = thing.type === "B2C" ? `You received KES ${money(thing.amount)}.` : `KES ${money(thing.amount)} paid to ${thing.shortcode}${thing.reference ? ` for ${thing.reference}` : ""}.`;
  item.append(head, make("span", "", thing.status === "SUCCESS" ? `${thing.receipt} confirmed. ${paid}` : `KES ${money(thing.amount)}: ${thing.result_desc || thing.status}`));
  return item;
}

function renderPhone() {
  renderNumbers();
  const waiting = openPrompts().filter(mine);
  if (waiting[0]?.id !== newest) { newest = waiting[0]?.id; turnedTo = null; }
  const prompt = waiting.find((thing) => thing.id === turnedTo) || waiting[0], place = waiting.indexOf(prompt);
  $("veil").hidden = !prompt;
  document.querySelectorAll(".home, #messages, .idle").forEach((node) => { node.inert = Boolean(prompt); });
  const told = (view.number ? past : state.transactions).filter((thing) => mine(thing) && ENDED.includes(thing.status));
  told.sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
  const messages = told.slice(0, view.number ? 50 : 3);
  keyed($("messages"), messages, (thing) => `${thing.id} ${thing.status}`, buildMessage, () => {}, "");
  if (!prompt) { shown = null; return; }
  $("turns").hidden = waiting.length < 2;
  put($("prompt-count"), `${place + 1} of ${waiting.length}`);
  $("newer").disabled = place === 0;
  $("older").disabled = place === waiting.length - 1;
  if (shown === prompt.id) return;
  shown = prompt.id;
  put($("prompt-amount"), money(prompt.amount));
  put($("prompt-shortcode"), prompt.shortcode);
  put($("prompt-reference"), prompt.reference || "none");
  put($("prompt-description"), prompt.description || "none");
  put($("prompt-phone"), local(prompt.phone));
  put($("prompt-account"), state.accounts.find((account) => account.tenant_id === prompt.tenant_id)?.label || "");
  document.querySelectorAll("[data-action]").forEach((button) => { button.disabled = false; });
  put($("announce"), `Payment request of KES ${money(prompt.amount)} on ${local(prompt.phone)}`);
}

function turn(step) {
  const waiting = openPrompts().filter(mine), place = waiting.findIndex((thing) => thing.id === shown);
  turnedTo = waiting[place + step]?.id ?? shown;
  renderPhone();
}

async function chooseNumber(phone) {
  view.number = phone;
  shown = null;
  await loadHistory();
  renderPhone();
}

async function loadHistory() {
  past = view.number ? (await read(`/sandbox/transactions?phone=${view.number}`)) || [] : [];
}

async function actOnPrompt(action, id) {
  if (action === "ignore") ignored.add(id);
  if (!(await act(`/sandbox/${action}`, { id }))) ignored.delete(id);
}

document.querySelectorAll("[data-action]").forEach((button) => button.addEventListener("click", async () => {
  const held = document.activeElement;
  document.querySelectorAll("[data-action]").forEach((other) => { other.disabled = true; });
  await actOnPrompt(button.dataset.action, shown);
  document.querySelectorAll("[data-action]").forEach((other) => { other.disabled = false; });
  renderPhone();
  // The focus goes where the next thing happens: to the same button of the next prompt, or to what is behind it.
  if (held === button) ($("veil").hidden ? $("try") : button).focus({ preventScroll: true });
}));

$("newer").addEventListener("click", () => turn(-1));
$("older").addEventListener("click", () => turn(1));
$("number").addEventListener("change", (event) => chooseNumber(event.target.value));
$("try").addEventListener("click", async () => {
  const body = { amount: 50, phone: view.number || "0712349945", accountReference: "COFFEE-1", transactionDesc: "Flat white" };
  await act("/v1/payments/stk", body, { authorization: `Basic ${btoa("pk_test_page:")}` });
  if (view.account) chooseAccount("");
});
