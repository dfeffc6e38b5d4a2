// The serve workload of docs/targets.md: node:http, whose handlers are functions on one thread, and
// which asks a backend as well.

import http from "node:http";

const orders = Object.fromEntries(process.argv.slice(2).map((word) => {
  const at = word.indexOf("=");
  return [word.slice(0, at), word.slice(at + 1)];
}));

function fail(message) {
  console.log(JSON.stringify({ failure: { message: String(message) } }));
  process.exit(1);
}

if (!["plain", "backend"].includes(orders.kind)) {
  fail(`there is no kind '${orders.kind}' of servers here`);
}
// By default 256 connections that are free are kept.
const agent = new http.Agent({ keepAlive: true, maxFreeSockets: Infinity });

function ask(target) {
  return new Promise((resolve, reject) => {
    http.get(orders.backend + target, { agent }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("error", reject);
      answer.on("end", () => {
        if (answer.statusCode === 200) resolve(Buffer.concat(parts));
        else reject(new Error(`the backend answered ${answer.statusCode}`));
      });
    }).on("error", reject);
  });
}

const server = http.createServer(async (request, answer) => {
  try {
    const body = orders.kind === "backend" ? await ask(request.url) : `carefree ${request.url}\n`;
    answer.writeHead(200, {
      "Content-Type": "text/plain",
      "Content-Length": Buffer.byteLength(body),
    });
    answer.end(body);
  } catch (error) {
    answer.writeHead(502).end(String(error));
  }
});
// By default it closes a connection that says nothing for five seconds.
server.keepAliveTimeout = 0;
server.on("error", fail);
server.listen({ host: "127.0.0.1", port: 0, backlog: 1024 }, () => {
  console.log(JSON.stringify({ phase: "serving", port: server.address().port }));
});
const end = () => {
  console.log(JSON.stringify({
    sample: { units: 1, switches_asked: 0, switches_made: 0, rounds: [] },
  }));
  // Connections that are open would keep the process alive.
  process.exit(0);
};
process.stdin.once("data", end).once("end", end);
