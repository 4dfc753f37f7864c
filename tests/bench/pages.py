"""Makes a small run of each job that leaves a page, so that every page can be looked at: FOLDER/NAME.html, and with --pictures
screenshots of them by Chromium, 1,280 and 400 points wide and as printed.

    python3 tests/bench/pages.py --bin build/release/bin [--gallery docs/gallery] FOLDER [--pictures]

It takes some minutes; A second call makes only pages anew. --gallery writes the first plot of some of them as SVG: docs/gallery.md shows them.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
import bagpipe_test  # pylint: disable=wrong-import-position
from test_finetune import KINDS, MODEL, TaskTest, document  # pylint: disable=wrong-import-position
from uncertainty_test import UncertaintyTest  # pylint: disable=wrong-import-position

WIDTHS = (1280, 400)
ODD = ("雨が石に降る", "قال الرجل", "<script>alert(1)</script>", "\u202eevil", "a & b")
GALLERY = ("members", "scores", "tag-scores", "questions", "study")


def make(name, *words):
    """A job, and its page."""
    print(name, flush=True)
    for page in (f"{name}/index.html", *(f"{name}/{job}/index.html" for job in ("score", "generate", "uncertainty", "explain", "search"))):
        if os.path.exists(page):
            os.remove(page)  # so that a finished run makes it anew
    bagpipe_test.FolderTest.must(["bagpipe", words[0], *words[1:], f"run.dir={name}"])


class Language(UncertaintyTest):
    """Language models: trained, side by side, applied, compared."""

    @classmethod
    def runs(cls):
        draw = random.Random(1)
        rows = [{"id": f"d{k}", "text": " ".join(draw.sample(cls.lines(), 3)), "year": str(1900 + 10 * (k % 4)), "register": ("news", "letters")[k % 2]}
                for k in range(60)]
        rows += [{"id": "zh", "text": "雨が石に降る。 Chinese and Japanese: 猫 坐 在 門 邊, é, and <b>markup</b>. " * 4, "year": "1940", "register": "letters"}]
        cls.write("register.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        cls.must(["bagpipe-data", "corpus", "--tokenizer", "tokenizer.json", "--format", "jsonl", "--label", "year", "--label", "register", "--out",
                  "register.h5", "register.jsonl"])
        for name, keys in (("training", ["train.steps=300"]), ("faster", ["train.steps=200", "optimizer.lr=1e-2"])):
            make(name, "pretrain", "small.ini", "train.valid_every=25", "train.log_every=2", *keys)
        make("members", "ensemble", "small.ini", "ensemble.members=4", "train.steps=150", "train.valid_every=25")
        cls.must(["bagpipe", "plot", "--out", "several.html", "training", "faster", "members"])
        scores = ["score.corpus=register.h5,valid.h5", "score.tokens=yes", "small.ini"]
        make("scores", "score", "score.model=training", *scores)
        make("ensemble-scores", "score", "score.model=members", *scores)
        make("vectors", "score", "score.model=training", "score.corpus=register.h5", "score.vectors=mean", "small.ini")
        cls.write("prompts.txt", "The old ship\nIn the morning\n")
        make("texts", "generate", "small.ini", "generate.model=members", "generate.prompts=prompts.txt", "generate.tokens=40", "tokenizer.path=tokenizer.json")
        make("study", "uncertainty", "study.ini")
        cls.write("explained.txt", "".join(line + "\n" for line in [*cls.lines()[:12], *ODD, " ".join(cls.lines()[:200])]))
        make("explanations", "explain", "explain.model=training", "explain.texts=explained.txt", "explain.methods=attention,lens,saliency,gradient,integrated",
             "explain.steps=10", "small.ini", "tokenizer.path=tokenizer.json")
        cls.ask()
        cls.sweep()
        cls.report()

    @classmethod
    def sweep(cls):
        """Many runs with long names side by side; a search; a figure of scores."""
        names = [f"a run of a sweep with a name that is long, learning rate {k}e-3 & <b>雨" for k in range(1, 10)]
        for k, name in enumerate(names, 1):
            make(name, "pretrain", "small.ini", "train.steps=40", "train.valid_every=10", f"optimizer.lr={k}e-3")
        cls.must(["bagpipe", "plot", "--out", "sweep.html", *names])
        make("found", "search", "small.ini", "train.steps=20", "search.trials=6", "search.final=3", "search.method=random",
             "search.space=model.layers=1,2; model.width=16,32; model.inner=32,64")
        make("more-scores", "score", "score.model=faster", "score.corpus=register.h5,valid.h5", "small.ini")
        cls.must(["bagpipe-data", "table", "--out", "figure.svg", "scores", "more-scores"])
        pathlib.Path("figure.html").write_text("<!DOCTYPE html><meta charset=utf-8>" + pathlib.Path("figure.svg").read_text(encoding="utf-8"), encoding="utf-8")

    @classmethod
    def report(cls):
        """Reports of texts: personal data, training text given away, canaries, words of lists."""
        lines = cls.lines()
        cls.write("people.jsonl", "".join(json.dumps({"id": f"a document with a long name, {k}", "text": f"{line} anna.b{k}@mail.org or +49 30 1234567, {ODD[k % 5]}"}) + "\n"
                                          for k, line in enumerate(lines[:30])))
        cls.write("words.txt", "ship\nold\n<b>\n")
        data = ["bagpipe-data"]
        cls.must([*data, "pii", "people.jsonl", "--format", "jsonl", "--country", "de", "--out", "reports/pii"])
        cls.must([*data, "leakage", "prompts", "train.h5", "--lengths", "3,6", "--continuation", "4", "--count", "20", "--out", "cut"])
        make("cut-texts", "generate", "small.ini", "generate.model=training", "generate.prompts=cut/prompts.jsonl", "generate.tokens=4", "generate.prefix=none")
        cls.must([*data, "leakage", "measure", "train.h5", "--prompts", "cut", "--outputs", "cut-texts", "--out", "reports/leakage"])
        cls.must([*data, "leakage", "canaries", "train.txt", "--format", "lines", "--count", "10", "--copies", "1,4,16", "--references", "40", "--out", "canaries"])
        cls.must([*data, "corpus", "--tokenizer", "tokenizer.json", "--format", "jsonl", "--out", "candidates.h5", "canaries/candidates.jsonl"])
        make("candidates", "score", "small.ini", "score.model=training", "score.corpus=candidates.h5")
        cls.must([*data, "leakage", "exposure", "--canaries", "canaries", "--scores", "candidates", "--out", "reports/exposure"])
        cls.must([*data, "toxicity", "register.h5", "--words", "words.txt", "--show-words", "--out", "reports/words"])
        for page in pathlib.Path("reports").glob("*/index.html"):
            shutil.copy(page, f"report-{page.parts[1]}.html")

    @classmethod
    def ask(cls):
        """A question set of every form; some words of it are of other scripts, or hostile."""
        words = [line.split() for line in cls.lines() if len(line.split()) > 8]
        draw, questions = random.Random(2), []
        for k in range(60):
            some = draw.sample(words, 3)
            questions.append({"task": "sentences", "id": f"s{k}", "context": " ".join(words[k % len(words)][:6]), "answer": k % 3,
                              "choices": [" " + " ".join(words[k % len(words)][6:9]) if n == k % 3 else " " + " ".join(one[3:6]) for n, one in enumerate(some)],
                              "group": ("news", "letters")[k % 2]})
        odd = ODD
        questions += [{"task": "scripts & <b>signs</b>", "context": f"{odd[k % 5]} ", "choices": ["猫", "كتاب", " the", "<i>"], "answer": k % 4} for k in range(20)]
        questions += [{"task": "targets", "id": k, "context": " ".join(words[k % len(words)][:-1]), "target": " " + words[k % len(words)][-1]} for k in range(15)]
        questions += [{"task": "contexts", "contexts": [" ".join(words[(k + n) % len(words)][:5]) for n in range(2)],
                       "target": " " + words[k % len(words)][5], "answer": 0} for k in range(12)]
        cls.write("asked.jsonl", "".join(json.dumps(question) + "\n" for question in questions))
        for name, model in (("questions", "training"), ("ensemble-questions", "members")):
            make(name, "score", "small.ini", f"score.model={model}", "score.questions=asked.jsonl", "tokenizer.path=tokenizer.json")

    @classmethod
    def lines(cls):
        return [line for line in pathlib.Path("valid.txt").read_text(encoding="utf-8").splitlines() if len(line) > 20]


class Task(TaskTest):
    """Models of tasks: classes and tags."""

    @classmethod
    def runs(cls):
        tune = ["tune.ini", *MODEL, "train.batch=8", "train.steps=60", "train.log_every=1", "train.valid_every=10", "optimizer.lr=3e-3"]
        make("classes", "finetune", *tune, "task.kind=classes")
        make("class-scores", "score", "score.model=classes", "score.corpus=valid.h5", "tune.ini")
        test = cls()
        tags = [test.conll(name, cls.sentences(count, seed)) for name, count, seed in (("tags", 200, 1), ("tags-valid", 60, 2))]
        make("tagger", "finetune", *tune, "task.kind=tags", "task.label=", f"corpus.train={tags[0]}", f"corpus.valid={tags[1]}")
        make("tag-scores", "score", "score.model=tagger", f"score.corpus={tags[1]}", "tune.ini")
        make("several-classes", "ensemble", *tune, "task.kind=classes", "ensemble.members=3", "train.steps=30")
        draw = random.Random(8)
        cls.corpus("new", [{"text": document(draw, kind, 6 + k % 25), "topic": kind} for k in range(40) for kind in KINDS])
        make("class-study", "uncertainty", "uncertainty.models=one=classes,three=several-classes,passes=classes:dropout",
             "uncertainty.in_domain=new.h5:topic=sea", "uncertainty.shifted=new.h5:topic=wood", "uncertainty.resamples=200", "tune.ini")


def gallery(folder, target):
    """The first plot of each of these pages, as a picture that needs no page; no point of a line has more digits than a screen."""
    def shorter(path):
        return re.sub(r"(\.\d)\d+", r"\1", path[0])

    target.mkdir(exist_ok=True)
    for name in GALLERY:
        found = re.search(r"<svg.*?</svg>", (folder / f"{name}.html").read_text(encoding="utf-8"), re.S)
        (target / f"{name}.svg").write_text(re.sub(r" d='[^']*'", shorter, re.sub(r"\n\s*\n", "\n", found[0])) + "\n", encoding="utf-8")


def picture(page, target):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    for width in WIDTHS:
        subprocess.run([*common, f"--window-size={width},2600", f"--screenshot={target}-{width}.png", page.as_uri()], check=True, capture_output=True, timeout=120)
    subprocess.run([*common, f"--print-to-pdf={target}.pdf", page.as_uri()], check=True, capture_output=True, timeout=120)


def main():
    pictures, target = bagpipe_test.take(pictures=False, gallery=None)
    bagpipe_test.options["bin"] = os.path.abspath(sys.argv[sys.argv.index("--bin") + 1])
    folder, target = pathlib.Path(sys.argv[-1]).resolve(), target and pathlib.Path(target).resolve()
    for kind in (Language, Task):
        kind.folder = str(folder / kind.__name__.lower())
        if not os.path.exists(kind.folder):
            os.makedirs(kind.folder)
            kind.setUpClass()
        os.chdir(kind.folder)
        kind.runs()
        for page in sorted([*pathlib.Path().glob("*/index.html"), *pathlib.Path().glob("*/*/index.html")]):
            shutil.copy(page, folder / (page.parts[0] + ".html"))
        for page in sorted(pathlib.Path().glob("*/explain/example-*.html")):
            shutil.copy(page, folder / f"{page.parts[0]}-{page.name}")
        for page in pathlib.Path().glob("*.html"):
            shutil.copy(page, folder)
    if target:
        gallery(folder, target)
    for page in sorted(folder.glob("*.html")) if pictures else ():
        picture(page, folder / page.stem)


if __name__ == "__main__":
    bagpipe_test.FolderTest.setUpClass = classmethod(lambda cls: None)  # the folders stay
    main()
