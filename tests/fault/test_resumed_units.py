"""A score that was killed goes on with the units of work that are missing: those that are done stay in their part files, and none is
done twice. By reading the part files (src/job/parts.h), for every kind of unit that a score has."""
import glob
import struct

import bagpipe_test
from every_job import EveryJob, whole_result
from fault_test import content

BLOCK, HEAD = 128, struct.Struct("<QqqQQ")  # a file's text block; magic, unit, bytes, and two hashes
KINDS = {"score": "parts", "datastore": "parts", "candidates": "candidates-parts", "questions": "parts", "questions_ensemble": "parts",
         "states": "states-parts", "vectors": "parts", "task": "parts",
         "task_tags": "parts", "task_spans": "parts", "task_ensemble": "parts"}


def units_of(path):
    """The units in a part file, in its order."""
    data, at, units = content(path), BLOCK, []
    while at + HEAD.size <= len(data):
        _, unit, size, _, _ = HEAD.unpack_from(data, at)
        at += HEAD.size + size
        units += [unit] if at <= len(data) else []
    return units


class ResumedUnits(EveryJob):
    def parts(self, name, folder="*parts"):
        return {path: content(path) for path in glob.glob(self.at(f"{name}/score/{folder}/*.part"))}

    def failing(self, kind, name, fault):
        start = self.begin(kind, name, (0, ()), env={"BP_FAULT": fault})
        self.assertNotIn(start.wait(), (None, 0), str(start))
        return start

    def test_what_is_done_is_not_done_again(self):
        for kind, folder in KINDS.items():
            with self.subTest(kind):
                self.ended(kind, "whole-" + kind, (0, ()))
                self.failing(kind, kind, "work.unit_done:2=kill")
                before = self.parts(kind, folder)
                self.assertEqual([len(units_of(path)) for path in before], [2])
                start = self.failing(kind, kind, "work.merge:1=eio")
                after = self.parts(kind)
                for path in before:
                    self.assertEqual(after[path], before[path])
                done = sorted(unit for path in self.parts(kind, folder) for unit in units_of(path))
                self.assertGreater(len(done), 2)
                self.assertEqual(done, list(range(len(done))))
                self.assertIn(f"going on: 2 of {len(done)} work units are done", start.out)
                last = self.ended(kind, kind, (0, ()))
                self.assertIn(f"going on: {len(done)} of {len(done)} work units are done", last.out)
                self.assertEqual(whole_result(self.at(kind)), whole_result(self.at("whole-" + kind)))
                self.assertEqual(self.parts(kind), {})


if __name__ == "__main__":
    bagpipe_test.main()
