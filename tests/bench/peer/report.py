"""What the rows found, as the issue's table: Markdown for people, JSON for programs."""
from rows import GPT2, SMALL, median

NOT = "not measured"


def spread(values, form="{:.2f}"):
    """Median and (least to most)."""
    if not values:
        return NOT
    low, high = form.format(min(values)), form.format(max(values))
    return form.format(median(values)) + (f" ({low} to {high})" if len(values) > 1 else "")


def ratios(row):
    return [ours / theirs for ours, theirs in row["pairs"]] if row else []


def compared(found, name, what, least, aim):
    """A line of tokens a second, ours, theirs, and the ratios of runs that followed each other."""
    row = found.get(name)
    sides = list(zip(*row["pairs"])) if row else ([], [])
    return {"row": name, "what": what, "ours": spread(sides[0], "{:,.0f}"), "theirs": spread(sides[1], "{:,.0f}"),
            "peer": row.get("peer", "") if row else "", "reached": ratios(row), "form": "{:.2f}", "least": least, "aim": aim}


def shares(found, name, what, values, least, aim, form="{:.2f}", fewer=False):
    return {"row": name, "what": what, "ours": "", "theirs": "", "reached": values, "form": form, "least": least, "aim": aim,
            "fewer": fewer}


def mfu(found, name, model):
    """Of each run of a training row, against the silicon that `bagpipe bench` measured."""
    row, peak = found.get(name), found.get("silicon", {}).get("silicon")
    return [ours * model.flops() / peak[row["precision"]] for ours, _ in row["pairs"]] if row and peak else []


def over_plan(found):
    rows = [row for name, row in found.items() if name.startswith(("train-", "small-bf16", "small-f32"))]
    return [seen / foreseen for row in rows for foreseen, seen in row["memory"]]


def lines(found):
    """Of the whole table, in the issue's order."""
    profile, checkpoint = found.get("profile", {}), found.get("checkpoint", {}).get("checkpoints", [])
    table = [
        compared(found, "train-bf16-1", "GPT-2 124M, training in bf16, batch 1", 4, 6),
        compared(found, "train-bf16-4", "the same, batch 4", 4, 6),
        compared(found, "score-bf16", "the same, scoring in bf16", 4, 6),
        shares(found, "profile", "a step's bf16 products together, share of the silicon", profile.get("products_share", []), 0.35, 0.65),
        shares(found, "train-bf16-1", "MFU of a bf16 training step, batch 1", mfu(found, "train-bf16-1", GPT2), 0.20, 0.45),
        shares(found, "train-bf16-4", "the same, batch 4", mfu(found, "train-bf16-4", GPT2), 0.20, 0.45),
        compared(found, "train-f32-1", "GPT-2 124M, training in float32, batch 1", 1.4, 1.7),
        compared(found, "train-f32-4", "the same, batch 4", 1.4, 1.7),
        shares(found, "train-f32-4", "MFU of a float32 training step, batch 4 (instead of the ratio)",
               mfu(found, "train-f32-4", GPT2), None, 0.75),
        shares(found, "train-*", "peak resident memory over the plan", over_plan(found), 1.10, 1.05, "{:.3f}", fewer=True),
        compared(found, "mesh-data", "two ranks of one thread against one of two, batch 8: data", 0.90, 1.0),
        compared(found, "mesh-tensor", "the same: tensor", 0.85, 0.95),
        compared(found, "mesh-pipeline", "the same: pipeline, 8 micro-batches", 0.85, 0.90),
        shares(found, "profile", "time waiting for input", profile.get("input_wait", []), 0.01, 0, "{:.3%}", fewer=True),
        shares(found, "checkpoint", "step time lost while a checkpoint is written", [c["lost"] / c["written"] for c in checkpoint],
               0.05, 0.01, "{:.1%}", fewer=True),
        compared(found, "small-bf16", "4 layers of width 256, T = 256, 8,000 words: training in bf16, batch 8", 3, 5),
        compared(found, "small-f32", "the same in float32", None, None),
        compared(found, "small-score", "the same, scoring in bf16", None, None),
        shares(found, "small-bf16", "MFU of its bf16 training step", mfu(found, "small-bf16", SMALL), None, None),
        compared(found, "translate-f32", "Transformer of 2017, 3 + 3 layers of width 128: training in float32, 64 pairs", None, None),
        compared(found, "translate-greedy", "the same: greedy decoding, 64 texts at once, new tokens/s", None, None),
        compared(found, "bert-128", "BERT-base's shape: training in float32, 8 windows of 128", 1.3, 1.5),
        compared(found, "bert-512", "the same, 2 windows of 512", None, None),
        compared(found, "lstm-f32", "LSTM, 2 layers of width 650, 10,000 words: training in float32, 20 windows of 35", 1.3, 1.8),
        *(shares(found, name, f"{name}: share of what a large product reaches", found.get(name, {}).get("mfu", []), None, None)
          for name in ("translate-f32", "bert-128", "bert-512", "lstm-f32")),
    ]
    return [dict(line, verdict=verdict(line)) for line in table]


def verdict(line):
    if not line["reached"] or line["least"] is None:
        return ""
    value, fewer = median(line["reached"]), line.get("fewer", False)
    if value <= line["aim"] if fewer else value >= line["aim"]:
        return "aim"
    return "least" if (value <= line["least"] if fewer else value >= line["least"]) else "missed"


def bound(value, form):
    return "" if value is None else form.format(value)


def markdown(found, head):
    out = ["| | bagpipe, tokens/s | other side, tokens/s | the fastest peer | reached | at least | aim | |",
           "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for line in lines(found):
        form = line["form"]
        out.append("| " + " | ".join([line["what"], line["ours"], line["theirs"], line.get("peer", ""), spread(line["reached"], form),
                                      bound(line["least"], form), bound(line["aim"], form), line["verdict"]]) + " |")
    return "\n".join([head, "", *out, "", *same_work(found), *notes(found)])


def checks(found):
    return [check for row in found.values() for check in row.get("checks", [])]


def same_work(found):
    """Losses of both sides on the same windows from the same first weights."""
    if not checks(found):
        return []
    out = ["| the same windows, weights and rule of updates | bagpipe's losses | PyTorch's | |", "| --- | --- | --- | --- |"]
    for check in checks(found):
        sides = [", ".join(f"{loss:.5f}" if isinstance(loss, float) else str(loss) for loss in check[side]) for side in ("ours", "theirs")]
        out.append(f"| {check['what']} | {sides[0]} | {sides[1]} | {'same' if check['same'] else 'DIFFERENT'} |")
    return out + ["", "Same: within 1e-4 of the loss in float32, 0.01 nats in bf16.", ""]


def notes(found):
    out = [f"{name}: " + ", ".join(f"{peer} {spread(speeds, '{:,.0f}')}" for peer, speeds in row["peers"].items()) + " tokens/s."
           for name, row in found.items() if len(row.get("peers", [])) > 1]
    if "silicon" in found.get("silicon", {}):
        peaks = ", ".join(f"{name} {flops / 1e9:,.0f} GFLOP/s" for name, flops in found["silicon"]["silicon"].items())
        out.append(f"The silicon, multiplying in registers: {peaks}.")
    for checkpoint in found.get("checkpoint", {}).get("checkpoints", []):
        out.append(f"A checkpoint: {checkpoint['lost']:.2f} s lost, {checkpoint['written']:.2f} s from the step's end until it is "
                   f"announced, a step {checkpoint['step']:.2f} s.")
    out += [f"{name}: this build lacks {row['lacks']}." for name, row in found.items() if "lacks" in row]
    return out
