"use strict";
// The accounts: balances at a glance, and everything that can be changed in a dialog, said in a shop's words.

const FIELDS = [
  ["b2c_balance", "Money to pay out, KES"], ["service_balance", "Money for fees, KES"],
  ["fee", "Fee of each payment, KES"], ["rate_limit", "Requests a minute (empty: no limit)"],
];
// Groups of switches: name, label, and what each value is called. The first group is open.
const GROUPS = [
  ["Customers and fees", [
    ["cancel_ends_as", "A prompt that the customer cancels is", { CANCELLED: "cancelled", FAILED: "failed" }],
    ["expired_reads_as", "A prompt that nobody answers is", { EXPIRED: "expired", FAILED: "failed" }],
    ["late_pin", "Customers can still pay after a prompt has ended"],
    ["fee_refunded_on_failure", "The fee comes back when a payment fails"],
    ["health_rule", "Prompts pause for 30 minutes when fewer than 30 of 100 are paid"],
    ["ban_pushes", "Block prompts for an hour after this many (empty: never)"],
    ["ban_window", "… counted over this many seconds"],
    ["ban_success_rate", "… if a smaller share was paid (0 to 1)"],
  ]],
  ["Messages to your program (callbacks)", [
    ["callback_posts", "A message that is not acknowledged is sent", { 6: "6 times", 5: "5 times" }],
    ["callback_on_reversed", "Also send one when the money of a failed payout is back"],
    ["strict_callback_urls", "Only public HTTPS addresses are accepted"],
  ]],
  ["What requests must have", [
    ["strict_fields", "Every field is required that is not called optional"],
    ["rate_window", "The minute of the request limit", { fixed: "begins with the first request", sliding: "is always the last 60 seconds" }],
    ["immutable_channel_fields", "A new number or type for a till", { refuse: "is refused", ignore: "is ignored" }],
  ]],
  ["How answers look", [
    ["naming", "Names of fields", { camelCase: "like transactionId", snake_case: "like transaction_id" }],
    ["created_status", "An accepted payment is answered with", { 200: "200 OK", 201: "201 Created", 202: "202 Accepted" }],
    ["delete_answer", "A removed till is answered with", { envelope: "200 and an empty record", empty: "204 and nothing" }],
    ["transaction_not_found_status", "An unknown payment is answered with", { 404: "404 Not found", 400: "400 Bad request" }],
    ["patch_unknown_channel", "Changing an unknown till is answered with", { CHANNEL_NOT_FOUND: "channel not found", TRANSACTION_NOT_FOUND: "transaction not found" }],
  ]],
  ["How lists look", [
    ["list_phone", "Phone numbers", { whole: "in full", masked: "masked, like 2547*****678" }],
    ["list_amount", "Amounts", { amount: "as paid", with_fee: "with the fee added" }],
    ["list_type", "Kinds of payment", { upper: "in capitals: STK", lower: "in small letters: stk" }],
    ["list_times", "Times", { utc: "in UTC", local: "in Nairobi, without a zone" }],
  ]],
  ["The operator's contract, and what is met", [
    ["key_prefixes", "Keys begin with", { pk: "pk_test_", any: "any letters, like ab_test_" }],
    ["raw_keys", "A key may be sent as it is, without Base64"],
    ["cursor_field", "The next page of a list is named by", { nextCursor: "nextCursor", next_cursor: "next_cursor" }],
    ["item_naming", "Names of fields in lists", { camelCase: "like transactionId", snake_case: "like transaction_id" }],
    ["overview", "Lists count all payments"],
    ["receipt_field", "The receipt is called"],
    ["receipt_in_reads", "Reads and lists show the receipt"],
    ["customer_in_reads", "Reads show the customer's name and the address for messages"],
    ["topup_type", "A top-up is called", { WALLET_TOPUP: "WALLET_TOPUP", WALLET_TOPUP_SERVICE_TOKENS: "WALLET_TOPUP_SERVICE_TOKENS" }],
    ["topup_answer", "A top-up is answered", { prompt: "like a prompt", own: "with its own type and its key" }],
    ["topup_keys", "A top-up's key that was sent before", { any_body: "returns the same top-up", same_body: "is refused with another body" }],
    ["minimal_answers", "Answers have the id and the status, and little else"],
    ["error_messages", "What is wrong with a request is", { text: "one text", array: "a list of texts" }],
    ["invalid_uuid", "An id that cannot be one is refused as such"],
    ["more_codes", "Refusals have the codes of the contract too, like INVALID_CURSOR"],
    ["rate_limit_code", "Too many requests are refused with", { RATE_LIMIT_EXCEEDED: "RATE_LIMIT_EXCEEDED", RATE_LIMITED: "RATE_LIMITED", RATE_LIMIT: "RATE_LIMIT", HTTP_429: "HTTP_429" }],
    ["rate_limit_headers", "Answers say how many requests are left"],
    ["callback_on_processing", "Also send a message when the PIN is entered"],
    ["long_texts", "Texts that no phone shows (over 12 and 13 characters)", { refuse: "are refused", fail: "are accepted, and the prompt fails" }],
    ["prompt_kyc", "Prompts need approved KYC too"],
    ["payout_keys", "A key that was sent before", { ignored: "is not looked at", honoured: "returns the same payout", forgotten: "returns it for ten minutes" }],
    ["payout_callback_field", "A payout names the address for messages", { callbackUrl: "callbackUrl", callback_url: "callback_url", either: "callbackUrl or callback_url" }],
    ["payout_credentials", "A payout may name a credential profile"],
    ["field_limits", "Long texts", { specified: "are mostly accepted", contract: "are refused" }],
    ["channel_types", "A till is a", { TILL_NUMBER: "TILL_NUMBER", TILL: "TILL", SHORTCODE: "SHORTCODE", any: "TILL_NUMBER, TILL or SHORTCODE" }],
    ["channel_reads", "Tills and paybills can be read"],
    ["time_filters", "Lists can be filtered by time"],
    ["more_filters", "Lists can be filtered by EXPIRED and by top-ups"],
    ["more_endpoints", "The payout wallet can be read and topped up"],
  ]],
];
let edited = null;

