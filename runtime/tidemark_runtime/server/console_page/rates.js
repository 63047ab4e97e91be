// Rates, from the totals of two answers. The server's own clock is used: answers may come late.

const WINDOW_SECONDS = 10;

export class Rates {
  constructor() {
    this.samples = [];
  }

  // Requests, tokens and refusals a second over the last ten seconds; null before there are two answers.
  add(document) {
    const totals = document.totals;
    const sample = {
      at: document.status.uptimeSeconds,
      requests: sum(totals.requestsByOutcome),
      tokens: totals.generatedTokens,
      refused: sum(totals.refusedByReason),
    };
    const last = this.samples[this.samples.length - 1];
    if (last && (sample.at < last.at || sample.requests < last.requests)) {
      this.samples = []; // another process answers now, which counts from zero
    }
    this.samples.push(sample);
    while (this.samples.length > 2 && sample.at - this.samples[1].at >= WINDOW_SECONDS) {
      this.samples.shift();
    }
    const first = this.samples[0];
    const seconds = sample.at - first.at;
    const rate = (name) => (seconds > 0 ? (sample[name] - first[name]) / seconds : null);
    return { requests: rate("requests"), tokens: rate("tokens"), refused: rate("refused") };
  }
}

export function sum(counts) {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}
