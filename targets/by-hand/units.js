// Switch and allocation of Node.js, by hand: nanoseconds on standard output.
const [what, , count] = [process.argv[2], process.argv[3], Number(process.argv[4])];

const yields = async (times) => { for (let i = 0; i < times; i++) await null; };

async function alloc(units) {
  let open;
  const gate = new Promise((resolve) => { open = resolve; });
  const one = async () => { await gate; await null; };
  const all = [];
  for (let i = 0; i < units; i++) all.push(one());
  open();
  await Promise.all(all);
}

async function main() {
  const run = what === 'switch'
    ? (times) => Promise.all([yields(times / 2), yields(times / 2)])
    : alloc;
  // The compiler has seen it.
  for (let i = 0; i < 50; i++) await run(100);
  const start = process.hrtime.bigint();
  await run(count);
  console.log(Number(process.hrtime.bigint() - start) / count);
}

main();
