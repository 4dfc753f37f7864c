"""Ensembles: members are pretraining runs of their own, with the same bits whatever trains beside them, and outlive failures."""
import glob
import hashlib
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess

import h5py
import numpy as np

import bagpipe_test
from bagpipe_test import JobTest, children, digests, events, metrics, program, run, steps, timeless


def read_json(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return json.load(file)


def read(*parts):
    with open(os.path.join(*parts), "rb") as file:
        return file.read()


def keys_of(folder):
    """config.ini as {"section.key": value}."""
    found, section = {}, ""
    for line in read(folder, "config.ini").decode().split("\n"):
        if line.startswith("["):
            section = line.strip("[]")
        elif " = " in line and not line.startswith(";"):
            key, value = line.split(" = ", 1)
            found[f"{section}.{key}"] = value
    return found


def members(folder):
    return sorted(os.path.basename(path) for path in glob.glob(os.path.join(folder, "members", "*")))


class Ensemble(JobTest):
    TEXT_BYTES = 60_000
    M = ("ensemble.members=3", "train.log_every=5", "train.valid_every=10")

    def ensemble(self, name, ranks=0, *keys, **more):
        return run([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at(name)}"] + list(self.M) + list(keys),
                   ranks, **more)

    def made(self, name, ranks=0, *keys):
        result = self.ensemble(name, ranks, *keys)
        self.assertEqual(result.status, 0, str(result))
        return self.at(name)

    def whole(self):
        """The ensemble of one rank, one member after another: what the others are compared with."""
        if not os.path.exists(self.at("whole")):
            self.made("whole")
        return self.at("whole")

    def same(self, one, other):
        self.assertEqual(members(one), members(other))
        for name in members(one):
            self.assertEqual(digests(os.path.join(one, "members", name)), digests(os.path.join(other, "members", name)), name)
            self.assertEqual(timeless(metrics(os.path.join(one, "members", name))),
                             timeless(metrics(os.path.join(other, "members", name))))
        for name in ("ensemble.json", "metrics.jsonl"):
            self.assertEqual(read(one, name), read(other, name), name)

    # ---- what all members read ----

    # ---- what members are ----

    def test_members_are_seeded_and_resampled_by_kind(self):
        for kind in ("bag", "seed", "both"):
            folder = self.made("kind_" + kind, 0, f"ensemble.kind={kind}", "ensemble.members=2", "run.seed=7", "train.steps=2")
            for k in range(2):
                keys = keys_of(os.path.join(folder, "members", f"m{k:02}"))
                self.assertEqual(keys["run.member"], str(k))
                self.assertEqual(keys["run.seed"], "7" if kind == "bag" else str(7000 + k))
                self.assertEqual(keys["corpus.resample"], "none" if kind == "seed" else "bag")
                self.assertEqual((keys["mesh.members"], keys["mesh.data"], keys["mesh.coordinator"]), ("1", "1", "shared"))
            listed = read_json(folder, "ensemble.json")["members"]
            self.assertEqual([(m["name"], m["path"]) for m in listed], [("m00", "members/m00"), ("m01", "members/m01")])
            self.assertEqual([m["oob_perplexity"] is None for m in listed], [kind == "seed"] * 2)

    def test_a_member_is_the_pretrain_run_of_its_keys_and_can_be_continued(self):
        whole = self.whole()
        plain = self.trained("plain", 0, "run.seed=1002", "run.member=2", "corpus.resample=bag", "train.log_every=5",
                             "train.valid_every=10")
        member = os.path.join(whole, "members", "m02")
        self.assertEqual(digests(plain), digests(member))
        self.assertEqual(timeless(metrics(plain)), timeless(metrics(member)))
        subprocess.run(["cp", "-r", member, self.at("copied")], check=True)
        result = run([program("bagpipe"), "pretrain", os.path.join(member, "config.ini"), f"run.dir={self.at('copied')}",
                      "train.steps=22"])
        self.assertEqual(result.status, 0, str(result))
        self.assertEqual(steps(self.at("copied"))[-1], f"step-{22:012d}")

    def test_one_member_is_an_ensemble(self):
        folder = self.made("alone", 0, "ensemble.members=1", "train.steps=3", "train.log_every=1")
        self.assertEqual(len(read_json(folder, "ensemble.json")["members"]), 1)
        self.assertEqual([line["loss_spread"] for line in metrics(folder)], [None] * 3)

    # ---- the mesh ----

    def test_bits_do_not_depend_on_how_many_train_side_by_side(self):
        whole = self.whole()
        self.same(whole, self.made("pair", 2, "mesh.members=2"))
        self.same(whole, self.made("parallel", 4, "ensemble.parallel=2", "mesh.data=2"))  # a tree of gradients
        self.same(whole, self.made("dedicated", 3, "mesh.members=2", "mesh.data=1"))
        self.assertEqual(read_json(self.at("dedicated"), "run.json")["mesh"]["members"], 2)
        for name in ("pair", "dedicated"):  # a member is no run of the ensemble's command
            self.assertIn("request", read_json(self.at(name), "run.json"))
            for member in members(self.at(name)):
                self.assertNotIn("request", read_json(self.at(name), "members", member, "run.json"))

    def test_a_mesh_that_does_not_fit_is_78_with_what_fits(self):
        result = self.ensemble("refused", 0, "mesh.members=4")
        self.assert_error(result, 78, "[mesh.too_many_members]", "mesh.members = 4", "3")
        result = self.ensemble("refused", 3, "mesh.members=2")
        self.assert_error(result, 78, "[mesh.wrong_ranks]", "2, 4, 6")
        for keys, words in ((("ensemble.only=3",), ("[ensemble.no_such_member]", "ensemble.only = 3", "0 to 2")),
                            (("mesh.members=2", "ensemble.parallel=3"), ("[mesh.contradiction]", "ensemble.parallel = 3")),
                            (("ensemble.kind=seed", "corpus.resample=bag"), ("[ensemble.no_bags]", "ensemble.kind")),
                            (("run.member=1",), ("[ensemble.member_given]", "ensemble.only"))):
            self.assert_error(self.ensemble("refused", 0, *keys), 78, *words)
        self.assertFalse(os.path.exists(self.at("refused")))

    def test_plan_says_memory_of_a_member_and_writes_nothing(self):
        result = self.ensemble("planned", 0, "--plan", "mesh.members=2", "mesh.tensor=2")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("one member of 3; 2 train at a time", result.out)
        self.assertIn("activations", result.out)
        self.assertFalse(os.path.exists(self.at("planned")))

    # ---- what the ensemble writes ----

    def test_metrics_are_the_members_with_mean_and_sample_deviation(self):
        whole = self.whole()
        names = members(whole)
        each = [{line["step"]: line for line in metrics(os.path.join(whole, "members", name))} for name in names]
        lines = metrics(whole)
        self.assertEqual([line["step"] for line in lines], sorted(each[0]))
        for line in lines:
            for key in ("loss", "valid_loss"):
                self.assertEqual(key in line, key in each[0][line["step"]])
                if key not in line:
                    continue
                values = [one[line["step"]][key] for one in each]
                self.assertEqual(line[key], dict(zip(names, values)))
                self.assertAlmostEqual(line[key + "_mean"], np.mean(values), delta=1e-12)
                self.assertAlmostEqual(line[key + "_spread"], np.std(values, ddof=1), delta=1e-12)

    def test_out_of_bag_perplexity_is_that_of_the_documents_the_bag_lacks(self):
        whole = self.whole()
        inside = 0
        for k, listed in enumerate(read_json(whole, "ensemble.json")["members"]):
            member = os.path.join(whole, "members", listed["name"])
            result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at(f'by_hand{k}')}",
                          f"score.model={member}", f"score.corpus={self.at('train.h5')}"])
            self.assertEqual(result.status, 0, str(result))
            with h5py.File(os.path.join(self.at(f"by_hand{k}"), "score", "documents.h5")) as every, \
                    h5py.File(os.path.join(member, "oob", "score", "documents.h5")) as out:
                chosen = out["tokens"][:] > 0
                self.assertTrue(np.array_equal(every["nll"][:][chosen], out["nll"][:][chosen]))
                self.assertTrue(np.array_equal(every["tokens"][:][chosen], out["tokens"][:][chosen]))
                perplexity = np.exp(every["nll"][:][chosen].sum() / every["tokens"][:][chosen].sum())
                inside += chosen.mean()
            self.assertAlmostEqual(listed["oob_perplexity"] / perplexity, 1, delta=1e-12)
            summary = read_json(member, "oob", "score", "summary.json")
            self.assertEqual(summary["perplexity"], listed["oob_perplexity"])
            self.assertEqual(summary["convention"]["select"], "out_of_bag")
            self.assertEqual(summary["documents"], int(chosen.sum()))
            self.assertEqual(events(whole, "member_trained")[k]["oob_perplexity"], listed["oob_perplexity"])
        self.assertAlmostEqual(inside / 3, np.exp(-1), delta=0.05)  # of some hundred documents: sd 0.015 of a bag

    def test_members_lines_stay_in_their_own_logs(self):
        whole = self.whole()
        for name in members(whole):
            self.assertIn(b"step 20/20", read(whole, "members", name, "log.txt"))
        self.assertNotIn(b"step 20/20", read(whole, "log.txt"))
        self.assertEqual(read(whole, "log.txt").count(b"is trained"), 3)

    # ---- going on ----

    def test_a_finished_ensemble_exits_0_and_a_changed_key_is_78(self):
        whole = self.whole()
        before = {path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.join(whole, "members", "*", "run.json"))}
        result = self.ensemble("whole")
        self.assertEqual(result.status, 0, str(result))
        self.assertIn("finished", result.out)
        self.assertEqual(before, {path: os.stat(path).st_mtime_ns for path in before})
        result = self.ensemble("whole", 0, "optimizer.lr=0.5")
        self.assert_error(result, 78, "[run.other_keys]", "optimizer.lr", "0.5", "0.003")
        self.assert_error(self.ensemble("whole", 0, "ensemble.kind=seed"), 78, "[run.other_keys]", "ensemble.kind", lines=2)
        self.assert_error(self.ensemble("whole", 0, "ensemble.members=101"), 78, "[ensemble.other_count]")  # m000 is not m00

    def test_the_best_checkpoints_of_members_are_listed_by_a_key(self):
        draw = random.Random(2)
        self.write("noise.txt", "\n".join("".join(draw.choice("#%&*+<=>@^_{|}~0123456789") for _ in range(200)) for _ in range(20)))
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--out", self.at("noise.h5"), self.at("noise.txt")])
        keys = ("checkpoint.every=5", "train.valid_every=5", "optimizer.lr=0.03", "ensemble.kind=bag", f"corpus.valid={self.at('noise.h5')}")  # gets worse
        folder = self.made("chosen", 0, *keys)
        self.assertEqual([one["path"] for one in read_json(folder, "ensemble.json")["members"]], [f"members/m0{k}" for k in range(3)])
        newest = {f"m0{k}": steps(os.path.join(folder, "members", f"m0{k}"))[-1] for k in range(3)}
        study = [program("bagpipe"), "uncertainty", f"run.dir={self.at('chosen-study')}", f"uncertainty.in_domain={self.at('valid.h5')}", "uncertainty.resamples=100"]
        self.write("chosen.ini", "[math]\nprecision = f32\n[score]\ncontext = 32\n")
        best = {name: os.readlink(os.path.join(folder, "members", name, "checkpoints", "best")) for name in newest}
        worse = [name for name in newest if best[name] != newest[name]]
        self.assertTrue(worse, best)
        for model in (folder + "/members/" + worse[0], folder):
            warned = run(study + [f"uncertainty.models=one={model}", self.at("chosen.ini"), "--plan"])
            self.assertEqual(warned.status, 0, str(warned))
            self.assert_warning(warned, "[checkpoint.not_best]", model)
        one = folder + "/members/" + worse[0]
        scored = [program("bagpipe"), "score", self.at("chosen.ini"), f"score.corpus={self.at('valid.h5')}"]
        for ranks, model, warns in ((0, one, True), (2, one, True), (0, folder, True), (0, one + "/checkpoints/best", False), (0, one + "/checkpoints/" + newest[worse[0]], False)):
            got = run(scored + [f"score.model={model}", f"run.dir={self.at(f'chosen-{ranks}-{os.path.basename(model)}')}"], ranks)
            self.assertEqual((got.status, got.err.count("[checkpoint.not_best]")), (0, warns), str(got))
        got = run([program("bagpipe-data"), "export", one, "--out", self.at("chosen-exported")])
        self.assertEqual((got.status, got.err.count("[checkpoint.not_best]")), (0, 1), str(got))
        got = run([program("bagpipe"), "pretrain", self.at("chosen.ini"), f"run.dir={self.at('chosen-on')}", f"model.init={one}", f"corpus.train={self.at('valid.h5')}", "train.steps=1", "train.batch=2"], 2)
        self.assertEqual((got.status, got.err.count("[checkpoint.not_best]")), (0, 1), str(got))
        before = {one["name"]: one["oob_perplexity"] for one in read_json(folder, "ensemble.json")["members"]}
        self.made("chosen", 0, *keys, "ensemble.checkpoint=best")
        for one in read_json(folder, "ensemble.json")["members"]:  # what is listed is what was scored out of the bag
            self.assertEqual(one["path"], f"members/{one['name']}/checkpoints/best")
            scores = read_json(folder, "members", one["name"], "oob", "score", "summary.json")
            self.assertEqual((scores["perplexity"], f"step-{scores['model']['step']:012d}"), (one["oob_perplexity"], best[one["name"]]))
            self.assertEqual(one["oob_perplexity"] != before[one["name"]], one["name"] in worse, one)
        quiet = run(study + [f"uncertainty.models=one={folder}", self.at("chosen.ini"), "--plan"])
        self.assertEqual((quiet.status, "not_best" in quiet.err), (0, False), str(quiet))
        self.assert_error(self.ensemble("unchosen", 0, "corpus.valid=", "ensemble.checkpoint=best"), 78, "[ensemble.no_best]")

    def test_its_members_are_inspected(self):
        whole = self.whole()
        shutil.copytree(whole, self.at("begun"), symlinks=True)
        os.remove(self.at("begun/ensemble.json"))
        for path, oob in ((whole, True), (f"{whole}/ensemble.json", True), (self.at("begun"), False)):
            lines = self.must(["bagpipe-data", "inspect", path]).out.splitlines()
            self.assertEqual(lines[0], f"{path}: an ensemble of 3 members")
            self.assertEqual(len(lines), 2 + 3)
            for line, member in zip(lines[2:], read_json(whole, "ensemble.json")["members"]):
                steps = metrics(os.path.join(whole, "members", member["name"]))
                best = min((step for step in steps if "valid_loss" in step), key=lambda step: step["valid_loss"])
                self.assertEqual(line.split()[:6], [member["name"], "20", f"{steps[-1]['loss']:.4f}", str(best["step"]), f"{best['valid_loss']:.4f}",
                                                    f"{member['oob_perplexity']:.4f}" if oob else "-"])
        listed = read_json(whole, "ensemble.json")
        listed["members"][1]["name"] = "member_of_a_long_name"
        self.write("begun/ensemble.json", json.dumps(listed))
        lines = self.must(["bagpipe-data", "inspect", self.at("begun")]).out.splitlines()
        for head in ("last step", "oob perplexity"):
            end = lines[1].index(head) + len(head)
            self.assertEqual([line[end - 1].isdigit() and line[end] == " " for line in lines[2:]], [True] * 3, lines)
        shutil.rmtree(self.at("begun/members/m02"))
        result = run([program("bagpipe-data"), "inspect", self.at("begun")])
        self.assert_error(result, 66, "m02")
        self.assertEqual(result.out, "")

    def test_more_steps_and_more_members_go_on_and_scores_follow_the_weights(self):
        straight = self.made("straight", 0, "optimizer.decay=constant", "train.valid_every=0")
        folder = self.made("grown", 0, "optimizer.decay=constant", "train.valid_every=0", "train.steps=10", "ensemble.members=2")
        early = read_json(folder, "ensemble.json")["members"][0]["oob_perplexity"]
        self.made("grown", 0, "optimizer.decay=constant", "train.valid_every=0")
        self.assertEqual(read(straight, "ensemble.json"), read(folder, "ensemble.json"))
        self.assertNotEqual(early, read_json(folder, "ensemble.json")["members"][0]["oob_perplexity"])
        self.assertEqual(digests(os.path.join(straight, "members", "m00")), digests(os.path.join(folder, "members", "m00")))

    def test_killed_at_any_moment_it_ends_with_the_same_bits(self):
        keys = ("train.steps=150", "checkpoint.every=4", "train.log_every=5", "train.valid_every=40")
        whole = self.made("never_killed", 0, *keys)
        draw, kills = random.Random(5), 0
        for life in [0.5 + 1.5 * draw.random() for _ in range(4)] + [None]:
            result = self.ensemble("killed", 2, "mesh.members=2", *keys, kill_after=life)
            if result.status == 0:
                break
            self.assertEqual(result.status, -9, str(result))
            kills += 1
        self.assertEqual(result.status, 0, str(result))
        print(f"{kills} kills")
        self.same(whole, self.at("killed"))

    def ranks_of(self, launcher):
        """Process ids of the ranks that mpirun started."""
        pids, at = [launcher.pid], 0
        while at < len(pids):
            pids += children(pids[at])
            at += 1
        found = []
        for pid in pids:
            try:
                if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(program("bagpipe")):
                    found.append(pid)
            except OSError:
                pass
        return found

    def test_a_signal_to_one_rank_stops_all_members_and_the_same_command_goes_on(self):
        count = 60
        keys = (f"train.steps={count}", "train.valid_every=0", "ensemble.members=2")
        whole = self.made("never_stopped", 0, *keys)
        process = self.background([program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('stopped')}", *self.M, *keys,
                                   "mesh.members=2"], 2, {"BP_FAULT": "step.end:1+=delay0.1"})  # neither is through before the signal comes
        self.until(lambda: all(self.trains(f"stopped/members/m{k:02}") for k in range(2)), process)
        os.kill(self.ranks_of(process)[-1], signal.SIGUSR1)
        self.assert_stopped(process.result())
        self.assertFalse(os.path.exists(self.at("stopped/ensemble.json")))
        for k in range(2):
            self.assertLess(int(steps(self.at(f"stopped/members/m{k:02}"))[-1][5:]), count)
        self.made("stopped", 2, "mesh.members=2", *keys)
        self.same(whole, self.at("stopped"))

    def test_a_member_that_diverges_is_named_while_the_others_are_whole(self):
        whole = self.whole()
        os.environ["BP_FAULT"] = "train.diverge:7@1"  # the step after the sixth, of what rank 1 trains first
        try:
            result = self.ensemble("diverged", 2, "mesh.members=2")
        finally:
            del os.environ["BP_FAULT"]
        self.assert_error(result, 70, "[ensemble.diverged]", "1 of 3")
        lost = re.search(r"\((m0[01])\)", result.lines("error")[0]).group(1)
        self.assert_warning(result, "[training.diverged]", lost)
        self.assertEqual([event["member"] for event in events(self.at("diverged"), "member_diverged")], [lost])
        others = [m for m in read_json(whole, "ensemble.json")["members"] if m["name"] != lost]
        self.assertEqual(read_json(self.at("diverged"), "ensemble.json")["members"], others)
        for line, full in zip(metrics(self.at("diverged")), metrics(whole)):
            expected = {name: value for name, value in full["loss"].items() if name != lost or line["step"] <= 6}
            self.assertEqual(line["loss"], expected)
        self.assertEqual(len(metrics(self.at("diverged"))), len(metrics(whole)))
        self.made("diverged", 2, "mesh.members=2")  # without the fault
        self.same(whole, self.at("diverged"))

    def test_an_array_of_single_members_is_gathered(self):
        whole = self.whole()
        for k in (2, 0):
            self.made("array", 0, f"ensemble.only={k}")
        self.assertEqual(members(self.at("array")), ["m00", "m02"])
        self.assertFalse(os.path.exists(self.at("array/ensemble.json")))
        for job, keys in (("score", (f"score.model={self.at('array')}", f"score.corpus={self.at('valid.h5')}")),
                          ("uncertainty", (f"uncertainty.models=a={self.at('array')}", f"uncertainty.in_domain={self.at('valid.h5')}",
                                           f"uncertainty.shifted={self.at('train.h5')}"))):
            result = run([program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at('too_early')}"] + list(keys))
            self.assert_error(result, 66, "[ensemble.not_finished]", self.at("array"))
        self.made("array", 0, "ensemble.only=1", "mesh.members=2")  # of an array's own ranks all train it
        self.made("array")
        self.same(whole, self.at("array"))
        for name in members(whole):
            self.assertEqual(len(events(self.at(f"array/members/{name}"), "started")), 1)
            self.assertEqual(events(self.at(f"array/members/{name}"), "resumed"), [])

    def test_a_member_that_learned_little_is_warned_of(self):
        keys = ("ensemble.kind=seed", "train.steps=10")
        for k in range(3):
            self.made("unequal", 0, f"ensemble.only={k}", *keys)
        [step] = glob.glob(self.at("unequal/members/m01/checkpoints/step-*"))
        manifest = read_json(step, "manifest.json")
        losses = [read_json(path, "manifest.json")["state"]["best_valid_loss"] for path in sorted(glob.glob(self.at("unequal/members/*/checkpoints/step-*")))]
        manifest["state"]["best_valid_loss"] = min(losses[0], losses[2]) + 0.6
        text = json.dumps(manifest)
        with open(os.path.join(step, "manifest.json"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(step, "manifest.sha256"), "w", encoding="utf-8") as file:
            file.write(hashlib.sha256(text.encode()).hexdigest() + "  manifest.json\n")
        result = self.ensemble("unequal", 0, *keys)
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[ensemble.unequal_members]", "the best validation loss of m01 is ")
        self.assertIn(f"m00 is trained, best validation loss {losses[0]:.4f} (1 of 3)", result.out)
        self.assertIn(f"validation loss: best {'m00' if losses[0] < losses[2] else 'm02'} {min(losses[0], losses[2]):.4f}, worst m01 ", result.out)
        self.assertNotIn("[ensemble.unequal_members]", self.ensemble("unequal", 0, *keys).err)  # it is finished
        self.write("hand.json", json.dumps({"members": [{"name": f"m{k}", "path": f"unequal/members/m0{k}"} for k in (0, 2)]}))
        self.write("mixed.json", json.dumps({"members": [{"name": "m1", "path": "unequal/members/m01"}, {"name": "other", "path": "counted"}]}))
        self.must(["bagpipe", "pretrain", "model.kind=ngram", f"corpus.train={self.at('train.h5')}", f"corpus.valid={self.at('valid.h5')}", f"run.dir={self.at('counted')}"])
        for model, warned in ((self.at("unequal"), True), (self.at("hand.json"), False), (self.at("mixed.json"), False)):  # whoever uses it is told too; kinds are mixed on purpose
            result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('used-' + os.path.basename(model))}", f"score.model={model}",
                          f"score.corpus={self.at('valid.h5')}"])
            self.assertEqual(result.status, 0, str(result))
            self.assertEqual("[ensemble.far_member]" in result.err, warned, str(result))

    def test_progress_tells_of_members_that_wait(self):
        master, slave = pty.openpty()  # on a terminal there is a line every few seconds
        self.addCleanup(os.close, master)
        command = [program("bagpipe"), "ensemble", self.at("small.ini"), f"run.dir={self.at('progress')}", "ensemble.members=4",
                   "ensemble.parallel=1", "train.steps=1000000", "train.log_every=1000"]
        process = subprocess.Popen(command, stdout=slave, stderr=slave, env=bagpipe_test.environment(), start_new_session=True)
        os.close(slave)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        log = self.at("progress/log.txt")
        self.until(lambda: os.path.exists(log) and b"members trained" in read(log), process)
        self.assertRegex(read(log).decode(), r"0 of 4 members trained, 1 at work, 3 waiting; m00 \d+/1000000.*left\n")

    def test_gathered_members_keep_what_they_were_computed_with(self):
        # as nodes with other CPUs resolve them: one member in float32, one in what this CPU has, and then one in what it has not
        for k, precision in ((0, "f32"), (1, "auto")):
            self.made("nodes", 0, f"ensemble.only={k}", f"math.precision={precision}")
        path = self.at("nodes/members/m01/config.ini")
        keys = [keys_of(self.at(f"nodes/members/m{k:02}"))["math.precision"] for k in range(2)]
        self.assertEqual(keys[0], "f32")
        result = self.ensemble("nodes", 0, "math.precision=auto", "math.threads=2", "ensemble.members=2")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[run.other_bits]", times=0)
        text = read(path).decode()
        keys[1] = "f32" if keys[1] == "bf16" else "bf16"
        text = re.sub("precision = .*", f"precision = {keys[1]}", text)
        self.write("nodes/members/m01/config.ini", text)
        record = read_json(self.at("nodes/members/m01/run.json"))
        record["config_sha256"] = [hashlib.sha256(text.encode()).hexdigest()]
        self.write("nodes/members/m01/run.json", json.dumps(record))
        os.remove(self.at("nodes/ensemble.json"))
        result = self.ensemble("nodes", 0, "math.precision=auto", "math.threads=2")  # with a third one that is new
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[run.other_bits]", times=0)
        self.assertEqual(len(read_json(self.at("nodes/ensemble.json"))["members"]), 3)
        for k in range(2):
            found = keys_of(self.at(f"nodes/members/m{k:02}"))
            self.assertEqual((found["math.precision"], found["math.threads"]), (keys[k], "1"))
        asked = "bf16" if keys[1] == "f32" else "f32"
        self.assertEqual(self.ensemble("nodes", 0, f"math.precision={asked}", "ensemble.only=1").status, 78)  # it is compared
        result = self.ensemble("nodes", 0, "ensemble.only=0", "math.precision=auto", "math.threads=2", "train.steps=21", "mesh.overlap=no",
                               "mesh.chunks=3", "mesh.sequence_parallel=no")
        self.assertEqual(result.status, 0, str(result))
        self.assert_warning(result, "[run.other_bits]", ": math.threads is 2 and was 1 [")

    def test_a_member_trained_further_alone_takes_the_list_with_it(self):
        keys = ("ensemble.members=2", "train.steps=2", "train.valid_every=0")
        folder = self.made("further", 0, *keys)
        before = read_json(folder, "ensemble.json")["members"]
        self.made("further", 0, *keys, "ensemble.only=1")  # nothing is left to train
        self.assertEqual(read_json(folder, "ensemble.json")["members"], before)
        self.made("further", 0, *keys, "ensemble.only=1", "train.steps=4")
        self.assertFalse(os.path.exists(os.path.join(folder, "ensemble.json")))
        self.made("further", 0, *keys)  # finished but for the list
        after = read_json(folder, "ensemble.json")["members"]
        self.assertEqual(before[0], after[0])
        self.assertNotEqual(before[1], after[1])
        # as a run of its own, which knows nothing of the ensemble
        member = os.path.join(folder, "members", "m00")
        self.assertEqual(run([program("bagpipe"), "pretrain", os.path.join(member, "config.ini"), f"run.dir={member}", "train.steps=3"]).status, 0)
        self.made("further", 0, *keys)
        self.assertEqual(read_json(member, "oob", "score", "summary.json")["model"]["step"], 3)
        last = read_json(folder, "ensemble.json")["members"]
        self.assertNotEqual(last[0]["oob_perplexity"], after[0]["oob_perplexity"])
        self.assertEqual(last[1], after[1])

    def test_another_failure_ends_the_job_with_the_members_name(self):
        os.makedirs(self.at("broken/members"))
        with open(self.at("broken/members/m01"), "w", encoding="utf-8") as file:
            file.write("no folder\n")
        result = self.ensemble("broken", 0, "train.steps=2")
        self.assert_error(result, 73, "[file.in_the_way]", "m01")
        self.assertEqual(steps(self.at("broken/members/m00")), [f"step-{2:012d}"])
        self.assertFalse(os.path.exists(self.at("broken/members/m02")))  # nothing more was handed out
        self.assertFalse(os.path.exists(self.at("broken/ensemble.json")))
        os.remove(self.at("broken/members/m01"))
        self.made("broken", 0, "train.steps=2")

    # ---- corpora that do not do ----

    def test_corpora_of_one_name_are_refused_before_compute(self):
        for folder in ("a", "b"):
            os.makedirs(self.at(folder), exist_ok=True)
            os.link(self.at("train.h5"), self.at(f"{folder}/train.h5"))
        for alone in ((), ("ensemble.only=1",)):
            result = self.ensemble("namesakes", 0, f"corpus.train={self.at('a/train.h5')},{self.at('b/train.h5')}", *alone)
            self.assert_error(result, 78, "[corpus.same_name]", "'train'")
            self.assertFalse(os.path.exists(self.at("namesakes/members")))

    def corpus_of(self, lines):
        text = read(self.at("train.txt")).decode().replace("\n", " ")
        size = len(text) // 10 // lines
        self.write(f"lines{lines}.txt", "\n".join(text[k * size:(k + 1) * size] for k in range(lines)) + "\n")
        self.must(["bagpipe-data", "corpus", "--tokenizer", self.at("tokenizer.json"), "--format", "lines", "--out",
                   self.at(f"lines{lines}.h5"), self.at(f"lines{lines}.txt")])
        return f"corpus.train={self.at(f'lines{lines}.h5')}"

    def test_few_documents_are_refused_or_warned_of(self):
        result = self.ensemble("too_few", 0, self.corpus_of(1))
        self.assert_error(result, 65, "[corpus.too_few_documents]")
        self.assertEqual(self.ensemble("too_few_seeds", 0, self.corpus_of(1), "ensemble.kind=seed", "train.steps=1").status, 0)
        result = run([program("bagpipe"), "score", self.at("small.ini"), f"run.dir={self.at('too_few_scored')}",
                      f"score.model={self.whole()}/members/m00", f"score.corpus={self.at('lines1.h5')}", "score.select=out_of_bag"])
        self.assert_error(result, 65, "[corpus.too_few_documents]")
        for alone in (("ensemble.only=1",), ()):
            result = self.ensemble("few", 0, self.corpus_of(99), "train.steps=1", *alone)
            self.assertEqual(result.status, 0, str(result))
            self.assert_warning(result, "[ensemble.few_documents]", "99")

    def test_a_bag_that_lacks_no_document_has_no_out_of_bag_perplexity(self):
        # of 2 documents half of the bags hold both
        result = self.ensemble("none_out", 0, self.corpus_of(2), "train.steps=1", "ensemble.members=8")
        self.assertEqual(result.status, 0, str(result))
        listed = read_json(self.at("none_out"), "ensemble.json")["members"]
        without = [m["name"] for m in listed if m["oob_perplexity"] is None]
        self.assertTrue(0 < len(without) < 8, without)
        self.assert_warning(result, "[ensemble.no_out_of_bag]", *(f"warning: {name}: " for name in without), times=len(without))


if __name__ == "__main__":
    bagpipe_test.main()
