// Collects one payment without an SDK: sends a prompt, gets the callback, believes the service's own record.
import { createServer } from "node:http";

const { MOMOPAY_API_KEY, MOMOPAY_BASE_URL, CALLBACK_URL } = process.env;
const authorization = `Basic ${Buffer.from(`${MOMOPAY_API_KEY}:`).toString("base64")}`;

async function call(method, path, fields) {
  const headers = { authorization, "content-type": "application/json" };
  const answer = await fetch(MOMOPAY_BASE_URL + path, { method, headers, body: fields && JSON.stringify(fields) });
  const { success, data, error } = await answer.json();
  if (!success) throw new Error(`${error.code}: ${error.message}`);
  return data;
}

const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const told = JSON.parse(text).transaction;
  // Nobody signs callbacks, so anybody could have sent this one. The record cannot be forged.
  const record = await call("GET", `/transactions/${encodeURIComponent(told.id)}`);
  response.writeHead(200).end();
  console.log(`${record.accountReference}: ${record.status}, KES ${record.amount}`);
  server.close();
});

server.listen(Number(new URL(CALLBACK_URL).port), async () => {
  await call("POST", "/payments/stk", {
    amount: 100,
    phone: "0712345678",
    accountReference: "INV-42",
    transactionDesc: "Order 42",
    callbackUrl: CALLBACK_URL,
  });
  console.log("INV-42: prompt sent");
});
