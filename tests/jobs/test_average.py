"""bagpipe-data average: numpy's mean of checkpoints' tensors, a checkpoint like others, and what is refused."""
import os

import numpy

import bagpipe_test
from bagpipe_test import JobTest, program, read_json, run
from tensors import tensors_of


class Average(JobTest):
    TEXT_BYTES = 40_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.must(["bagpipe", "pretrain", cls.at("small.ini"), f"run.dir={cls.at('run')}", "train.steps=6", "checkpoint.every=2", "checkpoint.keep=3"])
        cls.steps = [os.path.join(cls.at("run"), "checkpoints", f"step-{step:012d}") for step in (2, 4, 6)]

    def average(self, out, *paths):
        return run([program("bagpipe-data"), "average", *paths, "--out", self.at(out)])

    def test_the_mean_is_numpys(self):
        result = self.average("mean", *self.steps)
        self.assertEqual(result.status, 0, str(result))
        parts, mean = [tensors_of(step) for step in self.steps], tensors_of(self.at("mean"))
        self.assertEqual(set(mean), {name for name in parts[0] if "/" not in name})
        for name, values in mean.items():
            want = (sum(part[name] for part in parts) / 3).astype(numpy.float32)
            self.assertTrue((values == want).all(), name)
            self.assertTrue((values != parts[0][name]).any() or not want.any(), name)
        state = read_json(self.at("mean"), "manifest.json")["state"]
        self.assertEqual([part["step"] for part in state["averaged"]], [2, 4, 6])
        self.assertEqual(state["step"], 6)
        for tool in ("verify", "inspect"):
            self.must(["bagpipe-data", tool, self.at("mean")])
        self.must(["bagpipe", "score", self.at("small.ini"), f"run.dir={self.at('scored')}", f"score.model={self.at('mean')}", f"score.corpus={self.at('valid.h5')}"])
        self.must(["bagpipe", "pretrain", self.at("small.ini"), f"run.dir={self.at('on')}", "train.steps=1", f"model.init={self.at('mean')}"])

    def test_equal_checkpoints_have_their_own_mean(self):
        self.assertEqual(self.average("same", self.steps[1], self.steps[1]).status, 0)
        own, mean = tensors_of(self.steps[1]), tensors_of(self.at("same"))
        self.assertTrue(all((mean[name] == own[name]).all() for name in mean))

    def test_bad_input(self):
        self.assert_error(self.average("x", self.steps[0]), 64, "[command.wrong_count]")
        self.assert_error(run([program("bagpipe-data"), "average", *self.steps]), 64, "[command.wrong_count]")
        self.assert_error(self.average("run", *self.steps), 73, "[file.in_the_way]")
        self.assert_error(self.average("x", self.steps[0], self.at("none")), 66, "[checkpoint.missing]")
        self.trained("other", 0, "train.steps=1", "model.width=48")
        self.assert_error(self.average("x", self.steps[0], self.at("other")), 65, "[average.other_model]", "model.width")
        self.must(["bagpipe", "pretrain", self.write("counts.ini", f"[corpus]\ntrain={self.at('train.h5')}\n"), f"run.dir={self.at('counts')}", "model.kind=ngram", "ngram.order=2"])
        self.assert_error(self.average("x", self.at("counts"), self.at("counts")), 65, "[average.no_tensors]")
        self.assertFalse(os.path.exists(self.at("x")))


if __name__ == "__main__":
    bagpipe_test.main()
