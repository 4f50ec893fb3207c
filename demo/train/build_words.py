"""Make data/words.json: common verbs, adjectives and nouns, and short example sentences, from WordNet.

    python build_words.py /usr/share/wordnet
"""

import argparse
import json
import re

from build_facts import REFUSED, wordnet

STARTS = "he she they we it the my his her our their a an this these there".split()
ROUGH = re.compile(r"kill|die[ds]?\b|dead|death|blood|gun|war\b|rape|drunk|beer|wine|god|hell|damn|bastard|negro|fat\b|stupid|whore|nude|naked|corpse|sin\b|shit|piss|fuck|fart|bomb|soldier|enem", re.I)


def examples(folder):
    """Example sentences of the verbs and adjectives that read like something a person would say."""
    out = set()
    for name in ("verb", "adj", "noun"):
        with open(f"{folder}/data.{name}") as f:
            for line in f:
                for s in re.findall(r'"([^"]+)"', line.partition(" | ")[2]):
                    words = s.split()
                    if (5 <= len(words) <= 11 and words[0].lower() in STARTS and re.fullmatch(r"[A-Za-z' ,]+", s)
                            and not REFUSED.search(s) and not ROUGH.search(s)):
                        if name != "noun" or words[0].lower() in ("he", "she", "they", "we"):
                            out.add(s[0].upper() + s[1:])
    return sorted(out)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("wordnet")
    a = ap.parse_args()
    words = wordnet(a.wordnet)
    ranked = sorted((k for k in words if words[k][0]), key=lambda k: (-words[k][0], k))
    pick = lambda pos, count: [w for w, p in ranked if p == pos and re.fullmatch(r"[a-z]{3,12}", w)
                               and not REFUSED.search(w) and not ROUGH.search(w) and not REFUSED.search(words[w, p][1])][:count]
    found = examples(a.wordnet)
    used = set(pick("n", 2500))
    more = [w for w, p in sorted(words) if p == "n" and re.fullmatch(r"[a-z]{4,13}", w) and w not in used and not REFUSED.search(w)
            and not ROUGH.search(w) and not REFUSED.search(words[w, p][1])]
    pairs = [w.replace("_", " ") for w, p in sorted(words) if p == "n" and re.fullmatch(r"[a-z]{3,10}_[a-z]{3,10}", w) and not REFUSED.search(w)
             and not ROUGH.search(w) and not REFUSED.search(words[w, p][1])]
    data = {"verbs": pick("v", 1500), "adjectives": pick("a", 1500), "nouns": pick("n", 2500), "more": more[:: max(1, len(more) // 16000)][:16000], "pairs": pairs[:: max(1, len(pairs) // 6000)][:6000],
            "examples": found[::max(1, len(found) // 5000)][:5000]}
    with open("data/words.json", "w", encoding="utf-8") as f:
        json.dump({k: ("\n" if k in ("examples", "pairs") else " ").join(v) for k, v in data.items()}, f, indent=0)
    print({k: len(v) for k, v in data.items()}, len(found))


if __name__ == "__main__":
    main()
