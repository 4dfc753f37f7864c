"""What jobs and commands print on a terminal: progress fits its width, tables fit 80 columns, commits do not drown steps."""
import fcntl
import json
import os
import pty
import re
import struct
import termios

import bagpipe_test
from bagpipe_test import JobTest, environment, program, run

ERASE = "\r\x1b[K"


def on_terminal(arguments, columns):
    """What a program prints on a terminal of so many columns (0: it does not say), and its status."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(str(arguments[0]), [str(a) for a in arguments], environment())
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    out = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    os.close(fd)
    return out.decode(errors="replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def shown(text):
    """Every state of every line that was shown, but for what is said on standard error, a line each."""
    return [part for line in text.split("\n") for part in line.split(ERASE) if not part.startswith("bagpipe: ")]


class Terminal(JobTest):
    def command(self, job, name, *keys):
        return [program("bagpipe"), job, self.at("small.ini"), f"run.dir={self.at(name)}"] + list(keys)

    def check_tables(self, result):
        """Rows of tables, which have three columns or more: none is wider than 80."""
        self.assertEqual(result.status, 0, str(result))
        rows = [line for line in result.out.split("\n") if re.search(r"\S {2,}\S.* {2,}\S", line) and not line.startswith("step ")]
        self.assertGreater(len(rows), 1, result.out)
        self.assertEqual([row for row in rows if len(row) > 80], [])

    def test_tables_fit_80_columns(self):
        model = self.trained("model", 0, "train.steps=4")
        self.check_tables(run(self.command("pretrain", "model", "train.steps=8", "train.profile=yes"), 2))
        ensemble = self.write("ensemble.json", f'{{"members": [{{"name": "a", "path": "{model}"}}, {{"name": "b", "path": "{model}"}}]}}')
        corpora = f"{self.at('valid.h5')}, {self.at('train.h5')}"
        self.check_tables(run(self.command("score", "scored", f"score.model={model}", f"score.corpus={corpora}")))
        self.check_tables(run(self.command("score", "mixed", f"score.model={ensemble}", f"score.corpus={corpora}")))
        self.check_tables(run(self.command("uncertainty", "study", f"uncertainty.models=plain={model}, passes={model}:dropout", "uncertainty.passes=2",
                                           "uncertainty.dropout=0.1", "uncertainty.resamples=100", f"uncertainty.in_domain={self.at('train.h5')}",
                                           f"uncertainty.shifted={self.at('valid.h5')}")))
        for ranks in (0, 2):
            self.check_tables(run(self.command("bench", f"bench_{ranks}", "bench.models=tiny", "bench.seconds=0.01", "bench.corpus=1MiB",
                                               "bench.message=256KiB"), ranks))
        self.check_tables(run(self.command("pretrain", "planned", "--plan", "mesh.pipeline=2", "mesh.tensor=2", "train.trace=" + self.at("t.json"))))

    def test_nothing_is_wider_than_the_terminal(self):
        model = self.trained("narrow_model", 0, "train.steps=2")
        for columns in (60, 80):
            for arguments in (self.command("pretrain", f"narrow_{columns}", "train.steps=5"),
                              self.command("score", f"narrow_scores_{columns}", f"score.model={model}", f"score.corpus={self.at('valid.h5')}"),
                              self.command("ensemble", f"narrow_ensemble_{columns}", "ensemble.members=2", "train.steps=2"),
                              [program("bagpipe"), "status", model], [program("bagpipe"), "doctor", model]):
                text, status = on_terminal(arguments, columns)
                self.assertEqual(status, 0, text)
                self.assertEqual([line for line in shown(text) if len(line) > columns and " " in line.strip()], [], arguments)
                self.assertGreater(max(len(line) for line in shown(text)), columns // 2)

    def test_metrics_are_lines_behind_their_json(self):
        for name, text in (("right", "The dog bit the man.\nIt was not unexpected.\n"), ("one", "The dog bit a man.\nIt was not unexpected.\n"),
                           ("other", "A dog bit a man.\nIt was unexpected.\n")):
            self.write(f"{name}.txt", 5 * text)  # 10 documents: fewer have no interval
        command = [program("bagpipe-data"), "metrics", "--kind", "bleu", "--reference", self.at("right.txt"), "--hypothesis", self.at("one.txt"), "--against",
                   self.at("other.txt")]
        piped = run(command)
        self.assertEqual((piped.status, piped.err), (0, ""), str(piped))
        figures = json.loads(piped.out)
        text, status = on_terminal(command, 80)
        self.assertEqual(status, 0, text)
        lines = text[text.rindex("}") + 1:].splitlines()[1:]
        self.assertEqual([line.split()[:2] for line in lines],
                         [[said, f"{figures[system][name]['value']:.4f}"] for name in figures["figures"]
                          for system, said in (("figures", name), ("against", "against"))])
        self.assertEqual([line for line in lines if len(line) > 80], [])
        self.assertEqual(text[:text.rindex("}") + 1], piped.out.rstrip())
        for line, begun in zip(lines, ("  (95 % interval ", "  difference ")):
            self.assertIn(begun, line)
        for name in ("right", "one", "other"):
            with open(self.at(f"{name}.txt"), encoding="utf-8") as file:
                self.write(f"{name}.txt", file.readline())
        text, status = on_terminal(command, 80)
        self.assertEqual(status, 0, text)
        bleu = {system: figures["bleu"] for system, figures in json.loads(text[:text.rindex("}") + 1]).items() if system in ("figures", "against", "difference")}
        self.assertEqual({bleu[system]["low"] for system in bleu} | {bleu["difference"]["p_value"]}, {None})
        self.assertEqual([line.split() for line in text[text.rindex("}") + 1:].splitlines()[1:3]],  # no interval and no p of one document
                         [["bleu", f"{bleu['figures']['value']:.4f}"],
                          ["against", f"{bleu['against']['value']:.4f}", "difference", f"{bleu['difference']['value']:.4f}"]])

    def test_progress_ends_with_whole_fields_and_the_last_step_stays(self):
        text, status = on_terminal(self.command("pretrain", "fields", "train.steps=5"), 50)
        self.assertEqual(status, 0, text)
        steps = [line for line in shown(text) if line.startswith("step ")]
        self.assertGreaterEqual(len(steps), 5)
        for line in steps:
            for field in re.split(" {2,}", line):
                self.assertRegex(field, r"^(step \d+/5|loss [\d.]+|valid [\d.]+|\d+ tokens/s|.* left|lr \S+|committed \d+( \(best\))?)$")
        self.assertRegex(text, r"step 5/5  loss [^\n\x1b]*\n")

    def test_commits_stand_in_the_lines_of_steps(self):
        keys = ("train.steps=40", "train.log_every=10", "checkpoint.every=1")
        result = run(self.command("pretrain", "commits", *keys))
        self.assertEqual(result.status, 0, str(result))
        lines = result.out.split("\n")
        self.assertEqual(len([line for line in lines if line.startswith("step ")]), 4, result.out)
        self.assertRegex(result.out, r"step 20/40 .*  committed \d+")
        self.assertLessEqual(len([line for line in lines if line.startswith("committed ")]), 1, result.out)
        self.assertRegex(result.out, r"committed step 40")
        with open(self.at("commits/log.txt"), encoding="utf-8") as file:
            log = file.read()
        for step in (1, 2, 21, 40):
            self.assertIn(f"committed step {step}", log)


if __name__ == "__main__":
    bagpipe_test.main()
