"use strict";
// The accounts: balances at a glance, and everything that can be changed in a dialog.

const FIELDS = [["b2c_balance", "B2C wallet, KES"], ["service_balance", "Service wallet, KES"], ["fee", "Fee, KES"], ["rate_limit", "Requests a minute (empty: no limit)"]];
let edited = null;

function buildAccount(account) {
  const card = make("li", "card account"), title = make("h3"), end = make("span", "end"), table = make("dl");
  const edit = makeButton("button small", "Edit", () => openSettings(account.tenant_id));
  edit.setAttribute("aria-haspopup", "dialog");
  edit.append(make("span", "visually-hidden", ` the account ${account.label}`));
  end.append(make("span", "pill"), edit);
  title.append(make("span", "", account.label), end);
  table.append(make("dt", "", "B2C wallet"), make("dt", "", "Service wallet"), make("dd", "number b2c"), make("dd", "number service"));
  card.append(title, table);
  return card;
}

function updateAccount(card, account) {
  const status = card.querySelector(".pill");
  put(status, account.kyc_approved ? "KYC" : "no KYC");
  status.className = `pill ${account.kyc_approved ? "good" : "bad"}`;
  put(card.querySelector(".b2c"), money(account.b2c_balance));
  put(card.querySelector(".service"), money(account.service_balance));
}

function renderAccounts() {
  keyed($("accounts"), state.accounts.filter(here), (account) => account.tenant_id, buildAccount, updateAccount, "Accounts appear with their first request.");
  $("chooser").hidden = state.accounts.length < 2;
  setOptions($("account"), [["", "All accounts"], ...state.accounts.map((account) => [account.tenant_id, account.label])], view.account);
  view.account = $("account").value;
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

function textInput() {
  const input = make("input");
  input.autocomplete = "off";
  input.inputMode = "decimal";
  return input;
}

// A switch by its schema: on or off, one of some values, or a number that may be empty.
function switchControl(schema, name, value) {
  let control = textInput(), text = value === null ? "" : `${value}`;
  control.dataset.kind = "number";
  if (schema.type === "boolean") {
    control = make("input");
    control.type = "checkbox";
    text = value;
  } else if (schema.enum) {
    control = make("select");
    control.dataset.kind = typeof schema.enum[0];
    setOptions(control, schema.enum.map((each) => [`${each}`, `${each}`]));
  }
  return labelled(name.replaceAll("_", " "), control, name, text);
}

function openSettings(tenant) {
  edited = state.accounts.find((account) => account.tenant_id === tenant);
  put($("settings-title"), `Account ${edited.label}`);
  put($("settings-fault"), "");
  const kyc = make("input");
  kyc.type = "checkbox";
  const fields = FIELDS.map(([name, text]) => {
    const input = textInput();
    input.dataset.kind = "number";
    return labelled(text, input, name, edited[name] === null ? "" : `${edited[name]}`);
  });
  $("settings-fields").replaceChildren(...fields, labelled("KYC is approved", kyc, "kyc_approved", edited.kyc_approved));
  const switches = Object.entries(choices.switches).map(([name, schema]) => switchControl(schema, name, edited.switches[name]));
  $("settings-switches").replaceChildren(...switches);
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

$("account").addEventListener("change", (event) => chooseAccount(event.target.value));
$("settings-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const change = changesIn($("settings-fields")), switches = changesIn($("settings-switches"));
  if (Object.keys(switches).length) change.switches = switches;
  const envelope = await post("/sandbox/account", { tenant_id: edited.tenant_id, change });
  if (envelope.success) { $("settings").close(); toast("Saved"); return; }
  const faults = Object.entries(envelope.error.details.fields || {}).map(([name, text]) => `${name.replaceAll("_", " ")}: ${text}`);
  put($("settings-fault"), faults.join(". ") || envelope.error.message);
});