function buildAccount(account) {
  const row = make("tr"), edit = makeButton("button small", "Change", () => openSettings(account.tenant_id)), name = make("th", "", account.label), last = make("td");
  name.scope = "row";
  edit.setAttribute("aria-haspopup", "dialog");
  edit.append(make("span", "visually-hidden", ` the account ${account.label}`));
  last.append(make("span", "pill bad", "no payouts"), edit);
  row.append(name, make("td", "number b2c"), make("td", "number service"), last);
  return row;
}

function updateAccount(row, account) {
  row.querySelector(".pill").hidden = account.kyc_approved;
  put(row.querySelector(".b2c"), money(account.b2c_balance));
  put(row.querySelector(".service"), money(account.service_balance));
}

// The newest first: with many keys, that of the program which runs now is in sight.
function renderAccounts() {
  const accounts = [...state.accounts].reverse();
  keyed($("accounts"), accounts.filter(here), (account) => account.tenant_id, buildAccount, updateAccount, "");
  $("no-accounts").hidden = accounts.length > 0;
  $("balances").hidden = !accounts.length;
  put($("n-accounts"), accounts.length > 1 ? `${accounts.length} accounts` : "");
  $("chooser").hidden = accounts.length < 2;
  setOptions($("account"), [["", "All accounts"], ...accounts.map((account) => [account.tenant_id, account.label])], view.account);
  view.account = $("account").value;
  $("api").href = view.account ? `/docs?account=${view.account}` : "/docs";
}

function chooseAccount(tenant) {
  view.account = $("account").value = tenant;
  shown = null;
  view.first = true;
  render();
}

