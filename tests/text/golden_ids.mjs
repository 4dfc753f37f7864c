// golden_ids.mjs FILE: fills "ids" and "decoded" of golden_ids.json by Hugging Face's tokenizers (npm's binding of the Rust
// library, 0.23.2). Run where node_modules is. Names of special tokens are those tokens.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

const {Tokenizer} = createRequire(path.join(process.cwd(), 'anchor.js'))('tokenizers');
const golden = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const rows = (list, space) => list.map(row => space + JSON.stringify(row)).join(',\n');

for (const one of golden.cases) {
  const model = {...golden.models[one.model], ...one.settings};
  const tokenizer = Tokenizer.fromString(JSON.stringify({...one.tokenizer, model}));
  for (const text of one.texts) {
    text.ids = Array.from((await tokenizer.encode(text.text, null, {addSpecialTokens: false})).getIds());
    text.decoded = await tokenizer.decode(text.ids, false);
  }
}
fs.writeFileSync(process.argv[2], '{"models": {\n' + Object.entries(golden.models).map(([name, model]) =>
  ` ${JSON.stringify(name)}: ${JSON.stringify(model)}`).join(',\n') + '},\n"cases": [\n' + golden.cases.map(one =>
  ` {"name": ${JSON.stringify(one.name)}, "model": ${JSON.stringify(one.model)}, "settings": ${JSON.stringify(one.settings)},\n` +
  `  "tokenizer": ${JSON.stringify(one.tokenizer)},\n  "texts": [\n${rows(one.texts, '   ')}]}`).join(',\n') + ']}\n');
