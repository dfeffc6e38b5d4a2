// Node.js loads an addon with fibers inside.
const assert = require("assert");
const { readFile } = require("fs/promises");
const addon = require(process.argv[2]);

async function main() {
  assert.equal(addon.has_fibers(), 1);
  // Each of them parks, and keeps no thread.
  assert(addon.waiters() < 200);
  // While threads of Node.js's own read files.
  const files = Array.from({ length: 20 }, () => readFile(process.argv[1], "utf8"));
  assert.equal(addon.meetings(), 200);
  for (const text of await Promise.all(files)) assert(text.includes("Node.js"));
  console.log("done");
}
main();
