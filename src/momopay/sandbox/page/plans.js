"use strict";
// How the next payment ends, and what goes wrong next: forms that plan it, and lists of what waits.

const named = (list, value) => list.find((each) => each.value === value) || { title: value, text: "" };

function setChoices() {
  const { kind, outcome } = $("outcome-form").elements, ends = choices.routes.filter((each) => each.ends_as);
  setOptions(kind, [...new Set(ends.map((each) => each.ends_as))].map((value) => [value, ends.find((each) => each.ends_as === value).title]));
  setOptions(outcome, choices.outcomes.map((each) => [each.value, each.title]));
  setOptions($("fault-form").elements.route, choices.routes.map((each) => [each.value, each.title]));
  describeOutcome();
  describeFault();
}

function describeOutcome() {
  const chosen = named(choices.outcomes, $("outcome-form").elements.outcome.value);
  put($("outcome-text"), `${chosen.text}${chosen.digits ? ` Numbers that end in ${chosen.digits} do this by themselves.` : ""}`);
}

function describeFault() {
  const fields = $("fault-form").elements, route = named(choices.routes, fields.route.value);
  setOptions(fields.fault, route.faults.map((value) => [value, named(choices.faults, value).title]));
  put($("fault-text"), `${named(choices.faults, fields.fault.value).text} (${route.value})`);
  $("fault-status").hidden = fields.fault.value !== "refused_after_commit";
}

const times = (planned) => (planned.times > 1 ? `Next ${planned.times} times` : "Next time");

function buildPlanned(words) {
  return (planned) => {
    const row = make("li");
    const forget = makeButton("button small", "Forget", async () => {
      // This row goes away, and the focus must not go with it.
      const next = row.closest("section").querySelector("select");
      if (await act("/sandbox/clear_planned", { id: planned.id })) next.focus();
    });
    row.append(make("span", "words"), forget);
    forget.append(make("span", "visually-hidden", `: ${words(planned)}`));
    return row;
  };
}

function outcomeWords(planned) {
  const what = planned.kind === "payout" ? "payout" : "prompt";
  return `${times(planned)}, ${what}${planned.phone ? ` of ${local(planned.phone)}` : ""}: ${named(choices.outcomes, planned.outcome).title}`;
}

function faultWords(planned) {
  // A path of a program may name one id; the endpoint is the one with as many parts.
  const parts = planned.path.split("/");
  const route = choices.routes.find(({ value }) => {
    const [method, path] = value.split(" "), segments = path.split("/");
    return method === planned.method && segments.length === parts.length && segments.every((each, place) => each.startsWith("{") || each === parts[place]);
  });
  const what = route ? route.title.charAt(0).toLowerCase() + route.title.slice(1) : `${planned.method} ${planned.path}`;
  return `${times(planned)}, ${what}: ${named(choices.faults, planned.fault).title}`;
}

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
  if (await act("/sandbox/end_next", body)) toast(`Planned: ${named(choices.outcomes, outcome.value).title}`);
});
$("fault-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { route, fault, times: number, status } = event.target.elements;
  const [method, path] = route.value.split(" ");
  const body = { method, path, fault: fault.value, times: Number(number.value), status: Number(status.value) };
  if (await act("/sandbox/fail_next", body)) toast(`Planned: ${named(choices.faults, fault.value).title}`);
});
