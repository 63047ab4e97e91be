// The state with its advice, and the cards of single numbers.
import { announce, byId, el, fill, put, rich } from "./dom.js";
import { sum } from "./rates.js";

export function health(document) {
  const state = document.status.state;
  if (state !== "ready") {
    return { word: state, tone: state === "loading" || state === "draining" ? "note" : "bad" };
  }
  const worst = document.advice.length ? document.advice[0].severity : "fine";
  const tone = worst === "note" ? "fine" : worst;
  return { word: tone, tone };
}

export function showHead(document, text) {
  const { model, version, uptimeSeconds, worker } = document.status;
  put(byId("model"), model.name);
  byId("model").title = model.name; // a long one is cut off
  const parts = [`Tidemark ${version}`, worker.device, worker.dtype, text.say("up", { age: text.duration(uptimeSeconds) })];
  put(byId("engine"), parts.filter(Boolean).join(" · "));
}

export function showState(document, text) {
  const { word, tone } = health(document);
  const { queue, memory, message, state } = document.status;
  byId("state").dataset.tone = tone;
  put(byId("state-title"), text.say(`state.${word}`));
  const numbers = {
    running: text.number(queue.running),
    places: text.number(queue.places),
    waiting: text.number(queue.waiting),
    usage: text.percent(memory.usageRatio),
  };
  put(byId("state-numbers"), memory.pagesTotal ? text.say("state.numbers", numbers) : "");
  // The engine's own sentence has names and numbers that ours leave out; "Serving." says nothing more.
  put(byId("state-said"), state === "ready" && !document.advice.some((item) => item.text) ? "" : message);
  fill(byId("advice"), ...document.advice.map((item) => adviceItem(item, text)));
  const titles = document.advice.map((item) => adviceTitle(item, text));
  const codes = document.advice.map((item) => item.code);
  announce([word, ...codes].join(" "), [text.say(`state.${word}`), ...titles].join(". "));
}

function adviceItem(item, text) {
  return el(
    "li",
    { "data-severity": item.severity, "data-code": item.code },
    el("strong", {}, adviceTitle(item, text)),
    el("span", {}, ...rich(text.say(`advice.${item.code}.what`, adviceValues(item, text)))),
  );
}

function adviceTitle(item, text) {
  return text.say(`advice.${item.code}.title`, adviceValues(item, text));
}

function adviceValues(item, text) {
  const written = { seconds: (value) => text.age(value), limit: (value) => text.duration(value) };
  Object.assign(written, { measured: (value) => text.bytes(value), planned: (value) => text.bytes(value) });
  return Object.fromEntries(
    Object.entries(item.values).map(([name, value]) => [name, (written[name] ?? ((count) => text.number(count)))(value)]),
  );
}

export function showBatch(document, text) {
  const { queue } = document.status;
  const batch = document.batch;
  fill(
    byId("batch"),
    ...fact("running", text.say("batch.running"), text.number(queue.running),
      text.say("batch.places", { places: text.number(queue.places) }), meter(queue.running, queue.places)),
    ...fact("stepTokens", text.say("batch.tokens"), text.number(batch.tokens),
      text.say("batch.budget", { most: text.number(queue.stepTokensMost) }), meter(batch.tokens, queue.stepTokensMost)),
    ...fact("stepTime", text.say("batch.time"), text.duration(batch.executeSeconds),
      text.say("batch.phases", {
        schedule: text.duration(batch.scheduleSeconds), update: text.duration(batch.updateSeconds),
      })),
  );
}

export function showLanes(document, text) {
  const { queue } = document.status;
  const swap = document.totals.preemptionsSwap;
  fill(
    byId("lanes"),
    ...fact("express", text.say("lanes.express"), text.number(queue.waitingByLane.express ?? 0)),
    ...fact("slow", text.say("lanes.slow"), text.number(queue.waitingByLane.slow ?? 0)),
    ...fact("oldest", text.say("lanes.oldest"), text.duration(queue.oldestWaitSeconds)),
    ...fact("preemptions", text.say("lanes.preemptions"), text.number(queue.preemptionsTotal),
      text.say("lanes.ways", { swap: text.number(swap), recompute: text.number(queue.preemptionsTotal - swap) })),
  );
}

export function showRates(document, rates, text) {
  const totals = document.totals;
  const since = (count) => text.say("rates.total", { count: text.number(count) });
  const seen = totals.prefixHitTokens + totals.prefixMissedTokens;
  fill(
    byId("rates"),
    ...fact("requests", text.say("rates.requests"), text.rate(rates.requests), since(sum(totals.requestsByOutcome))),
    ...fact("tokens", text.say("rates.tokens"), text.rate(rates.tokens), since(totals.generatedTokens)),
    ...fact("refused", text.say("rates.refused"), text.rate(rates.refused), refusedSince(totals.refusedByReason, text)),
    ...fact("hits", text.say("rates.hits"), seen ? text.percent(totals.prefixHitTokens / seen) : "–",
      text.say("rates.hits.since")),
  );
}

function refusedSince(byReason, text) {
  const reasons = Object.entries(byReason).sort((one, other) => other[1] - one[1]);
  if (!reasons.length) {
    return text.say("rates.none");
  }
  const listed = reasons.map(([reason, count]) => `${reason} ${text.number(count)}`).join(", ");
  return text.say("rates.refused.since", { count: text.number(sum(byReason)), reasons: listed });
}

function fact(name, label, value, more = "", extra = null) {
  const below = [el("small", {}, more), ...(extra ? [extra] : [])];
  return [el("dt", {}, label), el("dd", { "data-fact": name }, el("strong", {}, value), ...below)];
}

function meter(value, most) {
  const track = el("span", { class: "meter", "aria-hidden": "true" }, el("span"));
  track.firstChild.style.width = `${most ? Math.min(100, (100 * value) / most) : 0}%`;
  return track;
}
