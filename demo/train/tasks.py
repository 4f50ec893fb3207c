"""Long-text tasks: facts to find again, key-value lookups, copying and continuing, stories, plain text.

`Tasks.document(kind, r, room)` gives rendered pieces that fill at most about `room` tokens."""

import json
import lzma
import os

from chat import Chat
from grammar import (ADJ, COLOR, FIRST, FOODS, HERE, HOBBIES, JOBS, MORE_FIRST, OBJECTS, PETS, PROPER, SURNAMES, article, code, disguise, full_name,
                     listing, name, number, place, syllable_word, upper_first)
from render import BOS, EOS, Pieces, render
from tools import clock, json_conversation, tool_conversation

CHARS = 3.6  # characters a token of filler, roughly


with open(os.path.join(HERE, "data/facts.json"), encoding="utf-8") as _f:
    _all = json.load(_f)
with open(os.path.join(HERE, "data/words.json"), encoding="utf-8") as _f:
    NOUNS = json.load(_f)["nouns"].split()
# not what is a name too: a reply could not tell whether to give it a capital
_names = set(PROPER) | {w.lower() for w in FIRST + MORE_FIRST + SURNAMES}
WORDS = [w for w in [w for w, _ in _all["concrete"]] + _all["rare"] + NOUNS * 2 if w not in _names]
WHATS = ["secret code", "password", "code", "access code", "pin", "magic number", "serial number", "secret word", "key", "passphrase", "number", "secret number", "combination", "code word"]
ENDS = "code code code number number word key password name id phrase pin signal date combination address value token title color price answer secret label".split()


def what_of(r):
    """What a fact gives: a code, number or name of any kind."""
    x = r.random()
    if x < 0.3:
        return r.choice(WHATS)
    if x < 0.75:
        return f"{r.choice(WORDS)} {r.choice(ENDS)}"
    if x < 0.87:
        return f"{r.choice(ADJ + ['secret', 'special', 'final', 'first', 'next', 'main', 'official', 'emergency', 'private'])} {r.choice(WORDS)} {r.choice(ENDS)}"
    return f"{r.choice(WORDS)} {r.choice(WORDS)}" if x < 0.93 else r.choice(WORDS)


MONTH_NAMES = "January February March April May June July August September October November December".split()


def words_of(r):
    """A value of two to four plain words."""
    w = lambda: r.choice(WORDS)
    return r.choice([f"{w()} {w()}", f"{w()} {w()}", f"{w()} {w()} {w()}", f"{w()} of the {w()}", f"{r.choice(ADJ)} {w()} {w()}", f"the {w()} and the {w()}", f"{r.choice(COLOR)} {w()} in the {w()}", f"{w()} {w()} {w()} {w()}", f"{w()}, {w()}, {w()}"])


def person(r):
    """A name of one to four words."""
    x = r.random()
    if x < 0.45:
        return name(r)
    if x < 0.75:
        return full_name(r)
    first, last = (lambda: r.choice(FIRST + MORE_FIRST) if r.random() < 0.6 else syllable_word(r).capitalize()), (lambda: r.choice(SURNAMES) if r.random() < 0.5 else syllable_word(r).capitalize())
    return r.choice([f"{first()} {last()}", f"{first()} {first()} {last()}", f"{r.choice(['Dr', 'Professor', 'Captain', 'Mrs', 'Mr', 'Aunt', 'Uncle', 'Sir'])} {last()}", f"{first()} {r.choice(['van', 'de', 'von', 'di', 'al'])} {last()}", f"{first()} {last()}-{last()}", f"{first()} {r.choice('ABCDEFGHJKLMNPRSTW')}. {last()}"])


