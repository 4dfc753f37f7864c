"""Every kind of job ends well, bare where it can: for builds whose sanitizers look on (.ci/long sanitizers). What a language model
is good for besides, is asked of each family: its texts are scored, and it writes some.

    test_every_job.py --bin FOLDER [--of N --part K]   only each N-th kind, from the K-th on"""
import bagpipe_test
from every_job import WAYS, EveryJob

OF, PART = bagpipe_test.take(of=1, part=0)
WRITERS = ("llama", "neox", "mamba2", "experts", "recurrent")  # causal language models


class EndsWell(EveryJob):
    def test_every_kind(self):
        for kind in list(WAYS)[PART::OF]:
            with self.subTest(kind):
                meshes, name = WAYS[kind][2], "run-" + kind
                self.ended(kind, name, (0, ()) if (0, ()) in meshes else meshes[0])
                if kind in (*WRITERS, "ngram"):
                    self.done("score", name + "-scored", f"score.model={self.at(name)}", f"score.corpus={self.at('valid.h5')}", ranks=0)
                if kind in WRITERS:
                    self.need("prompts")
                    self.done("generate", name + "-texts", f"generate.model={self.at(name)}", f"generate.prompts={self.at('prompts.txt')}", ranks=0)


if __name__ == "__main__":
    bagpipe_test.main()
