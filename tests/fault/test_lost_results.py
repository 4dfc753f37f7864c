"""A result that somebody removed from a finished run is made again, with the same bytes and a line that says so; what can't be made
again is warned of.

    test_lost_results.py --bin FOLDER [--all]

Without --all some files of each kind of job are tried."""
import os
import shutil

import bagpipe_test
from every_job import WAYS, EveryJob, whole_result

ALL, = bagpipe_test.take(all=False)
SOME = {"train": ["index.html"], "finetune": ["task.json"], "score": ["score/tokens.h5", "score/index.html"], "task": ["score/predictions.csv"],
        "generate": ["generate/outputs.jsonl"], "ensemble": ["metrics.jsonl", "members/m01/oob/score/documents.h5", "index.html"],
        "questions": ["score/samples_words.jsonl"],
        "uncertainty": ["uncertainty/roc.csv", "uncertainty/sets.csv", "uncertainty/record.json", "uncertainty/plots/nll.gp",
                        "uncertainty/scores/pair/score/tokens.h5"]}
RESULTS = {"train": "metrics.jsonl", "finetune": "metrics.jsonl", "score": "score/tokens.h5", "task": "score/predictions.csv",
           "generate": "generate/outputs.jsonl", "ensemble": "ensemble.json", "questions": "score/questions.jsonl",
           "uncertainty": "uncertainty/roc.csv"}
LOST = ("metrics.jsonl", "events.jsonl", "log.txt")  # journals, but an ensemble's, which is put together from its members'


class LostResults(EveryJob):
    def finished(self, kind):
        name = "whole-" + kind
        start = self.begin(kind, name, (0, ()))
        self.assertEqual(start.wait(), 0, str(start))
        return name, whole_result(self.at(name))

    def again(self, kind, name, file):
        """A copy of a finished run without a file, started again."""
        copy = f"{name}-again"
        shutil.rmtree(self.at(copy), ignore_errors=True)
        shutil.copytree(self.at(name), self.at(copy), symlinks=True)
        os.remove(self.at(f"{copy}/{file}"))
        start = self.begin(kind, copy, (0, ()))
        self.assertEqual(start.wait(), 0, f"{kind} without {file}: {start}")
        return start, whole_result(self.at(copy))

    def test_what_is_gone_is_made_again(self):
        for kind in SOME if not ALL else [kind for kind in WAYS if WAYS[kind][2][-1][0] == 0 or (0, ()) in WAYS[kind][2]]:
            if WAYS[kind][0].startswith("bagpipe-data"):
                continue
            name, whole = self.finished(kind)
            files = SOME.get(kind, []) if not ALL else [file for file in whole if os.path.basename(file) not in ("checkpoints",) + LOST]
            for file in files:
                with self.subTest(kind, file=file):
                    start, result = self.again(kind, name, file)
                    self.assertEqual(result, whole)
                    self.assertEqual(start.out.count("the run was finished, but this is gone and is made again: "), 1, str(start))

    def without_inputs(self, kind, name):
        """The run is started again while all that it was made of is elsewhere."""
        away = self.at("away")
        os.mkdir(away)
        inputs = [file for file in os.listdir(self.folder) if not file.startswith(("whole-", "start-", "away")) and not file.endswith(".ini")]
        for file in inputs:
            os.rename(self.at(file), os.path.join(away, file))
        start = self.begin(kind, name, (0, ()))
        status = start.wait()
        for file in inputs:
            os.rename(os.path.join(away, file), self.at(file))
        os.rmdir(away)
        return start, status

    def test_a_finished_run_needs_no_input(self):
        for kind in SOME:
            with self.subTest(kind):
                name, whole = self.finished(kind)
                start, status = self.without_inputs(kind, name)
                self.assertEqual((status, "the run is finished" in start.out), (0, True), str(start))
                self.assertEqual(whole_result(self.at(name)), whole)
                os.remove(self.at(f"{name}/{RESULTS[kind]}"))  # which only the inputs make again
                start, status = self.without_inputs(kind, name)
                self.assertEqual(status, 66, str(start))
                self.assertEqual(self.begin(kind, name, (0, ())).wait(), 0)
                if kind not in ("train", "finetune"):
                    self.assertEqual(whole_result(self.at(name)), whole)
                else:
                    shutil.rmtree(self.at(name))  # its metrics are gone for good

    def test_another_request_needs_its_inputs(self):
        name, _ = self.finished("score")
        os.rename(self.at("train.h5"), self.at("elsewhere.h5"))
        start = self.begin("score", name, (0, ()), more=("score.context=8",))
        self.assertEqual(start.wait(), 66, str(start))
        os.rename(self.at("elsewhere.h5"), self.at("train.h5"))

    def test_journals_are_warned_of(self):
        for kind, file, identifier in (("train", "metrics.jsonl", "[run.file_empty]"), ("ngram", "metrics.jsonl", "[run.file_empty]"),
                                       ("ensemble", "members/m00/metrics.jsonl", "[metrics.missing]")):
            with self.subTest(kind, file=file):
                start, _ = self.again(kind, self.finished(kind)[0], file)
                self.assert_warning(start.result(), identifier, file)


if __name__ == "__main__":
    bagpipe_test.main()
