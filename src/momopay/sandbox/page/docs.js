"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, text, name) => { const node = document.createElement(tag); if (text !== undefined) node.textContent = text; if (name) node.className = name; return node; };
function table(rows) {
  const node = make("table");
  for (const [name, ...others] of rows) {
    const row = make("tr"), cell = make("td");
    cell.append(make("code", name));
    row.append(cell, ...others.map((text, place) => make("td", text, place ? "soft" : "")));
    node.append(row);
  }
  return node;
}
function kind(schema, all) {
  if (schema.$ref) return kind(all[schema.$ref.split("/").pop()], all);
  if (schema.anyOf) return schema.anyOf.map((part) => kind(part, all)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `array of ${schema.items.$ref ? schema.items.$ref.split("/").pop() : kind(schema.items, all)}`;
  return schema.type || "any";
}
const LIMITS = { minimum: "at least", maximum: "at most", minLength: "length at least", maxLength: "length at most", format: "", default: "default" };
function bounds(schema) {
  const parts = (schema.anyOf || [schema]).flatMap((part) => Object.entries(LIMITS).filter(([name]) => part[name] !== undefined).map(([name, words]) => `${words} ${part[name]}`.trim()));
  return parts.join(", ");
}
const fields = (schema, all) => Object.entries(schema.properties || {}).map(([name, part]) => [name, kind(part, all), [(schema.required || []).includes(name) ? "required" : "", bounds(part)].filter(Boolean).join(", ")]);
const resolve = (schema, all) => (schema && schema.$ref ? all[schema.$ref.split("/").pop()] : schema);
const inJson = (thing) => thing.content && thing.content["application/json"];
$("document").href += location.search;
fetch(`/openapi.json${location.search}`).then((answer) => answer.json()).then((api) => {
  const all = api.components.schemas, list = $("operations");
  list.textContent = "";
  for (const [path, methods] of Object.entries(api.paths)) for (const [method, operation] of Object.entries(methods)) {
    const box = make("details"), head = make("summary"), inside = make("div", undefined, "inside");
    head.append(make("b", method.toUpperCase(), "method"), make("code", path), make("span", operation.summary));
    const add = (title, rows) => { if (rows.length) inside.append(make("h2", title), table(rows)); };
    add("Parameters", (operation.parameters || []).map((one) => [one.name, `${one.in}, ${kind(one.schema, all)}`, [one.required ? "required" : "", one.description || "", bounds(one.schema)].filter(Boolean).join(", ")]));
    if (operation.requestBody) add("Body", fields(resolve(inJson(operation.requestBody).schema, all), all));
    const answers = Object.entries(operation.responses), done = inJson(answers.find(([status]) => status < 300)[1]);
    if (done) add("data", fields(resolve(resolve(done.schema, all).properties.data, all) || {}, all));
    add("Answers", answers.flatMap(([status, one]) => {
      const codes = Object.entries((inJson(one) || {}).examples || {});
      return codes.length ? codes.map(([code, example]) => [`${status} ${code}`, example.summary]) : [[status, one.description]];
    }));
    box.append(head, inside);
    list.append(box);
  }
});
