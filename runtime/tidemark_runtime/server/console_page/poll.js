// Asks for the data once a second: slower while nobody looks at the tab, or while nobody answers.

const EVERY_MS = 1000;
const HIDDEN_MS = 15000;
const MOST_MS = 8000;
const PATIENCE_MS = 4000;
const STALE_MS = 3000;

export class Poll {
  // `onData` gets each answer. Whether there are answers at all is asked for: `isStale`, `age`, `next`.
  constructor(url, onData) {
    this.url = url;
    this.onData = onData;
    this.failures = 0;
    this.startedAt = performance.now();
    this.lastAt = null;
    this.nextAt = this.startedAt;
    this.timer = null;
    this.asking = false;
    document.addEventListener("visibilitychange", () => document.hidden || this.ask());
  }

  async ask() {
    if (this.asking) {
      return;
    }
    clearTimeout(this.timer);
    this.asking = true;
    const began = performance.now();
    const data = await fetched(this.url).catch(() => null);
    this.asking = false;
    this.failures = data === null ? this.failures + 1 : 0;
    this.nextAt = Math.max(began + this.pause(), performance.now());
    this.timer = setTimeout(() => this.ask(), this.nextAt - performance.now());
    if (data !== null) {
      this.lastAt = performance.now();
      this.onData(data); // last: an error in the page is seen, and the next answer still comes
    }
  }

  pause() {
    const slower = Math.min(MOST_MS, EVERY_MS * 2 ** this.failures);
    return document.hidden ? Math.max(HIDDEN_MS, slower) : slower;
  }

  // A tab that was hidden has old data for the moment until it is answered: that is no failure.
  get isStale() {
    const silent = performance.now() - (this.lastAt ?? this.startedAt);
    return silent > STALE_MS && (this.failures > 0 || (this.asking && silent > HIDDEN_MS + PATIENCE_MS));
  }

  // Seconds since the last answer; null where there was none.
  get age() {
    return this.lastAt === null ? null : (performance.now() - this.lastAt) / 1000;
  }

  // Seconds until the next question.
  get next() {
    return Math.max(0, (this.nextAt - performance.now()) / 1000);
  }
}

async function fetched(url) {
  const giveUp = new AbortController();
  const timer = setTimeout(() => giveUp.abort(), PATIENCE_MS);
  try {
    const answer = await fetch(url, { cache: "no-store", credentials: "same-origin", signal: giveUp.signal });
    if (!answer.ok) {
      throw new Error(`${url} answered ${answer.status}`);
    }
    return await answer.json();
  } finally {
    clearTimeout(timer);
  }
}