function labelled(text, control, name, value) {
  const label = make("label", control.type === "checkbox" ? "check" : "field");
  control.name = name;
  if (control.type === "checkbox") { control.checked = value; label.append(control, text); }
  else { control.value = value; label.append(text, control); }
  // What is sent is what was changed: a payment may have changed the rest meanwhile.
  control.dataset.before = control.type === "checkbox" ? `${value}` : control.value;
  return label;
}

function checkbox() {
  const input = make("input");
  input.type = "checkbox";
  return input;
}

function numberInput() {
  const input = make("input");
  input.autocomplete = "off";
  input.inputMode = "decimal";
  input.dataset.kind = "number";
  return input;
}

function textInput() {
  const input = make("input");
  input.autocomplete = "off";
  return input;
}

// A switch by its schema: on or off, one of some values, a text, or a number that may be empty.
function switchControl([name, text, values = {}]) {
  const schema = choices.switches[name], value = edited.switches[name];
  if (schema.type === "boolean") return labelled(text, checkbox(), name, value);
  if (schema.type === "string" && !schema.enum) return labelled(text, textInput(), name, value);
  if (!schema.enum) return labelled(text, numberInput(), name, value === null ? "" : `${value}`);
  const control = make("select");
  control.dataset.kind = typeof schema.enum[0];
  setOptions(control, schema.enum.map((each) => [`${each}`, values[each] || `${each}`]));
  return labelled(text, control, name, `${value}`);
}

function group([title, switches], place) {
  const box = make("details", "group"), fields = make("div", "fields");
  box.open = !place;
  fields.append(...switches.map(switchControl));
  box.append(make("summary", "", title), fields);
  return box;
}

function openSettings(tenant) {
  edited = state.accounts.find((account) => account.tenant_id === tenant);
  put($("settings-title"), `Account ${edited.label}`);
  put($("settings-fault"), "");
  const fields = FIELDS.map(([name, text]) => labelled(text, numberInput(), name, edited[name] === null ? "" : `${edited[name]}`));
  $("settings-fields").replaceChildren(...fields, labelled("May pay out (KYC is approved)", checkbox(), "kyc_approved", edited.kyc_approved));
  const named = new Set(GROUPS.flatMap(([, switches]) => switches.map(([name]) => name)));
  const others = Object.keys(choices.switches).filter((name) => !named.has(name)).map((name) => [name, name.replaceAll("_", " ")]);
  $("settings-switches").replaceChildren(...[...GROUPS, ...(others.length ? [["Others", others]] : [])].map(group));
  $("settings").showModal();
}

function changesIn(part) {
  const changed = {};
  for (const control of part.querySelectorAll("input, select")) {
    const text = control.type === "checkbox" ? `${control.checked}` : control.value.trim();
    if (text === control.dataset.before) continue;
    const number = control.dataset.kind === "number" && text !== "" && !Number.isNaN(Number(text));
    changed[control.name] = control.type === "checkbox" ? control.checked : number ? Number(text) : text === "" ? null : text;
  }
  return changed;
}

// What the dialog calls a field that the server found at fault.
function calledAs(field) {
  const name = field.split(".").pop(), all = [...FIELDS, ...GROUPS.flatMap(([, switches]) => switches)];
  return (all.find(([each]) => each === name) || [name, name])[1];
}

$("account").addEventListener("change", (event) => chooseAccount(event.target.value));
$("settings-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const change = changesIn($("settings-fields")), switches = changesIn($("settings-switches"));
  if (Object.keys(switches).length) change.switches = switches;
  const envelope = await post("/sandbox/account", { tenant_id: edited.tenant_id, change });
  if (envelope.success) { $("settings").close(); toast("Saved"); return; }
  const faults = Object.entries(envelope.error.details.fields || {}).map(([name, text]) => `${calledAs(name)}: ${text}`);
  put($("settings-fault"), faults.join(". ") || envelope.error.message);
});
