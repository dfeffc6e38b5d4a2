// The feed workload of docs/targets.md: people who need so many bites each, fed by async functions;
// by async functions over a few workers; or by processes with async functions in each. A worker is
// a whole engine: there is none for each person.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

class Person {
  constructor(need) {
    this.need = need;
    this.iron = this.calcium = this.fiber = 0;
  }

  get satisfied() {
    return this.iron === this.need && this.calcium === this.need && this.fiber === this.need;
  }

  bite() {
    this.iron++;
    this.calcium++;
    this.fiber++;
  }
}

// The person that ate last: an await after which it is still the same one made no switch.
let last = null;
let made = 0;

async function eat(person, yields) {
  while (!person.satisfied) {
    person.bite();
    if (yields) {
      last = person;
      await null;
      if (last !== person) made++;
    }
  }
}

async function feed(count, nutrients, yields) {
  made = 0;
  const people = Array.from({ length: count }, () => new Person(nutrients));
  await Promise.all(people.map((person) => eat(person, yields)));
  if (!people.every((person) => person.satisfied)) throw new Error("a person is still hungry");
  const eaten = people.reduce((sum, { iron, calcium, fiber }) => sum + iron + calcium + fiber, 0);
  return { made, eaten };
}

function shares(count, workers) {
  return Array.from({ length: workers }, (_, at) =>
    Math.floor(count / workers) + (at < count % workers ? 1 : 0));
}

function overWorkers(count, nutrients, yields, workers) {
  const file = fileURLToPath(import.meta.url);
  return Promise.all(shares(count, workers).map((share) => new Promise((resolve, reject) => {
    const worker = new Worker(file, { workerData: { share, nutrients, yields } });
    worker.on("message", resolve);
    worker.on("error", reject);
  })));
}

function overProcesses(count, nutrients, yields, workers) {
  const file = fileURLToPath(import.meta.url);
  return Promise.all(shares(count, workers).map((share) => new Promise((resolve, reject) => {
    const orders = [`units=${share}`, `nutrients=${nutrients}`, `yields=${yields ? 1 : 0}`];
    const child = spawn(process.execPath, [file, "unit=async", ...orders],
      { stdio: ["ignore", "pipe", "inherit"] });
    let printed = "";
    child.stdout.on("data", (part) => { printed += part; });
    child.on("error", reject);
    child.on("close", () => {
      try {
        const { switches_made, eaten } = JSON.parse(printed).sample;
        resolve({ made: switches_made, eaten });
      } catch {
        reject(new Error(`a process did not say what it did, but: ${printed}`));
      }
    });
  })));
}

async function take(orders) {
  const count = Number(orders.units);
  const nutrients = Number(orders.nutrients);
  const yields = orders.yields === "1";
  const workers = Math.max(1, Math.min(Number(orders.workers ?? 2), count));
  const sample = {
    units: count, switches_asked: 0, switches_made: 0, rounds: [],
    warmup: { rounds: Number(orders.warmup ?? 0), ns: 0 }, gc: { on: true },
    eaten: 0,
  };
  for (let round = -sample.warmup.rounds; round < Number(orders.rounds ?? 1); round++) {
    const start = process.hrtime.bigint();
    const results = orders.how === "hybrid" ? await overWorkers(count, nutrients, yields, workers)
      : orders.how === "processes" ? await overProcesses(count, nutrients, yields, workers)
      : [await feed(count, nutrients, yields)];
    const time = Number(process.hrtime.bigint() - start);
    if (round < 0) {
      sample.warmup.ns += time;
      continue;
    }
    sample.rounds.push({ create_ns: 0, run_ns: time });
    sample.switches_asked += yields ? count * nutrients : 0;
    for (const result of results) {
      sample.switches_made += result.made;
      sample.eaten += result.eaten;
    }
  }
  const usage = process.resourceUsage();
  sample.voluntary = usage.voluntaryContextSwitches;
  sample.involuntary = usage.involuntaryContextSwitches;
  return sample;
}

if (isMainThread) {
  const orders = Object.fromEntries(process.argv.slice(2).map((word) => {
    const at = word.indexOf("=");
    return [word.slice(0, at), word.slice(at + 1)];
  }));
  try {
    console.log(JSON.stringify({ sample: await take(orders) }));
  } catch (error) {
    console.log(JSON.stringify({ failure: { message: String(error) } }));
    process.exitCode = 1;
  }
} else {
  const { share, nutrients, yields } = workerData;
  parentPort.postMessage(await feed(share, nutrients, yields));
}