def value_of(r):
    x = r.random()
    if x < 0.48:
        return code(r)
    if x < 0.55:
        return words_of(r)
    if x < 0.62:
        return clock(r)
    if x < 0.75:
        return r.choice([f"{r.randint(1, 28)} {r.choice(MONTH_NAMES)} {r.randint(1900, 2040)}", f"{r.randint(1, 28)} {r.choice(MONTH_NAMES)}", f"${r.randint(1, 999)}", f"{r.randint(2, 99)} euros", f"555-{r.randint(0, 9999):04d}", f"{r.choice(WORDS)}{r.randint(1, 99)}",
                         f"{r.choice('ABCDEFGH')}{r.randint(1, 99)}", f"v{r.randint(0, 9)}.{r.randint(0, 20)}", f"{r.randint(1, 99)} kg", f"{r.choice(WORDS)} {r.randint(1, 99)}", f"{r.randint(1, 12)}:{r.randint(0, 59):02d} {r.choice(['am', 'pm'])}", f"{r.randint(0, 9)}.{r.randint(10, 999)}",
                         f"{r.choice(WORDS)}.{r.choice(WORDS)}", f"{syllable_word(r)}@{syllable_word(r)}.com", f"{r.randint(1, 100)} percent", f"{r.choice(COLOR)} {r.choice(WORDS)} {r.choice(WORDS)}"])
    return r.choice([f"{r.choice(ADJ)} {r.choice(OBJECTS)}", f"{r.choice(COLOR)} {r.choice(PETS)} {r.randint(1, 99)}", r.choice(WORDS), str(r.randint(1000, 99999)), f"{r.choice(WORDS)}-{r.randint(10, 99)}", full_name(r), f"{r.choice(WORDS)} {r.choice(WORDS)}",
                     f"{r.choice(COLOR)}-{r.choice(WORDS)}-{r.randint(1, 9)}", f"{r.choice(WORDS)}-{r.choice(WORDS)}-{r.randint(1, 99)}", f"{r.randint(0, 99):02d}-{r.randint(0, 99):02d}-{r.randint(0, 99):02d}"])


def subject(answer):
    """What an answer is about, in lower case: no filler may speak of it."""
    for cut in (" is ", " lives ", " works ", " has ", " leaves ", " was ", " costs ", " speaks ", " drives "):
        if cut in answer:
            return answer.split(cut)[0].lower()
    return answer.lower()


def thing_of(r):
    x = r.random()
    if x < 0.48:
        return f"{r.choice(ADJ + COLOR)} {r.choice(OBJECTS + NOUNS[:600])}"
    if x < 0.68:
        return r.choice([f"{r.choice(WORDS)} {r.choice(WORDS)}", f"{r.choice(ADJ + COLOR)} {r.choice(WORDS)} {r.choice(WORDS)}", f"{r.choice(WORDS)} in {place(r)}", f"{r.choice(ADJ)} {r.choice(COLOR)} {r.choice(OBJECTS)}", f"{syllable_word(r).capitalize()} {syllable_word(r).capitalize()} {r.choice(OBJECTS + NOUNS[:600])}", f"{r.choice(WORDS)} {r.choice(OBJECTS)} {r.randint(1, 99)}"])
    return syllable_word(r) if x < 0.84 else r.choice(WORDS)


