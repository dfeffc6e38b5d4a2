// Node.js: worker threads that wait for one another by Atomics, and libuv's pool (files, zlib, scrypt, names).
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const crypto = require('crypto'), dns = require('dns/promises'), fs = require('fs/promises'), util = require('util');
const zlib = require('zlib');

if (!isMainThread) {
  const { shared, own, all } = workerData, words = new Int32Array(shared);
  for (let round = 0; round < 200; round++) {
    // Each in its turn.
    for (let turn; (turn = Atomics.load(words, 0)) % all !== own;) Atomics.wait(words, 0, turn);
    words[1] += own;
    Atomics.add(words, 0, 1);
    Atomics.notify(words, 0);
  }
  parentPort.postMessage(own);
} else {
  const shared = new SharedArrayBuffer(8), all = 4;
  const workers = [...Array(all).keys()].map(own => new Promise((done, fail) =>
    new Worker(__filename, { workerData: { shared, own, all } }).on('message', done).on('error', fail)));
  (async () => {
    console.log('workers', await Promise.all(workers), new Int32Array(shared));
    const text = Buffer.alloc(300_000, 'some text that repeats; ');
    const packed = await Promise.all([...Array(8).keys()].map(n => util.promisify(zlib.gzip)(text, { level: n + 1 })));
    const back = await Promise.all(packed.map(each => util.promisify(zlib.gunzip)(each)));
    console.log('zlib', back.every(each => each.equals(text)));
    const keys = await Promise.all([...Array(6).keys()].map(n => util.promisify(crypto.scrypt)(`word${n}`, 'salt', 16)));
    console.log('scrypt', keys.map(key => key.toString('hex')));
    await Promise.all([...Array(20).keys()].map(n => fs.writeFile(`file${n}`, `${n}`.repeat(1000))));
    const read = await Promise.all([...Array(20).keys()].map(n => fs.readFile(`file${n}`)));
    console.log('files', read.reduce((sum, each) => sum + each.length, 0));
    console.log('names', (await dns.lookup('localhost', { family: 4 })).address);
  })();
}
