"use strict";
// Transactions, callbacks and requests, and the search through them.

const ROWS = 150;
let found = null;

const TABS = ["transactions", "callbacks", "requests"];

function chooseTab(name, focus = false) {
  for (const each of TABS) {
    const tab = $(`tab-${each}`), chosen = each === name;
    tab.setAttribute("aria-selected", `${chosen}`);
    tab.tabIndex = chosen ? 0 : -1;
    $(`panel-${each}`).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
}

function openButton(thing) {
  const button = makeButton("open", local(thing.phone), () => openDetail(thing.id));
  button.setAttribute("aria-haspopup", "dialog");
  button.append(make("span", "visually-hidden", `, KES ${money(thing.amount)}, ${thing.reference || "no reference"}: details`));
  return button;
}

function buildTransaction(thing) {
  const row = make("li", "transaction");
  const amount = make("div", "amount number", `KES ${money(thing.amount)}`);
  const what = make("div", "what"), title = make("div", "");
  title.append(openButton(thing), make("span", "chip", thing.type === "WALLET_TOPUP" ? "TOP-UP" : thing.type));
  const words = [thing.reference, thing.description, clock(thing.created_at)].filter(Boolean).join(" · ");
  what.append(title, make("div", "soft", words));
  const side = make("div", "side");
  side.append(make("span", "pill"), make("div", "note number"));
  row.append(amount, what, side);
  return row;
}

function updateTransaction(row, thing) {
  const status = row.querySelector(".pill"), note = row.querySelector(".note");
  put(status, thing.status);
  status.className = `pill ${PILL_CLASS[thing.status] || ""}`;
  note.dataset.next = thing.next_step_at || "";
  note.dataset.text = thing.receipt ? `receipt ${thing.receipt}` : thing.result_code && thing.result_code !== "0" ? `code ${thing.result_code}` : "";
}

const attemptName = (thing) => (thing.attempt ? `retry ${thing.attempt}` : "first delivery");

function buildCallback(thing) {
  const title = `${thing.payload.event_type} · ${thing.payload.transaction.external_reference || thing.transaction_id}`;
  return folded(pill(thing), title, `${attemptName(thing)} · ${clock(thing.at)} · ${thing.url}`, () => {
    const buttons = make("div", "buttons");
    const again = makeButton("button small", "Resend", async () => {
      again.disabled = true;
      if (await act("/sandbox/resend", { id: thing.id })) toast("Sent again");
      again.disabled = false;
    });
    buttons.append(again, makeButton("button small", "Show the transaction", () => openDetail(thing.transaction_id)));
    const answer = thing.error || `${thing.status}${thing.answer ? `\n${thing.answer}` : " (empty body)"}`;
    return [buttons, part("Payload", JSON.stringify(thing.payload, null, 2)), part("Answer", answer)];
  });
}

function buildRequest(thing) {
  const where = `${clock(thing.at)} · ${thing.key || "no key"}`;
  const title = `${thing.method} ${thing.path}${thing.query ? `?${thing.query}` : ""}`;
  return folded(make("span", "pill"), title, where, () => {
    const request = { ...thing, idempotencyKey: thing.headers["idempotency-key"] || "" };
    const python = asPython(request), code = make("pre", "code"), buttons = make("div", "buttons");
    code.hidden = true;
    code.tabIndex = 0;
    code.setAttribute("aria-label", "Code");
    buttons.append(makeButton("button small", "Copy as curl", () => copy(asCurl(request), code)));
    if (python) buttons.append(makeButton("button small", "Copy as Python", () => copy(python, code)));
    const headers = Object.entries(thing.headers).map(([name, value]) => `${name}: ${value}`).join("\n");
    const parts = [buttons, code, part("Headers", headers)];
    if (thing.body) parts.push(part("Body", thing.body));
    return parts;
  });
}

function updateRequest(row, thing) {
  const status = row.querySelector(".pill");
  put(status, thing.status === null ? "no answer" : `${thing.status}`);
  status.className = `pill ${thing.status === null ? "wait" : thing.status < 400 ? "good" : "bad"}`;
}

// Phones are searched as people write them.
function matches(thing) {
  const text = JSON.stringify(thing).toLowerCase(), wanted = view.search.toLowerCase();
  return text.includes(wanted) || (/^0\d/.test(wanted) && text.includes(`254${wanted.slice(1)}`));
}

// A search of transactions goes through all of them, at the server, and not only through the newest.
let searching = false, searchAgain = false;
async function search() {
  searchAgain = true;
  // One at a time: under load, every change would begin another.
  if (searching) return;
  searching = true;
  while (searchAgain) {
    searchAgain = false;
    found = view.search ? await read(`/sandbox/transactions?q=${encodeURIComponent(view.search)}`) : null;
  }
  searching = false;
  renderRecords();
}

function count(name, things, most) {
  put($(`n-${name}`), things.length ? `${things.length}${!view.search && things.length >= most ? "+" : ""}` : "");
}

function renderRecords() {
  const searched = view.search ? "Nothing found." : "";
  const transactions = (found || state.transactions).filter(here);
  const callbacks = state.callbacks.filter(here).filter(matches), requests = state.requests.filter(here).filter(matches);
  count("transactions", transactions, 100);
  count("callbacks", callbacks, 100);
  count("requests", requests, 100);
  // An open prompt is in the list however old it is: it can be acted on.
  const rows = transactions.filter((thing, place) => place < ROWS || thing.prompt);
  keyed($("transactions"), rows, (thing) => thing.id, buildTransaction, updateTransaction, searched || "Nothing yet. Initiate an STK prompt or a payout, or send a test prompt from the phone.");
  keyed($("callbacks"), callbacks.slice(0, ROWS), (thing) => thing.id, buildCallback, () => {}, searched || "Each callback delivery appears here with its payload and your answer.");
  keyed($("requests"), requests.slice(0, ROWS), (thing) => `${thing.number} ${thing.at}`, buildRequest, updateRequest, searched || "Each request that your code sends appears here.");
}

for (const [place, name] of TABS.entries()) {
  const tab = $(`tab-${name}`);
  tab.addEventListener("click", () => chooseTab(name));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: place + 1, ArrowLeft: place + TABS.length - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); chooseTab(TABS[to % TABS.length], true); }
  });
}

let searchTimer = 0;
$("search").addEventListener("input", (event) => {
  view.search = event.target.value.trim();
  clearTimeout(searchTimer);
  searchTimer = setTimeout(search, 150);
});
$("search").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.target.value = view.search = "";
  search();
});
