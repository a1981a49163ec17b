// Times the scanner in V8: node scan.mjs MODULE BODY PIECE PATH CODING; prints microseconds to read
// a body and the bytes of prompt in it. Without a path it hashes the body block by block.
import { readFileSync } from 'node:fs';

const [file, bodyFile, piece, path, coding] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(file), {});
const { memory, room, job, scan, hash } = instance.exports;

function put(bytes) {
  const at = room(bytes.length);
  new Uint8Array(memory.buffer, at, bytes.length).set(bytes);
  return [at, bytes.length];
}

// The least of many: what else the machine does only ever adds.
function least(work) {
  const end = performance.now() + 300;
  let best = Infinity;
  while (performance.now() < end) {
    const begun = process.hrtime.bigint();
    work();
    best = Math.min(best, Number(process.hrtime.bigint() - begun) / 1000);
  }
  return best;
}

const body = put(readFileSync(bodyFile));
const what = path && job(...put(new TextEncoder().encode(`${path} ${coding}`)));
const work = path ? () => scan(what, ...body, Number(piece)) : () => hash(...body);
console.log(`${least(work)} ${path ? work() : 0}`);
