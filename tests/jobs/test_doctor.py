"""bagpipe doctor: what is right, what is not, with which status; and nothing is left behind."""
import json
import os
import stat
import subprocess

import bagpipe_test
from bagpipe_test import JobTest, program, run


class Doctor(JobTest):
    def report(self, arguments, ranks=0, status=0):
        result = run([program("bagpipe"), "doctor", "--json"] + arguments, ranks)
        self.assertEqual(result.status, status, str(result))
        report = json.loads(result.out)
        self.assertEqual(report["status"], status)
        return report, {row["check"]: row for row in report["checks"]}

    def test_ranks_and_run_folder(self):
        os.makedirs(self.at("run"), exist_ok=True)
        for ranks in (0, 4):
            with self.subTest(ranks=ranks):
                report, rows = self.report([self.at("run")], ranks)
                self.assertEqual(report["ranks"], max(ranks, 1))
                self.assertEqual(report["hosts"], 1)
                for check in ("write, fsync", "rename", "space", "file system", "sum over ranks", "gemm speed", "hdf5", "mpi",
                              "binding", "launcher", "cpu", "memory", "limits"):
                    self.assertIn(check, rows)
                    self.assertNotEqual(rows[check]["level"], "fail")
                self.assertEqual(rows["sum over ranks"]["level"], "ok")
                self.assertEqual(rows["launcher"]["text"].split()[0], "mpirun" if ranks else "none:")
                self.assertEqual(rows["seen by others"]["level"], "ok" if ranks else "note")
                self.assertEqual(os.listdir(self.at("run")), [])

    def test_two_hosts(self):
        """A rank under another host's name: hosts are distinguished, and a file is passed between them."""
        os.makedirs(self.at("shared"), exist_ok=True)
        if run(["unshare", "-u", "true"]).status != 0:
            self.skipTest("a host's name can't be changed here: that needs root")
        doctor = f"{program('bagpipe')} doctor --json {self.at('shared')}"
        start = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec unshare -u sh -c "hostname other; exec {doctor}"; fi; exec {doctor}'
        result = run(["sh", "-c", start], 2)
        self.assertEqual(result.status, 0, str(result))
        report = json.loads(result.out)
        rows = {row["check"]: row for row in report["checks"]}
        self.assertEqual(report["hosts"], 2)
        self.assertIn("by all ranks, on 2 hosts", rows["seen by others"]["text"])
        self.assertIn("2 on 2 hosts", rows["ranks"]["text"])

    def test_table_and_help(self):
        result = run([program("bagpipe"), "doctor", self.at("")], 2)
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"(?m)^ok +sum over ranks +the same bits")
        self.assertEqual(result.out.count("sum over ranks"), 1)  # one rank speaks
        self.assertIn("bagpipe doctor", run([program("bagpipe"), "--help"]).out)
        self.assertEqual(run([program("bagpipe"), "doctor", "--help"]).status, 0)

    def test_configuration_tells_the_size_of_checkpoints(self):
        for key, level in (("model.width=32", "ok"), ("model.width=1048576", "fail")):
            _, rows = self.report([self.at("small.ini"), f"run.dir={self.at('not/yet')}", key], status=0 if level == "ok" else 74)
            self.assertEqual(rows["space"]["level"], level, rows["space"])
        self.assertIn("not there yet", rows["run folder"]["text"])
        self.assertFalse(os.path.exists(self.at("not")))

    def test_model_that_can_not_be_is_not_counted(self):
        for keys, name in ((["model.kind=llama", "model.kv_heads=3"], "model.not_dividing"), (["model.kind=bart", "model.heads=5"], "model.not_dividing"),
                           (["model.heads=5"], "model.not_dividing"), (["model.kind=llama", "model.rope_scaling=linear"], "model.missing_key"),
                           (["model.kind=lstm", "adapter.kind=lora"], "adapter.no_place")):
            with self.subTest(keys):
                _, rows = self.report([self.at("small.ini"), f"run.dir={self.at('x')}"] + keys, status=78)
                self.assertIn(f"[{name}]", rows["configuration"]["text"])
        with open(self.at("small.ini"), encoding="utf-8") as file:
            self.write("no-heads.ini", file.read().replace("heads = 4\n", ""))
        for kind in ("gpt", "llama"):
            with self.subTest(kind):
                _, rows = self.report([self.at("no-heads.ini"), f"run.dir={self.at('x')}", f"model.kind={kind}"], status=78)
                self.assertIn("model.heads", rows["configuration"]["text"])
                self.assertNotIn("checkpoint", rows["space"]["text"])

    def test_corpus_of_another_program_is_not_read(self):
        with open(self.at("foreign.h5"), "wb") as file:
            file.write(b"\x89HDF\r\n\x1a\n" + bytes(1000))  # what opens it fails
        keys = [f"run.dir={self.at('x')}", f"corpus.train={self.at('foreign.h5')},{self.at('none.h5')}"]
        _, rows = self.report([self.at("small.ini")] + keys, status=66)  # none.h5
        self.assertIn("another program wrote", rows["checkpoints"]["text"])
        self.assertEqual(rows["checkpoints"]["level"], "note")
        self.assertNotIn("checkpoint", rows["space"]["text"])

    def test_threads_that_do_not_fit_are_warned_of(self):
        _, rows = self.report([self.at("small.ini"), f"run.dir={self.at('x')}", "math.threads=999"])
        self.assertEqual(rows["binding"]["level"], "warn")
        self.assertIn("999 threads", rows["binding"]["text"])

    def test_idle_cores_are_named_with_the_remedy(self):
        """Open MPI binds one or two ranks to a core each."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is one core here")
        job = [program("bagpipe"), "pretrain", self.at("small.ini"), f"run.dir={self.at('few')}", "train.steps=1"]
        mpirun = ["env", "-u", "OMP_NUM_THREADS", "mpirun", "-q", "-n", "1", "--bind-to", "core"]
        result = run(mpirun + [program("bagpipe"), "doctor"])
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"(?m)^warn +binding +\d+ of \d+ cores of \S+ are idle: 1 rank with 1 thread$")
        self.assertIn("mpirun --bind-to none", result.out)
        self.assertNotIn("all is well", result.out)
        self.assertEqual(run(mpirun + job + ["math.threads=0"]).out.count("are not used by this job: 1 rank with 1 thread; use them with"), 1)
        self.assertNotIn("are not used", run(mpirun + job + ["train.steps=2"]).out)  # with math.threads=1, as is asked for
        _, rows = self.report([])  # with OMP_NUM_THREADS=1
        self.assertEqual(rows["binding"]["level"], "warn")
        self.assertIn("OMP_NUM_THREADS=", rows["binding"]["remedy"])

    def test_folder_that_can_not_be_written(self):
        if os.getuid() != 0:
            self.skipTest("only root can become somebody else")
        os.makedirs(self.at("closed"), exist_ok=True)
        os.chmod(self.folder, stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH | stat.S_IRGRP | stat.S_IROTH)
        os.chmod(self.at("closed"), 0o555)
        who = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"HOME={self.folder}", "TMPDIR=/tmp"]
        result = run(who + ["sh", bagpipe_test.MPIRUN, "4", program("bagpipe"), "doctor", self.at("closed")])
        if "cannot execute" in result.err or result.status in (126, 127):
            self.skipTest("another user can't start the programs here")
        self.assertEqual(result.status, 77, str(result))
        self.assertRegex(result.out, r"(?m)^FAIL +run folder .*Permission denied")
        self.assertEqual(result.err.count("bagpipe: error[77]"), 1, str(result))

    def test_disk_that_is_full(self):
        disk = self.at("disk")
        os.makedirs(disk, exist_ok=True)
        mount = f"mount -t tmpfs -o size=1m none {disk}"
        if run(["unshare", "-m", "sh", "-c", mount]).status != 0:
            self.skipTest("a small disk can't be mounted here: that needs root")
        doctor = f"sh {bagpipe_test.MPIRUN} 4 {program('bagpipe')} doctor {disk}"
        result = run(["unshare", "-m", "sh", "-c", f"{mount} && {doctor}; status=$?; ls -A {disk}; exit $status"])
        self.assertEqual(result.status, 74, str(result))
        self.assertRegex(result.out, r"(?m)^FAIL +write, fsync +No space left on device")
        self.assertRegex(result.out, r"(?m)^warn +file system +tmpfs")
        self.assertNotIn(".bagpipe-doctor", result.out)  # what was written is gone
        self.assertEqual(result.err.count("bagpipe: error[74]"), 1, str(result))

    def test_configuration_that_can_not_start(self):
        config = [self.at("small.ini"), f"run.dir={self.at('x')}"]
        _, rows = self.report(config)
        self.assertEqual((rows["configuration"]["level"], rows["mesh"]["level"]), ("ok", "ok"))
        _, rows = self.report(config + [f"corpus.train={self.at('train.h5')}, {self.at('none.h5')}"], status=66)
        self.assertEqual(rows["corpus.train"]["level"], "fail")
        self.assertIn("none.h5", rows["corpus.train"]["text"])
        for name in ("a, b.h5", "c[1].h5"):  # as a job opens them
            os.symlink(self.at("train.h5"), self.at(name))
            self.report(config + [f"corpus.train={self.at(name)}"])
        os.symlink(self.at("gone"), self.at("d2.h5"))
        _, rows = self.report(config + [f"corpus.train={self.at('train.h5')},{self.at('d?.h5')}"], status=66)
        self.assertIn("d2.h5", rows["corpus.train"]["text"])
        _, rows = self.report(config + ["mesh.tensor=3"], 3, status=78)
        self.assertIn("does not divide model.heads", rows["configuration"]["text"])
        _, rows = self.report(config + ["mesh.data=4"], 2, status=78)
        self.assertEqual(rows["mesh"]["level"], "fail")

    def test_configuration_says_which_job_takes_it(self):
        for keys, job in (([], "pretrain"), (["ensemble.members=2"], "ensemble"), (["task.kind=classes", "train.batch=2"], "finetune"),
                          (["task.kind=classes", "train.batch=2", "ensemble.members=2"], "ensemble")):
            with self.subTest(job):
                _, rows = self.report([self.at("small.ini"), f"run.dir={self.at('x')}", *keys])
                self.assertEqual(rows["configuration"]["text"], f"{job} takes it")

    def test_folder_in_which_nothing_can_be_made(self):
        result = run([program("bagpipe"), "doctor", self.at("small.ini"), "run.dir=/proc/run"])
        self.assertIn(result.status, (73, 77), str(result))
        self.assertRegex(result.out, r"(?m)^FAIL +run folder +can't make")
        self.assertNotIn("space", result.out)

    def test_keys_alone_name_the_folder(self):
        result = run([program("bagpipe"), "doctor", f"run.dir={self.at('new')}"])
        self.assertEqual(result.status, 0, str(result))
        self.assertIn(f"tried in {os.path.dirname(self.at('new'))}", " ".join(result.out.split()))
        self.assertEqual(run([program("bagpipe"), "doctor", "run.dri=x"]).status, 78)

    def test_leftovers_of_open_mpi_are_named(self):
        temporary = self.at("temporary")
        process = subprocess.Popen(["true"])
        process.wait()
        os.makedirs(f"{temporary}/ompi.{os.uname().nodename.split('.')[0]}.{os.getuid()}/pid.{process.pid}")
        segment = f"/dev/shm/vader_segment.test.{os.getpid()}"
        with open(segment, "wb") as file:
            file.write(bytes(1 << 20))
        try:
            result = run(["env", f"TMPDIR={temporary}", program("bagpipe"), "doctor"])
        finally:
            os.remove(segment)
        self.assertEqual(result.status, 0, str(result))
        self.assertRegex(result.out, r"(?m)^note +leftover segments +[1-9]\d* of Open MPI")
        self.assertRegex(result.out, r"(?m)^note +leftover sessions +1 of Open MPI")

    def test_wrong_arguments(self):
        for arguments, status in ((["a", "b"], 64), (["--fast"], 64), ([self.at("no.ini")], 66), ([self.folder, "a=b"], 64),
                                  ([self.at("small.ini"), "model.widht=3"], 78)):
            result = run([program("bagpipe"), "doctor"] + arguments, 2 if arguments[0] == "a" else 0)
            self.assertEqual(result.status, status, str(result))
            self.assertEqual(result.err.count(f"bagpipe: error[{status}]"), 1, str(result))


if __name__ == "__main__":
    bagpipe_test.main()
