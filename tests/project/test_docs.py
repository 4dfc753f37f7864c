"""README.md and docs/ agree with the project.

test_docs.py --cmake CMAKE --build BUILD: relative links and their anchors lead somewhere, in the source tree and where
`cmake --install` puts the pages; the jobs, tools, options and keys that the pages name are those of the programs' --help.
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
ARGUMENTS = None
# the record of measurements names programs and keys as they were on the day; these tables name tests, not keys
RECORD = "measurements"
TESTS = ("reliability.md", "bad_inputs.md")


def pages(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def lines_of(path):
    """(number, line, language of the code block that it is in, or None)"""
    language = None
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("```"):
            language = None if language is not None else line[3:].strip()
        else:
            yield number, line, language


def anchors(path):
    """The anchors that GitHub makes of a page's headings."""
    found = set()
    for _, line, language in lines_of(path):
        if language is None and re.match(r"#+ ", line):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            same = sum(1 for anchor in found if anchor == slug or re.fullmatch(re.escape(slug) + r"-\d+", anchor))
            found.add(f"{slug}-{same}" if same else slug)
    return found


def broken_links(root):
    """What is wrong with the links of README.md and docs/ below root, a line each."""
    wrong = []
    for page in pages(root):
        for number, line, language in lines_of(page):
            if language is not None:
                continue
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                to = page if name == "" else page.parent / name
                place = f"{page.relative_to(root)}:{number}: {target}"
                if not to.resolve().is_relative_to(root.resolve()):
                    wrong.append(f"{place} leads out of the tree")
                elif not to.exists():
                    wrong.append(f"{place} leads nowhere")
                elif anchor and anchor not in anchors(to):
                    wrong.append(f"{place}: {to.name} has no such heading")
    return wrong


class Links(unittest.TestCase):
    def test_hold_in_the_source_tree(self):
        self.assertEqual(broken_links(TOP), [])

    def test_hold_where_they_are_installed(self):
        with tempfile.TemporaryDirectory(prefix="bagpipe-docs.") as prefix:
            subprocess.run([ARGUMENTS.cmake, "--install", ARGUMENTS.build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
            root = next(pathlib.Path(prefix).rglob("doc/bagpipe"))
            self.assertEqual(len(pages(root)), len(pages(TOP)))
            self.assertEqual(broken_links(root), [])

    def test_that_are_broken_are_found(self):
        with tempfile.TemporaryDirectory(prefix="bagpipe-docs.") as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "README.md").write_text("[a](docs/a.md) [b](docs/b.md) ![c](c.svg) [d](docs/a.md#two-words) [e](../e)\n")
            (root / "docs/a.md").write_text("# One\n\n## Two `words`\n\n[self](#one), [other](#other)\n\n```\n[x](y)\n```\n")
            wrong = broken_links(root)
            self.assertEqual([re.sub(r"^\S+ ", "", line).split()[0].rstrip(":") for line in wrong], ["docs/b.md", "c.svg", "../e", "#other"])


def help_of(program, *words):
    return subprocess.run([f"{ARGUMENTS.build}/bin/{program}", "help", *words], check=True, capture_output=True, text=True).stdout


def names_in(text, head):
    """The first words of the rows under a heading of a help text."""
    rows = text.split(f"{head}\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^  ([a-z]\S*)", rows, re.M)


PARAMETERS = {"head.bias"}  # of models, in a section that has keys too


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        jobs = names_in(help_of("bagpipe"), "Jobs and commands:")
        tools = names_in(help_of("bagpipe-data"), "Tools:")
        cls.help = {("bagpipe", job): help_of("bagpipe", job) for job in jobs}
        cls.help.update({("bagpipe-data", tool): help_of("bagpipe-data", tool) for tool in tools})
        cls.keys = set()
        for text in cls.help.values():
            cls.keys |= set(re.findall(r"^  ([a-z]+\.[a-z0-9_]+)", text, re.M))
        cls.sections = {key.split(".")[0] for key in cls.keys}

    def test_keys_are_known(self):
        self.assertGreater(len(self.keys), 50)
        files = r"\.(json|jsonl|h5|ini|csv|safetensors|html|svg|md|c|h|cc|py|sh|sbatch|txt|simulator|bin|run|arpa|model|gguf)$"
        wrong = []
        for page in pages(TOP):
            if page.parent.name == RECORD or page.name in TESTS:
                continue
            for number, line, language in lines_of(page):
                named = re.findall(r"`([a-z]+\.[a-z_0-9]+)(?:=[^`]*)?`", line) if language is None else re.findall(r"(?<![\w./-])([a-z]+\.[a-z_0-9]+)=", line)
                wrong += [f"{page.name}:{number}: {key}" for key in named
                          if key.split(".")[0] in self.sections and key not in self.keys | PARAMETERS and not re.search(files, key)]
        self.assertEqual(wrong, [])

    def test_jobs_tools_and_options_are_known(self):
        seen, wrong = 0, []
        for page in pages(TOP):
            for number, line, language in lines_of(page):
                if language != "sh" or page.parent.name == RECORD:
                    continue
                try:
                    words = shlex.split(line, comments=True)
                except ValueError:  # a quotation that goes on in the next line
                    continue
                for at, word in enumerate(words[:-1]):
                    if word not in ("bagpipe", "bagpipe-data") or words[at + 1] in ("help", "--help", "--version"):
                        continue
                    seen += 1
                    text = self.help.get((word, words[at + 1]))
                    if text is None:
                        wrong.append(f"{page.name}:{number}: {word} {words[at + 1]}")
                        continue
                    for option in words[at + 2:]:
                        name = option.split("=")[0]
                        if name.startswith("--") and not re.search(r"(^|[\s,])" + re.escape(name) + r"([\s=\[,]|$)", text, re.M):
                            wrong.append(f"{page.name}:{number}: {word} {words[at + 1]} {name}")
        self.assertGreater(seen, 20)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--build", default=str(TOP / "build/release"))
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
