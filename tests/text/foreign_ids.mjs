// foreign_ids.mjs LIBRARY TOKENIZER TEXT [REPEATS]: the ids of every line of TEXT by a library that is not ours, a line
// a line; with REPEATS, nothing but the fastest time of encoding all lines. LIBRARY: tokenizers (Rust, npm's binding),
// huggingface (@huggingface/tokenizers), xenova (@xenova/transformers), tiktoken (WebAssembly). Run where node_modules is.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const require = createRequire(path.join(process.cwd(), 'anchor.js'));
const [library, file, textFile, repeats] = process.argv.slice(2);

// Byte-level BPE as tiktoken's table: the bytes of a token and its rank.
function ranksOf(json) {
  const own = [[33, 126], [161, 172], [174, 255]].flatMap(([a, b]) => Array.from({length: b - a + 1}, (_, k) => a + k));
  const letters = new Map(own.map(byte => [String.fromCodePoint(byte), byte]));
  for (let byte = 0, next = 256; byte < 256; byte++)
    if (!own.includes(byte)) letters.set(String.fromCodePoint(next++), byte);
  const special = new Set(json.added_tokens.map(token => token.content));
  return Object.entries(json.model.vocab).filter(([name]) => !special.has(name)).map(([name, id]) =>
    Buffer.from([...name].map(letter => letters.get(letter))).toString('base64') + ' ' + id).join('\n');
}

const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

async function open() {
  const json = () => JSON.parse(fs.readFileSync(file, 'utf8'));
  if (library === 'tokenizers') {
    const tokenizer = require('tokenizers').Tokenizer.fromFile(file);
    return async lines => (await tokenizer.encodeBatch(lines, {addSpecialTokens: false})).map(e => e.getIds());
  }
  if (library === 'huggingface') {
    const {Tokenizer} = await import(pathToFileURL(path.resolve('node_modules/@huggingface/tokenizers/dist/tokenizers.mjs')));
    const tokenizer = new Tokenizer(json(), {});
    return async lines => lines.map(line => tokenizer.encode(line, {add_special_tokens: false}).ids);
  }
  if (library === 'xenova') {
    const {PreTrainedTokenizer} = await import(pathToFileURL(path.resolve('node_modules/@xenova/transformers/src/tokenizers.js')));
    const tokenizer = new PreTrainedTokenizer(json(), {});
    return async lines => lines.map(line => tokenizer.encode(line, null, {add_special_tokens: false}));
  }
  const {Tiktoken} = require('tiktoken');
  const split = json().pre_tokenizer.pretokenizers?.[0];
  const tokenizer = new Tiktoken(ranksOf(json()), {}, split ? split.pattern.Regex : GPT2);
  return async lines => lines.map(line => tokenizer.encode_ordinary(line));
}

const encode = await open();
const lines = fs.readFileSync(textFile, 'utf8').split('\n');
if (lines.at(-1) === '') lines.pop();
if (repeats) {
  let best = Infinity;
  for (let k = 0; k < +repeats; k++) {
    const start = process.hrtime.bigint();
    await encode(lines);
    best = Math.min(best, Number(process.hrtime.bigint() - start) * 1e-9);
  }
  console.log(best.toFixed(6));
} else {
  const out = fs.createWriteStream('/dev/stdout');
  for (let at = 0; at < lines.length; at += 1000)
    out.write((await encode(lines.slice(at, at + 1000))).map(ids => Array.from(ids).join(' ') + '\n').join(''));
  out.end();
}
