// The fetch workload of docs/targets.md: GETs by node:http, one after the other or by an async
// function each. (The global fetch keeps its connections whatever one asks for.)

import http from "node:http";
import { createInterface } from "node:readline";

const orders = Object.fromEntries(process.argv.slice(2).map((word) => {
  const at = word.indexOf("=");
  return [word.slice(0, at), word.slice(at + 1)];
}));
const count = Number(orders.units);
const body = Number(orders.body);
const readSize = Number(orders.read_size ?? 0);
const agent = new http.Agent({ keepAlive: orders.keep_alive === "1", maxFreeSockets: count });

function get() {
  return new Promise((resolve, reject) => {
    http.get(orders.url, { agent }, (answer) => {
      const parts = [];
      if (readSize === 0) {
        answer.on("data", (part) => parts.push(part));
      } else {
        answer.on("readable", () => {
          // What is left at the end may be less than asked for; read() takes all of it.
          for (;;) {
            const part = answer.read(Math.min(readSize, answer.readableLength || readSize));
            if (part === null) break;
            parts.push(part);
          }
        });
      }
      answer.on("error", reject);
      answer.on("end", () => {
        const { length } = Buffer.concat(parts);
        if (answer.statusCode === 200 && length === body) return resolve(length);
        reject(new Error(`status ${answer.statusCode} with ${length} bytes, not 200 with ${body}`));
      });
    }).on("error", reject);
  });
}

async function sequential() {
  let received = 0;
  for (let at = 0; at < count; at++) received += await get();
  return received;
}

async function crowd() {
  const lengths = await Promise.all(Array.from({ length: count }, get));
  return lengths.reduce((sum, length) => sum + length, 0);
}

async function phase(name) {
  if (orders.phases !== "1") return;
  console.log(JSON.stringify({ phase: name }));
  await lines.next();
}

// Only when there is something to read: standard input would keep the process alive.
const input = orders.phases === "1" ? createInterface({ input: process.stdin }) : null;
const lines = input?.[Symbol.asyncIterator]();

async function take() {
  const fetchAll = orders.unit === "sequential" ? sequential : crowd;
  const warmup = { rounds: Number(orders.warmup ?? 0), ns: 0 };
  const rounds = [];
  let received = 0;
  const pass = async () => {
    const start = process.hrtime.bigint();
    received += await fetchAll();
    return Number(process.hrtime.bigint() - start);
  };
  for (let round = 0; round < warmup.rounds; round++) warmup.ns += await pass();
  await phase("base");
  for (let round = 0; round < Number(orders.rounds ?? 1); round++) {
    rounds.push({ create_ns: 0, run_ns: await pass() });
  }
  await phase("done");
  const requests = count * (warmup.rounds + rounds.length);
  return {
    units: count, switches_asked: 0, switches_made: 0, rounds, warmup, gc: { on: true },
    requests, body_bytes: received,
  };
}

try {
  console.log(JSON.stringify({ sample: await take() }));
} catch (error) {
  console.log(JSON.stringify({ failure: { message: String(error) } }));
  process.exitCode = 1;
}
agent.destroy();
input?.close();
