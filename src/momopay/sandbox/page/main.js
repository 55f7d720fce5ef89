"use strict";
// Puts the parts together: each state that the server sends is shown, and time passes between them.

function render() {
  renderAccounts();
  renderPlans();
  renderRecords();
  renderPhone();
  put($("speed"), state.speed === 1 ? "real time" : state.speed ? `×${state.speed}` : "stopped");
  view.first = false;
  tick();
}

function tick() {
  const instant = now();
  put($("clock"), clock(instant));
  put($("phone-time"), clock(instant, false));
  put($("big-time"), clock(instant, false));
  put($("day"), new Date(instant).toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long", timeZone: "Africa/Nairobi" }));
  document.querySelectorAll("#transactions .note").forEach((note) => {
    const left = note.dataset.next ? Math.ceil((Date.parse(note.dataset.next) - instant) / 1000) : 0;
    put(note, left > 0 ? `next step in ${left} s` : note.dataset.text || "");
  });
}

document.querySelectorAll("[data-seconds]").forEach((button) => button.addEventListener("click", async () => {
  const held = document.activeElement === button;
  button.disabled = true;
  await act("/sandbox/advance", { seconds: Number(button.dataset.seconds) });
  button.disabled = false;
  if (held) button.focus();
}));
// A dialog gives the focus back to what opened it, and Escape closes it: the browser does both.
document.querySelectorAll("[data-close]").forEach((button) => button.addEventListener("click", () => button.closest("dialog").close()));
$("reset").addEventListener("click", () => $("confirm").showModal());
$("confirm-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("confirm").close();
  if (await act("/sandbox/reset", {})) toast("The sandbox is as new");
});

const link = (on, text) => { $("link").classList.toggle("on", on); put($("link").lastElementChild, text); };

async function begin() {
  choices = (await read("/sandbox/choices")) || choices;
  setChoices();
  const events = new EventSource("/sandbox/events");
  events.onopen = () => link(true, "connected");
  events.onerror = () => link(false, "reconnecting");
  events.onmessage = async (event) => {
    state = JSON.parse(event.data);
    began = performance.now();
    virtual = Date.parse(state.now);
    render();
    if (view.number) { await loadHistory(); renderPhone(); }
    if (view.search) search();
    loadDetail();
  };
}

setInterval(tick, 250);
begin();
