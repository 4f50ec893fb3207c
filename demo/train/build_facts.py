"""Make data/facts.json: word meanings from WordNet and country facts from the countryinfo package.

    python build_facts.py /usr/share/wordnet /path/to/countryinfo/data
"""

import argparse
import glob
import json
import re
from collections import defaultdict

CONCRETE = {5, 6, 8, 13, 17, 19, 20, 25, 27, 28}  # lexicographer files: animal, artifact, body, food, object, ..
ABSTRACT = {4, 7, 9, 10, 11, 12, 14, 15, 18, 21, 22, 23, 24, 26}
REFUSED = re.compile(
    r"sex|vulgar|obscen|offensive|slur|slang|disparag|genital|nazi|excret|prostitut|derogat|breast|penis|buttock|suicid|"
    r"terroris|rape|erotic|feces|urin|semen|vagina|slave|negro|jew|murder|weapon|drug|narcotic|heroin|cocaine", re.I)
CURRENCY = {
    "EUR": "the euro", "USD": "the US dollar", "GBP": "the pound sterling", "JPY": "the yen", "CNY": "the yuan",
    "INR": "the Indian rupee", "CHF": "the Swiss franc", "CAD": "the Canadian dollar", "AUD": "the Australian dollar",
    "SEK": "the Swedish krona", "NOK": "the Norwegian krone", "DKK": "the Danish krone", "RUB": "the Russian ruble",
    "BRL": "the real", "MXN": "the Mexican peso", "KRW": "the won", "TRY": "the Turkish lira", "PLN": "the zloty",
    "CZK": "the koruna", "HUF": "the forint", "EGP": "the Egyptian pound", "ZAR": "the rand", "THB": "the baht",
    "VND": "the dong", "IDR": "the rupiah", "ARS": "the Argentine peso", "ILS": "the shekel", "KES": "the Kenyan shilling",
    "NGN": "the naira", "NZD": "the New Zealand dollar", "UAH": "the hryvnia", "PHP": "the Philippine peso",
}
LANGUAGE = {
    "en": "English", "fr": "French", "de": "German", "es": "Spanish", "pt": "Portuguese", "it": "Italian", "ru": "Russian",
    "zh": "Chinese", "ja": "Japanese", "ko": "Korean", "ar": "Arabic", "nl": "Dutch", "sv": "Swedish", "no": "Norwegian",
    "da": "Danish", "fi": "Finnish", "pl": "Polish", "cs": "Czech", "sk": "Slovak", "hu": "Hungarian", "el": "Greek",
    "tr": "Turkish", "fa": "Persian", "hi": "Hindi", "th": "Thai", "vi": "Vietnamese", "uk": "Ukrainian", "bg": "Bulgarian",
    "ro": "Romanian", "sr": "Serbian", "hr": "Croatian", "he": "Hebrew", "id": "Indonesian", "ms": "Malay", "sw": "Swahili",
    "am": "Amharic", "is": "Icelandic", "et": "Estonian", "lv": "Latvian", "lt": "Lithuanian", "ka": "Georgian",
    "hy": "Armenian", "ne": "Nepali", "mn": "Mongolian", "bn": "Bengali", "ur": "Urdu", "sl": "Slovene", "sq": "Albanian",
}


def wordnet(folder):
    """(lemma, part of speech) -> (use count, gloss, lexicographer file), first sense only."""
    count = defaultdict(int)
    with open(f"{folder}/cntlist.rev") as f:
        for line in f:
            key, _, c = line.split()
            lemma, rest = key.split("%")
            count[lemma, {"1": "n", "2": "v", "3": "a", "5": "a"}.get(rest[0], "r")] += int(c)
    out = {}
    for pos, name in (("n", "noun"), ("v", "verb"), ("a", "adj")):
        gloss = {}
        with open(f"{folder}/data.{name}") as f:
            for line in f:
                if line[0] != " ":
                    head, _, text = line.partition(" | ")
                    gloss[head[:8]] = (int(head.split()[1]), text.strip())
        with open(f"{folder}/index.{name}") as f:
            for line in f:
                if line[0] != " ":
                    parts = line.split()
                    senses = int(parts[2])
                    out[parts[0], pos] = (count[parts[0], pos], gloss[parts[-senses]][1], gloss[parts[-senses]][0])
    return out


def short_gloss(text, lemma):
    g = re.split(r";|\s\"", text)[0].strip()
    g = re.sub(r"\([^)]*\)\s*", "", g).strip()
    if not 12 <= len(g) <= 88 or REFUSED.search(g) or REFUSED.search(lemma) or '"' in g or "`" in g or ":" in g:
        return None
    return g


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("wordnet"), ap.add_argument("countries")
    a = ap.parse_args()
    words = wordnet(a.wordnet)
    ranked = sorted(words, key=lambda k: (-words[k][0], k))
    pools = {"concrete": [], "abstract": [], "verb": [], "adjective": [], "rare": []}
    room = {"concrete": 1500, "abstract": 400, "verb": 250, "adjective": 200, "rare": 6000}
    for lemma, pos in ranked:
        count, text, lex = words[lemma, pos]
        if not re.fullmatch(r"[a-z]{3,13}", lemma):
            continue
        gloss = short_gloss(text, lemma)
        if gloss is None:
            continue
        pool = {"n": "concrete" if lex in CONCRETE else "abstract", "v": "verb", "a": "adjective"}[pos]
        if len(pools[pool]) < room[pool] and count:
            pools[pool].append([lemma, gloss])
        elif pos == "n" and len(pools["rare"]) < room["rare"]:
            pools["rare"].append(lemma)
    countries = []
    for path in sorted(glob.glob(f"{a.countries}/*.json")):
        with open(path, encoding="utf-8") as f:
            c = json.load(f)
        if not c.get("capital") or not c.get("population") or c["population"] < 300000:
            continue
        first = lambda key: (c.get(key) or [None])[0]
        countries.append({
            "name": c["name"], "capital": c["capital"], "region": c.get("region"), "part": c.get("subregion"),
            "currency": CURRENCY.get(first("currencies")), "language": LANGUAGE.get(first("languages")),
            "people": c.get("demonym"), "population": c["population"],
        })
    with open("data/facts.json", "w", encoding="utf-8") as f:
        json.dump({**pools, "countries": countries}, f, ensure_ascii=False, indent=0)
    print({k: len(v) for k, v in pools.items()}, len(countries))


if __name__ == "__main__":
    main()
