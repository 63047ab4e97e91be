// The pages: a bar with both lines drawn at their levels, what its colours mean, and the last two minutes.
import { byId, el, fill, svg } from "./dom.js";

const HISTORY_SECONDS = 120;
const LINES = ["queue", "preempt"];

// What the slab's pages are, in the order of the bar. The same sum as in /metrics.
export function pagesOf(document) {
  const memory = document.status.memory;
  return {
    total: memory.pagesTotal,
    used: memory.pagesUsed,
    cached: memory.pagesCached,
    free: memory.pagesTotal - memory.pagesUsed - memory.pagesCached,
    swapped: memory.pagesSwapped,
    swapTotal: memory.swapPagesTotal,
  };
}

export class Bar {
  constructor() {
    this.history = [];
  }

  // Called for every answer, whatever language is shown.
  note(document) {
    const at = document.status.uptimeSeconds;
    const last = this.history[this.history.length - 1];
    if (last && at < last.at) {
      this.history = []; // another process answers now
    }
    this.history.push({ at, ratio: document.status.memory.usageRatio });
    while (this.history[0].at < at - HISTORY_SECONDS) {
      this.history.shift();
    }
  }

  show(document, text) {
    const pages = pagesOf(document);
    const lines = document.status.lines;
    const crossed = lines.preempt.above ? "preempt" : lines.queue.above ? "queue" : "none";
    const stateOf = lineStates(document, text);
    showTotal(pages, document.status.memory, text);
    showLevels(lines, text);
    showBar(pages, lines, crossed);
    byId("bar").setAttribute("aria-label", summary(pages, lines, stateOf, text));
    showLegend(pages, crossed, text);
    showLines(lines, stateOf, text);
    this.showHistory(lines, crossed);
  }

  showHistory(lines, crossed) {
    const end = this.history.length ? this.history[this.history.length - 1].at : 0;
    const points = this.history.map(({ at, ratio }) => [120 - (end - at), 40 * (1 - ratio)].map(rounded));
    const first = points.length ? points[0][0] : 120;
    const outline = points.map((point) => point.join(",")).join(" ");
    fill(
      byId("history"),
      svg("polygon", { class: `area ${crossed}`, points: `${first},40 ${outline} 120,40` }),
      ...LINES.map((name) => {
        const y = rounded(40 * (1 - lines[name].level));
        return svg("line", { class: name, x1: 0, x2: 120, y1: y, y2: y });
      }),
    );
  }
}

// Of each line, by name: crossed, and where it is left, or not crossed.
function lineStates(document, text) {
  const hysteresis = document.settings.find(({ key }) => key === "scheduler.watermarkHysteresis")?.value ?? 0;
  return Object.fromEntries(LINES.map((name) => {
    const { level, above } = document.status.lines[name];
    return [name, text.say(above ? "line.crossed" : "line.below", { left: text.percent(level - hysteresis) })];
  }));
}

function showTotal(pages, memory, text) {
  const kinds = Object.entries(memory.kvBytes).map(([dtype, bytes]) => `${text.bytes(bytes)} ${dtype}`);
  const size = `${text.number(pages.total)} × ${memory.blockSize} token · ${kinds.join(" + ")}`;
  byId("memory-total").textContent = pages.total ? size : "";
}

// Names of the lines above the bar, each where its line is.
function showLevels(lines, text) {
  const marks = LINES.map((name) => {
    const mark = el("span", { class: `${name}${lines[name].above ? " above" : ""}` });
    mark.textContent = `${text.say(`line.${name}`)} ${text.percent(lines[name].level)}`;
    mark.style.right = `${100 - 100 * lines[name].level}%`;
    return mark;
  });
  // Too near for two words in one row.
  byId("levels").classList.toggle("close", lines.preempt.level - lines.queue.level < 0.12);
  fill(byId("levels"), ...marks);
}

function showBar(pages, lines, crossed) {
  const bar = byId("bar");
  if (!bar.children.length) {
    bar.append(...["used", "cached", ...LINES].map((name) => el("div", { "data-part": name })));
  }
  const [used, cached, ...marks] = bar.children;
  const share = (count) => `${pages.total ? (100 * count) / pages.total : 0}%`;
  used.className = `used ${crossed}`;
  used.style.width = share(pages.used);
  cached.className = "cached";
  cached.style.width = share(pages.cached);
  LINES.forEach((name, index) => {
    marks[index].className = `line ${name}`;
    marks[index].style.left = `${100 * lines[name].level}%`;
  });
}

function summary(pages, lines, stateOf, text) {
  const states = LINES.map(
    (name) => `${text.say(`line.${name}`)} ${text.percent(lines[name].level)}: ${stateOf[name]}`,
  );
  return text.say("memory.summary", {
    used: text.number(pages.used),
    total: text.number(pages.total),
    usage: text.percent(pages.total ? pages.used / pages.total : 0),
    cached: text.number(pages.cached),
    free: text.number(pages.free),
    swapped: text.number(pages.swapped),
    lines: states.join("; "),
  });
}

function showLegend(pages, crossed, text) {
  const items = ["used", "cached", "free"].map((name) => legendItem(
    name, text.say(`pages.${name}`), text.number(pages[name]), share(pages[name], pages.total, text), crossed,
  ));
  const swap = pages.swapTotal
    ? text.say("pages.of", { count: text.number(pages.swapped), total: text.number(pages.swapTotal) })
    : text.say("pages.none");
  items.push(legendItem("swapped", text.say("pages.swapped"), text.number(pages.swapped), swap));
  fill(byId("legend"), ...items);
}

function share(count, total, text) {
  return text.percent(total ? count / total : 0);
}

function legendItem(name, label, count, more, crossed = "") {
  return el(
    "li",
    { "data-pages": name },
    el("span", { class: `swatch ${name} ${crossed}` }),
    el("span", { class: "label" }, label),
    el("strong", {}, count),
    el("small", {}, more),
  );
}

function showLines(lines, stateOf, text) {
  const rows = LINES.flatMap((name) => {
    const above = lines[name].above;
    return [
      el("dt", { class: name }, text.say(`line.${name}.means`)),
      el("dd", { "data-line": name, class: above ? `above ${name}` : "" },
        `${text.percent(lines[name].level)} · ${stateOf[name]}`),
    ];
  });
  fill(byId("lines"), ...rows);
}

function rounded(value) {
  return Math.round(100 * value) / 100;
}
