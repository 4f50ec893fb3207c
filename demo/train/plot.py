"""Draw the loss curves of one or more runs of train.py.

    python plot.py ../loss.png RUN1/log.json RUN2/log.json
"""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = {"short": "2,048 tokens, all rows", "long": "8,192 tokens, selection", "mixed": "2,048 and 8,192, selection", "wide": "the same, wider talk", "settle": "the same, falling rate",
         "far": "more facts in long rows, daily talk", "talk": "still wider talk", "home": "everyday tables, plain prompts", "mend": "the same, one table anew"}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("out"), ap.add_argument("logs", nargs="+")
    a = ap.parse_args()
    logs = [json.load(open(path))["log"] for path in a.logs]
    rows = [row for log in logs for row in log]
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2))
    for name, label in NAMES.items():
        part = [r for r in rows if r[0] == name]
        if part:
            x = [r[1] for r in part]
            line = left.plot(x, [r[4] for r in part], label=f"replies, {label}")[0]
            left.plot(x, [r[3] for r in part], color=line.get_color(), alpha=0.35)
    left.set(yscale="log", xlabel="seconds of training", ylabel="loss a token", title="Backbone (pale: all text, weighted)")
    left.legend(fontsize=8), left.grid(alpha=0.3)
    part = next((p for p in ([r for r in log if "draft" in r[0]] for log in logs[::-1]) if p), [])  # the last that were trained
    if part:
        x = [r[1] for r in part]
        right.plot(x, [r[4] for r in part], label="accepted drafts of 5")
        right.plot(x, [r[6] for r in part], label="confidence loss")
    right.set(xlabel="seconds of draft training", title="Draft blocks on the model's own replies")
    right.legend(fontsize=8), right.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(a.out, dpi=90)


if __name__ == "__main__":
    main()
