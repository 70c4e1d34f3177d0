import { deepEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../kill/random.ts";
import { type Reading, sureGrowth, trend } from "./trend.ts";

/** Readings of lives of so many seconds each, one a second. */
function lives(lengths: number[], value: (life: number, age: number) => number): Reading[] {
  const readings: Reading[] = [];
  for (const [life, length] of lengths.entries()) {
    for (let age = 0; age < length; age++) readings.push({ life, seconds: readings.length + 3 * life, value: value(life, age) });
  }
  return readings;
}

test("one slope for all lives, whatever level each has", () => {
  const found = trend(lives([60, 30, 90], (life, age) => 1000 * life + 2 * age), 10)!;
  equal(Math.round(found.perHour), 7200);
  ok(found.errorPerHour < 1e-6);
  equal(Math.round(sureGrowth(found, 60)), 120);
  equal(found.readings, 50 + 20 + 80);
});

test("what happens while a life warms up does not count", () => {
  const found = trend(lives([40, 40], (_, age) => Math.min(age, 10)), 10)!;
  deepEqual([found.perHour, found.median, found.max], [0, 10, 10]);
});

test("noise is no growth, and does not hide growth", () => {
  const random = new Random(1);
  const noise = () => random.between(-1000, 1000);
  equal(sureGrowth(trend(lives([300, 300], () => 5000 + noise()), 10)!, 600) < 300, true);
  ok(sureGrowth(trend(lives([300, 300], (_, age) => 5000 + 5 * age + noise()), 10)!, 600) > 2000);
  equal(sureGrowth(trend(lives([300], (_, age) => -age), 10)!, 600), 0);
});

test("a figure that is not there, or hardly, has no trend", () => {
  equal(trend([], 10), undefined);
  equal(trend(lives([60], () => Number.NaN), 10), undefined);
  equal(trend(lives([18, 5], (_, age) => age), 10), undefined);
});
