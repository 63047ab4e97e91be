// What changes seldom: crossings of the lines, memory by part, kernels, configuration.
import { byId, el, fill, put } from "./dom.js";
import { sum } from "./rates.js";

export function showCrossings(document, text) {
  headings("crossings", ["crossings.line", "crossings.at", "crossings.lasted", "crossings.pages"], 3, text);
  const rows = document.crossings.map((each) => {
    const lasted = text.duration(each.lastedSeconds);
    return el(
      "tr",
      { "data-line": each.line },
      el("td", { class: `mark ${each.line}` }, text.say(`line.${each.line}`)),
      el("td", {}, text.time(each.at)),
      el("td", {}, each.over ? lasted : text.say("crossings.still", { age: lasted })),
      el("td", { class: "number" }, text.number(each.pagesUsed)),
    );
  });
  const empty = el("tr", { class: "empty" }, el("td", { colspan: 4 }, text.say("crossings.none")));
  fill(byId("crossings").tBodies[0], ...(rows.length ? rows : [empty]));
  const { queue, preempt } = document.status.lines;
  put(byId("crossings-total"), text.say("crossings.total", {
    queue: text.duration(queue.secondsAboveTotal), preempt: text.duration(preempt.secondsAboveTotal),
  }));
}

export function showParts(document, text) {
  const { partsBytes, plannedBytes, limitBytes } = document.status.memory;
  headings("parts", ["parts.part", "parts.planned", "parts.measured"], 1, text);
  const known = [...new Set([...Object.keys(plannedBytes), ...Object.keys(partsBytes)])];
  const names = known.filter((name) => plannedBytes[name] || partsBytes[name]);
  const bytes = (sizes, name) => (name in sizes ? text.bytes(sizes[name]) : "–");
  const rows = names.map((name) => partRow(
    text.say(`part.${name}`), bytes(plannedBytes, name), bytes(partsBytes, name), name,
  ));
  const together = partRow(text.say("parts.sum"), text.bytes(sum(plannedBytes)), text.bytes(sum(partsBytes)), "sum");
  fill(byId("parts").tBodies[0], ...rows, ...(names.length ? [together] : []));
  put(byId("parts-limit"), limitBytes ? text.say("parts.limit", { limit: text.bytes(limitBytes) }) : "");
}

function partRow(label, planned, measured, name) {
  const cells = [planned, measured].map((value) => el("td", { class: "number" }, value));
  return el("tr", { "data-part": name }, el("th", { scope: "row" }, label), ...cells);
}

export function showKernels(document, text) {
  const paths = document.status.kernelPaths;
  const unplanned = paths.filter((each) => each.path !== each.planned);
  const word = unplanned.length ? "kernels.unplanned" : "kernels.planned";
  const count = text.number(unplanned.length || paths.length);
  put(byId("kernels"), paths.length ? text.say(word, { count }) : "");
  fill(byId("kernels-unplanned"), ...unplanned.map((each) => el("li", {}, text.say("kernels.one", each))));
}

export function showSettings(document, text) {
  const { hash, generation } = document.status.config;
  put(byId("settings-which"), text.say("settings.which", { hash, generation }));
  const items = document.settings.map((each) => {
    const [value, usual] = [written(each.value, text), written(each.default, text)];
    const shown = el("dd", {}, value);
    if (value !== usual) {
      shown.append(el("em", {}, text.say("settings.changed", { value: usual })));
    }
    return el("div", { "data-key": each.key, class: value === usual ? "" : "changed" }, el("dt", {}, each.key), shown);
  });
  fill(byId("settings"), ...items);
}

function written(value, text) {
  if (value === null) {
    return text.say("settings.unset");
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// `firstNumber`: from this column on headings stand on the right, over numbers.
function headings(id, keys, firstNumber, text) {
  const cells = keys.map((key, index) =>
    el("th", { scope: "col", class: index >= firstNumber ? "number" : "text" }, text.say(key)));
  fill(byId(id).tHead, el("tr", {}, ...cells));
}
