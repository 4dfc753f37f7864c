"""The identifiers of errors and warnings, read from the source: each message has one, of the right form; one identifier is one failure;
docs/messages.md lists them all.

test_messages.py --write: make docs/messages.md anew.
"""
import pathlib
import re
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / "docs" / "messages.md"
FORM = r"[a-z][a-z0-9]*\.[a-z][a-z0-9_]*"
CALLS = {"BP_FAIL": 1, "BP_FAIL_LINES": 1, "bp_fail": 1, "bp_fail_lines": 1, "bp_config_fault": 1, "bp_err_last_words": 1, "BP_WARN": 0, "bp_warn": 0}  # and which argument is the identifier
SHOWN = 3  # messages of an identifier, in the page
# What several libraries or programs say, because its remedy is the same wherever it is found
SHARED = set("""
    build.no_scalapack command.bad_number command.not_understood command.too_many_names config.unused_key corpus.no_match corpus.no_special_token
    corpus.too_few_documents ensemble.unlike_members fault.injected file.in_the_way file.is_folder file.missing
    file.no_space file.not_replaced gguf.no_counterpart huggingface.bad_size huggingface.unsupported json.invalid json.wrong_type label.unknown label.unknown_code memory.short mesh.expert_trains mesh.no_experts mesh.one_model mesh.too_few_blocks
    mesh.too_many_members model.no_distribution model.not_causal model.unused_key result.damaged run.missing scores.damaged scores.zero_probability
    task.unused_key text.not_utf8 tokenizer.mismatch tokenizer.too_large tokenizer.unknown_kind vocabulary.mismatch vocabulary.token_twice
""".split())
HEAD = """# Messages by their identifiers

For whoever wants to know more about an error or a warning, and for scripts that act on one. An error is one line,
`bagpipe: error[STATUS]: what, with the value: at where; remedy [identifier]`, and a warning is
`bagpipe: warning: what, with the value: at where; remedy [identifier]`. The identifier stays when the wording changes: scripts
should look for it, not for words. The page is made from the source: `python3 tests/project/test_messages.py --write`. What the
statuses mean is in [troubleshooting.md](troubleshooting.md#exit-statuses). A warning changes no status. Whatever fails without
ending the job is a warning with the identifier of that error.

"..." stands for a value. Where several statuses are given, the operation that failed chooses.

| identifier | status | what the line says |
| --- | --- | --- |
"""


def without_comments(text):
    """Comments become spaces; strings stay."""
    return re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/', lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/*") else m[0], text, flags=re.S)


def arguments(text, at):
    """The arguments of a call whose parenthesis was opened just before `at`."""
    depth, found, begin = 0, [], at
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[()\[\]{},]', text[at:]):
        where = at + token.start()
        if token[0] in ("(", "[", "{"):
            depth += 1
        elif token[0] in (")", "]", "}"):
            if depth == 0:
                return found + [text[begin:where].strip()]
            depth -= 1
        elif token[0] == "," and depth == 0:
            found.append(text[begin:where].strip())
            begin = where + 1
    raise ValueError("a call without an end")


def statuses():
    return {name: int(number) for name, number in re.findall(r"(BP_ERR_[A-Z]+) = (\d+)", (TOP / "src/base/err.h").read_text())}


def words(source):
    """What a format says, up to where: values are "..."."""
    text = ""
    for literal, letter, macro in re.findall(r'"((?:\\.|[^"\\])*)"|\bPRI([a-z])\w*|\b([A-Z][A-Z_0-9]+)\b', source):
        text += literal + letter + "..." * bool(macro)
    text = re.sub(r"\\(.)", r"\1", text)
    text = re.sub(r"%[-+ #0]*[*\d]*(?:\.[*\d]+)?(?:ll|l|z|h)?[a-zA-Z]?", "...", text.replace("%%", "\0")).replace("\0", "%")
    text = re.split(r": (?:at|in) |; ", text)[0]
    return text.replace("|", "/").replace("`", "'").strip()


class Message:
    def __init__(self):
        self.statuses, self.words, self.folders, self.warns = set(), [], set(), False

    def add(self, status, said, folder, warns=False):
        self.statuses |= status
        self.warns |= warns
        self.folders.add(folder)
        if said and said not in self.words:
            self.words.append(said)


