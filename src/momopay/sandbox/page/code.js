"use strict";
// A request as the code that sends it again: curl, and Python with momopay. The key is left out; both take MOMOPAY_API_KEY.

// Method, path, operation of momopay, and which fields it takes under which names.
const OPERATIONS = [
  ["POST", /^\/payments\/stk$/, "stk.initiate", "amount phone accountReference transactionDesc callbackUrl channelId credential_id"],
  ["POST", /^\/b2c\/payouts$/, "payouts.initiate", "amount phone reference description currency channelId callbackUrl"],
  ["POST", /^\/wallets\/service\/topups$/, "wallet.top_up", "amount phone accountReference transactionDesc"],
  ["GET", /^\/transactions$/, "transactions.list", "limit cursor status type from to channelId amountMin amountMax q"],
  ["GET", /^\/transactions\/([^/]+)$/, "transactions.get", ""],
  ["GET", /^\/wallets\/service\/balance$/, "wallet.balance", ""],
  ["GET", /^\/payment-wallet\/channels$/, "channels.list", ""],
  ["POST", /^\/payment-wallet\/channels$/, "channels.create", "name type shortcode accountNumber isDefault"],
  ["GET", /^\/payment-wallet\/channels\/([^/]+)$/, "channels.get", ""],
  ["PATCH", /^\/payment-wallet\/channels\/([^/]+)$/, "channels.update", "name accountNumber isDefault"],
  ["DELETE", /^\/payment-wallet\/channels\/([^/]+)$/, "channels.delete", ""],
];
const NUMBERS = new Set(["limit", "amountMin", "amountMax"]);

const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function asCurl(request) {
  const query = request.query ? `?${request.query}` : "";
  const lines = [`curl -X ${request.method} ${shellQuoted(`${location.origin}/v1${request.path}${query}`)}`, '-u "$MOMOPAY_API_KEY:"'];
  if (request.idempotencyKey) lines.push(`-H ${shellQuoted(`Idempotency-Key: ${request.idempotencyKey}`)}`);
  if (request.body) lines.push("-H 'Content-Type: application/json'", `--data-raw ${shellQuoted(request.body)}`);
  return lines.join(" \\\n  ");
}

function pythonLiteral(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  // Never a float: an amount is exact to the cent.
  if (typeof value === "number") return Number.isSafeInteger(value) ? `${value}` : `Decimal("${value}")`;
  return JSON.stringify(value);
}

function pythonName(field) {
  return field === "from" ? "from_" : field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

// Returns null for a request that momopay has no operation for.
function asPython(request) {
  const found = OPERATIONS.find(([method, path]) => method === request.method && path.test(request.path));
  const given = found && fieldsOf(request);
  if (!given) return null;
  const [, path, operation, fields] = found;
  const identifier = path.exec(request.path)[1];
  const words = identifier ? [pythonLiteral(decodeURIComponent(identifier))] : [];
  for (const field of fields.split(" ")) {
    if (field in given) words.push(`${pythonName(field)}=${pythonLiteral(given[field])}`);
  }
  if (request.idempotencyKey) words.push(`idempotency_key=${pythonLiteral(request.idempotencyKey)}`);
  const inside = words.length ? `\n        ${words.join(",\n        ")},\n    ` : "";
  const decimal = words.some((word) => word.includes('=Decimal("')) ? "from decimal import Decimal\n\n" : "";
  return `${decimal}from momopay import Client

with Client(base_url="${location.origin}/v1") as client:  # the key: MOMOPAY_API_KEY
    print(client.${operation}(${inside}))`;
}

function fieldsOf(request) {
  try {
    const body = JSON.parse(request.body || "{}");
    const query = [...new URLSearchParams(request.query)].map(([name, text]) => [name, NUMBERS.has(name) ? Number(text) : text]);
    return typeof body === "object" ? { ...body, ...Object.fromEntries(query) } : null;
  } catch {
    return null;
  }
}

// The request that began a transaction.
function requestOf(thing) {
  const account = state.accounts.find((each) => each.tenant_id === thing.tenant_id);
  const usual = account?.channels.find((each) => each.is_default)?.id;
  // The default channel is most likely not named, and a sandbox that was started anew gives it another id.
  const channelId = thing.channel_id === usual ? null : thing.channel_id;
  const kinds = {
    STK: ["/payments/stk", { accountReference: thing.reference, transactionDesc: thing.description, callbackUrl: thing.callback_url, channelId }],
    B2C: ["/b2c/payouts", { reference: thing.reference, description: thing.description, callbackUrl: thing.callback_url, channelId }],
    WALLET_TOPUP: ["/wallets/service/topups", { accountReference: thing.reference, transactionDesc: thing.description }],
  };
  const [path, fields] = kinds[thing.type];
  const sent = Object.entries(fields).filter(([, value]) => value);
  const body = JSON.stringify({ amount: thing.amount, phone: thing.phone, ...Object.fromEntries(sent) });
  return { method: "POST", path, query: "", body, idempotencyKey: "" };
}

async function copy(text, output) {
  put(output, text);
  output.hidden = false;
  try {
    // Only on loopback and https do browsers give a page the clipboard.
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    getSelection().selectAllChildren(output);
    toast("Selected: copy it with the keyboard");
  }
}
