"""Every kind of job with two threads a rank: the results of one rank and of several, whose threads meet each other at other moments,
are the same. In a build with ThreadSanitizer (.ci/long threads) that is where races are looked for: models are so large that loops are
shared by threads.

    test_threads.py --bin FOLDER [--jobs NAMES]"""
import bagpipe_test
from every_job import WAYS, EveryJob, whole_result

NAMES, = bagpipe_test.take(jobs="all")
FEW = ("train.steps=4", "train.valid_every=2", "checkpoint.every=2", "train.log_every=1")
MORE = {
    "train": ("train.profile=yes", "mesh.overlap=yes"),
    "word2vec": ("mesh.micro_batch=1",),
}
COUNTS = ("ngram", "bags_of_ngrams")  # trainings without steps


class Threads(EveryJob):
    @classmethod
    def config(cls):
        """Loops are shared from 8,192 or 32,768 floats on: 4 x 32 places of 256."""
        text = super().config().replace("[math]", "[mesh]\nmicro_batch = 4\n[math]")
        for key, value in (("width = 16", "width = 256"), ("heads = 2", "heads = 4"), ("context = 16", "context = 32"),
                           ("batch = 4\nlog", "batch = 16\nlog"), ("threads = 1", "threads = 2")):
            assert key in text
            text = text.replace(key, value)
        return text

    def keys_of_kind(self, kind):
        trains = WAYS[kind][0] in ("pretrain", "finetune", "ensemble") and kind not in COUNTS
        return (FEW if trains else ()) + MORE.get(kind, ())

    def result(self, kind, mesh):
        name = f"{kind}-{mesh[0]}"
        start = self.begin(kind, name, mesh, self.keys_of_kind(kind))
        self.assertEqual(start.wait(), 0, f"{kind}: {start}")
        found = whole_result(self.at(name))
        found.pop("./profile.json", None)  # times
        return found

    def test_ranks_with_two_threads_each_have_the_results_of_one(self):
        for kind in WAYS if NAMES == "all" else NAMES.split(","):
            with self.subTest(kind=kind):
                several, *others = WAYS[kind][2][:2]
                found = self.result(kind, several)
                for mesh in others:
                    other = self.result(kind, mesh)
                    self.assertEqual(sorted(part for part in found.keys() | other.keys() if found.get(part) != other.get(part)), [])
                print(kind, flush=True)


if __name__ == "__main__":
    bagpipe_test.main()