def read():
    """identifier -> Message, and what is wrong with single calls."""
    numbers, found, wrong = statuses(), {}, []
    for top in ("src", "jobs", "data_tools"):
        for path in sorted((TOP / top).rglob("*.[ch]")):
            text, place = without_comments(path.read_text(encoding="utf-8")), str(path.relative_to(TOP))
            folder = place.split("/")[1] if top == "src" else top
            for call in re.finditer(r"\b(" + "|".join(CALLS) + r")\s*\(", text):
                if re.search(r"(#define|^(bp_err|void)) *$", text[text.rfind("\n", 0, call.start()) + 1:call.start()]):
                    continue  # where it is declared
                warns = CALLS[call[1]] == 0
                code, name, said = ([""] * warns + arguments(text, call.end()) + ["", ""])[:3]
                said = '"%s"' if call[1] == "BP_FAIL_LINES" else said
                literal = re.fullmatch(r'"(' + FORM + r')"', name)
                if literal:
                    code = "BP_ERR_CONFIG" if call[1] == "bp_config_fault" else code
                    status = {numbers[one] for one in re.findall(r"BP_ERR_[A-Z]+", code)}
                    found.setdefault(literal[1], Message()).add(status, words(said), folder, warns)
                elif place not in ("src/base/err.c", "src/base/err.h", "src/base/log.h"):
                    wrong.append(f"{place}:{text.count(chr(10), 0, call.start()) + 1}: {name} is no identifier")
            for said, name in re.findall(r'"([^"\n]*)\[(' + FORM + r')\](?:\\n)?"', text):  # said without those calls
                found.setdefault(name, Message()).add(set(), "", folder, ": warning: " in said)
            for odd in re.finditer(r'warning: [^"\n]*(?<!\])\\n"', text):
                wrong.append(f"{place}:{text.count(chr(10), 0, odd.start()) + 1}: a warning without identifier")
    for code, name in re.findall(r'\{\w+, (BP_\w+), "(' + FORM + r')", "', (TOP / "src/base/err.c").read_text()):
        found.setdefault(name, Message()).add({numbers[code]} if code in numbers and code != "BP_OK" else set(), "", "base")
    found.setdefault("file.no_folder", Message()).add({numbers["BP_ERR_CREATE"]}, "", "base")
    return found, wrong


# Those that errno words, those written where nothing may be called, and those whose text comes from elsewhere
SAID = {"file.missing": ({66}, "No such file or directory"), "file.no_folder": ({73}, "No such file or directory, of an output"),
        "file.is_folder": ({66, 74}, ""), "file.exists": ({73, 74}, "File exists"),
        "file.bad_path": ({66, 73, 74}, "File name too long, Too many levels of symbolic links"),
        "file.denied": ({77}, "Permission denied, Operation not permitted, Read-only file system"),
        "file.no_space": ({74}, "No space left on device, Disk quota exceeded, File too large"),
        "file.too_many_open": ({71}, "Too many open files"), "file.io_error": ({66, 73, 74}, "Input/output error, and what else the system says of a file"),
        "report.file_missing": ({66, 77}, ""), "config.more_faults": ({78}, "... and ... faults more"),
        "run.hung": ({75}, "no progress for ... s: rank ... on host ..."), "program.crashed": ({134, 135, 136, 139}, "killed by signal ..."),
        "memory.not_given_back": (set(), "memory that was not given back: ..."),
        "ngram.no_discounts": (set(), "Kneser-Ney or Good-Turing discounts of order ... can't be estimated from n1 = ..."),
        "training.diverged": (set(), "m...: ...; the other members go on"),
        "watchdog.unheard_rank": (set(), "the watchdog has received nothing from rank ... on host ...")}


def page():
    rows = []
    for name, message in sorted(read()[0].items()):
        status, said = SAID.get(name, (set(), ""))
        said = [said] + [one for one in message.words if re.search("[a-z]", one)] if said else message.words
        number = ", ".join([str(one) for one in sorted(status | message.statuses)] + ["warning"] * message.warns)
        rows.append(f"| `[{name}]` | {number} | {'; '.join(said[:SHOWN])}{'; and the like' * (len(said) > SHOWN)} |\n")
    return HEAD + "".join(rows)


class Messages(unittest.TestCase):
    def test_have_identifiers(self):
        found, wrong = read()
        self.assertEqual(wrong, [])
        self.assertGreater(len(found), 200)
        self.assertGreater(sum(message.warns for message in found.values()), 40)

    def test_of_one_identifier_have_one_status(self):
        several = {name for name, message in read()[0].items() if len(message.statuses) > 1}
        self.assertEqual(several, {"corpus.bad_pattern", "checkpoint.not_a_folder", "h5.failed", "config.path_missing"})

    def test_of_several_libraries_share_an_identifier_on_purpose(self):
        shared = {name for name, message in read()[0].items() if len(message.folders) > 1}
        self.assertEqual(shared, SHARED)

    def test_that_the_docs_quote_exist(self):
        found, quoted = read()[0], 0
        for path in sorted((TOP / "docs").glob("*.md")):
            for name in re.findall(r"\[(" + FORM + r")\](?!\()", path.read_text(encoding="utf-8")):
                quoted += 1
                self.assertTrue(name in found, f"{path.name}: {name}")
        self.assertGreater(quoted, 2 * len(found) // 3)

    def test_are_in_the_page(self):
        self.assertEqual(PAGE.read_text(encoding="utf-8"), page(), "python3 tests/project/test_messages.py --write makes it anew")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        unittest.main()
