// The requests: sortable by a button in each heading. It keeps its order while rows come and go.
import { byId, el, fill, isSelected, put } from "./dom.js";

const COLUMNS = [
  { name: "id", kind: "code" },
  { name: "key", kind: "text" },
  { name: "state", kind: "text" },
  { name: "lane", kind: "text" },
  { name: "priority", kind: "number" },
  { name: "promptTokens", kind: "number" },
  { name: "generatedTokens", kind: "number" },
  { name: "pages", kind: "number" },
  { name: "swappedPages", kind: "number" },
  { name: "ageSeconds", kind: "number" },
];
const OLD_SECONDS = 3;

export class Table {
  // `redraw`: shows everything again, after a click.
  constructor(redraw) {
    this.column = "pages";
    this.descending = true;
    const heading = byId("requests").tHead;
    heading.append(el("tr", {}, ...COLUMNS.map((column) => this.heading(column, redraw))));
  }

  heading(column, redraw) {
    const button = el("button", { type: "button" });
    button.addEventListener("click", () => {
      // Numbers begin with the largest, texts with the first.
      this.descending = this.column === column.name ? !this.descending : column.kind === "number";
      this.column = column.name;
      redraw();
    });
    return el("th", { scope: "col", class: column.kind, "data-column": column.name }, button);
  }

  show(document, text) {
    this.showHeadings(text);
    const requests = document.requests;
    const rows = requests === null ? [] : sorted(requests.largest, this.column, this.descending);
    const body = byId("requests").tBodies[0];
    if (!isSelected(body)) {
      fill(body, ...(rows.length ? rows.map((row) => rowOf(row, text)) : [emptyRow(requests, text)]));
    }
    showCount(requests, text);
    byId("requests-scroll").setAttribute("aria-label", text.say("requests.scroll"));
  }

  showHeadings(text) {
    for (const heading of byId("requests").tHead.rows[0].cells) {
      const name = heading.dataset.column;
      const isSorted = name === this.column;
      const button = heading.firstChild;
      put(button, text.say(`column.${name}`));
      button.title = text.say("sort", { column: text.say(`column.${name}`) });
      heading.setAttribute("aria-sort", isSorted ? (this.descending ? "descending" : "ascending") : "none");
    }
  }
}

function sorted(rows, column, descending) {
  const sign = descending ? -1 : 1;
  // The engine's order, most pages first, decides among equals.
  return [...rows].sort((one, other) => sign * compared(one[column], other[column]));
}

function compared(one, other) {
  return typeof one === "number" ? one - other : one.localeCompare(other);
}

function rowOf(request, text) {
  const cells = COLUMNS.map(({ name, kind }) => el("td", { class: kind, "data-column": name }, cell(request, name, text)));
  if (request.cachedTokens) {
    const prompt = cells[COLUMNS.findIndex(({ name }) => name === "promptTokens")];
    prompt.title = text.say("request.cached", { count: text.number(request.cachedTokens) });
  }
  return el("tr", { "data-state": request.state, "data-id": request.id }, ...cells);
}

function cell(request, name, text) {
  switch (name) {
    case "state": {
      const state = text.say(`request.${request.state}`);
      const isBack = request.preemptions && request.state !== "waiting";
      return isBack ? text.say("request.times", { state, count: request.preemptions }) : state;
    }
    case "lane":
      return text.say(`lane.${request.lane}`);
    case "generatedTokens":
      return `${text.number(request.generatedTokens)} / ${text.number(request.mostTokens)}`;
    case "ageSeconds":
      return text.duration(request.ageSeconds);
    case "key":
      return request.key || "–";
    case "id":
      return request.id;
    default:
      return text.number(request[name]);
  }
}

function emptyRow(requests, text) {
  const word = requests === null ? "requests.unknown" : "requests.none";
  return el("tr", { class: "empty" }, el("td", { colspan: COLUMNS.length }, text.say(word)));
}

function showCount(requests, text) {
  const count = requests === null || !requests.largest.length ? "" : text.say("requests.count", {
    shown: text.number(requests.largest.length),
    total: text.number(requests.running + requests.waiting),
    held: text.number(requests.pagesHeld),
    used: text.number(requests.pagesUsed),
  });
  put(byId("requests-count"), count);
  const isOld = requests !== null && requests.ageSeconds > OLD_SECONDS;
  byId("requests-old").hidden = !isOld;
  put(byId("requests-old"), isOld ? text.say("requests.old", { age: text.duration(requests.ageSeconds) }) : "");
}
