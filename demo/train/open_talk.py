"""Whatever nobody has taught: questions, requests and statements over thousands of words, each answered with a short
honest sentence. They have the same forms as the known questions, so that an unknown word beats a known form.

Every maker returns (question, answer, thought)."""

import json
import os

from grammar import FIRST, HERE, MORE_FIRST, SURNAMES, article, full_name, name, place, syllable_word

IDEA = "I am only a small demo model."
ANSWERS = {
    "what": ["I do not know that. " + IDEA, "Sorry, I do not know enough about that."],
    "why": ["I do not know why. " + IDEA],
    "who": ["I do not know who that is.", "Sorry, I do not know who that is."],
    "did": ["I do not know who did that."],
    "where": ["I do not know where that is. " + IDEA],
    "when": ["I do not know when that was. " + IDEA],
    "many": ["I do not know that number. " + IDEA],
    "how": ["I do not know how that works. " + IDEA],
    "do": ["I am not sure how to do that. A short guide or a video can help."],
    "yes": ["I am not sure. I am only a small demo model and know little about that."],
    "should": ["That is for you to decide. I know too little about it to advise you."],
    "which": ["I know too little about that to choose for you."],
    "opinion": ["I have no opinion on that. What do you think about it?"],
    "like": ["That sounds interesting! What do you like about it?"],
    "write": ["I am too small a model to write that. A larger model can do it."],
    "act": ["I cannot do that. I am a program and can only read and write text."],
    "say": ["I see. Tell me more about it if you like."],
    "asks": ["I do not know what to advise. Perhaps someone you trust can help."],
    "noise": ["I did not understand that. Can you say it in other words?"],
    "lang": ["I do not know that word in other languages."],
    "joke": ["I do not know a joke about that, but I know this one: Why did the bicycle fall over? It was two tired."],
}
THOUGHT = "I do not know that, so I say so."
POSSESSIVE = "my your his her our their the the the a".split()
PEOPLE = "my friend,my sister,my boss,my neighbour,the teacher,a man,people,children,the company,my uncle,some people,the doctor,my colleague,everyone".split(",")
WHEN = " today, tomorrow, yesterday, last year, every day, at night, in winter, in the morning, on Monday, all the time, again, before breakfast,,,,,,,,".split(",")
ING = lambda v: (v[:-1] if v.endswith("e") and not v.endswith("ee") else v) + "ing"
PAST = {"go": "went", "eat": "ate", "see": "saw", "make": "made", "take": "took", "find": "found", "buy": "bought", "write": "wrote", "build": "built"}


def past(v):
    return PAST.get(v) or (v + "d" if v.endswith("e") else v[:-1] + "ied" if v.endswith("y") and v[-2] not in "aeiou" else v + "ed")


def plural(n):
    return n if n.endswith("s") else n[:-1] + "ies" if n.endswith("y") and n[-2] not in "aeiou" else n + ("es" if n.endswith(("x", "ch", "sh")) else "s")