def fact(r, what=None, thing=None):
    """(statement, question, answer); with `what` or `thing`, a fact of that kind or about that thing."""
    x = r.choice([0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
    if what or thing:
        x = 3 if what and not thing and r.random() < 0.3 else 0
    thing = thing or thing_of(r)
    who, where, c, what = person(r), place(r), value_of(r), what or what_of(r)
    ask = r.choice(["", "", "", "", "", "", "can you tell me ", "do you know ", "i would like to know ", "the text says it somewhere: ", "from the text above, ", "remind me, ", "i forgot: ", "just the answer, please: ", "look it up: ", "in the text, "])
    if x <= 2:
        of = r.choice(["of", "for", "of"])
        s = r.choice([f"The {what} {of} the {thing} is {c}.", f"The {what} {of} the {thing} is {c}.", f"Remember that the {what} {of} the {thing} is {c}.", f"Note: the {what} {of} the {thing} is {c}.", f"{c} is the {what} {of} the {thing}.", f"IMPORTANT: The {what} {of} the {thing} is {c}.", f"By the way, the {what} {of} the {thing} is {c}.", f"They changed the {what} {of} the {thing} to {c}.", f"Use {c} as the {what} {of} the {thing}.",
                      f"For the {thing}, the {what} is {c}.", f"The {thing} has the {what} {c}.", f"The {thing}: its {what} is {c}.", f"As {who} said, the {what} {of} the {thing} is {c}.", f"Do not forget: the {what} {of} the {thing} is {c}."])
        q = ask + r.choice([f"what is the {what} {of} the {thing}", f"what's the {what} {of} the {thing}", f"tell me the {what} {of} the {thing}", f"which {what} does the {thing} have", f"the {what} {of} the {thing}?", f"what was the {what} {of} the {thing}", f"give me the {what} {of} the {thing}",
                            f"what {what} does the {thing} have", f"which {what} belongs to the {thing}", f"for the {thing}, what is the {what}", f"find the {what} {of} the {thing}", f"i need the {what} {of} the {thing}", f"what {what} was given for the {thing}"])
        return s, q, f"The {what} {of} the {thing} is {c}."
    if x == 3:
        s = r.choice([f"The {what} is {c}.", f"The {what} is {c}.", f"The {what} is: {c}", f"Please remember this {what}: {c}.", f"The {what} has been set to {c}.", f"Remember: the {what} is {c}.", f"By the way, the {what} is {c}.", f"{upper_first(what)}: {c}.", f"Our {what} is {c}.", f"It was decided that the {what} is {c}.", f"{c} is the {what}.", f"IMPORTANT: the {what} is {c}.", f"One of the special {what}s for {where} is: {c}.",
                      f"Keep in mind that the {what} is {c}.", f"The new {what} is {c}.", f"Somebody wrote that the {what} is {c}.", f"Today's {what} is {c}.", f"We agreed on {c} as the {what}.", f"{who} told me that the {what} is {c}.", f"Write this down: the {what} is {c}."])
        if where in s:
            return s, ask + r.choice([f"what is the special {what} for {where}", f"what is the special {what} for {where} mentioned in the text"]), f"The special {what} for {where} is {c}."
        return s, ask + r.choice([f"what is the {what}", f"what was the {what}", f"tell me the {what}", f"what's the {what}", f"what is the {what} mentioned above", f"according to the text, what is the {what}", f"do you remember the {what}", f"can you find the {what}", f"what {what} is given in the text", f"what is the {what} in the text", f"which {what} was mentioned", f"repeat the {what}", f"the {what}?", f"give me the {what}", f"can you tell me the {what}", f"i need the {what}", f"please state the {what}", f"look for the {what}", f"find the {what} in the text above",
                                  f"what did the text say the {what} is", f"what is the {what} that was mentioned", f"which {what} does the text give", f"what {what} did you read", f"the text mentions the {what}. what is it", f"what is the {what} again", f"do you know the {what}", f"where in the text is the {what}, and what is it", f"{what}"]), f"The {what} is {c}."
    if x == 4:
        y = r.choice([0, 0, 1, 2])
        if y == 1:
            year = r.randint(1850, 2015)
            return r.choice([f"{who} was born in {year}.", f"The year in which {who} was born is {year}."]), ask + r.choice([f"when was {who} born", f"in which year was {who} born", f"what year was {who} born"]), f"{who} was born in {year}."
        if y == 2:
            lang = r.choice("French Spanish German Italian Chinese Arabic Polish Dutch Greek Latin Hindi Swedish Korean Turkish".split())
            return r.choice([f"{who} speaks {lang}.", f"{who} speaks {lang} at home."]), ask + r.choice([f"which language does {who} speak", f"what language does {who} speak"]), f"{who} speaks {lang}."
        return r.choice([f"{who} lives in {where}.", f"{who} moved to {where}.", f"The home of {who} is in {where}."]), ask + r.choice([f"where does {who} live", f"in which city does {who} live", f"where is the home of {who}", f"which place does {who} live in", f"what city is {who} living in"]), f"{who} lives in {where}."
    if x == 5:
        kind, value = r.choice([("food", r.choice(FOODS)), ("colour", r.choice(COLOR)), ("number", str(number(r))), ("animal", r.choice(PETS)), ("hobby", r.choice(HOBBIES)), ("city", where), ("book", thing), ("word", r.choice(WORDS)), ("song", thing)])
        return r.choice([f"{who}'s favourite {kind} is {value}.", f"The favourite {kind} of {who} is {value}."]), ask + r.choice([f"what is {who}'s favourite {kind}", f"what is the favourite {kind} of {who}", f"which {kind} does {who} like best"]), f"The favourite {kind} of {who} is {value}."
    if x == 6:
        job = r.choice(JOBS)
        return r.choice([f"{who} works as {article(job)}.", f"{who} is {article(job)}."]), ask + r.choice([f"what is the job of {who}", f"what does {who} do for a living", f"what does {who} work as", f"which job does {who} have", f"what is {who}'s job", f"what is the profession of {who}"]), f"{who} works as {article(job)}."
    if x == 7:
        spot = r.choice(["under", "behind", "inside", "next to", "on top of"]) + f" the {r.choice(ADJ)} {r.choice(OBJECTS)}"
        return r.choice([f"The {thing} is {spot}.", f"{who} put the {thing} {spot}.", f"The {thing} is hidden {spot}."]), ask + r.choice([f"where is the {thing}", f"where can i find the {thing}", f"where is the {thing} hidden", f"in what place is the {thing}"]), f"The {thing} is {spot}."
    if x == 8:
        t, kind = clock(r), r.choice(["train", "train", "bus", "ferry", "plane"])
        return f"The {kind} to {where} leaves at {t}.", ask + r.choice([f"when does the {kind} to {where} leave", f"at what time does the {kind} to {where} leave", f"when is the {kind} to {where}"]), f"The {kind} to {where} leaves at {t}."
    if x == 9:
        n, items = number(r), r.choice(OBJECTS + NOUNS[:300]) + "s"
        return r.choice([f"{who} has {n} {items}.", f"{who} has {n} {items}.", f"{who} owns {n} {items}."]), ask + r.choice([f"how many {items} does {who} have", f"what number of {items} does {who} have", f"how many {items} are there with {who}", f"how many {items} has {who}"]), f"{who} has {n} {items}."
    if x == 10:
        kind = r.choice(["phone number", "room number", "email", "nickname", "user name", "account number", "boss", "neighbour", "teacher", "dog", "street", "project", "doctor", "locker", "password", "birthday", "badge", "cat", "best friend", "license", "seat", "desk", "team", "manager", "code name"])
        value = name(r) if kind in ("boss", "neighbour", "teacher", "dog", "nickname", "doctor", "cat", "best friend", "manager") else f"{r.randint(1, 28)} {r.choice(MONTH_NAMES)}" if kind == "birthday" else code(r)
        return r.choice([f"The {kind} of {who} is {value}.", f"{who}'s {kind} is {value}."]), ask + r.choice([f"what is the {kind} of {who}", f"what is {who}'s {kind}", f"tell me the {kind} of {who}", f"who or what is the {kind} of {who}"]), f"The {kind} of {who} is {value}."
    if x == 12:
        return f"My {what} is {c}.", ask + r.choice([f"what is my {what}", f"tell me my {what}", f"what was my {what}", f"do you know my {what}", f"which {what} did i mention"]), f"Your {what} is {c}."
    if x == 13:
        event, day, t = r.choice([f"meeting with {who}", f"{thing} meeting", f"party of {who}", f"dinner with {who}", f"{thing} exam", f"appointment with {who}", f"concert in {where}"]), r.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()), clock(r)
        when = r.choice([f"on {day} at {t}", f"on {day}", f"on {r.randint(1, 28)} {r.choice(MONTH_NAMES)}", f"at {t}"])
        return r.choice([f"The {event} is {when}.", f"Remember that the {event} is {when}."]), ask + r.choice([f"when is the {event}", f"at what time is the {event}" if when.startswith("at") else f"on which day is the {event}", f"when will the {event} be"]), f"The {event} is {when}."
    if x == 14:
        price = r.choice([f"{r.randint(2, 999)} euros", f"{r.randint(2, 999)} dollars", f"{r.randint(2, 99)} coins"])
        return r.choice([f"The {thing} costs {price}.", f"You pay {price} for the {thing}, so the {thing} costs {price}."]), ask + r.choice([f"how much does the {thing} cost", f"what does the {thing} cost", f"what is the price of the {thing}", f"how much is the {thing}"]), f"The {thing} costs {price}."
    a = r.choice(OBJECTS + JOBS + NOUNS[:600])
    value = r.choice([f"{r.choice(ADJ)} {r.choice(OBJECTS)}", r.choice(COLOR), code(r), name(r)])
    return f"The {a} of {where} is {value}.", ask + r.choice([f"what is the {a} of {where}", f"tell me the {a} of {where}", f"who or what is the {a} of {where}"]), f"The {a} of {where} is {value}."


class Tasks:
    def __init__(self, real_path=None):
        self.chat = Chat()
        self.real = []
        if real_path and os.path.exists(real_path):
            with lzma.open(real_path, "rt", encoding="utf-8") as f:
                self.real = [p for p in f.read().split("\n\n") if p]

    def filler(self, r, chars, avoid=()):
        """Text that says nothing about the subjects in `avoid` (lower case)."""
        style, out, size = r.random(), [], 0
        style = 0 if style < 0.4 and self.real else 1 if style < 0.6 else 2 if style < 0.78 else 3 if style < 0.86 else 4
        at = r.randrange(len(self.real)) if style == 0 else 0
        while size < chars:
            if style == 0:
                s = self.real[at % len(self.real)][:600]
                at += 1
            elif style == 1:
                s = self.chat.tale(r, r.choice(JOBS), r.choice(OBJECTS), name(r))
            elif style == 2:
                s = self.chat.sentence(r)
            elif style == 3:
                s = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
            else:
                s = r.choice([self.chat.sentence(r), self.chat.single(r)[1], fact(r)[0]])
            if any(a in s.lower() for a in avoid):
                size += 1
                continue
            out.append(s)
            size += len(s) + 1
        return out

    def needle(self, r, room):
        count = r.choice([1, 1, 2, 3, 4, 6, 8, 12, 16] + ([24] if room > 3000 else []))
        facts, seen = [], set()
        what, thing = what_of(r), thing_of(r)
        alike = r.random() < 0.35  # several kinds of fact about one thing, and several things of one kind
        while len(facts) < count:
            x = r.random()
            f = fact(r, what if alike and x < 0.3 else None, thing if alike and 0.3 <= x < 0.5 else None)
            about = subject(f[2])
            if not any(about in s or s in about for s in seen):
                seen.add(about)
                facts.append(f)
        asked = r.sample(facts, 1 if r.random() < 0.35 else min(len(facts), r.randint(1, 12)))
        chars = max(200, int((room - 60 - 45 * len(asked) - 25 * count) * CHARS))
        fill = self.filler(r, chars, [subject(f[2]) for f in facts])
        cuts = sorted(r.randrange(len(fill) + 1) for _ in facts)
        sep = r.choice([" ", " ", "\n", "\n\n"])
        parts, j = [], 0
        for i in range(len(fill) + 1):
            while j < len(cuts) and cuts[j] == i:
                parts.append((facts[j][0] + sep, 0))
                j += 1
            if i < len(fill):
                parts.append((fill[i] + sep, 2))
        qs = [(disguise(q, r), a) for _, q, a in asked]
        if r.random() < 0.03:
            s, q, a = fact(r)
            if not any(subject(a) in s or s in subject(a) for s in seen) and not any(subject(a) in x.lower() for x in fill):
                qs.append((disguise(q, r), "The text does not say that."))
        if r.random() < 0.08:  # plain completion, no chat
            p = Pieces()
            p.special(BOS)
            p.content(parts)
            for s, _, a in asked:
                p.text("\n" + a, 1)
            p.special(EOS, 1)
            return p
        if r.random() < 0.65:  # the text need not end in the separator
            parts[-1] = (parts[-1][0].rstrip(), parts[-1][1])
        gap = r.choice([""] + ["\n\n"] * 7 + ["\n", "\n", " ", "\n\n\n", "\n---\n", "\n\n---\n\n"])
        x = r.random()
        q0, a0 = qs[0]
        if x < 0.66:
            first = [{"role": "user", "content": [(r.choice(["", "", "Read this text.\n\n", "Here is a text:\n\n", "Remember what I tell you. "]), 0)] + parts + [(gap + r.choice(["", "", "", "Question: ", "Now answer: ", "Based on the text, "]) + q0, 0)]}]
        elif x < 0.79:
            first = [{"role": "user", "content": [(q0 + r.choice(["\n\n", " Here is the text:\n\n", "\n\nText: "]), 0)] + parts}]
        elif x < 0.93:
            first = [{"role": "system", "content": parts}, {"role": "user", "content": q0}]
        else:  # only a plain order to wait gets no answer from the text; it stands at the end, for what comes last is asked
            wait = r.choice(["Read this text. I will ask later.", "Here is a text. Wait for my question.", "Just read this for now, please.", "Read the text above and say when you are done.", "No question yet, just read it."])
            first = [{"role": "user", "content": parts + [("\n\n" + wait, 0)]}, {"role": "assistant", "content": "I have read the text."}, {"role": "user", "content": q0}]
        messages = first + [{"role": "assistant", "content": a0}]
        for q, a in qs[1:]:
            messages += [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
        conv = {"messages": messages}
        if r.random() < 0.55:
            conv["thinking"] = True
            messages[-1]["reasoning"] = "I look it up in the text."
        return conv

    def lookup(self, r, room):
        n = max(3, min(r.choice([5, 10, 20, 40, 80, 200, 500]), int(room / 14)))
        keys = list({r.choice([syllable_word(r), full_name(r), f"{r.choice(ADJ)} {r.choice(OBJECTS)}", f"item {r.randint(1, 9999)}"]) for _ in range(n)})
        r.shuffle(keys)
        table = {k: code(r) for k in keys}
        style = r.randrange(4)
        if style == 0:
            text = "\n".join(f"{k}: {v}" for k, v in table.items())
        elif style == 1:
            text = json.dumps(table)
        elif style == 2:
            text = "\n".join(f"{k} = {v}" for k, v in table.items())
        else:
            text = "| key | value |\n| --- | --- |\n" + "\n".join(f"| {k} | {v} |" for k, v in table.items())
        messages = [{"role": "user", "content": [(text, 2)]}]
        for i, k in enumerate(r.sample(keys, min(len(keys), r.randint(1, 6)))):
            q = r.choice([f"what is the value of {k}", f"value of {k}?", f"look up {k}", f"{k}?", f"which value belongs to {k}", f"give me the value for {k}", f"what is {k}"])
            if i == 0:
                messages[0]["content"].append(("\n\n" + disguise(q, r), 0))
            else:
                messages.append({"role": "user", "content": disguise(q, r)})
            messages.append({"role": "assistant", "content": table[k]})
        return {"messages": messages}

    def copying(self, r, room):
        x = r.random()
        if x < 0.35:
            n = r.randint(3, max(4, min(60, int(room / 8))))
            items = [r.choice([syllable_word(r), r.choice(OBJECTS), str(number(r))]) for _ in range(n)]
            text = r.choice([", ", " ", "\n"]).join(items)
            q, a = r.choice(["Copy this text:\n", "Repeat this list exactly: ", "Write the same again: ", "Repeat after me: "]) + text, text
        elif x < 0.55:
            start, step, n = r.randint(0, 90), r.choice([1, 1, 2, 3, 5, 10, -1]), r.randint(4, 8)
            seq = [start + step * i for i in range(n + 5)]
            q = r.choice(["Continue the sequence: ", "What comes next? ", "Continue this list with five numbers: ", "Next numbers: "]) + ", ".join(map(str, seq[:n]))
            a = ", ".join(map(str, seq[n:]))
        elif x < 0.75:
            unit = [r.choice([syllable_word(r), r.choice(OBJECTS), r.choice(COLOR)]) for _ in range(r.randint(2, 4))]
            k = r.randint(2, 4)
            q = r.choice(["Continue the pattern: ", "Go on with this pattern: "]) + " ".join(unit * k)
            a = " ".join(unit * 2)
        elif x < 0.9:
            lines = [self.chat.sentence(r) for _ in range(r.randint(2, 6))]
            i = r.randrange(len(lines))
            q, a = "\n".join(f"{j + 1}. {s}" for j, s in enumerate(lines)) + "\n\n" + r.choice([f"What is line {i + 1}?", f"Repeat line {i + 1}.", f"Give me sentence {i + 1}."]), lines[i]
        else:
            a0, b0 = r.randint(1, 20), r.randint(1, 5)
            q, a = f"Count from {a0} to {a0 + b0 + 4}.", ", ".join(map(str, range(a0, a0 + b0 + 5)))
        return {"messages": [{"role": "user", "content": [(q, 2)]}, {"role": "assistant", "content": a}]}

    def text(self, r, room):
        p, size = Pieces(), 0
        p.special(BOS)
        at = r.randrange(len(self.real)) if self.real else 0
        limit = min(room, r.choice([200, 400, 800])) * CHARS
        while size < limit and self.real:
            s = self.real[at % len(self.real)]
            p.text(s + "\n\n")
            size += len(s)
            at += 1
        p.special(EOS)
        return p

    def conversation(self, kind, r, room):
        """A conversation of a long-text kind; a needle that is plain completion is left out."""
        while True:
            made = {"needle": self.needle, "lookup": self.lookup, "copy": self.copying}[kind](r, room)
            if isinstance(made, dict):
                return made

    def document(self, kind, r, room):
        if kind == "text":
            return self.text(r, room)
        if kind == "chat":
            made = self.chat.conversation(r)
        elif kind == "tool":
            made = tool_conversation(r, self.chat)
        elif kind == "json":
            made = json_conversation(r, self.chat)
        else:
            made = {"needle": self.needle, "lookup": self.lookup, "copy": self.copying}[kind](r, room)
        return render(made) if isinstance(made, dict) else made
