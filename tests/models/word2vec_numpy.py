"""word2vec step by step, in numpy and double precision: the draws, the examples, and the updates of groups of 32 centre words."""
import heapq
import math

import numpy as np

GROUP, POWER, PURPOSE = 32, 0.75, 12
WORD = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & WORD, (p0 >> 32) ^ c[3] ^ k[1], p0 & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return c


def key_of(seed, step, slot, purpose=PURPOSE):
    state = [0, 0, 0, 0]
    for place, number in enumerate((seed, purpose, 0, step, slot), 1):
        state[0] ^= number & WORD
        state[1] ^= number >> 32
        state[2] ^= place
        state = philox(state, (0x62616770, 0x69706500))
    return state


def block(key, index):
    return philox((index & WORD, index >> 32, key[2], key[3]), key[:2])


def huffman(counts):
    """{id: (points, codes)} from a heap; where sums tie, it need not be the tree of others."""
    ids = sorted((i for i in range(len(counts)) if counts[i]), key=lambda i: (-counts[i], i))
    heap = [(counts[i], i, None) for i in ids]
    heapq.heapify(heap)
    for made in range(len(ids) - 1):
        low, high = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (low[0] + high[0], len(counts) + made, (low, high)))
    codes, left = {}, [(heap[0], [], [])]
    while left:
        (_, number, children), points, bits = left.pop()
        if children is None:
            codes[number] = (points, bits)
        else:
            left += [(child, points + [number - len(counts)], bits + [bit]) for bit, child in enumerate(children)]
    return codes


class Twin:
    def __init__(self, tokens, eod, vocab_size, vectors, mode="skipgram", output="negative", window=5, negative=5, sample=1e-3, seed=1,
                 codes=None):
        self.tokens, self.eod, self.window, self.negative, self.seed = tokens, eod, window, negative, seed
        self.cbow, self.tree = mode == "cbow", output == "hierarchical"
        self.counts = np.bincount(tokens, minlength=vocab_size)
        words = self.counts.copy()
        words[eod] = 0
        self.words = words
        self.ranked = sorted((i for i in range(vocab_size) if words[i]), key=lambda i: (-words[i], i))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = sample * words.sum() / words
        self.kept = np.where(words > 0, np.minimum(np.sqrt(ratio) + ratio if sample > 0 else 1, 1), 0)
        self.codes = codes or (huffman(words) if self.tree else None)
        self.input, self.output = vectors.astype(np.float64), np.zeros_like(vectors, dtype=np.float64)
        self.make_noise()

    def make_noise(self):
        """The alias tables, worked through in the order of the program."""
        share = np.array([self.words[i] for i in self.ranked], dtype=np.float64) ** POWER
        share *= len(share) / share.sum()
        n = len(share)
        self.threshold, self.alias = [WORD] * n, list(range(n))
        few, many = [], []
        for k in range(n):
            (few if share[k] < 1 else many).append(k)
        while few and many:
            low, high = few.pop(), many[-1]
            self.threshold[low], self.alias[low] = int(share[low] * WORD), high
            share[high] -= 1 - share[low]
            if share[high] < 1:
                many.pop()
                few.append(high)

    def noise(self, place, coin):
        at = place * len(self.ranked) >> 32
        return self.ranked[at if coin < self.threshold[at] else self.alias[at]]

    def targets(self, key, word, first):
        if self.tree:
            return [(p, 1 - bit) for p, bit in zip(*self.codes[word])]
        out = [(word, 1)]
        for k in range(self.negative):
            draw = block(key, first + k // 2)
            noise = self.noise(draw[k % 2 * 2], draw[k % 2 * 2 + 1])
            if noise != word:
                out.append((noise, 0))
        return out

    def units(self, tokens, step):
        """Of each centre word a list of (inputs, targets)."""
        key = key_of(self.seed, step, 0)
        used, sentence = [], 0
        for t, token in enumerate(tokens):
            sentence += token == self.eod
            if self.kept[token] > 0 and (self.kept[token] >= 1 or block(key, t << 16)[0] / 2**32 < np.float32(self.kept[token])):
                used.append((token, t, sentence))
        for at, (word, t, sentence) in enumerate(used):
            reach = 1 + (block(key, t << 16)[1] * self.window >> 32)
            near = [j for j in range(max(at - reach, 0), min(at + reach + 1, len(used))) if j != at and used[j][2] == sentence]
            if self.cbow:
                yield [([used[j][0] for j in near], self.targets(key, word, (t << 16) + 1))] if near else []
            else:
                yield [([used[j][0]], self.targets(key, word, (t << 16) + 1 + (j - at + self.window) * ((self.negative + 1) // 2))) for j in near]

    def step(self, tokens, step, rate):
        """Returns the loss, the mean over predictions."""
        centres, total, count = list(self.units(tokens, step)), 0.0, 0
        for first in range(0, len(centres), GROUP):
            inputs, outputs = np.zeros_like(self.input), np.zeros_like(self.output)
            for words, targets in (unit for centre in centres[first:first + GROUP] for unit in centre):
                vector, error = self.input[words].mean(axis=0), 0
                count += 1
                for row, label in targets:
                    x = self.output[row] @ vector
                    total += math.log1p(math.exp(-x if label else x))
                    g = rate * (label - 1 / (1 + math.exp(-x)))
                    error = error + g * self.output[row]
                    outputs[row] += g * vector
                np.add.at(inputs, words, error)
            self.input += inputs
            self.output += outputs
        return total / count