class Open:
    def __init__(self, known_things, known_words, explained):
        """known_things: nouns the known makers speak of, for near misses; known_words: nouns with a known
        meaning; explained: things whose working or making is known."""
        with open(os.path.join(HERE, "data/words.json"), encoding="utf-8") as f:
            w = json.load(f)
        self.verbs, self.adjectives, self.nouns = (w[k].split() for k in ("verbs", "adjectives", "nouns"))
        self.examples = w["examples"].split("\n")
        with open(os.path.join(HERE, "data/facts.json"), encoding="utf-8") as f:
            facts = json.load(f)
        self.rare = [w for w in facts["rare"] + w["more"].split() * 2 if w not in known_words]
        self.pairs = w["pairs"].split("\n")
        self.countries = [c["name"] for c in facts["countries"]] + [c["capital"] for c in facts["countries"]]
        self.things, self.taken, self.explained = known_things, known_words, explained
        self.makers = [(36, self.question), (18, self.blank), (9, self.you), (16, self.near), (11, self.people), (7, self.places), (11, self.how_to), (9, self.yes_no), (6, self.request), (9, self.write), (12, self.statement),
                       (6, self.opinion), (5, self.choice), (5, self.noise), (5, self.translate), (3, self.joke), (5, self.many_steps), (12, self.problem), (4, self.either), (3, self.fits)]
        self.weights = [x for x, _ in self.makers]
        self.usual, self.is_known = [], lambda q: False  # everyday nouns, and what the grammars answer: see Chat

    def any(self, r):
        q, kind = r.choices(self.makers, self.weights)[0][1](r)
        while self.is_known(q):
            q, kind = r.choices(self.makers, self.weights)[0][1](r)
        return q, r.choice(ANSWERS[kind]), THOUGHT if kind not in ("say", "like") else None

    # ---- words -------------------------------------------------------------------------------

    def rare_topic(self, r):
        """A noun or noun phrase that no table explains."""
        x = r.random()
        if x < 0.45:
            return r.choice(self.rare)
        if x < 0.52:
            return r.choice(self.pairs)
        if x < 0.58:
            return f"{r.choice(self.adjectives)} {r.choice(self.rare)}"
        if x < 0.66:
            return syllable_word(r)
        if x < 0.8:
            return f"{r.choice(self.rare)} {r.choice(self.nouns)}"
        if x < 0.9:
            return f"{r.choice(self.nouns)} of {r.choice([place(r), 'the ' + r.choice(self.rare), 'the ' + r.choice(self.adjectives) + ' ' + r.choice(self.nouns)])}"
        return f"{syllable_word(r)} {r.choice(self.nouns)}"

    def noun(self, r):
        if self.usual and r.random() < 0.3:
            return r.choice(self.usual)
        return r.choice(self.nouns if r.random() < 0.6 else self.rare)

    def phrase(self, r):
        """A verb with its object."""
        n = self.noun(r)
        o = r.choice([f"{r.choice(POSSESSIVE)} {n}", article(n), plural(n), f"{r.choice(POSSESSIVE)} {r.choice(self.adjectives)} {n}"])
        return f"{r.choice(self.verbs)} {o}" + r.choice(["", "", "", f" with {article(self.noun(r))}", f" in {article(self.noun(r))}", f" for {r.choice(PEOPLE)}", f" from {plural(self.noun(r))}"])

    # ---- forms -------------------------------------------------------------------------------

    def question(self, r):
        t, n, v, a = self.rare_topic(r), self.noun(r), r.choice(self.verbs), r.choice(self.adjectives)
        ts = plural(t)
        forms = [
            ("what", [f"what is {article(t)}", f"what is {t}", f"what are {ts}", f"what's {article(t)}", f"tell me about {t}", f"what do you know about {t}", f"explain {t}", f"describe {article(t)}",
                      f"what does {t} mean", f"define {t}", f"give me information about {t}", f"i want to learn about {t}", f"can you explain {t}", f"what is the history of {t}", f"what are the rules of {t}",
                      f"what is the difference between {t} and {self.rare_topic(r)}", f"what is {t} used for", f"what is {article(t)} for", f"what is {t} made of", f"what causes {t}", f"explain {t} like i am five", f"what are the benefits of {t}", f"pros and cons of {t}", f"give me three tips for {t}", f"what are the ingredients of {t}", f"who is the best {n} for {t}", f"what is the {r.choice(['largest', 'biggest', 'smallest', 'oldest', 'longest', 'fastest', 'highest', 'deepest', 'hottest', 'coldest', 'most expensive', 'best', 'worst', 'rarest'])} {r.choice([n, n, t])}{r.choice(['', '', ' in the world', ' on earth'])}", f"what happened to the {t}",
                      f"what is the name of the {a} {n}", f"what is the {n} of {t}", f"what color is {article(t)}", f"what does {article(t)} eat", f"what does {article(t)} look like", f"what kind of {n} is {t}",
                      f"what happens if {article(n)} {v}s", f"what happens when you {self.phrase(r)}", f"what is the opposite of {t}", f"what rhymes with {t}", f"synonym for {t}", f"what is the symbol of {t}",
                      f"what are the parts of {article(t)}", f"what do i need for {article(t)}", f"what is the meaning of {t}", f"{t}", f"the {a} {t}", f"and {t}", f"what about {t}", f"{t} is known by what name", f"the {n} of {t} is what", f"{ts} are native to which continent", f"in which {n} did the {t} {v}", f"which {n} is associated with {t}", f"on which {n} do {ts} {v}", f"what do {ts} and {plural(n)} have in common", f"what does {t.upper()[:3]} stand for", f"summarize the theory of {t}",
                      f"name three kinds of {t}", f"give me five {ts}", f"list some {ts}", f"what can i do with {article(t)}", f"what goes well with {t}", f"what does {article(n)} do with {article(t)}"]),
            ("why", [f"why is {t} important", f"why does {t} happen", f"why do {ts} {v}", f"why is {article(t)} {a}", f"why are {ts} {a}", f"why do people {self.phrase(r)}", f"why does {article(n)} {v}", f"how come {ts} {v}",
                     f"why can't {ts} {v}", f"why do we {v} {ts}", f"why is the {n} {a}", f"do you know why {ts} are {a}", f"why did the {n} {v}"]),
            ("did", [f"who invented {t}", f"who discovered {t}", f"who wrote the {a} {t}", f"who made {t}", f"who painted the {a} {n}", f"who built the {t}", f"who {past(v)} the {t}", f"who composed the {t}", f"who founded the {t}"]),
            ("when", [f"when was {t} invented", f"when did the {t} begin", f"when was the {t} built", f"in which year was {t} found", f"when did people {v} {ts}", f"what year was the {a} {t}", f"when did the {n} {v}"]),
            ("where", [f"where does {t} come from", f"where is the {t}", f"where can i find {article(t)}", f"where can i buy {article(t)}", f"where do {ts} live", f"where do {ts} grow", f"where is the {a} {n}", f"where are {ts} made"]),
            ("many", [f"how many {ts} are there", f"how many {ts} does {article(n)} have", f"how old is the {t}", f"how big is {article(t)}", f"how much does {article(t)} weigh", f"how long is {article(t)}", f"how much does {article(t)} cost",
                      f"how long does {t} take", f"how tall is the {t}", f"how fast is {article(t)}", f"how many {plural(n)} are in {article(t)}", f"how deep is the {t}", f"how far is the {t}", f"how long do {ts} live", f"how heavy is {article(t)}"]),
            ("how", [f"how does {article(t)} work", f"how do {ts} {v}", f"how is {t} made", f"how does {article(n)} {v}", f"how are {ts} built", f"how do {ts} live", f"how did the {t} start", f"explain how {article(t)} works"]),
        ]
        kind, options = r.choices(forms, [45, 13, 8, 7, 9, 14, 9])[0]
        return r.choice(options), kind

    def blank(self, r):
        """Forms whose answers come from a table, with a word that the table does not hold."""
        pick = lambda pool: next(w for w in iter(lambda: r.choice(pool), None) if w not in self.taken)
        v, a, n, t, o = pick(self.verbs), pick(self.adjectives), pick(self.nouns + self.rare[: len(self.nouns)]), pick(self.rare), self.noun(r)
        saying = r.choice([f"{v} the {n}", f"{v} {a} {plural(n)}", f"a {a} {n}", f"{v} like a {n}", f"the {n} is {a}", f"{v} {article(n)} in the {o}", f"all {plural(n)} {v}", f"{a} as a {n}"])
        quote = r.choice(['"', '"', "", "'"])
        w = r.choice([v, a, t, n])
        return r.choice([
            (r.choice([f"what is the opposite of {quote}{w}{quote}", f"opposite of {w}", f"what's the contrary of {w}", f"antonym for {w}"]), "opposite"),
            (r.choice([f"what is another word for {quote}{w}{quote}", f"give me a synonym for {quote}{w}{quote}", f"what rhymes with {quote}{w}{quote}", f"what is the past tense of {quote}{v}{quote}", f"what is the plural of {quote}{t}{quote}"]), "word"),
            (r.choice([f"what does {quote}{saying}{quote} mean", f"what does the saying {quote}{saying}{quote} mean", f"meaning of {quote}{saying}{quote}", f"what do people mean by {quote}{saying}{quote}"]), "saying"),
            (r.choice([f"what does {quote}{v}{quote} mean", f"what does it mean to {v}", f"define {quote}{a}{quote}", f"what does {quote}{a}{quote} mean", f"what is the meaning of {quote}{w}{quote}"]), "word"),
            (r.choice([f"what do {plural(t)} eat", f"what does {article(t)} eat", f"what do {plural(n)} drink", f"what do {plural(t)} need", f"what does {article(t)} do", f"what do {plural(t)} do all day", f"what sound does {article(t)} make", f"what is a baby {t} called"]), "what"),
            (r.choice([f"what do you call someone who {v}s {plural(n)}", f"who {v}s {plural(n)} for a living", f"what is the name for a person who {v}s", f"which job is it when someone {v}s {plural(n)}", f"what do you call a group of {plural(t)}"]), "called"),
            (r.choice([f"what is {article(t)} for", f"what do you use {article(t)} for", f"what is {article(t)} used for", f"what do i need to {v} {article(n)}", f"which tool do i need to {v} {plural(n)}", f"why do people use {article(t)}"]), "what"),
            (r.choice([f"tell me something about {t}", f"what is {place(r)} famous for", f"what is {t} known for", f"what started the {n} war", f"what caused the {a} {n}", f"what led to the {n}", f"what is the story of {t}", f"what is the moral of the {n}", f"what is the point of {plural(n)}", f"how is the {n}", f"what's the {n} like"]), "what"),
        ])

    def you(self, r):
        """About the model itself, in words it has no reply for."""
        v, a, n = r.choice(self.verbs), r.choice(self.adjectives), self.noun(r)
        return r.choice([f"are you {a}", f"are you {article(n)}", f"do you {v}", f"do you {v} {plural(n)}", f"can you {v}", f"have you ever {past(v)} {article(n)}", f"did you {v} the {n}", f"did i {v}", f"will you {v} me", f"you are {a}", f"you are {article(n)}", f"you are so {a}", f"you sound like {article(n)}", f"you need {article(n)}",
                         f"you should {v} more", f"you look {a}", f"robots should {v}", f"computers are {a}", f"do you know {n}", f"do you understand {n}", f"do you have {article(n)}", f"do you need {article(n)}", f"what is your {n}", f"where is your {n}", f"how many {plural(n)} do you have", f"does it make you {a}", f"why are you {a}", f"why do you {v}",
                         f"when will you {v}", f"would you like to {v}", f"what makes you {a}", f"how {a} are you", f"tell me about your {n}", f"what did you {v}", f"what do you {v}", f"who is your {n}", f"were you ever {a}"]), "self"

    def near(self, r):
        """A thing that other questions explain, with a question that nothing explains."""
        t, v, a, n = r.choice(self.things), r.choice(self.verbs), r.choice(self.adjectives), self.noun(r)
        ts = plural(t)
        forms = [
            ("why", [f"why do {ts} {v} so much", f"why does {article(t)} {v}", f"why is {article(t)} {a}", f"why are {ts} so {a}", f"why do {ts} {v} {plural(n)}", f"why does my {t} {v}", f"why did the {t} {v}"]),
            ("yes", [f"can {ts} {v} {plural(n)}", f"do {ts} have {article(n)}", f"are {ts} {a}", f"does {article(t)} need {article(n)}", f"do {ts} like {plural(n)}", f"is {article(t)} good for {article(n)}", f"is my {t} {a}"]),
            ("what", [f"what do {ts} think about {plural(n)}", f"what is the {n} of {article(t)}", f"what happens when {article(t)} {v}s", f"what is the best {n} for {article(t)}", f"what does {article(t)} do with {article(n)}",
                      f"what is the scientific name of the {t}", f"what is the difference between {article(t)} and {article(n)}", f"what is {article(a)} {t}".replace("a a ", "a "), f"what is {article(t + ' ' + n)}"]),
            ("many", [f"how many {plural(n)} does {article(t)} have", f"how much does {article(t)} weigh", f"how many {ts} are there in {r.choice(self.countries)}", f"how long does {article(t)} {v}", f"how often does {article(t)} {v}"]),
            ("did", [f"who {past(v)} the {a} {t}", f"who owns the {a} {t}", f"who first {past(v)} {article(t)}"]),
            ("where", [f"where is the {a} {t}", f"where did the {t} {v}", f"where do {ts} {v}"]),
            ("when", [f"when did {ts} {v}", f"when was the {a} {t} {past(v)}", f"when do {ts} {v}"]),
            ("do", [f"how do i {v} {article(t)}", f"how can i {v} my {t}", f"how to {v} {article(a + ' ' + t)}"]),
            ("how", [f"how do {ts} {v}", f"how does {article(t)} {v}", f"how do {ts} work", f"how does {article(t)} work", f"how is {article(t)} made", f"how are {ts} made", f"how does {article(a + ' ' + t)} work"]),
        ]
        if t in self.explained:
            forms.pop()
        kind, options = r.choices(forms, [20, 18, 20, 14, 7, 6, 5, 8, 8][: len(forms)])[0]
        return r.choice(options), kind

    def people(self, r):
        x = r.random()
        first = lambda: r.choice(FIRST + MORE_FIRST) if r.random() < 0.7 else r.choice(self.rare).capitalize()
        last = lambda: r.choice(SURNAMES) if r.random() < 0.5 else r.choice([syllable_word(r), r.choice(self.rare), r.choice(self.rare) + r.choice(["son", "berg", "man", "ski", "bach", "feld", "er", "ton"])]).capitalize()
        n = full_name(r) if x < 0.2 else f"{first()} {last()}" if x < 0.8 else f"{r.choice(['Mr', 'Mrs', 'Dr', 'Professor', 'King', 'Sir', 'Captain', 'Lady'])} {last()}" if x < 0.9 else r.choice([name(r), last(), first()])
        o = self.noun(r)
        return r.choice([f"who is {n}", f"who was {n}", f"tell me about {n}", f"what did {n} do", f"is {n} famous", f"what is {n} known for", f"do you know {n}", f"who is the {o} {n}", f"what do you know about {n}",
                         f"have you heard of {n}", f"is {n} still alive", f"who exactly is {n}", f"what does {n} do for a living", f"why is {n} famous", f"when was {n} born", f"which books did {n} write", f"where was {n} born",
                         f"how old is {n}", f"what does {n} think about {plural(o)}", f"who is the {r.choice(self.adjectives)} {o} in the story", f"who is your {o}", f"who is the {o} of {place(r)}", f"who rules {syllable_word(r).capitalize()}",
                         f"who is the mayor of {place(r)}", f"who is the {o}", f"who played the {o} in the film"]), "who"

    def places(self, r):
        n = r.choice([syllable_word(r).capitalize(), f"{syllable_word(r).capitalize()} {r.choice(['Street', 'Lake', 'River', 'Valley', 'Castle', 'Bay', 'Hill', 'City', 'Park'])}", r.choice(self.countries)])
        known = n in self.countries
        o = self.noun(r)
        qs = [f"how do i get to {n}", f"how far is it to {n}", f"what can i see in {n}", f"who lives in {n}", f"what is the {o} of {n}", f"when was {n} founded", f"is {n} a nice place", f"what is {n} famous for",
              f"is there {article(o)} in {n}", f"how big is {n}", f"how is life in {n}", f"what do people eat in {n}", f"is it safe in {n}", f"how cold is it in {n}", f"what is the best {o} in {n}", f"which {o} is in {n}"]
        if not known:
            qs += [f"where is {n}", f"tell me about {n}", f"what is the capital of {n}", f"what language is spoken in {n}", f"what money do they use in {n}", f"what is {n}", f"in which country is {n}"] * 2
        return r.choice(qs), "what" if known else "where"

    def how_to(self, r):
        p = self.phrase(r)
        return r.choice([f"how do i {p}", f"how can i {p}", f"how to {p}", f"what is the best way to {p}", f"tell me how to {p}", f"can you help me {p}", f"teach me to {p}", f"i want to {p}. what do i need",
                         f"give me steps to {p}", f"how would you {p}", f"is there a trick to {p}", f"how should i {p}", f"any tips to {p}", f"how do you {p}", f"how do people {p}", f"what do i need to {p}",
                         f"what is a good way to {p}", f"explain how to {p}", f"help me {p}", f"i need to {p}, how do i start"]), "do"

    def yes_no(self, r):
        n, v, a, t = self.noun(r), r.choice(self.verbs), r.choice(self.adjectives), self.rare_topic(r)
        return r.choice([f"is {article(t)} {a}", f"are {plural(t)} {a}", f"can {article(n)} {v}", f"does {article(n)} {v} {plural(t)}", f"is it true that {plural(n)} {v}", f"did the {n} {v}", f"was the {t} {a}", f"is there {article(t)} in the {n}",
                         f"do {plural(t)} {v}", f"has {article(n)} {past(v)}", f"will the {n} {v}", f"is {t} dangerous", f"is {t} real", f"do people still {self.phrase(r)}", f"is {article(t)} the same as {article(n)}", f"can you eat {t}",
                         f"is it possible to {self.phrase(r)}", f"do you know anything about {t}", f"could {article(n)} {self.phrase(r)}", f"is it allowed to {self.phrase(r)}", f"is it normal to {self.phrase(r)}", f"can i {self.phrase(r)}", f"may i {self.phrase(r)}", f"could i {r.choice(self.verbs)} {n} with {t}", f"is it safe to {self.phrase(r)}", f"is it legal to {self.phrase(r)}", f"does {t} help against {n}", f"is {n} bigger than {t}", f"are there {plural(t)} in {r.choice(self.countries)}", f"is {n} better than {t}", f"is {a} {t} better than {n}"]), "yes"

    def request(self, r):
        p = self.phrase(r)
        return r.choice([f"please {p}", f"{p}", f"{p} for me", f"can you {p}", f"could you {p}", f"would you {p}", f"i want you to {p}", f"you must {p}", f"{p} now", f"will you {p}", f"are you able to {p}", f"can you {r.choice(self.verbs)}",
                         f"do you {r.choice(self.verbs)} {plural(self.noun(r))}", f"go and {p}", f"bring me {article(self.noun(r))}", f"get me {article(self.noun(r))}", f"i order you to {p}"]), "act"

    def write(self, r):
        t = self.rare_topic(r)
        what = r.choice("an essay,a letter,an article,a report,a plan,a speech,a contract,a song,a book,a recipe,a guide,a manual,a review,a script,a proof,a list of laws,a table,a diary,a joke book,a newspaper,a schedule,a biography,a theory,lyrics,a marketing plan,a proposal,an analysis,a long text,a dialogue,a description,an advertisement".split(","))
        return r.choice([f"write {what} about {t}", f"write me {what} on {t}", f"can you write {what} about {t}", f"can you write {article(t)}", f"can you write {article(self.noun(r))} for me", f"write {article(t)} in {self.noun(r)}", f"i need {what} about {t}", f"compose {what} for {article(t)}", f"draft {what} on {t}", f"make {what} about {t}", f"prepare {what} for my {self.noun(r)}",
                         f"give me {what} on {t}", f"could you create {what} about {plural(t)}", f"please write {what} of ten pages", f"help me write {what} about {t}", f"{what} about {t} please"]), "write"

    def statement(self, r):
        x = r.random()
        if x < 0.5:
            return r.choice(self.examples) + r.choice([".", ".", "", "!"]), "say"
        n, v, a, who = self.noun(r), r.choice(self.verbs), r.choice(self.adjectives), r.choice(PEOPLE)
        return r.choice([f"the {n} is {a}", f"{who} {past(v)} the {n}{r.choice(WHEN)}", f"i {past(v)} {article(n)}{r.choice(WHEN)}", f"we {past(v)} the {a} {n}{r.choice(WHEN)}", f"there is {article(n)} in the {self.noun(r)}", f"my {n} is {a}",
                         f"i have {article(a + ' ' + n)}", f"i need {article(n)}", f"i think the {n} is {a}", f"{who} said that {plural(n)} {v}", f"i work with {plural(n)}", f"yesterday the {n} {past(v)}", f"this {n} is {a}", f"i was {ING(v)} the {n}{r.choice(WHEN)}",
                         f"i am {ING(v)} {article(n)}{r.choice(WHEN)}", f"{who} gave me {article(n)}", f"i saw {article(a + ' ' + n)}{r.choice(WHEN)}", f"my {n} {past(v)}{r.choice(WHEN)}", f"it is {a}", f"they {past(v)} {plural(n)}", f"that {n} was {a}", f"i heard about the {n}"]), "say"

    def opinion(self, r):
        t = self.rare_topic(r) if r.random() < 0.7 else plural(self.noun(r))
        if r.random() < 0.4:
            return r.choice([f"i like {t}", f"i love {plural(t)}", f"i enjoy {ING(r.choice(self.verbs))} {plural(self.noun(r))}", f"my hobby is {t}", f"i am interested in {t}", f"i am a fan of {t}", f"i collect {plural(t)}", f"i am learning about {t}"]), "like"
        return r.choice([f"what do you think about {t}", f"do you like {t}", f"what is your opinion on {t}", f"what do you think of {plural(t)}", f"how do you feel about {t}", f"is {t} good or bad", f"are you interested in {t}", f"do you believe in {t}", f"is {t} beautiful",
                         f"what are your views on {t}", f"let us talk about {t}", f"can we talk about {t}", f"do you love {t}", f"do you care about {plural(t)}", f"would you like {article(t)}", f"any thoughts on {t}"]), "opinion"

    def choice(self, r):
        t = self.rare_topic(r) if r.random() < 0.6 else self.noun(r)
        if r.random() < 0.5:
            return r.choice([f"which {self.noun(r)} is the best", f"what is the best {t}", f"which {t} should i choose", f"recommend {article(t)}",
                             f"can you recommend {article(t)}", f"what {self.noun(r)} do you suggest", f"which brand of {plural(self.noun(r))} is best"]), "which"
        p = self.phrase(r)
        return r.choice([f"should i {p}", f"is it a good idea to {p}", f"do you think i should {p}", f"should we {p}", f"is it time to {p}", f"would it be wrong to {p}", f"shall i {p}", f"must i {p}", f"do i have to {p}", f"is it worth it to {p}", f"should i buy {article(t)}"]), "should"

    def problem(self, r):
        """A statement of trouble with a plea for advice."""
        n, v, a, who = self.noun(r), r.choice(self.verbs), r.choice(self.adjectives), r.choice(PEOPLE)
        s = r.choice([f"my {n} {v}s too much", f"i have a problem with my {n}", f"{who} does not {v} the {n}", f"my {n} is too {a}", f"i cannot {v} my {n}", f"there is {article(n)} in my {self.noun(r)}", f"i am afraid of {plural(n)}", f"my {n} does not {v}",
                      f"{who} {past(v)} my {n}", f"i want to {self.phrase(r)} but i do not know how", f"i have to {self.phrase(r)}", f"i do not like my {n}", f"{who} wants to {self.phrase(r)}", f"i need {article(n)} for my {self.noun(r)}"])
        return s + r.choice([". ", ", ", "! ", " - "]) + r.choice(["what should i do", "what can i do", "any advice", "any tips", "can you help me", "help", "what would you do", "what do you suggest", "how can i solve this", "what should i avoid", "is that normal", "do you have an idea", "what does that mean", "why", "why is that", "how come", "what went wrong"]), "asks"

    def either(self, r):
        """A choice between two things."""
        v = r.choice(self.verbs)
        t, u = r.choice([(self.noun(r), self.noun(r)), (article(self.noun(r)), article(self.noun(r))), (plural(self.noun(r)), plural(self.noun(r))), (f"the {r.choice(self.adjectives)} one", f"the {r.choice(self.adjectives)} one")])
        return r.choice([f"should i {v} {t} or {u}", f"shall we {v} {t} or {u}", f"is it better to {v} {t} or {u}", f"do you prefer {t} or {u}", f"which do you like more, {t} or {u}", f"would you take {t} or {u}", f"{t} or {u}", f"what is better, {t} or {u}",
                         f"which is better, {t} or {u}", f"would you rather {v} {t} or {u}"]), "either"

    def fits(self, r):
        """A list with a condition that no table knows."""
        kind = r.choice("fruit vegetable animal bird fish country city river mountain sport tool flower tree metal planet drink dish food game job song book film word color instrument car insect spice".split())
        v, a, n = r.choice(self.verbs), r.choice(self.adjectives), self.noun(r)
        return r.choice([f"name {article(kind)} that is {a}", f"name {article(kind)} that can {v}", f"which {kind} is {a}", f"give me {article(kind)} that {v}s", f"which {kind} has {article(n)}", f"name a {a} {kind}", f"list some {plural(kind)} that are {a}", f"which {plural(kind)} {v} {plural(n)}",
                         f"what {kind} is the most {a}", f"what is the most {a} {kind}", f"what is the {a} {kind} called", f"which {kind} is best for {article(n)}", f"name three {a} {plural(kind)}"]), "fits"

    def noise(self, r):
        word = lambda: r.choice([syllable_word(r), "".join(r.choice("asdfghjklqwertzuiopyxcvbnm") for _ in range(r.randint(2, 8))), r.choice(["bla", "blah", "hm", "foo", "bar", "xyz", "lorem ipsum", "tralala", "qwe", "asd"])])
        x = r.random()
        if x < 0.45:
            s = " ".join(word() for _ in range(r.randint(1, 4)))
        elif x < 0.65:
            w = word()
            s = " ".join([w] * r.randint(2, 4)) + r.choice(["", "", f" {r.randint(1, 999)}"])
        elif x < 0.78:
            s = " ".join(r.choice([word(), str(r.randint(0, 9999)), word()]) for _ in range(r.randint(2, 5)))
        elif x < 0.88:
            s = "".join(r.choice("!?.,;:#%&*+-=/()<>~") for _ in range(r.randint(1, 6)))
        else:
            s = " ".join(r.sample(self.nouns + self.verbs + self.adjectives, r.randint(4, 7)))
        return s, "noise"

    def translate(self, r):
        w = r.choice([r.choice(self.rare), f"{r.choice(self.adjectives)} {self.noun(r)}", f"i {r.choice(self.verbs)} {article(self.noun(r))}", self.noun(r) + " " + self.noun(r)])
        lang = r.choice("French Spanish German Italian Portuguese Chinese Japanese Russian Dutch Polish Turkish Greek Latin Arabic Hindi Swedish Korean Finnish".split())
        quote = r.choice(['"', "", "'"])
        if r.random() < 0.3:
            w, lang = r.choice(["hello", "thank you", "good morning", "water", "cat", "dog", "love", "house", "bread", "yes", "no", "friend", "sun", "book", "please", "goodbye"]), r.choice("Portuguese Chinese Japanese Russian Dutch Polish Turkish Greek Latin Arabic Hindi Swedish Korean Finnish".split())
        return r.choice([f"how do you say {quote}{w}{quote} in {lang}", f"translate {quote}{w}{quote} to {lang}", f"translate {quote}{w}{quote} into {lang}", f"what is {quote}{w}{quote} in {lang}", f"{lang} for {quote}{w}{quote}", f"what is the {lang} word for {w}", f"say {quote}{w}{quote} in {lang}"]), "lang"

    def joke(self, r):
        t = self.noun(r)
        return r.choice([f"tell me a joke about {plural(t)}", f"do you know a joke about {article(t)}", f"joke about {t}", f"a joke with {article(t)} please", f"make a joke about {plural(t)}", f"know any jokes about {plural(t)}"]), "joke"

    def many_steps(self, r):
        """Sums and riddles with too many steps for a small model."""
        a, b, c, n = r.randint(2, 60), r.randint(2, 60), r.randint(2, 20), self.noun(r)
        return r.choice([f"a train leaves at {a % 12 + 1} and drives {b} kilometers per hour. when does it arrive after {c * 10} kilometers", f"if {a} {plural(n)} cost {b} euros, how much do {c} {plural(n)} cost", f"what is ({a} + {b}) * {c}",
                         f"{a} * {b} - {c}", f"what is {r.randint(100, 9999)} times {r.randint(13, 999)}", f"calculate {a * 97} divided by {b}", f"solve {c}x + {a} = {b}", f"{name(r)} is twice as old as {name(r)} and {c} years older. how old are they",
                         f"i buy {a} {plural(n)} for {b} cents each and pay with {c} euros. how much change do i get", f"what is the {r.choice(['sine', 'logarithm', 'cosine', 'factorial', 'cube root'])} of {a}", f"what is {a} to the power of {b}",
                         f"how many days are between {a % 28 + 1} March and {b % 28 + 1} {r.choice(['May', 'July', 'October'])}", f"prove that {a} is not {b}", f"what is {a}.{b} times {c}.{a}", f"how much is {r.randint(1000, 99999)} + {r.randint(1000, 99999)} - {a}",
                         f"convert {a} {r.choice(['miles to kilometers', 'km to miles', 'feet to meters', 'cups to liters', 'inches to centimeters', 'dollars to euros', 'pounds to kilograms', 'acres to square meters'])}", f"how many {r.choice(['miles', 'feet', 'pounds', 'ounces', 'euros'])} are {a} {r.choice(['kilometers', 'meters', 'kilograms', 'grams', 'dollars'])}", f"convert {b} degrees celsius to fahrenheit", f"what is {a} pounds in kilograms", f"how many {plural(n)} fit into {article(self.noun(r))}"]), "sums"


ANSWERS["self"] = ["I am only a small program that reads and writes text, so I cannot say much about that."]
ANSWERS["opposite"] = ["I do not know the opposite of that word."]
ANSWERS["word"] = ["I do not know that word well. A dictionary can tell you more."]
ANSWERS["saying"] = ["I do not know that saying. I am only a small demo model."]
ANSWERS["called"] = ["I do not know the name for that. I am only a small demo model."]
ANSWERS["fits"] = ["I am not sure which one fits. I am only a small demo model."]
ANSWERS["either"] = ["Both have their good sides. It depends on what you like and what you need today."]
ANSWERS["sums"] = ["That is too hard a sum for me. I am only good at small sums in one step."]
