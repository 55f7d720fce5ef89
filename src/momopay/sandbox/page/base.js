"use strict";
// What all parts share: the state as the server last sent it, what the user has chosen, and small helpers.

const $ = (id) => document.getElementById(id);
const PILL_CLASS = { SUCCESS: "good", PENDING: "wait", PROCESSING: "busy", FAILED: "bad", CANCELLED: "bad", EXPIRED: "bad" };

let state = { accounts: [], transactions: [], callbacks: [], requests: [], faults: [], outcomes: [], speed: 1 };
let choices = { outcomes: [], routes: [], faults: [], switches: {} };
let began = 0, virtual = 0;
// `account` and `number` are "" for all of them.
const view = { account: "", number: "", search: "", first: true };

function make(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  // Always as text: what callers send must never become HTML.
  if (text !== undefined) node.textContent = text;
  return node;
}

function makeButton(name, text, act) {
  const button = make("button", name, text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const money = (amount) => Number(amount).toLocaleString("en-KE", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const now = () => virtual + (performance.now() - began) * state.speed;
const local = (phone) => phone.replace(/^254(\d{3})(\d{3})(\d{3})$/, "0$1 $2 $3");
const here = (thing) => !view.account || thing.tenant_id === view.account;

function clock(instant, seconds = true) {
  const second = seconds ? "2-digit" : undefined;
  return new Date(instant).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second, timeZone: "Africa/Nairobi" });
}

function moment(instant) {
  const day = new Date(instant).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", timeZone: "Africa/Nairobi" });
  return `${day}, ${clock(instant)}`;
}

let toastTimer = 0;
function toast(text) {
  clearTimeout(toastTimer);
  put($("toast"), text);
  toastTimer = setTimeout(() => put($("toast"), ""), 6000);
}

async function post(path, body, headers = {}) {
  try {
    const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });
    return await answer.json();
  } catch {
    // A fault that was planned for this very request, or a sandbox that has ended.
    return { success: false, error: { message: "No answer from the sandbox", details: {} } };
  }
}

// POST, and show the message of a refusal. Returns whether it was done.
async function act(path, body, headers) {
  const envelope = await post(path, body, headers);
  if (!envelope.success) toast(envelope.error.message);
  return envelope.success;
}

async function read(path) {
  try {
    const envelope = await (await fetch(path)).json();
    return envelope.success ? envelope.data : null;
  } catch {
    return null;
  }
}

// Bring a list in line with `things`. A row that stays keeps its place in the page, and with it the focus and what is unfolded.
function keyed(list, things, key, build, update, empty) {
  const old = new Map([...list.children].filter((row) => row.dataset.key).map((row) => [row.dataset.key, row]));
  [...list.children].filter((row) => !row.dataset.key).forEach((row) => row.remove());
  things.forEach((thing, place) => {
    const name = key(thing);
    let row = old.get(name);
    if (!row) { row = build(thing); row.dataset.key = name; if (!view.first) row.classList.add("new"); }
    old.delete(name);
    update(row, thing);
    if (list.children[place] !== row) list.insertBefore(row, list.children[place] || null);
  });
  old.forEach((row) => row.remove());
  if (!things.length && empty) list.append(make("li", "empty", empty));
}

// Give a select these [value, text] pairs. It keeps what is selected where that is still there.
function setOptions(select, pairs, selected = select.value) {
  const values = pairs.map(([value]) => value), old = [...select.options].map((option) => option.value);
  if (JSON.stringify(values) !== JSON.stringify(old)) {
    select.replaceChildren(...pairs.map(([value]) => { const option = make("option"); option.value = value; return option; }));
  }
  pairs.forEach(([, text], place) => put(select.options[place], text));
  select.value = values.includes(selected) ? selected : values[0];
}

function pill(thing) {
  const good = thing.acknowledged;
  const text = thing.status !== null ? `${thing.status}` : /^not sent|^lost/.test(thing.error || "") ? "not sent" : "no answer";
  return make("span", `pill ${good ? "good" : "bad"}`, text);
}

function part(name, text) {
  const node = make("div"), pre = make("pre", "", text);
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", name);
  node.append(make("h4", "", name), pre);
  return node;
}

// A row that unfolds. `fill` makes what is inside, when it is first wanted.
function folded(head, title, where, fill) {
  const row = make("li"), details = make("details"), summary = make("summary"), words = make("div"), turn = make("span", "turn", "›");
  turn.setAttribute("aria-hidden", "true");
  words.append(make("div", "title", title), make("div", "where", where));
  summary.append(head, words, turn);
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector(".payload")) return;
    const inside = make("div", "payload");
    inside.append(...fill());
    details.append(inside);
  });
  row.append(details);
  return row;
}
