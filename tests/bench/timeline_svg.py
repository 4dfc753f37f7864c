#!/usr/bin/env python3
"""One picture of a timeline (train.trace): python3 timeline_svg.py TRACE.json PICTURE.svg [FIRST_STEP [LAST_STEP]]

A row a thread, ranks under one another, colours by kind of work (pale: under way between ranks, from its start to the end of the wait for
it, while the rank may do something else), from the first rank's begin of the first step to the last rank's end
of the last one; without steps the second one that the file holds.
"""
import html
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs"))
import timeline

WIDTH, LEFT, ROW, GAP = 1200, 190, 18, 8
OUTER = ("step", "forward pass", "backward pass")
KINDS = {  # the kinds of one colour stand together in the legend
    "products forward": "#2f6fb0", "products, input gradient": "#4f93d2", "products, weight gradient": "#84b9e8",
    "attention forward": "#2f8f5b", "attention backward": "#6cc08f", "norms": "#c9a227", "activations and residuals": "#e0c25a",
    "softmax": "#b07a2f", "embedding": "#8a6d3b", "gradient sums and norm": "#9a6fb0", "optimizer": "#7a3f96",
    "weight copies": "#c39bd3", "operands rounded": "#d7bde2", "reduction": "#c0392b", "gather": "#e67e22", "send": "#e59866",
    "receive": "#d35400", "agreement": "#f1948a", "input": "#17a589", "checkpoint": "#566573",
    "checkpoint, copy": "#34495e", "checkpoint, wait": "#aeb6bf", "validation": "#99a3a4"}


def window(events, first, last):
    """From the begin of step `first` to the end of step `last`, over all ranks, in microseconds."""
    steps = [e for line in events.values() for e in line if e["name"] == "step"]
    if not steps:
        sys.exit("the timeline has no step")
    numbers = sorted({e["args"]["number"] for e in steps})
    first = first or numbers[min(1, len(numbers) - 1)]
    chosen = [e for e in steps if first <= e["args"]["number"] <= (last or first)]
    if not chosen:
        sys.exit(f"the timeline has steps {numbers[0]} to {numbers[-1]}")
    return first, last or first, min(e["ts"] for e in chosen), max(e["ts"] + e["dur"] for e in chosen)


def pale(colour):
    """The colour mixed with white."""
    return "#" + "".join(f"{255 - (255 - int(colour[k:k + 2], 16)) * 35 // 100:02x}" for k in (1, 3, 5))


def boxes(line, begin, end, under_way):
    """Kinds and rectangles of what lies in the window; what contains others is drawn first, and so lies behind them."""
    scale = (WIDTH - LEFT - 10) / (end - begin)
    for event in line:
        left, right = max(event["ts"], begin), min(event["ts"] + event["dur"], end)
        if right <= left or event["name"] in OUTER:
            continue
        width = (right - left) * scale
        if width < 0.05:
            continue
        colour = KINDS.get(event["name"], "#cccccc")
        yield event["name"], (f'<rect x="{LEFT + (left - begin) * scale:.2f}" width="{width:.2f}" height="{ROW - 3}" '
                              f'fill="{pale(colour) if under_way else colour}"/>')


def legend(used, under_way):
    """The kinds that are in the picture, and the height of their lines."""
    entries = [(name, colour) for name, colour in KINDS.items() if name in used]
    if under_way:
        entries.append(("pale: under way between ranks", pale(KINDS["reduction"])))
    out, x, y = [], LEFT, 18
    for name, colour in entries:
        if x + 26 + 6.2 * len(name) > WIDTH:
            x, y = LEFT, y + 16
        out.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/><text x="{x + 14}" y="{y}">{html.escape(name)}</text>')
        x += 26 + int(6.2 * len(name))
    return out, y


def is_under_way(thread):
    return thread.startswith("communication")


def draw(path, first, last):
    events, processes, threads, _ = timeline.load(path)
    first, last, begin, end = window(events, first, last)
    drawn = {key: list(boxes(line, begin, end, is_under_way(threads[key]))) for key, line in events.items()}
    out, y = legend({kind for line in drawn.values() for kind, _ in line},
                    any(line and is_under_way(threads[key]) for key, line in drawn.items()))
    y += 26
    for pid in sorted(processes):
        rows = sorted(tid for owner, tid in threads if owner == pid)
        if not rows:
            continue
        out.append(f'<text x="4" y="{y + 10}" font-weight="bold">{html.escape(processes[pid].replace(":", ",").split(" on ")[0])}'
                   f'{html.escape(processes[pid][processes[pid].find(":"):])}</text>')
        y += ROW
        for tid in rows:
            out.append(f'<text x="16" y="{y + 11}">{html.escape(threads[pid, tid])}</text>'
                       f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{ROW - 3}" fill="#f4f4f4"/>')
            out += [f'<g transform="translate(0 {y})">', *(rectangle for _, rectangle in drawn.get((pid, tid), ())), "</g>"]
            y += ROW
        y += GAP
    what = f"step {first}" if first == last else f"steps {first} to {last}"
    out.append(f'<text x="{LEFT}" y="{y + 8}">{what}: {(end - begin) / 1e3:.1f} ms from left to right; white is what no span covers</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 18}" font-family="sans-serif" font-size="11">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    picture = draw(sys.argv[1], *(int(word) for word in (sys.argv[3:5] + ["0", "0"])[:2]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)
