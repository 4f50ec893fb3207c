"""Longer ways to say a thing: a prompt among clauses that do not change its reply, casual spelling, and sums of two steps.

`Long.around` and `casual` change a prompt only; the other makers return (question, answer, thought)."""

import re

from daily import COINS, THINGS
from grammar import NUMBERS, article, expand, name, place
from open_talk import ING, PEOPLE, past, plural

ASKING = re.compile(r"^(what|which|who|whom|whose|where|when|why|how|is|are|was|were|do|does|did|can|could|will|would|should|shall|may|must|has|have you|had|tell|give|name|list|explain|define|describe|write|make|compose|draft|suggest|"
                    r"recommend|translate|calculate|spell|find|show|help|any|please|show|set|call|play|order|book|remind|turn|send|open|say|i need|i want|i would like)\b")
STATING = re.compile(r"^(i|i'm|i've|my|we|our|it is|it's|someone|there is|the|he|she|they|this|yesterday|today|guess what|good news|bad news)\b")
JOY = ("Congratulations", "Well done", "How nice", "That is wonderful", "That is great", "That sounds nice", "That sounds lovely", "That is exciting", "How was it")
SORROW = ("I am very sorry", "I am sorry to hear", "I am sorry, ", "Oh no", "That is a pity", "That is annoying", "I understand")
HAPPY = ("i am so happy|it feels great|i had to tell someone|what a day|i can hardly believe it|i worked so long for it|we will celebrate tonight|my family is so proud|i am still smiling|best day ever|i could dance|it took months|yay").split("|")
SAD = ("i do not know what to do|i can't stop thinking about it|it is so hard|i feel awful|why does this always happen to me|nobody understands|it makes me so sad|i could cry|and now this|everything is too much|i am so tired of it|it ruined my day").split("|")
LEAD = ("just wondering|quick one|maybe a silly question|you may know this|i always wanted to know|this has been on my mind|sorry if this is strange|i forgot to ask|before i forget|while i am waiting|since you are here|not sure if you can help|here is something else|"
        "random question|out of curiosity|i am curious|help me out|one thing|another thing|so tell me|let me ask you something|i need your help").split("|")
TAIL = ("i really want to know|nobody here can tell me|i forgot it|i could not find it anywhere|my phone is dead|it is for school|it is for a quiz|we have a bet about it|i should know this|it bothers me|take your time|a short answer is fine|just a sentence or two|"
        "i am in a hurry|i am new to this|i have no idea|it is important to me|it would help me a lot|be honest|keep it simple|no long text please").split("|")
CASUAL = [("you", "u"), ("your", "ur"), ("you're", "ur"), ("are", "r"), ("please", "pls"), ("please", "plz"), ("because", "cause"), ("want to", "wanna"), ("going to", "gonna"), ("got to", "gotta"), ("kind of", "kinda"), ("something", "sth"), ("really", "realy"), ("thanks", "thx"),
          ("tomorrow", "tmrw"), ("about", "abt"), ("what is", "whats"), ("what's", "whats"), ("i am", "im"), ("i'm", "im"), ("don't", "dont"), ("can't", "cant"), ("it's", "its"), ("cannot", "cant"), ("do not", "dont"), ("to", "2"), ("for", "4"), ("and", "n"), ("and", "&"), ("i will", "ill"),
          ("does not", "doesnt"), ("definitely", "definately"), ("tonight", "tonite"), ("love", "luv"), ("with", "w"), ("night", "nite"), ("though", "tho"), ("people", "ppl"), ("right", "rite"), ("know", "kno"), ("would", "wud"), ("have", "hav")]
FILLERS = "really just actually maybe kind of sort of like honestly basically perhaps exactly simply even still probably pretty much".replace("kind of", "kind_of").replace("sort of", "sort_of").replace("pretty much", "pretty_much").split()


def casual(q, r):
    """The same words as a hurried person types them: short forms, a filler or two, marks left out or tripled."""
    x = r.random()
    if x < 0.55:
        for long, short in r.sample(CASUAL, 12):
            if r.random() < 0.6:
                q = re.sub(rf"(?<![\w'\"]){re.escape(long)}(?![\w'\"])", short, q)
    if x > 0.35 and not re.search(r"\d|[\"':]", q):
        words = q.split()
        for _ in range(r.choice([1, 1, 2])):
            if len(words) > 3:
                words.insert(r.randrange(1, len(words)), r.choice(FILLERS).replace("_", " "))
        q = " ".join(words)
    if r.random() < 0.2 and q[-1] in "?!.":
        q = q[:-1] + r.choice([q[-1] * 3, q[-1] * 2, "?!", ""])
    return q


