"""Train the demo's tokenizer on a sample of its own training text.

    python make_tokenizer.py REAL.txt.xz ../tokenizer.json
"""

import argparse
from random import Random

from tasks import Tasks
from tokenizer import load, token_map, train

SHARE = [("chat", 45000), ("needle", 2500), ("tool", 2500), ("json", 8000), ("copy", 3000), ("lookup", 1500), ("text", 1200)]


def sample(tasks):
    r = Random("tokenizer")
    for kind, count in SHARE:
        for i in range(count):
            pieces = tasks.document(kind, r, 300)
            # the tools' instructions are the same every time: a few copies are enough
            for text, special, _ in pieces:
                if not special and (kind != "tool" or i < 300 or len(text) < 400):
                    yield text


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("real"), ap.add_argument("out")
    a = ap.parse_args()
    train(sample(Tasks(a.real)), a.out)
    print("compressed vocabulary", max(token_map(load(a.out))) + 1)


if __name__ == "__main__":
    main()
