"""What tests of pages share: reading one."""
import html.parser
import json
import re

EMPTY = ("meta", "link", "br", "img", "hr", "input")  # elements without an end


class Page(html.parser.HTMLParser):
    """Open tags are closed; ids; the cells of the tables."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.ids, self.links, self.rows, self.text, self.words = [], [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in EMPTY:
            self.stack.append(tag)
            self.words.append([tag, ""])

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for key, value in attributes if key == "id"]
        self.links += [value for key, value in attributes if key in ("href", "src", "xlink:href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)
        for k, tag in enumerate(reversed(self.stack)):
            for element in reversed(self.words) if k < 3 else ():
                if element[0] == tag:
                    element[1] += data
                    break
        if self.stack and self.stack[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def named(self, tag):
        """The text of each element of this name, with that of the elements in it."""
        return [text for name, text in self.words if name == tag]


def data_of(page):
    """What the script of an example's page reads."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
