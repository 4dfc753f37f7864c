"""English for tests: sentences of a fixed grammar over some thousand words. How often a word comes falls with its rank, as in real
text (Zipf), and the text of a seed is always the same.

    python3 english.py BYTES [SEED]     prints so many bytes, a sentence a line
"""
import bisect
import itertools
import random
import sys

STEMS = """rain stone wood river light field work house moon salt wind glass corn road night horse iron water bread snow fire sand bird
ship book rope wheel clay bone leaf star hand wall cloud mill milk bell root shore cart lamp gold fish hill wool thorn silk door frost
seed storm bridge smoke apple axle barrel basket blade branch brick butter cabin candle chalk chain cherry cloth copper cotton
coal crop curtain dairy dust eagle feather fence flax flour forge garlic granite hammer harbour hazel honey ivory jacket kettle
ladder lemon linen marble meadow mirror needle oak onion oven paddle pepper pigeon quarry rabbit ribbon saddle shadow spider
sugar timber tunnel velvet vine wagon willow zinc"""
PLAIN = """year man thing day part world case week number group fact month question government story result morning reason problem
company moment teacher council language winter market village history doctor music paper office system letter answer science minute
father mother captain engine kitchen garden summer station museum island"""
VERBS = """look turn move open start follow climb reach answer count gather watch cross mend paint lift trade explain remember visit
borrow deliver measure collect repair notice promise discover consider protect require question support report publish wander"""
ADJECTIVES = """old new small great long quiet early late cold warm dark narrow broken public private common simple strange heavy
distant northern modern ancient careful honest bitter gentle foreign"""
NAMES = [first + last for first in "Ab Bru Car Dal El Fer Gar Hob Ir Jan Kep Lun Mar Noe Or Pik Quil Ram Sud Tur Up Vik Wal Yor".split()
         for last in "by den er field ford gate ham ler low man mont ner rick son ton well".split()]
DETERMINERS = "the the the the the the the the the a a a a a this that his her their its every no some".split()
PREPOSITIONS = "of of of of in in in to on for with at by from under over between after before without".split()
ADVERBS = "again soon never always slowly hardly quickly almost often together".split()
CONJUNCTIONS = "and and and but while because when although".split()


class Words:
    """Words, drawn by rank r with a weight of 1 / (r + 40): those of each list in an order of their own, before those of the next."""

    def __init__(self, draw, *lists):
        self.words = [word for words in lists for word in sorted(words, key=lambda _: draw())]
        self.sums = list(itertools.accumulate(1 / (rank + 40) for rank in range(len(self.words))))

    def __call__(self, draw):
        return self.words[bisect.bisect(self.sums, draw() * self.sums[-1])]


def lexicon():
    draw = random.Random(2024).random  # random() alone gives the same numbers in every version of Python
    stems, verbs, adjectives = STEMS.split(), VERBS.split(), ADJECTIVES.split()
    past = [verb + ("d" if verb[-1] == "e" else "ed") for verb in verbs]
    present = [verb + ("es" if verb[-2:] in ("ch", "sh") else "s") for verb in verbs]
    return {
        "noun": Words(draw, PLAIN.split() + stems, [a + b for a in stems for b in stems if a != b]),
        "verb": Words(draw, "was is had said made".split(), past, present, ["re" + verb for verb in past]),
        "adjective": Words(draw, adjectives, ["un" + adjective for adjective in adjectives],
                           [stem + end for stem in stems for end in ("less", "like", "bound")]),
    }


class Speaker:
    def __init__(self, seed):
        self.draw, self.words = random.Random(seed).random, lexicon()

    def one(self, words):
        return words[int(self.draw() * len(words))]

    def maybe(self, chance, make):
        return make() if self.draw() < chance else []

    def word(self, kind):
        return [self.words[kind](self.draw)]

    def thing(self):
        kind = self.draw()
        if kind < 0.1:
            return [self.one(NAMES)]
        if kind < 0.14:
            return [str(int(self.draw() * self.one((10, 100, 3000)))), self.word("noun")[0] + "s"]
        return [self.one(DETERMINERS)] + self.maybe(0.4, lambda: self.word("adjective")) + self.word("noun") + self.maybe(
            0.35, lambda: [self.one(PREPOSITIONS)] + self.thing())

    def clause(self):
        return self.thing() + self.maybe(0.15, lambda: [self.one(ADVERBS)]) + self.word("verb") + self.maybe(
            0.85, self.thing) + self.maybe(0.4, lambda: [self.one(PREPOSITIONS)] + self.thing())

    def sentence(self):
        if self.draw() < 0.04:  # a heading
            return " ".join(self.word("adjective") + self.word("noun")).capitalize()
        words = self.clause()
        while self.draw() < 0.45:
            words += ["," if self.draw() < 0.5 else ";", self.one(CONJUNCTIONS)] + self.clause()
        words[0] = words[0][0].upper() + words[0][1:]
        return " ".join(words) + (" ?" if self.draw() < 0.05 else " .")


def english(bytes_wanted, seed=7):
    """Lines of so many bytes together, the last one cut."""
    speaker, lines, size = Speaker(seed), [], 0
    while size < bytes_wanted:
        lines.append(speaker.sentence())
        size += len(lines[-1]) + 1
    return ("\n".join(lines) + "\n")[:bytes_wanted]


if __name__ == "__main__":
    sys.stdout.write(english(int(sys.argv[1]), *map(int, sys.argv[2:3])))
