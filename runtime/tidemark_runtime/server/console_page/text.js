// Words and numbers in the language of who reads.
import words from "./words.js";

const LANGUAGES = ["en", "zh"];
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const DASH = "–";

export class Text {
  // `language`: one of `LANGUAGES`.
  constructor(language) {
    this.language = language;
    this.column = LANGUAGES.indexOf(language);
    this.locale = language === "zh" ? "zh-CN" : "en";
    this.formats = [0, 1, 2].map((digits) => new Intl.NumberFormat(this.locale, { maximumFractionDigits: digits }));
  }

  // The word, with its {names} filled in. A missing word shows its key, so that it is seen.
  say(key, values = {}) {
    const word = words[key]?.[this.column] ?? key;
    return word.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  }

  number(value, digits = 0) {
    return this.formats[digits].format(value);
  }

  percent(ratio) {
    return `${this.number(100 * ratio)} %`;
  }

  // Two or three digits that count: 850 ms, 1.25 s, 12 s, 4 min 10 s, 3 h 12 min.
  duration(seconds) {
    if (seconds < 1) {
      return this.say("unit.ms", { n: this.number(1000 * seconds, seconds < 0.01 ? 2 : 0) });
    }
    if (seconds < 60) {
      return this.say("unit.s", { n: this.number(seconds, seconds < 10 ? 1 : 0) });
    }
    const whole = Math.round(seconds);
    const [d, h, m, s] = [
      Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60,
    ];
    return this.say(d ? "unit.d" : h ? "unit.h" : "unit.min", { d, h, m, s });
  }

  // Whole seconds, for what ticks.
  age(seconds) {
    return seconds < 60 ? this.say("unit.s", { n: this.number(Math.floor(seconds)) }) : this.duration(seconds);
  }

  bytes(count) {
    const power = count > 0 ? Math.min(UNITS.length - 1, Math.floor(Math.log2(count) / 10)) : 0;
    const value = count / 1024 ** power;
    return `${this.number(value, power && value < 100 ? 1 : 0)} ${UNITS[power]}`;
  }

  rate(perSecond) {
    if (perSecond === null) {
      return DASH;
    }
    const digits = perSecond < 10 ? 2 : perSecond < 100 ? 1 : 0;
    return this.say("unit.rate", { n: this.number(perSecond, digits) });
  }

  // Of a Unix time: the time of the day, with the date where it is another day.
  time(unixSeconds) {
    const at = new Date(1000 * unixSeconds);
    const clock = at.toLocaleTimeString(this.locale, { hour12: false });
    return at.toDateString() === new Date().toDateString() ? clock : `${at.toLocaleDateString(this.locale)} ${clock}`;
  }
}

// What was chosen here before, else what the browser asks for.
export function preferredLanguage() {
  const saved = kept("tidemark-language");
  if (LANGUAGES.includes(saved)) {
    return saved;
  }
  return (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
}

export function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It holds until the page is closed.
  }
}

export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
