"use strict";
// How the next payment ends, and what goes wrong next: forms that plan it, and lists of what waits.

function setChoices() {
  const outcome = $("outcome-form").elements.outcome;
  setOptions(outcome, choices.outcomes.map((each) => [each.value, `${each.value.replaceAll("_", " ")}${each.digits ? ` (as …${each.digits})` : ""}`]));
  setOptions($("fault-form").elements.route, choices.routes.map((each) => [each.value, each.value]));
  describeOutcome();
  describeFault();
}

function describeOutcome() {
  const chosen = choices.outcomes.find((each) => each.value === $("outcome-form").elements.outcome.value);
  put($("outcome-text"), chosen ? chosen.text : "");
}

function describeFault() {
  const fields = $("fault-form").elements;
  const route = choices.routes.find((each) => each.value === fields.route.value);
  if (!route) return;
  setOptions(fields.fault, route.faults.map((value) => [value, value.replaceAll("_", " ")]));
  put($("fault-text"), choices.faults.find((each) => each.value === fields.fault.value).text);
  $("fault-status").hidden = fields.fault.value !== "refused_after_commit";
}

const times = (planned) => (planned.times > 1 ? `next ${planned.times}` : "next");

function buildPlanned(words) {
  return (planned) => {
    const row = make("li");
    const forget = makeButton("button small", "Clear", async () => {
      // This row goes away, and the focus must not go with it.
      const next = row.closest("section").querySelector("select");
      if (await act("/sandbox/clear_planned", { id: planned.id })) next.focus();
    });
    row.append(make("span", "words"), forget);
    forget.append(make("span", "visually-hidden", `: ${words(planned)}`));
    return row;
  };
}

const outcomeWords = (planned) => `${times(planned)} ${planned.kind}${planned.times > 1 ? "s" : ""}${planned.phone ? ` of ${local(planned.phone)}` : ""}: ${planned.outcome.replaceAll("_", " ")}`;
const faultWords = (planned) => `${times(planned)} ${planned.method} ${planned.path}: ${planned.fault.replaceAll("_", " ")}`;

function renderPlans() {
  const lists = [["outcomes", state.outcomes, outcomeWords], ["faults", state.faults, faultWords]];
  for (const [name, things, words] of lists) {
    keyed($(name), things, (planned) => planned.id, buildPlanned(words), (row, planned) => put(row.querySelector(".words"), words(planned)), "");
  }
}

$("outcome-form").addEventListener("change", describeOutcome);
$("fault-form").addEventListener("change", describeFault);
$("outcome-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { kind, phone, times: number, outcome } = event.target.elements;
  const body = { kind: kind.value, phone: phone.value.trim() || null, times: Number(number.value), outcome: outcome.value };
  if (await act("/sandbox/end_next", body)) toast(`Planned: the next ${kind.value} ends as ${outcome.value.replaceAll("_", " ")}`);
});
$("fault-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { route, fault, times: number, status } = event.target.elements;
  const [method, path] = route.value.split(" ");
  const body = { method, path, fault: fault.value, times: Number(number.value), status: Number(status.value) };
  if (await act("/sandbox/fail_next", body)) toast(`Planned for the next ${route.value}: ${fault.value.replaceAll("_", " ")}`);
});
