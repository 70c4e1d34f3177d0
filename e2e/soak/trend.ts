// Whether a figure that is read once a second grows: least squares over all lives of a process at once.

/** One reading of a figure. */
export interface Reading {
  /** Which life of the process it is of: a new one begins at another level. */
  life: number;
  seconds: number;
  value: number;
}

export interface Trend {
  readings: number;
  median: number;
  max: number;
  /** Slope and its standard error, in units of the figure per hour. */
  perHour: number;
  errorPerHour: number;
}

/** Readings are averaged over so long before the line is drawn: neighbours differ little, and would make it look surer than it is. */
const BLOCK_SECONDS = 5;

/**
 * The trend of the readings: one slope for all lives, a level for each. The first seconds of each life, in which caches
 * fill, are left out. Undefined if too little is left to draw a line.
 */
export function trend(readings: Reading[], warmUpSeconds: number): Trend | undefined {
  const blocks: Reading[][] = [];
  const kept: number[] = [];
  for (const [life, own] of Map.groupBy(readings, (reading) => reading.life)) {
    const begin = Math.min(...own.map((reading) => reading.seconds));
    const warm = own.filter((reading) => Number.isFinite(reading.value) && reading.seconds >= begin + warmUpSeconds);
    kept.push(...warm.map((reading) => reading.value));
    const inBlocks = Map.groupBy(warm, (reading) => Math.floor((reading.seconds - begin) / BLOCK_SECONDS));
    blocks.push([...inBlocks.values()].map((block) => ({ life, seconds: mean(block, "seconds"), value: mean(block, "value") })));
  }
  const line = slope(blocks.filter((block) => block.length >= 2));
  if (!line) return undefined;
  kept.sort((a, b) => a - b);
  return { readings: kept.length, median: kept[kept.length >> 1]!, max: kept.at(-1)!, perHour: line.slope * 3600, errorPerHour: line.error * 3600 };
}

/** Least squares with one slope and a level for each group, per second. */
function slope(groups: Reading[][]): { slope: number; error: number } | undefined {
  let [timesTime, timesValue, valuesValue, free] = [0, 0, 0, -1];
  for (const group of groups) {
    const [time, level] = [mean(group, "seconds"), mean(group, "value")];
    for (const { seconds, value } of group) {
      timesTime += (seconds - time) ** 2;
      timesValue += (seconds - time) * (value - level);
      valuesValue += (value - level) ** 2;
    }
    free += group.length - 1;
  }
  if (free < 2 || timesTime === 0) return undefined;
  const slope = timesValue / timesTime;
  return { slope, error: Math.sqrt(Math.max(0, valuesValue - slope * timesValue) / free / timesTime) };
}

function mean(readings: Reading[], of: "seconds" | "value"): number {
  return readings.reduce((sum, reading) => sum + reading[of], 0) / readings.length;
}

/** By how much a figure surely grows in so many seconds: what is left when noise has had its say, never below 0. */
export function sureGrowth(trend: Trend, seconds: number): number {
  return Math.max(0, ((trend.perHour - 2 * trend.errorPerHour) * seconds) / 3600);
}
