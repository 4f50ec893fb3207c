"""Plain English paragraphs from the Rust documentation component, as one compressed text file.

    python real_text.py $(rustc --print sysroot)/share/doc/rust/html OUT.txt.xz
"""

import argparse
import glob
import html
import lzma
import random
import re

FOLDERS = ("book", "reference", "nomicon", "rust-by-example", "edition-guide", "cargo", "embedded-book", "rustc", "rustdoc", "clippy")


def paragraphs(path):
    with open(path, encoding="utf-8", errors="ignore") as f:
        page = f.read()
    main = re.search(r"<main>(.*?)</main>", page, re.S)
    for p in re.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", main.group(1) if main else "", re.S):
        text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", p))).strip()
        if 60 < len(text) < 1200 and text.isascii():
            yield text


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("docs"), ap.add_argument("out")
    a = ap.parse_args()
    seen, out = set(), []
    for folder in FOLDERS:
        for path in sorted(glob.glob(f"{a.docs}/{folder}/**/*.html", recursive=True)):
            if path.endswith("print.html"):
                continue
            for text in paragraphs(path):
                if text not in seen:
                    seen.add(text)
                    out.append(text)
    hold = random.Random(0).sample(range(len(out)), len(out) // 50)
    held = set(hold)
    with lzma.open(a.out, "wt", encoding="utf-8") as f:
        f.write("\n\n".join(t for i, t in enumerate(out) if i not in held))
    with lzma.open(a.out.replace(".txt", ".held.txt"), "wt", encoding="utf-8") as f:
        f.write("\n\n".join(out[i] for i in sorted(held)))
    print(len(out), sum(map(len, out)))


if __name__ == "__main__":
    main()
