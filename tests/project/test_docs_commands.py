"""The commands of the pages for users, as they stand there and in their order, with fewer steps, on made-up text.

test_docs_commands.py --build BUILD: every block of shell commands of PAGES, but those for a cluster and those behind a comment
"not run..."; then the blocks of Python,
where pandas is installed.
"""
import argparse
import gzip
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/jobs"))
from english import english  # noqa: E402

# in the order in which a user would read them: each uses the files of those before
PAGES = ["tutorials.md", "training.md", "training_reference.md", "scoring.md", "generation.md", "uncertainty.md", "performance.md", "parallelism.md", "troubleshooting.md",
         "finetuning.md", "ngram.md", "word2vec.md", "cards.md", "explanation.md", "search.md"]
ELSEWHERE = r"\b(sbatch|srun)\b|large\.ini"  # blocks for a cluster, or a machine with more memory
SHORTER = [("steps = 200\n", "steps = 24\n"), ("steps = 10000", "steps = 6"), ("width = 256\n", "width = 32\n"),
           ("--lengths 10,25,50 --continuation 50", "--lengths 3,6 --continuation 4"), ("--count 50 --copies 1,4,16,32,64", "--count 4 --copies 1,4 --references 20"),
           ("bagpipe bench run.dir=runs/bench", "bagpipe bench run.dir=runs/bench bench.seconds=0.02 bench.models=tiny"),
           ("explain.corpus=runs/test.h5", "explain.corpus=runs/questions.h5"), ("search.trials=24", "search.trials=3 search.final=1"),
           ("train.steps=20000", "train.steps=4 optimizer.warmup=1"), ("search.trials=4 search.final=2", "search.trials=1 search.final=1"),
           ("model.kind=cell model.heads= mesh.micro_batch=16", "model.kind=cell model.heads= mesh.micro_batch=16 train.steps=4 optimizer.warmup=1")]


def blocks(page, language):
    text = (TOP / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(rf"^(<!-- not run.*?-->\n)?```{language}\n(.*?)^```$", text, re.M | re.S)
    return [block for unfit, block in found if not unfit]


def write_text(folder):
    folder.mkdir()
    for seed, (name, size) in enumerate({"train": 400_000, "valid": 20_000, "test": 20_000, "other": 20_000}.items(), 1):
        (folder / f"{name}.txt").write_text(english(size, seed))
    for name, size in {"train": 30_000, "test": 1_500}.items():  # of pairs, a text and the same words backwards
        lines = [line.split()[:12] for line in english(size, 9).splitlines()]
        (folder / f"{name}.de").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.en").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    articles = [f" \n = Article {k} <unk> = \n \n A half @-@ known <unk> . \n = 1 <unk> / s = \n \n = = Part = = \n \n More of 1 @,@ 000 . \n" for k in range(3)]
    (folder / "wiki.test.tokens").write_text("".join(articles))  # the line of a formula begins no article


def write_tasks(folder):
    """A table of pairs, of which the second text begins the first one or does not; and words with tags."""
    draw, words = random.Random(1), english(4000, 5).split()
    for name, count in {"train": 96, "valid": 32, "test": 32}.items():
        rows = ["premise\thypothesis\tentailment"]
        for k in range(count):
            premise = draw.choices(words, k=6)
            rows.append("\t".join([" ".join(premise), " ".join(premise[:3] if k % 2 else draw.choices(words, k=3)), ("no", "yes")[k % 2]]))
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    (folder / "names.conll").write_text("\n".join(f"{word} {'O' if k % 3 else 'B-X'}" + "\n" * (k % 7 == 6) for k, word in enumerate(words[:200])) + "\n")


def write_reported(folder):
    """Texts with addresses, comments with classes, and lists of words."""
    draw, words = random.Random(2), english(4000, 6).split()
    texts = [" ".join(draw.choices(words, k=12)) for _ in range(40)]
    for k in range(2):
        with gzip.open(folder / f"crawl-{k}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("".join(json.dumps({"id": f"{k}-{n}", "text": text + (" a.b@mail.org" if n % 9 == 0 else "")}) + "\n" for n, text in enumerate(texts)))
    (folder / "comments.jsonl").write_text("".join(json.dumps({"text": text, "class": ("other", "toxic")[n % 2]}) + "\n" for n, text in enumerate(texts)))
    (folder / "slurs.txt").write_text(words[0] + "\n")
    (folder / "profanity.txt").write_text("damn\nbloody hell\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=str(TOP / "build/release"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bagpipe-docs-commands.") as folder:
        work = pathlib.Path(folder)
        (work / "build").mkdir()
        (work / "build/release").symlink_to(pathlib.Path(arguments.build).resolve())
        for name in ("jobs", "slurm", "docs", "tests"):
            (work / name).symlink_to(TOP / name)
        write_text(work / "text")
        write_tasks(work)
        write_reported(work)
        commands = [f"echo '== {page}'\n{block}" for page in PAGES for block in blocks(page, "sh") if not re.search(ELSEWHERE, block)]
        assert len(commands) > 12, "the pages have hardly any commands"
        script = "\n".join(commands)
        for long, short in SHORTER:
            assert long in script, f"no page has '{long}' any more"
            script = script.replace(long, short)
        (work / "commands.sh").write_text(script)
        subprocess.run(["bash", "-e", "-x", "commands.sh"], cwd=work, check=True)
        articles = [path.read_text() for path in sorted((work / "runs/articles").iterdir())]
        assert articles == ["A half-known .\nMore of 1,000 .\n"] * 3, articles

        python = "\n".join(block for page in PAGES for block in blocks(page, "python"))
        (work / "snippets.py").write_text(python)
        if subprocess.run([sys.executable, "-c", "import pandas"], capture_output=True).returncode != 0:
            print("not run, since pandas is not installed: the pages' Python")
        else:
            subprocess.run([sys.executable, "snippets.py"], cwd=work, check=True)


if __name__ == "__main__":
    main()
