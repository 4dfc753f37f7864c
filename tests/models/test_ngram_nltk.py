"""mle, additive and witten-bell against nltk's MLE, Lidstone and WittenBellInterpolated on 40 sentences, orders 1 to 3, to 1e-9."""
import itertools
import random
import subprocess

import bagpipe_test
from bagpipe_test import program

try:
    from nltk.lm import MLE, Lidstone, NgramCounter, Vocabulary, WittenBellInterpolated
except ImportError:
    NgramCounter = None

SMOOTHINGS = {"mle": 1, "additive": 2, "witten-bell": 5}  # as ngram_smoothing numbers them
DELTA = 0.37


def model_of(name, order, vocabulary):
    if name == "mle":
        return MLE(order, vocabulary=vocabulary)
    return Lidstone(DELTA, order, vocabulary=vocabulary) if name == "additive" else WittenBellInterpolated(order, vocabulary=vocabulary)


def ngrams_of(sentence, order):
    """Those that end at a word that is predicted: <s> is none."""
    words = ["<s>", *sentence, "</s>"]
    return [tuple(words[end - n + 1:end + 1]) for end in range(1, len(words)) for n in range(1, min(order, end + 1) + 1)]


@bagpipe_test.unittest.skipIf(NgramCounter is None, "there is no python3-nltk")
class Nltk(bagpipe_test.FolderTest):
    def ask(self, order, smoothing, sentences, ids, questions):
        lines = [str(ids[word]) for sentence in sentences for word in [*sentence, "</s>"]]
        lines += ["? " + " ".join(str(ids[word]) for word in [*history, word]) for history, word in questions]
        out = subprocess.run([program("dump_ngram"), str(order), str(SMOOTHINGS[smoothing]), str(DELTA), str(len(ids) - 1), self.folder],
                             input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, env=bagpipe_test.environment())
        return [float(line) for line in out.stdout.split()]

    def test_forty_sentences(self):
        random.seed(5)
        words = [f"w{k}" for k in range(25)]
        sentences = [[words[min(int(random.expovariate(0.2)), 24)] for _ in range(random.randrange(1, 12))] for _ in range(40)]
        seen = sorted({word for sentence in sentences for word in sentence})
        ids = {"<unk>": 0, **{word: k + 1 for k, word in enumerate(seen)}}
        ids["</s>"] = len(ids)
        ids["<s>"] = len(ids)
        outcomes = [*seen, "</s>", "<unk>"]
        for order, name in itertools.product((1, 2, 3), SMOOTHINGS):
            with self.subTest(name, order=order):
                model = model_of(name, order, Vocabulary([*seen, "</s>"], unk_cutoff=1, unk_label="<unk>"))
                self.assertEqual(len(model.vocab), len(outcomes))
                model.counts = NgramCounter([ngrams_of(sentence, order) for sentence in sentences])
                if name == "witten-bell":
                    model.estimator.counts = model.counts
                histories = {tuple((["<s>", *sentence])[max(0, end - order + 2):end + 1]) for sentence in sentences for end in range(len(sentence))}
                histories |= {tuple(random.choices(seen, k=order - 1)) for _ in range(40)}  # most of them were never seen
                if order == 1:
                    histories = {()}
                questions = [(history, word) for history in sorted(histories) for word in outcomes]
                ours = self.ask(order, name, sentences, ids, questions)
                self.assertEqual(len(ours), len(questions))
                for (history, word), value in zip(questions, ours):
                    theirs = model.unmasked_score(word, history)
                    self.assertLess(abs(value - theirs), 1e-9, (history, word, value, theirs))


if __name__ == "__main__":
    bagpipe_test.main()
