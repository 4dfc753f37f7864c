"""A BERT in plain loops and float64, after the paper and its published code: what bagpipe's scores of masked models are held to. It reads a
Hugging Face folder of bert or roberta, and WordPiece text without punctuation inside words."""
import array
import json
import math
import pathlib
import struct


def words_of(line, vocabulary):
    """WordPiece: the longest piece of each word first."""
    ids = []
    for word in line.split():
        start = 0
        pieces = []
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocabulary:
                    break
            else:
                pieces = [vocabulary.index("[UNK]")]
                break
            pieces.append(vocabulary.index(piece))
            start = end
        ids += pieces
    return ids


def norm(x, gain, bias, epsilon):
    mean = sum(x) / len(x)
    variance = sum((a - mean) ** 2 for a in x) / len(x)
    return [(a - mean) / math.sqrt(variance + epsilon) * g + b for a, g, b in zip(x, gain, bias)]


def gelu(x):
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


class Bert:
    def __init__(self, folder):
        self.config = json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8"))
        data = pathlib.Path(folder, "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        self.tensors = {}
        for name, tensor in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = tensor["data_offsets"]
            values = array.array("f", data[8 + size + begin:8 + size + end])
            columns = tensor["shape"][-1]
            rows = [list(values[k:k + columns]) for k in range(0, len(values), columns)]
            self.tensors[name] = rows if len(tensor["shape"]) == 2 else rows[0]
        self.roberta = self.config["model_type"] == "roberta"

    def linear(self, name, x):
        weight, bias = self.tensors[name + ".weight"], self.tensors[name + ".bias"]
        return [sum(a * b for a, b in zip(x, row)) + c for row, c in zip(weight, bias)]

    def norm(self, name, x):
        return norm(x, self.tensors[name + ".weight"], self.tensors[name + ".bias"], self.config["layer_norm_eps"])

    def attend(self, name, rows):
        q, k, v = ([self.linear(f"{name}.self.{part}", x) for x in rows] for part in ("query", "key", "value"))
        heads = self.config["num_attention_heads"]
        width = len(q[0]) // heads
        out = []
        for query in q:
            mixed = []
            for first in range(0, heads * width, width):
                part = slice(first, first + width)
                scores = [sum(a * b for a, b in zip(query[part], key[part])) / math.sqrt(width) for key in k]
                weights = [math.exp(s - max(scores)) for s in scores]
                mixed += [sum(w * value[first + c] for w, value in zip(weights, v)) / sum(weights) for c in range(width)]
            out.append(self.linear(f"{name}.output.dense", mixed))
        return out

    def logprobs(self, ids, places):
        """Of all tokens, at some places of the whole input."""
        kind = "roberta." if self.roberta else "bert."
        table = self.tensors[kind + "embeddings.word_embeddings.weight"]
        positions = self.tensors[kind + "embeddings.position_embeddings.weight"]
        segment = self.tensors[kind + "embeddings.token_type_embeddings.weight"][0]
        first = self.config["pad_token_id"] + 1 if self.roberta else 0
        rows = [self.norm(kind + "embeddings.LayerNorm", [a + b + c for a, b, c in zip(table[i], positions[first + t], segment)])
                for t, i in enumerate(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"{kind}encoder.layer.{layer}"
            rows = [self.norm(name + ".attention.output.LayerNorm", [a + b for a, b in zip(x, y)])
                    for x, y in zip(rows, self.attend(name + ".attention", rows))]
            self.keys = rows  # of the last layer: what its MLP reads
            inner = [[gelu(a) for a in self.linear(name + ".intermediate.dense", x)] for x in rows]
            rows = [self.norm(name + ".output.LayerNorm", [a + b for a, b in zip(x, self.linear(name + ".output.dense", y))])
                    for x, y in zip(rows, inner)]
        dense, ln, bias = (("lm_head.dense", "lm_head.layer_norm", "lm_head.bias") if self.roberta else
                           ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"))
        out = []
        for place in places:
            x = self.norm(ln, [gelu(a) for a in self.linear(dense, rows[place])])
            logits = [sum(a * b for a, b in zip(x, row)) + c for row, c in zip(table, self.tensors[bias])]
            most = max(logits)
            total = most + math.log(sum(math.exp(a - most) for a in logits))
            out.append([a - total for a in logits])
        return out

    def logprob(self, ids, place, token):
        return self.logprobs(ids, [place])[0][token]

    def fill(self, ids, vocabulary, rounds):
        """Tokens and log-probabilities of the masks of a text, filled in by rounds, the most probable ones first."""
        cls, sep, mask = (vocabulary.index(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
        text = [cls] + ids + [sep]
        masks = [k for k, token in enumerate(text) if token == mask]
        sure = {}
        for left in range(rounds, 0, -1):
            places = [k for k in masks if k not in sure]
            best = []
            for place, values in zip(places, self.logprobs(text, places)):
                token = max((v for v in range(len(values)) if v not in (cls, sep, mask)), key=lambda v: values[v])
                best.append((-values[token], place, token))
            for value, place, token in sorted(best)[:-(-len(places) // left)]:
                text[place], sure[place] = token, -value
        return [text[k] for k in masks], [sure[k] for k in masks]

    def fill_again(self, ids, vocabulary, rounds):
        """The same with masks put back: each round fills in all, and the least probable ones are open in the next."""
        cls, sep, mask = (vocabulary.index(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
        text = [cls] + ids + [sep]
        masks = places = [k for k, token in enumerate(text) if token == mask]
        sure = {}
        for left in range(rounds - 1, -1, -1):
            for place, values in zip(places, self.logprobs(text, places) if places else []):
                token = max((v for v in range(len(values)) if v not in (cls, sep, mask)), key=lambda v: values[v])
                text[place], sure[place] = token, values[token]
            result = [text[k] for k in masks], [sure[k] for k in masks]
            places = sorted(sorted(masks, key=lambda k: (sure[k], k))[:len(masks) * left // rounds])
            for place in places:
                text[place] = mask
        return result

    def score(self, lines, vocabulary, window, words):
        """The negated pseudo-log-likelihood of documents in disjoint windows, and of each token what the last MLP reads in its place."""
        cls, sep, mask = (vocabulary.index(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
        total, keys = 0, []
        for line in lines:
            ids = words_of(line, vocabulary)
            for first in range(0, len(ids), window):
                text = ids[first:first + window]
                for k, token in enumerate(text):
                    masked = [cls] + text + [sep]
                    end = k + 1
                    while words and end < len(text) and vocabulary[text[end]].startswith("##"):
                        end += 1
                    masked[1 + k:1 + end] = [mask] * (end - k)
                    total -= self.logprob(masked, 1 + k, token)
                    keys.append(self.keys[1 + k])
        return total, keys