def headless(q, r):
    """Sometimes without the "I am" that a hurried person leaves out."""
    short = re.sub(r"^(i am|i'm|i have been|i've been|i have|i've|i|we are|we're|we) (?=[a-z]+(ed|ing|t|w|k|n)\b)", "", q, flags=re.I)
    return short if short != q and len(short.split()) > 2 and r.random() < 0.12 else q


def sentences(q, r):
    """Often with a capital after each full stop."""
    return re.sub(r"([.!?] )([a-z])", lambda m: m[1] + m[2].upper(), q) if q[:1].isupper() and r.random() < 0.7 else q


class Long:
    def __init__(self, open_talk):
        self.open = open_talk

    def scene(self, r):
        """What somebody was doing: a clause in the past, with any words."""
        o, who = self.open, r.choice([r.choice(PEOPLE), "my " + r.choice("mother father brother daughter son aunt grandma roommate teacher wife husband cousin coworker neighbor girlfriend boyfriend".split()), name(r)])
        n, m, v, a = o.noun(r), o.noun(r), r.choice(o.verbs), r.choice(o.adjectives)
        return r.choice([f"i was talking to {who} about {plural(n)}", f"{who} asked me about it {r.choice(['yesterday', 'at lunch', 'on the phone', 'last night', 'this morning', 'at work', 'in the car'])}", f"{who} and i were in {place(r)}", f"i saw {article(n)} in the {m}", f"we are sitting in the {n} right now", f"i read something about {article(n)}",
                         f"{who} says that {plural(n)} {v}", f"we had an argument about it", f"i am {ING(v)} {article(n)} with {who}", f"i have been {ING(v)} all day", f"{who} {past(v)} the {a} {n}", f"there was {article(n)} on tv", f"i am on my way to {place(r)}", f"{who} is visiting us", f"i came home from {place(r)} and sat down",
                         f"we are having dinner with {who}", f"{who} could not tell me", f"i woke up and thought about it", f"my {n} is {a} and i have some time", f"{who} never listens to me", f"i have to {o.phrase(r)} for {who}", f"it is raining and i am bored", f"{who} bet me that i do not know", f"i finished my work early today"])

    def around(self, q, a, r):
        """`q` among other clauses, or as it is where it does not lend itself to that."""
        low = q.lower()
        if "\n" in q or ":" in q or len(q) > 150 or low.split()[0] in ("and", "repeat", "copy", "echo", "type"):
            return q
        low_q = q if q.split()[0] in ("I", "I'm") or not q[:1].isupper() else q[:1].lower() + q[1:]
        body = low_q.rstrip("?.! ")
        end = "?" if re.match(r"^(what|which|who|where|when|why|how|is|are|do|does|did|can|could|will|would|should)\b", low) else ""
        stop = r.choice([". ", ", ", ". ", " - ", "! ", "... ", " and "])
        if ASKING.match(low):
            x = r.random()
            scene = self.scene(r)
            if x < 0.30:
                return f"{scene}{r.choice(['. ', ', so ', ' and wondered, ', ' and now i want to know, ', '. so, ', '. now tell me, ', ' - ', '. my question is this. '])}{body}{end}"
            if x < 0.48:
                return f"{r.choice(LEAD)}{r.choice([', ', '. ', ' but ', ' - ', '... '])}{body}{end}"
            if x < 0.66:
                return f"{body}{r.choice(['? ', ', ', '? ', ' - ', ' because ', '... '])}{r.choice(TAIL)}"
            if x < 0.82:
                return f"{body}{r.choice(['? ', ', ', '? ', ' because '])}{scene}{r.choice(['', '.', '!'])}"
            if x < 0.92:
                return f"{scene}{stop}{body}{end or '.'} {r.choice(TAIL)}"
            return f"{r.choice(self.open.examples).lower()}{r.choice(['. ', ', and '])}{body}{end}"
        if STATING.match(low):
            mood = HAPPY if a.startswith(JOY) else SAD if a.startswith(SORROW) else None
            said = [expand(r.choice(mood), r)] if mood else []
            if r.random() < 0.4 or not said:
                said.append(self.scene(r))
            x = r.random()
            if x < 0.4:
                return f"{body}{stop}{stop.join(said)}{r.choice(['', '.', '!'])}"
            if x < 0.6:
                return f"{r.choice(said)}{stop}{body}"
            if x < 0.8:
                lead = r.choice(["guess what", "you know what", "i have to tell you something", "so", "listen to this", "well", "let me tell you", "you will not believe it"])
                return f"{lead}{r.choice([', ', '. ', '! ', ' - ', ': '])}{body}{r.choice(['', stop + said[0]])}"
            return f"{self.scene(r)} and {body}" if len(body) < 80 else f"{body}, {said[-1]}"
        return q

    # ---- sums of two steps -------------------------------------------------------------------

    def steps(self, r):
        """Two small sums in a row, told as a little story, each written out."""
        t, c, who, other = r.choice(THINGS), r.choice(COINS), name(r), r.choice(["friends", "children", "people", "kids", "sisters", "teams"])
        a, b, x = r.randint(2, 12), r.randint(2, 12), r.randrange(8)
        holder = r.choice("boxes bags baskets packs shelves trays rows tables cartons crates jars plates".split())
        gone = r.choice(["{d} break", "{d} are bad", "i eat {d}", "i give away {d}", "{d} fall down", "{d} get lost", "we sell {d}", "{d} are broken", "someone takes {d}", "i lose {d}"])
        said = lambda n: NUMBERS[n] if n < 13 and r.random() < 0.25 else str(n)
        say_a, say_b = said(a), said(b)
        if x in (0, 1):
            d = r.randint(1, min(20, a * b - 1))
            gone = gone.format(d=d)
            left = r.choice(["how many are left", f"how many {t} are left", "how many are still there", f"how many good {t} remain", "how many do i have then", f"how many {t} do i still have"])
            q = r.choice([f"i have {say_a} {holder} with {say_b} {t} each and {gone}. {left}", f"if there are {say_a} {holder} of {say_b} {t} and {gone}, {left}", f"{say_a} {holder}, {say_b} {t} in each, {gone}. {left}", f"there are {say_b} {t} in each of {say_a} {holder}. {gone}. {left}", f"when {gone} out of {say_a} {holder} with {say_b} {t} each, {left}",
                          f"{who} buys {say_a} {holder} of {t}, each holds {say_b}. then {gone.replace('i ', who + ' ').replace('we ', who + ' ')}. {left}"])
            return q, f"{a} * {b} = {a * b} and {a * b} - {d} = {a * b - d}, so it is {a * b - d} {t}.", None
        if x == 2:
            d = r.randint(1, 20)
            q = r.choice([f"i have {say_a} {holder} with {say_b} {t} each and {d} more {t}. how many is that in all", f"there are {say_a} {holder} of {say_b} {t}, plus {d} on the floor. how many {t} are there", f"{who} has {d} {t} and buys {say_a} {holder} with {say_b} in each. how many {t} does {who} have now"])
            return q, f"{a} * {b} = {a * b} and {a * b} + {d} = {a * b + d}, so it is {a * b + d} {t}.", None
        if x == 3:
            pay = next(p for p in (20, 50, 100, 200) if p >= a * b)
            q = r.choice([f"i buy {say_a} {t} for {say_b} {c} each and pay with {pay}. how much change do i get", f"{say_a} {t} cost {say_b} {c} each. i give {pay} {c}. what do i get back", f"i have {pay} {c} and buy {say_a} {t} at {say_b} {c} each. how much is left", f"how much is left of {pay} {c} after {say_a} {t} at {say_b} {c} each"])
            return q, f"{a} * {b} = {a * b} and {pay} - {a * b} = {pay - a * b}, so it is {pay - a * b} {c}.", None
        if x == 4:
            m, n, d = r.randint(5, 60), r.randint(2, 39), r.randint(1, 30)
            d = min(d, m + n)
            q = r.choice([f"{who} has {m} {t}, gets {n} more and gives away {d}. how many are left", f"i had {m} {t}, bought {n} and lost {d}. how many do i have", f"there were {m} people on the bus, {n} got on and {d} got off. how many are on it now", f"i earn {m} {c} on monday and {n} on tuesday and spend {d}. how much is left", f"we have {m} {t} and get {n} more, but {d} are broken. how many good ones do we have"])
            unit = "people" if "bus" in q else c if "earn" in q else t
            return q, f"{m} + {n} = {m + n} and {m + n} - {d} = {m + n - d}, so it is {m + n - d} {unit}.", None
        if x == 5:
            e = r.randint(1, 15)
            n = a * b
            q = r.choice([f"i have {n + e} {t}, keep {e} and share the rest among {say_a} {other}. how many does each get", f"{n + e} {t} for {say_a} {other}, but {e} are bad. how many good ones does each get", f"{e} of {n + e} {t} are lost, and {say_a} {other} share the others. how many for each"])
            return q, f"{n + e} - {e} = {n} and {n} / {a} = {b}, so it is {b} each.", None
        if x == 6:
            m, n, k = r.randint(2, 30), r.randint(2, 30), r.randint(2, 30)
            q = r.choice([f"i walked {m} kilometers on monday, {n} on tuesday and {k} on wednesday. how far is that", f"{who} has {m} {t}, {name(r)} has {n} and {name(r)} has {k}. how many do they have together", f"a shirt is {m} {c}, a hat {n} and a belt {k}. what do i pay for all", f"i scored {m}, {n} and {k} points. what is the total"])
            unit = "kilometers" if "kilometers" in q else "points" if "points" in q else c if "shirt" in q else t
            return q, f"{m} + {n} = {m + n} and {m + n} + {k} = {m + n + k}, so it is {m + n + k} {unit}.", None
        w, h = r.randint(2, 9), r.randint(1, 9)
        q = r.choice([f"i save {say_a} {c} a week for {w} weeks and already have {h}. how much do i have then", f"{who} reads {say_a} pages a day for {w} days and has read {h} before. how many pages is that", f"i get {say_a} {c} an hour, work {w} hours and get a tip of {h}. how much is it"])
        unit = "pages" if "pages" in q else c
        return q, f"{a} * {w} = {a * w} and {a * w} + {h} = {a * w + h}, so it is {a * w + h} {unit}.", None

    def parts(self, r):
        """Percentages, halves and doubles by way of an easy part."""
        x = r.randrange(5)
        may = lambda w: r.choice([f"what is {w}", f"what's {w}", w, f"how much is {w}", f"can you tell me {w}", f"calculate {w}", f"do you know {w}", f"i need {w}", f"tell me {w}"])
        if x == 0:
            h, l = 2 * r.randint(1, 9) * 50, 2 * r.randint(1, 49)
            n = h + l
            return may(r.choice([f"half of {n}", f"half of {n}", f"{n} divided by two", f"one half of {n}"])), f"Half of {h} is {h // 2} and half of {l} is {l // 2}, so half of {n} is {n // 2}.", None
        if x == 1:
            h, l = r.randint(1, 4) * 100, r.randint(1, 99)
            n = h + l
            return may(r.choice([f"double {n}", f"twice {n}", f"two times {n}"])), f"Twice {h} is {2 * h} and twice {l} is {2 * l}, so twice {n} is {2 * n}.", None
        p, base = r.choice([5, 15, 15, 20, 25, 30, 40, 60, 70, 75, 80, 90, 10, 50, 35, 45]), r.choice([20 * r.randint(1, 10), 20 * r.randint(1, 10), 100, 200])
        base = 4 * r.randint(1, 50) if p in (25, 50, 75) and r.random() < 0.6 else base
        tenth, sign = base // 10, r.choice(["%", " percent", "%"])
        v = base * p // 100
        if p == 10:
            a = f"10% of {base} is {tenth}."
        elif p == 50:
            a = f"Half of {base} is {base // 2}, so 50% of {base} is {base // 2}."
        elif p in (25, 75):
            a = f"Half of {base} is {base // 2} and half of {base // 2} is {base // 4}, so 25% of {base} is {base // 4}" + ("." if p == 25 else f" and 75% of {base} is 3 * {base // 4} = {v}.")
        elif p == 5:
            a = f"10% of {base} is {tenth}, so 5% of {base} is {v}."
        elif p % 10 == 5:
            k = p // 10
            first = f"10% of {base} is {tenth}" if k == 1 else f"{10 * k}% of {base} is {k} * {tenth} = {k * tenth}"
            a = f"{first} and 5% is {tenth // 2}, so {p}% of {base} is {k * tenth} + {tenth // 2} = {v}."
        else:
            a = f"10% of {base} is {tenth}, so {p}% of {base} is {p // 10} * {tenth} = {v}."
        shop = r.random()
        if shop < 0.2:
            return r.choice([f"{p}{sign} of my {base} {r.choice(THINGS)} are new. how many is that", f"{p}{sign} of {base} {r.choice(COINS)}", f"a bill is {base} {r.choice(COINS)} and i tip {p}{sign}. how much is the tip"]), a, None
        return may(f"{p}{sign} of {base}"), a, None
