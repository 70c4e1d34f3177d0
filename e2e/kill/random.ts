// Numbers from a seed, the same on every machine (the generator is known as mulberry32).

export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** A whole number of at least `low` and below `high`. */
  between(low: number, high: number): number {
    return low + Math.floor(this.fraction() * (high - low));
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.between(0, choices.length)]!;
  }

  private fraction(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}
