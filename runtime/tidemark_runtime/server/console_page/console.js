// Puts the page together: asks for the data, shows it, and says when it is old.
import { Bar } from "./bar.js";
import { announce, byId, put } from "./dom.js";
import { health, showBatch, showHead, showLanes, showRates, showState } from "./facts.js";
import { showCrossings, showKernels, showParts, showSettings } from "./lists.js";
import { Poll } from "./poll.js";
import { Rates } from "./rates.js";
import { Table } from "./table.js";
import { Text, keep, preferredLanguage } from "./text.js";

const TICK_MS = 500;
const THEMES = ["auto", "dark", "light"];

class Page {
  constructor() {
    this.text = new Text(preferredLanguage());
    this.bar = new Bar();
    this.rates = new Rates();
    this.table = new Table(() => this.show());
    this.last = null; // the newest answer
    this.lastRates = null;
    byId("language").addEventListener("click", () => this.switchLanguage());
    byId("theme").addEventListener("click", () => this.switchTheme());
    // Relative, so that the page also works below a path of a proxy.
    this.poll = new Poll("console/data", (data) => this.take(data));
    this.showWords();
    this.poll.ask();
    setInterval(() => this.tick(), TICK_MS);
  }

  take(data) {
    this.last = data;
    this.lastRates = this.rates.add(data);
    this.bar.note(data);
    this.show();
    this.tick();
  }

  show() {
    const { last, text } = this;
    if (last === null) {
      return;
    }
    showHead(last, text);
    showState(last, text);
    this.bar.show(last, text);
    showBatch(last, text);
    showLanes(last, text);
    showRates(last, this.lastRates, text);
    this.table.show(last, text);
    showCrossings(last, text);
    showParts(last, text);
    showKernels(last, text);
    showSettings(last, text);
    document.title = `${text.say(`state.${health(last).word}`)} – ${last.status.model.name} – Tidemark`;
  }

  // Says how old the numbers are, all the time.
  tick() {
    const { poll, text } = this;
    const isStale = poll.isStale;
    document.body.dataset.stale = String(isStale);
    byId("stale").hidden = !isStale;
    const age = poll.age === null ? null : text.age(poll.age);
    put(byId("pulse-text"), age === null ? text.say("connecting") : isStale ? text.say("age", { age }) : text.say("live"));
    if (isStale) {
      put(byId("stale-what"), text.say("stale"));
      const next = text.age(poll.next);
      put(byId("stale-age"), age === null ? text.say("stale.never", { next }) : text.say("stale.next", { age, next }));
      announce("stale", text.say("stale"));
    }
  }

  showWords() {
    document.documentElement.lang = this.text.language === "zh" ? "zh-CN" : "en";
    for (const element of document.querySelectorAll("[data-t]")) {
      put(element, this.text.say(element.dataset.t));
    }
    const button = byId("language");
    button.lang = this.text.language === "zh" ? "en" : "zh-CN";
    button.setAttribute("aria-label", this.text.say("language.label"));
    this.showTheme();
    this.show();
    this.tick();
  }

  switchLanguage() {
    this.text = new Text(this.text.language === "zh" ? "en" : "zh");
    keep("tidemark-language", this.text.language);
    this.showWords();
  }

  switchTheme() {
    const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    setTheme(theme); // of theme.js
    keep("tidemark-theme", theme);
    this.showTheme();
  }

  showTheme() {
    const theme = this.text.say(`theme.${document.documentElement.dataset.theme}`);
    put(byId("theme"), this.text.say("theme", { theme }));
  }
}

new Page();
