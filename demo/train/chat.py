"""Everyday conversation: single questions from tables and grammars, and conversations built from them.

Each maker returns (question, answer, thought). `Chat.conversation` joins them into turns, adds personas,
facts to remember, thinking, and never emits a held-out prompt.
"""

import json
import os
from random import Random

import kb
from grammar import (ADJ, COLOR, FOODS, FIRST, HERE, HOBBIES, JOBS, OBJECTS, MACROS, PETS, PLACES, article, code, disguise, expand,
                     full_name, held_out, key, listing, name, number, NUMBERS, place, read_asked, read_chat, slip, syllable_word, upper_first)
from daily import Daily
from home import PRIVATE, Home
from known import KNOWN, Known
from long_talk import Long, casual, headless, sentences
from open_talk import Open, plural

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()


# how answers to trouble begin: the question may add a plea for advice
SOLACE = ("I am sorry to hear", "I am very sorry for", "I am sorry, ", "That is a normal", "That sounds tiring", "Try to go to bed", "Oh no", "That is annoying", "That is a pity", "I understand that this", "Everybody makes", "Be yourself")


class Chat:
    def __init__(self):
        with open(os.path.join(HERE, "data/facts.json"), encoding="utf-8") as f:
            self.facts = json.load(f)
        self.entries, self.talk, self.quiz, self.lately, self.clauses, self.plain = (read_chat(f"{n}.txt") for n in ("chat", "talk", "quiz", "daily", "long", "home"))
        self.asked = read_asked()
        self.banned = {key(p) for name in ("everyday.txt", "blind.txt", "blind2.txt", "blind3.txt", "blind4.txt") for p in held_out(name)}
        known = self.known = Known()
        self.animals, self.opposites, self.words = kb.animals(known.animal_rows), kb.pairs(), kb.words()
        self.elements = kb.elements()
        self.uses = {**kb.USES, **known.uses}
        words = {w for w, _ in self.facts["concrete"] + self.facts["abstract"] + self.facts["verb"] + self.facts["adjective"]}
        words |= set(self.uses) | set(self.animals) | {x.split()[-1] for x, _ in known.known["D"]} | set(known.jobs)
        taught = set(self.animals) | {x.split()[-1] for x, _ in known.known["D"]} | set(known.jobs)
        for pool in ("concrete", "abstract"):
            self.facts[pool] = [p for p in self.facts[pool] if p[0] not in taught]
        words |= set(self.opposites) | {w for pair in known.synonyms + known.rhymes + known.plurals + known.pasts for w in pair}
        words |= {w.lower() for c in self.facts["countries"] for w in (c["name"], c["capital"])} | {x.split()[-1].lower() for x, _ in known.known["L"]}
        self.rare = [w for w in self.facts["rare"] if w not in words]
        things = list(self.animals) * 2 + list(self.uses) + list(kb.COLOURS) + [x.split(" ", 1)[1] for x, _ in known.known["D"] if x.startswith(("a ", "an "))]
        explained = {w.rstrip("s") for x, _ in known.known["H"] for w in x.split()}
        self.open = Open(things, words, explained)
        self.long = Long(self.open)
        home = self.home = Home(self.open, self.animals)
        written = [self.small_talk] + [self.talking] * 4 + [self.quizzing] * 3 + [self.daily] * 5 + [self.at_home] * 5 + [self.plainly] * 5
        made = [known.thing, known.person, known.reason, known.works, known.where, known.job, self.use, self.animal, self.country, self.name_some, self.colour] * 2
        self.more = None
        more = self.more = Daily(self.open, written, made, self.entries + self.talk + self.quiz + self.lately + self.clauses, self.plain + [([q], [a]) for q, a in self.asked], key)
        self.open.usual, self.open.is_known = more.usual["noun"], more.is_known
        self.makers = [
            (26, self.small_talk), (95, self.talking), (34, self.quizzing), (140, self.daily), (80, self.in_clauses), (225, self.open.any), (190, more.changed), (45, more.spliced), (16, more.mixed), (8, home.logic), (26, self.long.steps), (18, self.long.parts), (18, more.money), (40, more.filled), (20, more.numbers), (16, more.device), (5, more.starts), (24, known.thing), (9, known.person), (15, known.reason), (13, known.works), (5, known.idiom), (5, known.difference), (4, known.state), (3, lambda r: known.letter(r, list(self.animals))), (2, known.prime), (3, known.agree), (3, known.later), (7, known.where), (5, known.job),
            (3, lambda r: known.tool_for(r, self.uses)), (5, known.bigger), (8, known.word_form), (3, lambda r: known.member(r, kb.LISTS)), (7, known.half), (3, known.number_word),
            (190, self.at_home), (230, self.plainly), (34, home.worded), (22, home.calendar), (20, home.scale), (16, home.able), (24, home.members), (12, home.example), (3, home.counts), (7, home.letter), (8, home.together), (6, home.pets), (8, home.works), (10, home.tint), (26, home.kitchen), (26, home.note), (12, home.wish), (16, home.naming), (9, home.in_sentence), (26, home.private), (14, home.future),
            (2, lambda r: known.group(r, kb.LISTS)), (12, self.meaning), (9, self.country), (10, self.animal), (3, self.colour), (5, self.opposite),
            (6, self.name_some), (4, self.unit), (2, self.element), (7, self.use), (9, self.translate), (20, self.arithmetic),
            (7, self.word_problem), (6, self.ability), (4, self.body), (3, self.compare), (4, self.calendar), (4, self.echo), (3, self.which),
            (4, self.summary), (3, self.order), (9, self.story), (7, self.poem), (4, self.rewrite), (3, self.extract),
        ]
        self.weights = [w for w, _ in self.makers]
        self.exact = {self.echo, self.extract, self.summary, self.order, self.which, self.rewrite, self.translate, self.arithmetic, self.word_problem, known.half, more.money, more.numbers, more.starts, home.worded, home.calendar, home.letter, home.together, home.pets, home.logic, home.note, home.wish, home.in_sentence, known.word_form, known.later, known.prime, known.agree, self.long.steps, self.long.parts}
        self.honest = {self.open.any, more.changed, more.spliced}  # most of what is unknown comes in long sentences
        self.with_text = {self.echo, self.extract, self.summary, self.order, self.which, self.rewrite, known.agree}  # their prompts hold a text of their own

    # ---- one question ------------------------------------------------------------------------

    def single(self, r):
        while True:
            make = r.choices(self.makers, self.weights)[0][1]
            q, a, thought = make(r)
            if make not in self.with_text:
                q = headless(q, r)
                q = self.long.around(q, a, r) if r.random() < (0.5 if make in self.honest else 0.3) else q
                q = casual(q, r) if r.random() < 0.16 and make not in self.exact else q
            q = upper_first(q) if make == self.echo else sentences(disguise(q, r), r)
            q = q if make in self.exact or any(x.isdigit() for x in q) else slip(q, r)
            if key(q) not in self.banned:
                return q, a, thought

    def small_talk(self, r):
        qs, answers = r.choice(self.entries)
        return expand(r.choice(qs), r), expand(r.choice(answers), r), None

    def talking(self, r):
        qs, answers = r.choice(self.talk)
        q, a = expand(r.choice(qs), r), expand(r.choice(answers), r)
        if a.startswith(SOLACE) and q.split()[0] in ("i", "i'm", "i've", "my", "we", "someone") and "?" not in q and r.random() < 0.3:
            q = q.rstrip(".! ") + r.choice([". ", ", ", "! ", " and ", ". so "]) + r.choice(["any advice", "any tips", "what should i do", "what can i do", "help", "can you help me", "do you have any advice", "what would you do", "i do not know what to do",
                                                                                            "what now", "how can i deal with it", "it is so hard", "i am so sad", "it is not fair", "i feel bad"]) + r.choice(["", "?", "."])
        return q, a, None

    def daily(self, r):
        qs, answers = r.choice(self.lately)
        return expand(r.choice(qs), r), expand(r.choice(answers), r), None

    def at_home(self, r):
        while True:
            qs, answers = r.choice(self.plain)
            q, a = expand(r.choice(qs), r), expand(r.choice(answers), r)
            if not self.more or not self.more.said_before(q):
                return q, a, None

    def plainly(self, r):
        q, a = r.choice(self.asked)
        return q if r.random() < 0.5 else q[:1].lower() + q[1:] if not q.startswith(("I ", "I'")) else q, a, None

    def in_clauses(self, r):
        qs, answers = r.choice(self.clauses)
        return expand(r.choice(qs), r), expand(r.choice(answers), r), None

    def quizzing(self, r):
        qs, answers = r.choice(self.quiz)
        return expand(r.choice(qs), r), expand(r.choice(answers), r), None

    def meaning(self, r):
        pool = r.choices(["concrete", "abstract", "verb", "adjective"], [70, 14, 9, 7])[0]
        word, gloss = r.choice(self.facts[pool])
        if pool in ("verb", "adjective"):
            to = "to " if pool == "verb" else ""
            q = r.choice([f"what does {word} mean", f"what does it mean {to}{word}" if to else f"what does the word {word} mean",
                          f"define {word}", f"what is the meaning of {word}", f"explain the word {word}", f"meaning of {word}",
                          f"what does \"{word}\" mean", f"can you define {word}"])
            return q, f"{upper_first(to + word)} means: {gloss}.", KNOWN
        one = article(word)
        q = r.choice([f"what is {one}", f"what is {one}", f"what's {one}", f"what is {word}", f"what does {word} mean", f"define {word}",
                      f"explain {word}", f"explain what {one} is", f"tell me what {one} is", f"do you know what {one} is", f"what are {word}s",
                      f"describe {one}", f"can you explain {word}", f"what exactly is {one}", f"tell me about {word}", f"tell me about the {word}",
                      f"explain {one} to a child", f"explain {one} like i am five", f"what on earth is {one}", f"explain to me like i'm five what {one} is", f"what the heck is {one}", f"what is meant by {word}", f"could you explain what {one} is", f"what do you know about {word}s",
                      f"give me a definition of {word}", f"what kind of thing is {one}", f"i want to know what {one} is", f"what is the {word}"])
        if gloss.split()[0] in ("a", "an", "the", "any", "one", "either", "each"):
            a = f"{upper_first(one)} is {gloss}."
        else:
            a = f"{upper_first(word)}: {gloss}."
        return q, a, KNOWN

    def country(self, r):
        c = r.choice(self.facts["countries"])
        n = c["name"]
        ways = [("capital", 5), ("capital_of", 2), ("region", 2), ("people", 2), ("inside", 2)] + [(k, 2) for k in ("currency", "language") if c[k]]
        way = r.choices([w for w, _ in ways], [x for _, x in ways])[0]
        if way == "capital":
            q = r.choice([f"what is the capital of {n}", f"what's the capital city of {n}", f"capital of {n}", f"which city is the capital of {n}",
                          f"name the capital of {n}", f"do you know the capital of {n}", f"{n} capital", f"tell me the capital of {n}",
                          f"what is {n}'s capital", f"the capital of {n} is", f"where is the government of {n}"])
            a = r.choice([f"The capital of {n} is {c['capital']}.", f"The capital of {n} is {c['capital']}."])
        elif way == "capital_of":
            q = r.choice([f"which country has the capital {c['capital']}", f"{c['capital']} is the capital of which country",
                          f"in which country is {c['capital']}", f"where is {c['capital']}", f"what country is {c['capital']} in",
                          f"tell me about {c['capital']}", f"is {c['capital']} a capital"])
            a = f"{c['capital']} is the capital of {n}."
        elif way == "region":
            q = r.choice([f"where is {n}", f"on which continent is {n}", f"which part of the world is {n} in", f"where can i find {n}",
                          f"where is {n} located", f"tell me about {n}", f"what do you know about {n}", f"is {n} in {c['region']}"])
            a = f"{n} is a country in {c['part'] or c['region']}. Its capital is {c['capital']}."
        elif way == "people":
            q = r.choice([f"how many people live in {n}", f"what is the population of {n}", f"population of {n}", f"how many inhabitants does {n} have", f"how many people are there in {n}"])
            m = c["population"]
            a = f"About {round(m / 1e6) if m > 5e6 else round(m / 1e6, 1)} million people live in {n}."
        elif way == "inside":
            o = c if r.random() < 0.5 else r.choice(self.facts["countries"])
            q = r.choice([f"is {c['capital']} the capital of {o['name']}", f"is {c['capital']} in {o['name']}", f"{c['capital']} is in {o['name']}, right"])
            a = f"{'Yes' if o is c else 'No'}, {c['capital']} is the capital of {n}."
        elif way == "currency":
            q = r.choice([f"what is the currency of {n}", f"which money is used in {n}", f"how do people pay in {n}", f"what money do people use in {n}", f"what money do they use in {n}", f"what do people pay with in {n}", f"which currency do they have in {n}", f"with what do you pay in {n}", f"what is the money in {n} called", f"what currency does {n} use",
                          f"{n} currency", f"what money do they have in {n}"])
            a = f"The currency of {n} is {c['currency']}."
        else:
            q = r.choice([f"what language is spoken in {n}", f"which language do they speak in {n}", f"what do people speak in {n}",
                          f"what is the language of {n}", f"official language of {n}", f"which languages are spoken in {n}",
                          f"what is the main language in {n}", f"do they speak {c['language']} in {n}"])
            a = f"People in {n} speak {c['language']}."
        return q, a, KNOWN

    def animal(self, r):
        n = r.choice(list(self.animals))
        x = self.animals[n]
        way, one = r.randrange(7), article(n)
        thing = {"crab": "legs", "octopus": "arms"}.get(n, "legs")
        if way == 0:
            q = r.choice([f"how many legs does {one} have", f"how many legs do {n}s have", f"number of legs of {one}", f"how many legs has {one}",
                          f"does {one} have legs", f"legs of {one}", f"can you tell me how many legs {one} has", f"on how many legs does {one} walk"])
            a = f"{upper_first(one)} has {NUMBERS[x['legs']] if x['legs'] else 'no'} {thing}."
        elif way == 1:
            q = r.choice([f"what kind of animal is {one}", f"is {one} a mammal", f"is {one} a bird", f"is {one} an insect", f"is {one} a fish", f"is {one} a reptile",
                          f"what type of animal is {one}", f"which class does {one} belong to", f"are {n}s mammals"])
            a = f"{upper_first(one)} is {article(x['kind'])}."
            if q.startswith(("is ", "are ")):
                said = q.split()[-1].rstrip("s")
                a = ("Yes, " if x["kind"] == said else "No, ") + a[0].lower() + a[1:]
        elif way == 2:
            q = r.choice([f"what is a baby {n} called", f"what is a young {n} called", f"what do you call a baby {n}", f"name of a baby {n}",
                          f"what's the word for a young {n}", f"how do you call the young of {one}"])
            a = f"A young {n} is called {article(x['young'])}."
        elif way == 3:
            q = r.choice([f"what does {one} eat", f"what do {n}s eat", f"what is the food of {one}", f"what should i feed {one}", f"do {n}s eat {x['food']}",
                          f"what do {n}s like to eat", f"what does {one} live on"])
            a = f"{upper_first(n)}s eat {x['food']}." if n not in ("sheep", "deer", "fish", "salmon", "trout", "goldfish", "mouse", "goose", "wolf", "ostrich", "octopus", "fox", "fly", "butterfly") else f"{upper_first(one)} eats {x['food']}."
        elif way == 4 and x["sound"] != "nothing":
            q = r.choice([f"what sound does {one} make", f"what noise does {one} make", f"what does {one} say", f"how does {one} sound", f"what do {n}s sound like"])
            a = f"{upper_first(one)} {x['sound']}."
        elif way == 5:
            q = r.choice([f"where does {one} live", f"where do {n}s live", f"where can i find {one}", f"what is the home of {one}", f"in what place do {n}s live"])
            a = f"You can find {one} here: {x['home']}."
        else:
            q = r.choice([f"tell me about {n}s", f"tell me something about {one}", f"what do you know about {n}s", f"describe {one}", f"what is {one} like",
                          f"give me a fact about {n}s"])
            a = f"{upper_first(one)} is {article(x['kind'])}. It has {NUMBERS[x['legs']] if x['legs'] else 'no'} {thing} and eats {x['food']}."
        return q, a, KNOWN

    def colour(self, r):
        thing, c = r.choice(list(kb.COLOURS.items()))
        w = r.choice(["color", "colour"])
        q = r.choice([f"what {w} is {r.choice(['the', article(thing).split()[0]])} {thing}", f"which {w} does the {thing} have", f"what is the {w} of {article(thing)}",
                      f"what {w} are {thing}s", f"tell me the {w} of the {thing}", f"is the {thing} {r.choice(COLOR)}", f"{w} of {thing}"])
        a = f"The {thing} is {c}."
        if q.startswith("is the"):
            a = ("Yes, the " if q.split()[-1] == c else "No, the ") + f"{thing} is {c}."
        return q, a, KNOWN

    def opposite(self, r):
        w, o = r.choice(list(self.opposites.items()))
        q = r.choice([f"what is the opposite of {w}", f"opposite of {w}", f"what's the opposite of \"{w}\"", f"give me the opposite of {w}", f"antonym of {w}",
                      f"which word means the contrary of {w}", f"what is the contrary of {w}", f"the opposite of {w} is", f"name the opposite of {w}"])
        return q, f"The opposite of {w} is {o}.", f"The opposite of {w} is {o}."

    def name_some(self, r):
        names, items = r.choice(list(kb.LISTS.items()))
        what, items = r.choice(names.split("|")), items.split()
        k = r.randint(1, min(5, len(items)))
        n = r.choice([NUMBERS[k], str(k)]) if k > 1 else r.choice(["some", "a few", "some", "examples of"])
        q = r.choice([f"name {n} {what}", f"give me {n} {what}", f"list {n} {what}", f"tell me {n} {what}", f"can you name {n} {what}", f"i need {n} {what}",
                      f"what are {n} {what}", f"write down {n} {what}", f"could you list {n} {what}", f"which {what} do you know", f"show me {n} {what}",
                      f"make a list of {n} {what}"])
        if "which" in q or k == 1:
            k = 3
        chosen = items[:k]
        if r.random() < 0.2:
            q += r.choice([" as a list", " one per line", " in a list", " as bullet points"])
            a = "\n".join(f"- {x}" for x in chosen)
        else:
            a = upper_first(listing(chosen)) + "."
        return q, a, f"The user wants {NUMBERS[k]} {what}."

    def unit(self, r):
        big, small, n = r.choice(kb.UNITS)
        k = r.choice([1, 1, 2, 2, 3, 4, 5, 10])
        if k == 1:
            q = r.choice([f"how many {small} are in {article(big)}", f"how many {small} does {article(big)} have", f"{small} in {article(big)}",
                          f"convert one {big} to {small}", f"how many {small} make {article(big)}", f"1 {big} in {small}"])
            a = f"{upper_first(article(big))} has {n} {small}."
        else:
            many = {"foot": "feet", "century": "centuries", "dozen": "dozen", "millennium": "millennia"}.get(big, big + "s")
            k0, k = k, r.choice([k, NUMBERS[k]])
            q = r.choice([f"how many {small} are in {k} {many}", f"how many {small} do {k} {many} have", f"{small} in {k} {many}", f"convert {k} {many} to {small}", f"what is {k} {many} in {small}", f"{k} {many} in {small}"])
            a = f"{upper_first(str(k))} {many} are {k0 * n} {small}."
        return q, a, f"One {big} has {n} {small}."

    def element(self, r):
        n, s, z = r.choice(self.elements)
        way = r.randrange(3)
        if way == 0:
            q = r.choice([f"what is the symbol of {n}", f"chemical symbol for {n}", f"what is the chemical symbol of {n}", f"symbol for {n}"])
            a = f"The chemical symbol of {n} is {s}."
        elif way == 1:
            q = r.choice([f"what is the atomic number of {n}", f"atomic number of {n}", f"which number does {n} have in the periodic table"])
            a = f"The atomic number of {n} is {z}."
        else:
            q = r.choice([f"which element has the symbol {s}", f"what does {s} stand for in chemistry", f"which element is {s}"])
            a = f"{s} is the chemical symbol of {n}."
        return q, a, KNOWN

    def use(self, r):
        n, use = r.choice(list(self.uses.items()))
        one = article(n) if not n.endswith(("ses", "ors", "ars", "ers")) and n not in ("soap", "chalk", "glue", "shampoo", "paint", "sandpaper", "sunscreen", "tape") or n in ("ruler", "lighter") else n
        q = r.choice([f"what is {one} for", f"what is {one} used for", f"what do you use {one} for", f"why do people use {one}", f"what can i do with {one}",
                      f"what's the use of {one}", f"what is the purpose of {one}", f"what do i need {one} for", f"how do people use {one}", f"why do we need {one}"])
        return q, f"You use {one} {use}.", KNOWN

    def translate(self, r):
        row = r.choice(self.words)
        i = r.randrange(4)
        lang, w = kb.LANGUAGES[i], row[i + 1]
        e = row[0]
        if r.random() < 0.75:
            quote = r.choice(['"', "", "'"])
            q = r.choice([f"how do you say {quote}{e}{quote} in {lang}", f"what is {quote}{e}{quote} in {lang}", f"translate {quote}{e}{quote} to {lang}",
                          f"translate {quote}{e}{quote} into {lang}", f"{lang} for {quote}{e}{quote}", f"what is the {lang} word for {quote}{e}{quote}",
                          f"how would you say {e} in {lang}", f"{e} in {lang}", f"say {quote}{e}{quote} in {lang}"])
            return q, f'"{upper_first(e)}" in {lang} is "{w}".', f"In {lang}, {e} is {w}."
        quote = r.choice(['"', "", "'"])
        q = r.choice([f"what does {quote}{w}{quote} mean", f"what is {quote}{w}{quote} in English", f"what does {w} mean in English", f"what does the {lang} word {w} mean", f"translate {w} from {lang}", f"translate \"{w}\" to English"])
        return q, f'"{upper_first(w)}" is {lang} for "{e}".', f"{w} is {lang} for {e}."

    def arithmetic(self, r):
        op = r.choices("+-*/", [36, 38, 18, 8])[0]
        if op == "+":
            a, b = r.randint(0, 99), r.randint(0, 99)
            words, res = [f"{a} plus {b}", f"{a} + {b}", f"{a}+{b}", f"{a} and {b} together", f"the sum of {a} and {b}"], a + b
        elif op == "-":
            top = r.choice([20, 99, 99, 200])
            a, b = sorted((100 if r.random() < 0.15 else r.randint(0, top), r.randint(0, min(top, 100) if r.random() < 0.5 else top)), reverse=True)
            words, res = [f"{a} minus {b}", f"{a} - {b}", f"{a}-{b}", f"{a} take away {b}", f"the difference of {a} and {b}"], a - b
        elif op == "*":
            a, b = r.randint(0, 12), r.randint(0, 12)
            if r.random() < 0.2:
                a, b = r.choice([(r.randint(2, 20), 10), (10 * r.randint(2, 9), r.randint(2, 9)), (r.randint(2, 99), 100)])
            words, res = [f"{a} times {b}", f"{a} * {b}", f"{a} x {b}", f"{a} multiplied by {b}", f"the product of {a} and {b}"], a * b
        else:
            b, res = r.randint(1, 12), r.randint(0, 12)
            a = b * res
            words = [f"{a} divided by {b}", f"{a} / {b}", f"{a} : {b}", f"a division of {a} by {b}"]
        w = r.choice(words)
        q = r.choice([f"what is {w}", f"how much is {w}", f"calculate {w}", f"{w} = ", f"{w}", f"compute {w}", f"can you calculate {w}", f"what does {w} make",
                      f"tell me {w}", f"do you know {w}", f"solve {w}", f"please add up: {w}" if op == "+" else f"work out {w}", f"what's {w}"])
        shown = f"{a} {op} {b} = {res}"
        return q.strip(), f"{shown}.", shown

    def word_problem(self, r):
        n, thing = name(r), r.choice(["apples", "books", "coins", "pears", "cards", "marbles", "eggs", "stamps", "flowers", "shells", "cookies", "pencils", "euros", "balls"])
        a, b = r.choice([(r.randint(2, 60), r.randint(1, 40)), (r.randint(2, 20), r.randint(1, 12))])
        if r.random() < 0.5:
            verb = r.choice(["gets", "buys", "finds", "receives", "picks"])
            q = r.choice([f"{n} has {a} {thing} and {verb} {b} more. How many {thing} does {n} have now?",
                          f"if i have {a} {thing} and get {b} more, how many do i have", f"there are {a} {thing} in a box and {b} in another. how many are there in all",
                          f"i buy {a} {thing} on {r.choice(DAYS)} and {b} on {r.choice(DAYS)}. how many {thing} is that"])
            return q, f"{a} + {b} = {a + b}, so it is {a + b} {thing}.", f"This is {a} + {b} = {a + b}."
        a, b = max(a, b) + 1, min(a, b)
        if r.random() < 0.4:
            thing = r.choice([plural(r.choice(self.open.nouns)), "slices", "pieces", "apples", "sweets", "pages", "seats"])
            whole = r.choice([article(r.choice(self.open.nouns)), "a pizza", "a box", "a cake", "a bag", "a class", "my garden"])
            v = r.choice("eat lose sell use break drop take spend throw burn".split())
            q = r.choice([f"if {whole} has {a} {thing} and i {v} {b}, how many are left", f"{whole} has {a} {thing}. {n} {v}s {b}. how many are left", f"i have {a} {thing} and i {v} {b}. how many do i have left", f"from {a} {thing} we {v} {b}. how many {thing} remain",
                          f"{n} had {a} {thing} and lost {b}. how many does {n} have", f"{n} has {a} {thing} and loses {b}. how many does {n} have now"])
            return q, f"{a} - {b} = {a - b}, so {a - b} {thing} are left.", f"This is {a} - {b} = {a - b}."
        verb = r.choice(["gives away", "loses", "sells", "eats", "breaks"]) if thing in ("apples", "pears", "eggs", "cookies") else r.choice(["gives away", "loses", "sells"])
        mine = {"gives away": "give away", "loses": "lose", "sells": "sell", "eats": "eat", "breaks": "break"}[verb]
        q = r.choice([f"{n} has {a} {thing} and {verb} {b}. How many {thing} are left?", f"if i have {a} {thing} and {mine} {b}, how many are left",
                      f"there are {a} {thing} on the table. {n} takes {b} away. how many remain", f"i had {a} {thing} but i {mine} {b} of them. how many do i still have"])
        return q, f"{a} - {b} = {a - b}, so {a - b} {thing} are left.", f"This is {a} - {b} = {a - b}."

    def topic(self, r):
        x = r.random()
        if x < 0.4:
            return r.choice(self.rare)
        if x < 0.55:
            return syllable_word(r)
        if x < 0.7:
            return f"{r.choice(ADJ)} {r.choice(self.rare)}"
        if x < 0.8:
            return f"{r.choice(self.rare)} {r.choice(self.rare)}"
        if x < 0.9:
            return f"{r.choice(self.rare)} of {place(r)}"
        return f"{syllable_word(r)} {r.choice(self.rare)}"

    def ability(self, r):
        """Things a program that writes text cannot do, whatever the verb."""
        v = r.choice("dance cook drive walk run swim jump fly paint smell taste laugh cry drink whistle clap climb ski draw".split()
                     + ["read minds", "see the future", "drive a car", "play chess", "play the piano", "fix my bike", "carry a box", "walk the dog", "make me a coffee", "come to my house", "give me money", "lend me your car", "play football with me", "drive me home", "hug me", "go shopping for me", "clean my room", "feed my cat", "cook dinner for me", "meet me tomorrow", "call a doctor", "ride a horse"])
        q = r.choice([f"can you {v}", f"are you able to {v}", f"could you {v}", f"can you {v} for me", f"please {v}", f"will you {v}", f"i want you to {v}"])
        return q, r.choice(["I cannot do that. I am a program and can only read and write text.", "No, I am a program. I can only read and write text."]), None

    def body(self, r):
        n = r.choice(list(self.animals))
        x, one = self.animals[n], article(n)
        wings = {"bird": "two", "insect": "four"}.get(x["kind"], "no")
        wings = {"bat": "two", "fly": "two", "mosquito": "two", "ant": "no"}.get(n, wings)
        part, count = r.choice([("wings", wings), ("eyes", "eight" if n == "spider" else "two"), ("heads", "one")])
        if n in ("scorpion", "bee", "beetle", "fly", "ant", "butterfly", "crab", "lobster", "mosquito") and part == "eyes":
            part, count = "wings", wings
        q = r.choice([f"how many {part} does {one} have", f"how many {part} do {n}s have", f"does {one} have {part}", f"number of {part} of {one}"])
        return q, f"{upper_first(one)} has {count} {part if count != 'one' else part[:-1]}.", KNOWN

    def compare(self, r):
        a, b = r.sample(range(1, 1000), 2) if r.random() < 0.5 else r.sample(range(1, 100), 2)
        if r.random() < 0.5:
            q = r.choice([f"which is bigger, {a} or {b}", f"what is larger: {a} or {b}", f"is {a} or {b} greater", f"which number is higher, {a} or {b}", f"what is more, {a} or {b}"])
            return q, f"{max(a, b)} is bigger than {min(a, b)}.", f"{max(a, b)} is bigger."
        q = r.choice([f"which is smaller, {a} or {b}", f"what is less: {a} or {b}", f"which number is lower, {a} or {b}", f"is {a} or {b} smaller"])
        return q, f"{min(a, b)} is smaller than {max(a, b)}.", f"{min(a, b)} is smaller."

    def calendar(self, r):
        if r.random() < 0.5:
            i = r.randrange(7)
            after, d = r.random() < 0.5, DAYS[i]
            o = DAYS[(i + (1 if after else -1)) % 7]
            side = "after" if after else "before"
            q = r.choice([f"which day comes {side} {d}", f"what comes {side} {d}", f"what day comes {side} {d}", f"what day is {side} {d}", f"the day {side} {d}", f"if today is {d}, what {'is tomorrow' if after else 'was yesterday'}"])
            return q, f"The day {side} {d} is {o}.", f"The day {side} {d} is {o}."
        i = r.randrange(12)
        if r.random() < 0.4:
            n = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][i]
            q = r.choice([f"how many days does {MONTHS[i]} have", f"how many days are in {MONTHS[i]}", f"days in {MONTHS[i]}"])
            return q, f"{MONTHS[i]} has {n} days" + (", or 29 in a leap year." if i == 1 else "."), f"{MONTHS[i]} has {n} days."
        after = r.random() < 0.5
        side, o = ("after", MONTHS[(i + 1) % 12]) if after else ("before", MONTHS[i - 1])
        q = r.choice([f"which month comes {side} {MONTHS[i]}", f"what comes {side} {MONTHS[i]}", f"what month is {side} {MONTHS[i]}", f"the month {side} {MONTHS[i]}"])
        return q, f"The month {side} {MONTHS[i]} is {o}.", f"The month {side} {MONTHS[i]} is {o}."

    def sentence(self, r):
        who = r.choice([name(r), f"my {r.choice(['sister', 'brother', 'friend', 'neighbour', 'aunt', 'teacher'])}", f"the {r.choice(JOBS)}", f"the {r.choice(ADJ)} {r.choice(list(self.animals))}"])
        act = r.choice([f"bought {article(r.choice(ADJ) + ' ' + r.choice(OBJECTS))}", f"went to {place(r)}", f"ate {r.choice(FOODS)}", f"found {article(r.choice(OBJECTS))}", f"likes {r.choice(HOBBIES)}",
                        f"lost the {r.choice(OBJECTS)}", f"saw {article(r.choice(list(self.animals)))}", f"painted the {r.choice(OBJECTS)} {r.choice(COLOR)}"])
        where = r.choice(["", "", f" in {place(r)}", " at the market", " in the park", f" on {r.choice(DAYS)}", " this morning", " near the river", " after lunch"])
        return f"{upper_first(who)} {act}{where}."

    def echo(self, r):
        s = r.choice([self.sentence(r), self.topic(r), " ".join(syllable_word(r) for _ in range(r.randint(1, 5))), listing(r.sample(OBJECTS, 3)), str(number(r)), full_name(r)])
        q = r.choice([f"repeat after me: {s}", f"say \"{s}\"", f"please repeat: {s}", f"write exactly this: {s}", f"echo {s}", f"repeat this text: {s}", f"copy this: {s}", f"type the following: {s}",
                      f"just answer with: {s}", f"say this word for word: {s}", f"say {s}"])
        return q, s, "I repeat the text."

    def which(self, r):
        n = r.randint(3, 6)
        items = r.sample(OBJECTS + FOODS + list(self.animals), n)
        i = r.randrange(n)
        spot = ["first", "second", "third", "fourth", "fifth", "sixth"][i] if i < n - 1 or r.random() < 0.5 else "last"
        shown = r.choice([", ".join(items), listing(items), " ".join(items)])
        q = r.choice([f"what is the {spot} word in this list: {shown}", f"which item is {spot}: {shown}", f"here is a list: {shown}. What comes {spot}?", f"from {shown}, give me the {spot} one",
                      f"how many items are in this list: {shown}"])
        if q.startswith("how many"):
            return q, f"There are {NUMBERS[n]} items.", f"I count: {', '.join(f'{j + 1} {x}' for j, x in enumerate(items))}."
        return q, f"The {spot} one is {items[i]}.", f"The {spot} item is {items[i]}."

    def summary(self, r):
        who = name(r)
        thing, town = f"{r.choice(ADJ)} {r.choice(OBJECTS)}", place(r)
        reason = r.choice(["because it was a gift", "after a long search", "for a good friend", "with the last money", "on a rainy day", "early in the morning"])
        text = r.choice([f"Yesterday {who} took the train to {town}. The trip was long and the train was full. In {town}, {who} bought {article(thing)} {reason}, and then went home happy.",
                         f"{who} had wanted {article(thing)} for years. Last week {who} went to {town}, looked in many shops, and {reason} bought {article(thing)}.",
                         f"It was a busy day in {town}. {who} walked around the market, talked to many people and bought {article(thing)} {reason}."])
        q = r.choice([f"summarize this in one sentence: {text}", f"summarise: {text}", f"give me a short summary. {text}", f"what happened here? {text}", f"tl;dr: {text}", f"{text}\n\nSummarize the text above.",
                      f"{text} What is this about?", f"shorten this text: {text}"])
        return q, f"{who} bought {article(thing)} in {town}.", f"The text says that {who} bought something in {town}."

    def order(self, r):
        if r.random() < 0.6:
            items = r.sample(range(1, 100), r.randint(3, 5))
            shown = ", ".join(map(str, items))
            q = r.choice([f"sort these numbers: {shown}", f"put these numbers in order: {shown}", f"order {shown} from small to large", f"sort {shown}", f"arrange in ascending order: {shown}"])
            return q, ", ".join(map(str, sorted(items))), "I go from the smallest to the largest."
        items = r.sample(OBJECTS + FOODS, r.randint(3, 4))
        shown = ", ".join(items)
        q = r.choice([f"turn this into a list: {shown}", f"write this as bullet points: {shown}", f"make a bullet list of {shown}", f"put each item on its own line: {shown}"])
        return q, "\n".join(f"- {x}" for x in items), "I write one item a line."

    def story(self, r):
        a = r.choice([r.choice(list(self.animals)), r.choice(JOBS + list(self.known.jobs)), r.choice(self.open.nouns), r.choice("king queen prince princess robot giant child wizard witch ghost dragon knight pirate fairy mermaid dwarf monster alien boy girl man woman grandmother hero elf unicorn astronaut thief snowman".split())])
        b = r.choice([r.choice(OBJECTS), r.choice(list(self.animals)), r.choice(self.open.nouns), "boat", "star", "castle", "forest", "garden", "train", "balloon", "dragon"])
        if r.random() < 0.4:
            a = f"{r.choice('brave little clever lonely shy lazy kind small old young happy sad wise tiny big hungry funny curious proud magic white black red friendly grumpy sleepy poor rich lost'.split() + self.open.adjectives[:300])} {a}"
        who = r.choice(FIRST)
        ask = r.choice([f"tell me a story about {article(a)} and {article(b)}", f"write a short story about {article(a)} and {article(b)}", f"story with {article(a)} and {article(b)} please",
                        f"make up a tale about {article(a)} who finds {article(b)}", f"tell me a bedtime story about {article(a)} and {article(b)}", f"i want a story about {article(a)} and {article(b)}",
                        f"can you tell a story about the {a} and the {b}", f"give me a little story with {article(a)} and {article(b)}"])
        if r.random() < 0.15:
            pair = r.choice(["brothers", "sisters", "friends", "cats", "dogs", "birds", "children", "mice", "foxes", "kings", "robots", "bears"])
            n, b = r.choice(["two", "two", "three"]), r.choice(OBJECTS)
            other, adj = r.choice([x for x in FIRST if x != who]), r.choice(ADJ)
            ask = r.choice([f"tell me a story about {n} {pair}", f"tell me a story about {n} {pair} and {article(b)}", f"write a story about {n} {pair} and a lost {b}", f"a story about {n} {pair} please", f"tell me a bedtime story about {n} {pair}", f"make up a story about {n} {pair}"])
            a = f"Once upon a time there were {n} {pair}. One day they found {article(adj + ' ' + b)} in the forest. Everyone wanted to have it, so they took turns and shared it. And the {n} {pair} were never apart again."
            return ask, a, f"A short story about {n} {pair}."
        if r.random() < 0.45:
            b = r.choice(OBJECTS)
            kind = r.choice(["short ", "little ", "funny ", "scary ", "bedtime ", "fairy ", "sweet ", "very short ", "good night ", "children's "]) + r.choice(["story", "story", "tale"])
            ask = r.choice([f"tell me a {kind} about {article(a)}", f"write a {kind} about {article(a)}", f"can you write me a {kind} about {article(a)}", f"i want a {kind} with {article(a)}", f"tell my kids a {kind} about {article(a)}", f"tell me a story about my {a}", f"tell me a story about {article(a)} named {who}", f"tell me a story about {article(a)} who lost a {b}",
                            f"tell me a story about {article(a)}", f"a story about {article(a)} please", f"write a story with {article(a)}", f"tell a tale about {article(a)}", f"write a short story about {article(a)}",
                            f"can you tell me a story about {article(a)}", f"i want to hear a story about {article(a)}", f"make up a story about {article(a)}", f"tell me a short story about the {a}", f"a bedtime story about {article(a)}", f"once upon a time there was {article(a)}. go on"]
                           + (["tell me a story", "tell me a bedtime story", "write a short story", "do you know a story"] if r.random() < 0.4 else []))
        return ask, self.tale(r, a, b, who), f"A short story about {article(a)} and {article(b)}."

    def tale(self, r, a, b, who):
        adj, town = r.choice(ADJ), r.choice(PLACES)
        parts = [
            r.choice([f"Once upon a time there was {article(a)} named {who}.", f"In {town} there lived {article(a)} called {who}.", f"Long ago, {article(a)} named {who} lived near {town}."]),
            r.choice([f"One day {who} found {article(adj + ' ' + b)}.", f"One morning {who} saw {article(adj + ' ' + b)} by the river.", f"On a rainy day, {who} met {article(adj + ' ' + b)}."]),
            r.choice([f"\"Where do you come from?\" asked {who}.", f"{who} was surprised and looked at it for a long time.", f"At first {who} was afraid of the {b}.", f"Nobody in {town} had seen such a thing."]),
            r.choice([f"So {who} took the {b} home and cared for it.", f"Together they went on a long journey through the hills.", f"{who} showed the {b} to all the friends.", f"They played until the sun went down."]),
            r.choice([f"From then on, {who} and the {b} were never apart.", f"And {who} was happy ever after.", "That night everyone slept well, and the moon smiled.", f"In the end, {who} learned that small things can bring great joy."]),
        ]
        return " ".join(parts)

    def poem(self, r):
        t = r.choice(["spring", "summer", "autumn", "winter", "the moon", "the sea", "love", "my mother", "the stars", "friendship", "my dog", "my cat", "the night", "a tree", "the snow", "my garden", "the wind", "happiness", "a bird", "the city"]) if r.random() < 0.3 else r.choice([r.choice(self.rare), r.choice(self.open.nouns), r.choice(OBJECTS), r.choice(list(self.animals)), r.choice(FOODS), r.choice(["rain", "home", "music", "work", "time", "hope", "a friend"])])
        kind = r.choice(["poem", "poem", "short poem", "little poem", "rhyme", "haiku", "verse", "few lines", "poem for children", "funny poem"])
        ask = r.choice([expand(MACROS["WRITE"], r) + f" {article(kind)} about {r.choice(['', 'my ', 'the ', 'a '])}{t.removeprefix('a ').removeprefix('the ').removeprefix('my ')}"] * 6 + [f"write a poem about {t}", f"write me a short poem about {article(t)}", f"a poem about {t} please", f"can you write a rhyme about {t}", f"compose some verses about the {t}",
                        f"make a poem about {t}"])
        if r.random() < 0.2 and " " not in t:
            ask, t = ask.replace(f"the {t}", t).replace(f"a {t}", t).replace(t, plural(t)), plural(t)
        x = t.removeprefix("a ").removeprefix("the ").removeprefix("my ")
        a = r.choice([f"O {x}, dear {x}, so fine and so free,\nyou bring a small smile to you and to me.", f"I think of the {x} by day and by night,\nit fills all my dreams with a warm little light.",
                      f"The {x} in the morning, the {x} in the sun,\nit waits for us all when the long day is done.", f"A song for the {x}, a song soft and low,\nof things that we love and of things that we know.",
                      f"The {x} is a friend when the evening is near,\nit whispers a tale that is lovely to hear."])
        return ask, a, f"Two lines about {x}."

    def rewrite(self, r):
        who, x = name(r), r.random()
        thing, town = r.choice(OBJECTS), place(r)
        if x < 0.35:
            verbs = r.choice([("goes", "went"), ("walks", "walked"), ("travels", "travelled"), ("runs", "ran"), ("comes", "came")])
            s = f"{who} {verbs[0]} to {town}."
            q = r.choice([f"put this in the past tense: {s}", f"rewrite in past tense: {s}", f"change to the past: {s}"])
            return q, f"{who} {verbs[1]} to {town}.", "I change the verb."
        if x < 0.7:
            s = f"{r.choice(['give me', 'send me', 'bring me', 'show me'])} the {thing}"
            q = r.choice([f"make this more polite: {s}", f"say this politely: {s}", f"rewrite this politely: {s}", f"rephrase in a polite way: {s}"])
            return q, f"Could you please {s}?", "I add a polite form."
        s = self.sentence(r)
        q = r.choice([f"turn this into a question: {who} lives in {town}.", f"make a question of this: {who} lives in {town}."]) if x < 0.85 else f"who is this sentence about: {who} lives in {town}."
        return q, (f"Does {who} live in {town}?" if x < 0.85 else f"The sentence is about {who}."), f"The sentence is about {who}."

    def extract(self, r):
        who, town, n = name(r), place(r), number(r)
        job, food = r.choice(JOBS), r.choice(FOODS)
        text = r.choice([f"{who} is {article(job)} from {town} and loves {food}.", f"My neighbour {who}, {article(job)}, moved from {town} and cooks {food} every day.",
                         f"Dear team, I am {who}, {article(job)} living in {town}. My favourite dish is {food}."])
        what, ans = r.choice([("the name", who), ("the city", town), ("the job", job), ("the food", food)])
        q = r.choice([f"extract {what} from this text: {text}", f"find {what}: {text}", f"{text} What is {what}?", f"what is {what} in this text? {text}", f"read this: {text} Tell me {what}."])
        return q, upper_first(f"{what} is {ans}."), f"The text names {ans}."

    # ---- conversations -----------------------------------------------------------------------

    def memory(self, r, kind):
        """A fact about the user, said early and asked for later: (statement, reply, question, answer)."""
        n, p, f, x = name(r), place(r), r.choice(FOODS), number(r)
        pet, pn = r.choice(PETS), name(r)
        rel = r.choice(['sister', 'brother', 'friend', 'daughter', 'son', 'wife', 'husband', 'boss'])
        return [
            (f"{r.choice(['my name is', 'I am', 'I am called', 'call me', 'hi, my name is', 'hello, I am', 'people call me'])} {n}{r.choice(['', '. nice to meet you', ', pleased to meet you'])}",
             f"{r.choice(['Nice to meet you', 'Hello', 'Pleased to meet you'])}, {n}!{r.choice(['', ' How can I help you?'])}",
             r.choice(["what is my name", "do you remember my name", "what's my name again", "who am I", "how am i called"]), f"Your name is {n}."),
            (f"I {r.choice(['live in', 'am from', 'come from', 'moved to'])} {p}", r.choice([f"{p} sounds nice!", f"I hope you like {p}!"]),
             r.choice(["where do I live", "where am I from", "which place did I mention", "do you know where i live", "which city is mine"]), f"You told me about {p}."),
            (f"my favourite food is {f}", r.choice([f"{upper_first(f)}! Good choice.", "That sounds tasty!"]),
             r.choice(["what is my favourite food", "what do I like to eat", "which food do i like best"]), f"Your favourite food is {f}."),
            (f"I have a {pet} called {pn}", f"{pn} is a nice name for a {pet}!",
             r.choice([f"what is the name of my {pet}", f"how is my {pet} called", "what is my pet called", "do you remember the name of my pet"]), f"Your {pet} is called {pn}."),
            (f"my lucky number is {x}", f"I will keep {x} in mind.", r.choice(["what is my lucky number", "which number did I tell you", "do you remember my number"]), f"Your lucky number is {x}."),
            (f"I work as {article(j := r.choice(JOBS))}", f"Being {article(j)} must be interesting!", r.choice(["what is my job", "what do I do for a living", "what do i work as"]), f"You work as {article(j)}."),
            (f"I am {(age := r.randint(6, 90))} years old", "Thank you for telling me!", r.choice(["how old am I", "what is my age", "do you know how old i am"]), f"You are {age} years old."),
            (f"my {rel} is called {pn}", f"{pn} is a nice name.",
             r.choice([f"what is the name of my {rel}", f"how is my {rel} called", f"who is my {rel}"]), f"Your {rel} is called {pn}."),
            (f"remember the {r.choice(['word', 'code', 'password'])} {(c := code(r))}", f"I will remember {c}.", r.choice(["what was the word", "which word did i give you", "what should you remember", "what was the code"]), f"It was {c}."),
            (f"my favourite colour is {(col := r.choice(COLOR))}", f"{upper_first(col)} is a nice colour!", r.choice(["what is my favourite colour", "which color do I like"]), f"Your favourite colour is {col}."),
        ][kind]

    def follow_up(self, r):
        """Two turns where the second leans on the first."""
        x = r.randrange(5)
        if x == 0:
            a, b = r.sample(self.facts["countries"], 2)
            return [(f"what is the capital of {a['name']}", f"The capital of {a['name']} is {a['capital']}."),
                    (r.choice([f"and of {b['name']}", f"and {b['name']}", f"what about {b['name']}", f"and the one of {b['name']}"]), f"The capital of {b['name']} is {b['capital']}.")]
        if x == 1:
            m, n = r.sample(list(self.animals), 2)
            leg = lambda z: f"{upper_first(article(z))} has {NUMBERS[self.animals[z]['legs']] if self.animals[z]['legs'] else 'no'} legs."
            return [(f"how many legs does {article(m)} have", leg(m)), (r.choice([f"and {article(n)}", f"what about {article(n)}", f"and the {n}"]), leg(n))]
        if x == 2:
            a, b, c = r.randint(1, 60), r.randint(1, 39), r.randint(1, 30)
            return [(f"what is {a} + {b}", f"{a} + {b} = {a + b}."), (r.choice([f"and plus {c}", f"add {c}", f"now add {c} to it", f"plus {c} more"]), f"{a + b} + {c} = {a + b + c}.")]
        if x == 3:
            row = r.choice(self.words)
            i, j = r.sample(range(4), 2)
            say = lambda k: f'"{upper_first(row[0])}" in {kb.LANGUAGES[k]} is "{row[k + 1]}".'
            return [(f"how do you say {row[0]} in {kb.LANGUAGES[i]}", say(i)), (r.choice([f"and in {kb.LANGUAGES[j]}", f"what about {kb.LANGUAGES[j]}", f"now in {kb.LANGUAGES[j]}"]), say(j))]
        q, a, _ = self.single(r)
        return [(q, a), (r.choice(["can you repeat that", "say that again please", "what did you say", "repeat your answer", "once more please", "again please"]), a)]

    def persona(self, r):
        """A system prompt that gives a name or a rule: (system text, turns)."""
        n = name(r)
        job = r.choice(["helpful assistant", "friendly guide", "pirate", "teacher", "librarian", "cook", "robot", "travel agent", "gardener", "support agent", "poet", "wizard"])
        place_ = r.choice([f"the shop {syllable_word(r).capitalize()}", f"{place(r)} library", f"the company {syllable_word(r).capitalize()}", f"the hotel {syllable_word(r).capitalize()}"])
        x = r.randrange(4)
        ask = lambda: r.choice(["who are you", "what is your name", "introduce yourself", "what are you called", "tell me about yourself", "who am i talking to"])
        if x == 0:
            return r.choice([f"You are {n}, {article(job)}.", f"Your name is {n}. You are {article(job)}.", f"Act as {n}, {article(job)}."]), [(disguise(ask(), r), f"I am {n}, {article(job)}.")]
        if x == 1:
            return f"You are {n}, {article(job)} of {place_}. Be brief.", [(disguise(ask(), r), f"I am {n}, {article(job)} of {place_}.")]
        if x == 2:
            word = r.choice(["Ahoy", "Cheers", "Best wishes", "Yours truly", "Over and out", syllable_word(r).capitalize()])
            q, a, _ = self.single(r)
            return f"End every answer with \"{word}!\"", [(q, f"{a} {word}!")]
        open_, close = r.choice([("nine", "five"), ("eight", "six"), ("ten", "eight"), ("seven", "four")])
        return (f"You work for {place_}. It is open from {open_} to {close}, and the phone number is {(p := code(r))}.",
                [(disguise(r.choice(["when are you open", "what are your opening hours", "when do you open and close"]), r), f"We are open from {open_} to {close}."),
                 (disguise(r.choice(["what is your phone number", "how can i call you", "give me your number"]), r), f"Our phone number is {p}.")])

    def conversation(self, r):
        messages, thoughts = [], []

        def turn(q, a, thought=None):
            messages.append({"role": "user", "content": q})
            messages.append({"role": "assistant", "content": a})
            thoughts.append(thought)

        x = r.random()
        if x < 0.42:
            turn(*self.single(r))
        elif x < 0.66:
            for _ in range(r.randint(2, 5)):
                turn(*self.single(r))
        elif x < 0.8:
            facts = [self.memory(r, kind) for kind in r.sample(range(10), r.randint(1, 3))]
            for said, reply, _, _ in facts:
                turn(disguise(said, r), reply)
                for _ in range(r.choice([0, 0, 1, 2])):
                    one = self.single(r)
                    if one[1] != PRIVATE:  # it may have been told here
                        turn(*one)
            r.shuffle(facts)
            for _, _, q, a in facts:
                turn(disguise(q, r), a, "The user told me that before.")
        elif x < 0.9:
            for q, a in self.follow_up(r):
                turn(disguise(q, r), a)
        else:
            text, turns = self.persona(r)
            messages.append({"role": "system", "content": text})
            for q, a in turns:
                turn(q, a)
        if any(key(m["content"]) in self.banned for m in messages if m["role"] == "user"):
            return self.conversation(r)
        if messages[0]["role"] != "system" and r.random() < 0.15:
            messages.insert(0, {"role": "system", "content": r.choice(["You are a helpful assistant.", "You are a helpful assistant", "Answer briefly.", "Be kind and short.",
                                "You are a friendly assistant. Answer in one or two sentences.", "You are a chatbot.", "Help the user."])})
        conv = {"messages": messages}
        if r.random() < 0.45:
            conv["thinking"], conv["effort"] = True, r.choice(["high", "high", "high", "low", "max"])
            messages[-1]["reasoning"] = thoughts[-1] or "I answer in a short and friendly way."
        return conv


def main():
    chat, r = Chat(), Random(0)
    for _ in range(40):
        for m in chat.conversation(r)["messages"]:
            print(m["role"][0].upper() + ":", m["content"], ("  ~" + m["reasoning"] if m.get("reasoning") else ""))
        print()


if __name__ == "__main__":
    main()
