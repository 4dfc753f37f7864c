"""Run the Python blocks of one section of a Markdown page: run_examples.py PAGE SECTION"""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as page:
    text = page.read()
section = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(sys.argv[2]), text, re.S | re.M).group(1)
blocks = re.findall(r"^```python\n(.*?)^```", section, re.S | re.M)
assert blocks, "no Python in section " + sys.argv[2]
for block in blocks:
    exec(compile(block, sys.argv[1], "exec"), {})
