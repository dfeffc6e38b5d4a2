// Measures async functions and workers by the protocol of docs/targets.md.
'use strict';

const fs = require('fs');
const { isMainThread, parentPort, workerData, Worker } = require('worker_threads');

const WARMUP_UNITS = 100;

const clock = () => process.hrtime.bigint();

// Places in the memory that workers share.
const OPEN = 0;
const TURN = 1;

async function runAsync(units, switches, allAlive) {
  let born = 0;
  let made = 0;
  let turn = -1;
  let open;
  let allBorn;
  const gate = new Promise((resolve) => { open = resolve; });
  const crowd = new Promise((resolve) => { allBorn = resolve; });

  async function unit(number) {
    born += 1;
    if (born === units) allBorn();
    await gate;
    let switched = 1;
    for (let s = 1; s < switches; s += 1) {
      turn = number;
      await undefined;
      if (turn !== number) switched += 1;
    }
    made += switched;
  }

  let start = clock();
  const all = [];
  for (let number = 0; number < units; number += 1) all.push(unit(number));
  await crowd;
  const create = clock() - start;
  allAlive();
  start = clock();
  open();
  await Promise.all(all);
  return { create, run: clock() - start, made };
}

async function runWorkers(units, switches, allAlive) {
  const shared = new Int32Array(new SharedArrayBuffer(8));
  let born = 0;
  let made = 0;
  let allBorn;
  const crowd = new Promise((resolve) => { allBorn = resolve; });
  let start = clock();
  const all = [];
  for (let number = 0; number < units; number += 1) {
    const worker = new Worker(__filename, { workerData: { shared, number, units, switches } });
    all.push(new Promise((resolve, reject) => {
      worker.on('message', (message) => {
        if (message === 'born') {
          born += 1;
          if (born === units) allBorn();
        } else {
          made += message;
        }
      });
      worker.on('error', reject);
      worker.on('exit', resolve);
    }));
  }
  await Promise.race([crowd, Promise.all(all)]);
  const create = clock() - start;
  allAlive();
  start = clock();
  Atomics.store(shared, OPEN, 1);
  Atomics.notify(shared, OPEN);
  await Promise.all(all);
  return { create, run: clock() - start, made };
}

// Workers have nothing to yield with: each hands the turn to the next, and waits for its own.
function work({ shared, number, units, switches }) {
  parentPort.postMessage('born');
  let made = Atomics.wait(shared, OPEN, 0) === 'ok' ? 1 : 0;
  for (let s = 1; s < switches; s += 1) {
    const mine = (s - 1) * units + number;
    for (;;) {
      const turn = Atomics.load(shared, TURN);
      if (turn === mine) break;
      Atomics.wait(shared, TURN, turn);
    }
    Atomics.store(shared, TURN, mine + 1);
    Atomics.notify(shared, TURN);
    if (units > 1) made += 1;
  }
  parentPort.postMessage(made);
}

const RUN = { async: runAsync, worker: runWorkers };

function stop(phase) {
  fs.writeSync(1, `${JSON.stringify({ phase })}\n`);
  const byte = Buffer.alloc(1);
  for (;;) {
    try {
      if (fs.readSync(0, byte, 0, 1, null) === 0 || byte[0] === 10) return;
    } catch (error) {
      // Standard input may not block.
      if (error.code !== 'EAGAIN') return;
    }
  }
}

async function take(orders) {
  const run = RUN[orders.unit];
  if (!run) throw new Error(`there is no unit '${orders.unit}'; the units are async and worker`);
  const number = (key, missing) => Number(key in orders ? orders[key] : missing);
  const [units, switches, rounds] = [number('units', 1), number('switches', 1), number('rounds', 1)];
  const phase = number('phases', 0) > 0 ? stop : () => {};

  const warmup = { rounds: number('warmup', 0), ns: 0 };
  for (let i = 0; i < warmup.rounds; i += 1) {
    const round = await run(Math.min(units, WARMUP_UNITS), switches, () => {});
    warmup.ns += Number(round.create + round.run);
  }

  phase('base');
  const before = process.resourceUsage();
  const times = [];
  let made = 0;
  for (let i = 0; i < rounds; i += 1) {
    const round = await run(units, switches, () => { if (i === 0) phase('alive'); });
    times.push({ create_ns: Number(round.create), run_ns: Number(round.run) });
    made += round.made;
    if (i === 0) phase('done');
  }
  const after = process.resourceUsage();
  const sample = {
    units,
    switches_asked: units * switches * rounds,
    switches_made: made,
    rounds: times,
    voluntary: after.voluntaryContextSwitches - before.voluntaryContextSwitches,
    involuntary: after.involuntaryContextSwitches - before.involuntaryContextSwitches,
    user_ns: (after.userCPUTime - before.userCPUTime) * 1000,
    system_ns: (after.systemCPUTime - before.systemCPUTime) * 1000,
    gc: { on: true },
  };
  if (warmup.rounds > 0) sample.warmup = warmup;
  return { sample };
}

function main() {
  const orders = {};
  for (const argument of process.argv.slice(2)) {
    const at = argument.indexOf('=');
    orders[argument.slice(0, at)] = argument.slice(at + 1);
  }
  take(orders).catch((error) => {
    process.exitCode = 1;
    return { failure: { message: error.message, advice: null } };
  }).then((answer) => fs.writeSync(1, `${JSON.stringify(answer)}\n`));
}

if (isMainThread) main();
else work(workerData);
