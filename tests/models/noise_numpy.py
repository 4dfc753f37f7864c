"""The noises of denoise, written down from their definitions: the draws, and the examples."""
import math

from word2vec_numpy import block, key_of

PURPOSE, LONG = 18, (1 << 64) - 1
NAMES = ("permute", "mask", "delete", "infill", "rotate", "sentinels")
PERMUTE, MASK, DELETE, LENGTH, PLACE, ROTATE, NOISE_PARTS, TEXT_PARTS = range(8)
START, END, MASKED, FIRST_SENTINEL = 0, 1, 2, 3


class Draws:
    def __init__(self, seed, step, stream, purpose=PURPOSE):
        self.key = key_of(seed, step, stream, purpose)

    def pair(self, index):
        words = block(self.key, index)
        return words[1] << 32 | words[0], words[3] << 32 | words[2]

    def uniform(self, index):
        return (self.pair(index)[0] >> 11) * 2.0 ** -53

    def below(self, index, n):
        """Refused draws have a chance of n / 2^64: they are not made."""
        return self.pair(index)[0] * n >> 64

    def permute(self, index, n):
        half = 1
        while half < 32 and (1 << 2 * half) < n:
            half += 1
        keys = [number for i in range(0, 8, 2) for number in self.pair(LONG - i)]
        while True:
            left, right = index >> half, index & ((1 << half) - 1)
            for key in keys:
                left, right = right, left ^ (mix(right + key & LONG) & ((1 << half) - 1))
            index = left << half | right
            if index < n:
                return index


def mix(x):
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        x = (x ^ x >> 33) * factor & LONG
    return x ^ x >> 33


def poisson(mean, u):
    p = total = math.exp(-mean)
    k = 0
    while u >= total:
        k += 1
        p *= mean / k
        total += p
    return k


def cut(draws, items, parts):
    """Lengths of the parts."""
    begins = sorted([0] + [1 + draws.permute(k, items - 1) for k in range(parts - 1)]) + [items]
    return [b - a for a, b in zip(begins, begins[1:])]


class Noise:
    def __init__(self, seed, places, kinds, rate=0.3, span=3.0, sentinels=0):
        self.seed, self.capacity, self.kinds, self.rate, self.span, self.sentinels = seed, places - 1, kinds, rate, span, sentinels

    def example(self, step, slot, tokens, starts):
        """Source, what the decoder reads, and the target."""
        draws = [Draws(self.seed, step, 8 * slot + k) for k in range(8)]
        text = target = tokens[:self.capacity]
        if "sentinels" in self.kinds:
            text, target = self.take_out(draws, text)
        if "permute" in self.kinds:
            sentences = [text[a:b] for a, b in zip(starts, starts[1:] + [len(text)])]
            text = [token for k in range(len(sentences)) for token in sentences[draws[PERMUTE].permute(k, len(sentences))]]
        if "mask" in self.kinds:
            text = [MASKED if draws[MASK].uniform(t) < self.rate else token for t, token in enumerate(text)]
        if "delete" in self.kinds:
            text = [token for t, token in enumerate(text) if draws[DELETE].uniform(t) >= self.rate] or text[:1]
        if "infill" in self.kinds:
            text = self.infill(draws, text)
        if "rotate" in self.kinds:
            first = draws[ROTATE].below(0, len(text))
            text = text[first:] + text[:first]
        target = target + [END]
        return text + [END], [START] + target[:-1], target

    def infill(self, draws, text):
        wanted, lengths, draw = math.floor(self.rate * len(text) + 0.5), [], 0
        while sum(lengths) < wanted:
            length = min(poisson(self.span, draws[LENGTH].uniform(draw)), wanted - sum(lengths))
            draw += 1
            if length > 0 or len(text) - sum(lengths) + len(lengths) + 1 <= self.capacity:
                lengths.append(length)
        items, out, at = [None] * (len(text) - wanted + len(lengths)), [], 0
        for k, length in enumerate(lengths):
            items[draws[PLACE].permute(k, len(items))] = length
        for length in items:
            out.append(text[at] if length is None else MASKED)
            at += 1 if length is None else length
        return out

    def take_out(self, draws, text):
        noise = min(max(math.floor(self.rate * len(text) + 0.5), 1), len(text) - 1)
        spans = min(max(math.floor(noise / self.span + 0.5), 1), self.sentinels, noise, len(text) - noise)
        source, target, at = [], [], 0
        for k, (kept, out) in enumerate(zip(cut(draws[TEXT_PARTS], len(text) - noise, spans), cut(draws[NOISE_PARTS], noise, spans))):
            source += text[at:at + kept] + [FIRST_SENTINEL + k]
            target += [FIRST_SENTINEL + k] + text[at + kept:at + kept + out]
            at += kept + out
        return source, target
