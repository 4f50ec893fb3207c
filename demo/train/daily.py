"""Everyday sums with things and money, orders to devices, words by their first letter, and known questions whose
content words were exchanged, so that they have no known answer any more.

Every maker returns (question, answer, thought)."""

import re
from random import Random

from grammar import FOODS, NUMBERS, name, place, upper_first
from open_talk import ANSWERS, THOUGHT, plural

THINGS = ("books apples tickets pens cookies shirts coffees pizzas eggs toys oranges cups chairs candles cakes balls bottles plants lamps notebooks sandwiches stamps cards bags boxes shoes hats beers teas "
          "muffins bananas melons magazines pencils flowers roses postcards rides games burgers").split()
COINS = ["euros", "dollars", "pounds", "coins", "euros", "dollars", "cents", "bucks"]
STARTS = {
    "country": "Austria Brazil Canada Denmark Egypt France Germany Hungary Italy Japan Kenya Libya Mexico Norway Oman Portugal Qatar Romania Spain Turkey Uganda Vietnam Yemen Zambia",
    "fruit": "apple banana cherry date elderberry fig grape honeydew kiwi lemon mango nectarine orange pear quince raspberry strawberry watermelon",
    "city": "Athens Berlin Chicago Dublin Edinburgh Florence Geneva Hamburg Istanbul Jakarta Krakow London Madrid Naples Oslo Paris Quebec Rome Seattle Tokyo Utrecht Vienna Warsaw York Zurich",
    "girl's name|woman's name": "Anna Bella Clara Diana Emma Fiona Grace Helen Iris Julia Kate Laura Mia Nora Olga Paula Rosa Sarah Tina Ursula Vera Wendy Yara Zoe",
    "boy's name|man's name": "Adam Ben Carl David Eric Felix George Henry Ivan Jack Karl Leo Max Noah Oscar Paul Quentin Robert Simon Tom Victor Will Yusuf",
    "vegetable": "asparagus broccoli carrot eggplant fennel garlic kale leek onion pea radish spinach tomato zucchini",
    "color": "amber blue cyan emerald gold indigo lavender magenta navy orange pink red silver turquoise violet white yellow",
    "job": "actor baker carpenter doctor engineer farmer gardener hairdresser inspector judge lawyer mechanic nurse optician pilot reporter singer teacher vet waiter",
}
# words that only give a question its form: exchanging them would not change what it asks
FORM = set("what which who whom whose where when why how is are was were do does did can could will would should shall may might must the a an of for to in on at with and or not no my your his her our their its it i you he she we they me us them this "
           "that these those there here have has had be been am as by from about into than then so very much many more most some any tell give name list say know please want need like get got let make made good nice best great really just "
           "too also if one two three i'm i've it's what's don't can't cannot today now again".split())
BY_FORM = [("how many", "many"), ("how much", "many"), ("how old", "many"), ("how long", "many"), ("how far", "many"), ("how fast", "many"), ("how tall", "many"), ("how big", "many"), ("how hot", "many"), ("how cold", "many"), ("how heavy", "many"), ("how deep", "many"), ("how high", "many"), ("how wide", "many"), ("how loud", "many"), ("how often", "many"), ("how come", "why"), ("how about", "opinion"), ("how was", "there"), ("how were", "there"), ("how did it", "there"), ("how do i", "do"), ("how can i", "do"), ("how should i", "do"),
           ("how do you", "do"), ("how to", "do"), ("how", "how"), ("why", "why"), ("who is", "who"), ("who was", "who"), ("who", "did"), ("when is", "time"), ("when do", "time"), ("when will", "time"), ("when can", "time"), ("when should", "time"), ("when", "when"), ("where", "where"), ("which", "fits"), ("what do you think", "opinion"),
           ("do you like", "opinion"), ("what should i", "which"), ("what can i", "which"), ("should", "should"), ("what", "what"), ("is ", "yes"), ("are ", "yes"), ("do ", "yes"), ("does ", "yes"), ("did ", "yes"), ("has ", "yes"), ("was ", "yes"),
           ("can i", "yes"), ("may i", "yes"), ("explain", "what"), ("define", "what"), ("tell me about", "what"), ("describe", "what"), ("write", "write"), ("translate", "lang"), ("i like", "like"), ("i love", "like"),
           ("recommend", "which"), ("suggest", "which")]


def as_regex(q):
    """A grammar's question as a pattern, without the marks at its end."""
    out = "".join({"{": "(?:", "}": ")", "|": "|"}.get(c) or re.escape(c) for c in q.lower())
    return re.compile(out + "[?.! ]*")


SAID = re.compile(r"^(i|i'm|i've|my|we|our|it is|it's|someone|the|he|she|they|there|this|yesterday|today) ")
PLEA = re.compile(r"(what (can|should|do|could|would) (i|you|we) [a-z ]*|any (tips?|advice|ideas?|suggestions?)|help( me)?|what now|what helps|how (do|can|should) i [a-z ]+|why|is (that|it) [a-z]+)[?.! ]*$")
ASKS = re.compile(r"(what|how|any|help|can you|do you)")


class Daily:
    def __init__(self, open_talk, written, made, entries, last, keys):
        """written, made: makers of known questions, from the grammars in data/ and from tables; entries, last: those
        grammars, of which `last` yields to the others; keys: what the grammars call the same prompt."""
        self.open, self.written, self.made, self.key = open_talk, written, made, keys
        self.nouns, self.verbs, self.adjectives = (set(w) for w in (open_talk.nouns, open_talk.verbs, open_talk.adjectives))
        self.known = [as_regex(q) for qs, _ in entries + last for q in qs]
        self.older = sum(len(qs) for qs, _ in entries)
        self.usual = {"verb": [], "adjective": [], "noun": []}  # the content words of everyday prompts
        r = Random("everyday words")
        for _ in range(6000):
            for w in r.choice(written)(r)[0].lower().split():
                w = w.strip("?.!,'\"")
                if w.isalpha() and len(w) > 2 and w not in FORM:
                    self.usual[self.class_of(w) or "noun"].append(w)

    def class_of(self, w):
        """verb or adjective where the word can only be that, else None."""
        return None if w in self.nouns else "verb" if w in self.verbs else "adjective" if w in self.adjectives else None

    def is_known(self, q):
        q = q.lower().strip().rstrip("?.! ")
        return any(p.fullmatch(q) for p in self.known)

    def kind_of(self, q):
        """Which honest reply fits the form of a prompt."""
        low = q.lower()
        kind = next((k for start, k in BY_FORM if low.startswith(start)), None)
        if kind is None:
            kind = "say" if SAID.match(low) else "unsure"
            if kind == "say" and (PLEA.search(low) or ASKS.search(low[-40:]) and low.endswith("?")):
                kind = "asks"
        return kind

    def said_before(self, q):
        """Whether a grammar but the last one has a reply to it."""
        q = q.lower().strip().rstrip("?.! ")
        return any(p.fullmatch(q) for p in self.known[: self.older])

    def money(self, r):
        """One product, difference, share or sum, told as a little story."""
        x, t, c, who = r.randrange(14), r.choice(THINGS), r.choice(COINS), name(r)
        a, b = r.randint(2, 12), r.randint(2, 12)
        one = t[:-2] if t.endswith("xes") else t[:-1]
        product = f"{a} * {b} = {a * b}, so it is {a * b}"
        if x in (0, 1, 2):
            q = r.choice([f"i bought {a} {t} for {b} {c} each. how much did i pay", f"{a} {t} cost {b} {c} each. how much is that", f"if one {one} costs {b} {c}, how much do {a} {t} cost", f"one {one} is {b} {c}. how much are {a}",
                          f"{who} buys {a} {t} at {b} {c} each. what is the total", f"how much do i pay for {a} {t} at {b} {c} each", f"a {one} costs {b} {c}. what do {a} {t} cost", f"i sell {a} {t} for {b} {c} each. how much do i get",
                          f"what do {a} {t} cost if each is {b} {c}", f"each {one} costs {b} {c} and i want {a}. how much is it", f"i need {a} {t}. they are {b} {c} each. what will it cost", f"{who} bought {a} {t} for {b} {c} each. how much did {who} spend"])
            if r.random() < 0.3:
                many, each = r.choice([NUMBERS[a], str(a)]), r.choice([NUMBERS[b], str(b)])
                q = r.choice([f"if one {one} is {each} {c}, what do {many} {t} cost", f"{many} {t} at {each} {c} each. how much is it", f"i want {many} {t} for {each} {c} each. what do i pay", f"what do {many} {t} cost at {each} {c} each", f"one {one} costs {each} {c}. what about {many}"])
            return q, f"{product} {c}.", f"This is {a} * {b} = {a * b}."
        if x == 3:
            if r.random() < 0.15:
                k = r.randint(2, 9)
                q = r.choice([f"there are 24 hours in a day. how many hours in {k} days", f"a day has 24 hours. how many hours do {k} days have", f"how many hours are {k} days", f"{k} days in hours"])
                return q, f"20 * {k} = {20 * k} and 4 * {k} = {4 * k}, so it is {24 * k} hours.", None
            q = r.choice([f"there are {a} boxes with {b} {t} each. how many {t} are there", f"a box holds {b} {t}. how many {t} are in {a} boxes", f"{a} children have {b} {t} each. how many is that", f"{who} reads {b} pages a day. how many pages in {a} days",
                          f"i run {b} kilometers a day. how far in {a} days", f"a car has {b} seats. how many seats do {a} cars have", f"{who} earns {b} {c} an hour. how much in {a} hours", f"i work {b} hours a day for {a} days. how many hours is that"])
            unit = "pages" if "pages" in q else "kilometers" if "kilometers" in q else "seats" if "seats" in q else c if c in q else "hours" if "hours a day" in q else t
            return q, f"{a} * {b} = {a * b}, so it is {a * b} {unit}.", f"This is {a} * {b} = {a * b}."
        if x in (4, 5):
            a, b = sorted((r.randint(1, 99), r.choice([10, 20, 50, 100, r.randint(2, 99)])))[::-1]
            q = r.choice([f"i have {a} {c} and spend {b}. how much is left", f"i pay with {a} {c} for a {one} that costs {b}. how much change do i get", f"a {one} costs {b} {c} and i pay with {a}. what is my change", f"i had {a} {c} and bought a {one} for {b}. how much do i have left",
                          f"{who} had {a} {c} and gave {b} away. how much does {who} have", f"the {one} cost {a} {c}, now it is {b} cheaper. what does it cost", f"i saved {a} {c} and spent {b}. what is left", f"if i have {a} {c} and buy something for {b}, what is left"])
            return q, f"{a} - {b} = {a - b}, so it is {a - b} {c}.", f"This is {a} - {b} = {a - b}."
        if x in (6, 7):
            n = a * b
            q = r.choice([f"{n} {t} are shared by {a} people. how many does each get", f"share {n} {t} among {a} children", f"if {a} friends split {n} {c}, how much does each get", f"divide {n} {t} among {a} people", f"{a} {t} cost {n} {c}. how much is one",
                          f"we are {a} people and the bill is {n} {c}. how much does each pay", f"i have {n} {t} and {a} boxes. how many {t} go into each box", f"split {n} {t} into {a} equal parts"])
            if r.random() < 0.4 and f" {a} " in q and a != n:
                q = q.replace(f" {a} ", f" {NUMBERS[a]} ", 1)
            if r.random() < 0.2:
                q = r.choice([f"{NUMBERS[a]} friends share {n} {t} equally. how many does each get", f"{NUMBERS[a]} kids share {n} {t}. how many for each", f"{n} {t} for {NUMBERS[a]} people. how many each", f"{a} people share {n} {c} equally. how much does each get"])
            return q, f"{n} / {a} = {b}, so it is {b} each.", f"This is {n} / {a} = {b}."
        if x == 8:
            a, b = r.randint(5, 80), r.randint(2, 15)
            sib, pro = r.choice([("sister", "she"), ("brother", "he"), ("friend", "he"), ("wife", "she"), ("cousin", "she"), ("husband", "he")])
            older = r.random() < 0.5 or a <= b
            q = r.choice([f"i am {a} and my {sib} is {b} years {'older' if older else 'younger'}. how old is {pro}", f"{who} is {a}. {who}'s {sib} is {b} years {'older' if older else 'younger'}. how old is {pro}"])
            v = a + b if older else a - b
            return q, f"{a} {'+' if older else '-'} {b} = {v}, so the age is {v}.", f"This is {a} {'+' if older else '-'} {b} = {v}."
        if x == 9:
            h, k = r.randint(1, 10), r.randint(1, 6)
            t = (h + k - 1) % 12 + 1
            if r.random() < 0.2:
                h = r.randint(7, 12)
                q = r.choice([f"if it is {h} now, what time was it {k} hours ago", f"it is {h} o'clock. what time was it {NUMBERS[k]} hours ago", f"if it's {h} pm now, what time was it {NUMBERS[k]} hours ago", f"what time was it {k} hours before {h} o'clock"])
                return q, f"It was {h - k} o'clock then.", f"{h} - {k} = {h - k}."
            q = r.choice([f"my train leaves at {h} and takes {k} hours. when do i arrive", f"my flight leaves at {h} and takes {NUMBERS[k]} hours. when do i land", f"the bus leaves at {h} and needs {k} hours. when is it there", f"a train leaves at {h} o'clock and takes {k} hours. when does it arrive", f"the film starts at {h} and lasts {k} hours. when does it end", f"i start work at {h} and work for {k} hours. when am i done", f"we leave at {h} o'clock and drive {k} hours. when do we arrive"])
            return q, f"It is {t} o'clock then.", f"{h} + {k} = {h + k}."
        if x == 10:
            a, b = r.randint(1, 60), r.randint(1, 39)
            q = r.choice([f"a {one} costs {a} {c} and a {r.choice(['bag', 'hat', 'lamp'])} {b}. how much is it together", f"i paid {a} {c} for food and {b} for gas. how much did i spend", f"i have {a} {c} and {who} has {b}. how much do we have together", f"i got {a} {c} from my aunt and {b} from my uncle. how much is that",
                          f"i drove {a} kilometers yesterday and {b} today. how far did i drive", f"{who} scored {a} points and then {b} more. how many points is that"])
            unit = "kilometers" if "kilometers" in q else "points" if "points" in q else c
            return q, f"{a} + {b} = {a + b}, so it is {a + b} {unit}.", f"This is {a} + {b} = {a + b}."
        if x == 11:
            a, other, k = r.randint(2, 40), name(r), r.choice(["twice", "twice", "three times", "half"])
            a = a * 2 if k == "half" else a
            op, b, v = ("/", 2, a // 2) if k == "half" else ("*", 2 if k == "twice" else 3, a * (2 if k == "twice" else 3))
            q = r.choice([f"{who} has {k} as many {t} as {other}. {other} has {a}. how many does {who} have", f"{other} has {a} {t} and {who} has {k} as many. how many {t} does {who} have", f"i have {a} {t} and my friend has {k} as many. how many does my friend have"])
            return q, f"{a} {op} {b} = {v}, so it is {v} {t}.", f"This is {a} {op} {b} = {v}."
        n, animal, legs = r.randint(2, 10), *r.choice([("dogs", 4), ("cats", 4), ("spiders", 8), ("birds", 2), ("horses", 4), ("bees", 6), ("people", 2), ("cows", 4), ("chickens", 2), ("cars", 4), ("bikes", 2)])
        what = "wheels" if legs in (2, 4) and animal in ("cars", "bikes") else "legs"
        q = r.choice([f"how many {what} do {n} {animal} have", f"how many {what} have {n} {animal} together", f"{n} {animal} have how many {what}"])
        return q, f"{n} * {legs} = {n * legs}, so it is {n * legs} {what}.", f"This is {n} * {legs} = {n * legs}."

    def device(self, r):
        """Orders that need hands, a phone or an account."""
        n, who, k = self.open.noun(r), r.choice([name(r), "my mother", "my boss", "dad", "the office", "my sister", "the dentist", "grandma", "my landlord"]), r.randint(2, 45)
        p, food, at = self.open.phrase(r), r.choice(FOODS), r.choice(["tomorrow", "at seven", "tonight", "at noon", "on Friday", f"in {k} minutes", "next week", "every morning", f"at {k % 12 + 1}", "on Monday at ten"])
        q = r.choice([f"remind me to {p} {at}", f"remind me to {p}", f"remind me about the {n} {at}", f"turn on the {n}", f"turn off the {n}", f"turn the {n} off", f"switch the {n} on", f"call {who}", f"call {who} {at}", f"text {who} that i am late",
                      f"send {who} a message", f"email {who} about the {n}", f"tell {who} that i will be late", f"message {who}", f"set a timer for {k} minutes", f"set an alarm for {k % 12 + 1}", f"set an alarm {at}", f"wake me up {at}", f"order {food}", f"order me {food} {at}",
                      f"order a {n} online", f"buy me a {n}", f"book a {r.choice(['room', 'flight', 'table', 'ticket', 'taxi', 'hotel', 'seat', 'train', 'trip'])} to {place(r)}", f"book a table for {k % 9 + 1} {at}", f"book me a {r.choice(['flight', 'hotel', 'train', 'ticket'])} {at}",
                      f"reserve a {n} {at}", f"add {food} to my shopping list", f"add {n} to my cart", f"put {food} on the list", f"put the meeting with {who} in my calendar", f"schedule a meeting with {who} {at}", f"cancel my {n} {at}", f"navigate to {place(r)}",
                      f"take me to {place(r)}", f"show me the way to {place(r)}", f"play {n} music", f"play the song {n}", f"play something by {name(r)}", f"open {n}", f"open my {n}", f"open the {n} app", f"close the {n}", f"delete the {n}", f"download {n}", f"install {n}", f"print the {n}",
                      f"save this as {n}", f"upload my {n}", f"post the {n} online", f"search the web for {n}", f"google {n}", f"look up {n} online", f"find {n} near me", f"find me a {n} in {place(r)}", f"pay the {n}", f"transfer {k} euros to {who}", f"send {k} dollars to {who}",
                      f"take a picture of the {n}", f"record a video of the {n}", f"lock the {n}", f"unlock the {n}", f"start the {n}", f"stop the {n}", f"increase the {n}", f"turn up the {n}", f"turn down the {n}", f"set the {n} to {k}", f"clean the {n}", f"fix the {n} for me", f"check my {n}",
                      f"read me my {n}", f"track my {n}", f"sign me up for {n}", f"log in to my {n}", f"do my {n} for me", f"write it on the {n}", f"translate this audio", f"listen to the {n}", f"show me a picture of a {n}", f"show me my {n}", f"draw me a {n}", f"draw a {n}"])
        q = r.choice(["", "", "", "please ", "can you ", "could you ", "will you ", "can you please ", "i want you to "]) + q + r.choice(["", "", "", " please", " for me", " now", ", please"])
        if "draw" in q or "picture of" in q:
            return q, "I cannot make pictures. I can only read and write text.", None
        return q, "I cannot do that. I am a program and can only read and write text.", None

    def starts(self, r):
        kinds, words = r.choice(list(STARTS.items()))
        w, kind = r.choice(words.split()), r.choice(kinds.split("|"))
        x, an = w[0].upper(), "an" if kind[0] in "aeiou" else "a"
        q = r.choice([f"name {an} {kind} that starts with {x}", f"{an} {kind} with {x}", f"give me {an} {kind} that begins with {x}", f"which {kind} starts with the letter {x}", f"tell me {an} {kind} beginning with {x}", f"what is {an} {kind} that starts with {x}", f"think of {an} {kind} that begins with the letter {x}"])
        return q, f"{upper_first(w)}.", None

    def numbers(self, r):
        """Rounding, series of numbers, larger products in two steps, and sentences with a word."""
        x = r.randrange(11)
        if x in (5, 6):
            a, b, c = r.randint(1, 30), r.randint(1, 30), r.randint(1, 20)
            s1, s2 = r.choice([("+", "-"), ("-", "+"), ("-", "-"), ("+", "-")])
            m = a + b if s1 == "+" else a - b
            t = m + c if s2 == "+" else m - c
            say = {"+": r.choice(["plus", "+"]), "-": r.choice(["minus", "-"])}
            if m < 0 or t < 0:
                return self.hard(r)
            q = r.choice([f"what is {a} {say[s1]} {b} {say[s2]} {c}", f"{a} {say[s1]} {b} {say[s2]} {c}", f"how much is {a} {say[s1]} {b} {say[s2]} {c}", f"calculate {a} {s1} {b} {s2} {c}", f"what's {a} {say[s1]} {b} {say[s2]} {c}"])
            return q, f"{a} {s1} {b} = {m} and {m} {s2} {c} = {t}, so it is {t}.", None
        if x == 7:
            h, k = r.randint(8, 11), r.randint(4, 9)
            q = r.choice([f"if i sleep from {h} pm to {k} am, how many hours is that", f"i go to bed at {h} pm and get up at {k} am. how long do i sleep", f"how many hours are between {h} pm and {k} am", f"how long is it from {h} pm to {k} am", f"i slept from {h} in the evening until {k} in the morning. how long did i sleep"])
            return q, f"{12 - h} + {k} = {12 - h + k}, so it is {12 - h + k} hours.", None
        if x == 9:
            a, b = r.randint(2, 12), r.randint(1, 20)
            s = r.choice("+-")
            m = a * a + b if s == "+" else a * a - b
            if m < 0:
                return self.hard(r)
            w = {"+": "plus", "-": "minus"}[s]
            q = r.choice([f"what is {a} squared {w} {b}", f"{a} squared {w} {b}", f"what is {a} times {a} {w} {b}", f"{a} * {a} {s} {b}", f"calculate {a} x {a} {w} {b}"])
            return q, f"{a} * {a} = {a * a} and {a * a} {s} {b} = {m}, so it is {m}.", None
        if x == 10:
            a, b = sorted((r.randint(0, 99), r.randint(0, 99)))[::-1]
            q = r.choice([f"what is the difference between {a} and {b}", f"what's the difference between {b} and {a}", f"difference of {a} and {b}", f"how much bigger is {a} than {b}", f"how much is missing from {b} to {a}", f"how far is it from {b} to {a} on the number line", f"subtract {b} from {a}", f"take {b} from {a}"])
            return q, f"{a} - {b} = {a - b}.", None
        if x == 8:
            return self.hard(r)
        if x == 0:
            n, d = r.randint(0, 99), r.choice([1, 2, 3, 4, 5, 6, 7, 8, 9])
            q = r.choice([f"round {n}.{d}", f"round {n}.{d} to the nearest whole number", f"what is {n}.{d} rounded", f"round {n}.{d} to a whole number", f"round off {n}.{d}"])
            return q, f"{n}.{d} rounds to {n + (d >= 5)}.", None
        if x in (1, 2):
            step, start = r.choice([1, 2, 2, 3, 4, 5, 5, 10, 10, 100, -1, -2, -5]), r.randint(0, 60)
            seq = [start + (60 if step < 0 else 0) + i * step for i in range(r.randint(3, 5) + 1)]
            shown = ", ".join(map(str, seq[:-1]))
            q = r.choice([f"what comes next: {shown}", f"what number comes next: {shown}", f"which number comes next? {shown}", f"what is the next number in this series: {shown}", f"{shown}. what comes next", f"what comes after {shown}", f"what is next: {shown}, ...", f"complete the sequence {shown}", f"find the next number: {shown}"])
            return q, f"The next number is {seq[-1]}.", f"The numbers go {'up' if step > 0 else 'down'} by {abs(step)}."
        if x == 3:
            a, b = r.randint(13, 49), r.randint(2, 9)
            t, o = a // 10 * 10, a % 10
            w = f"{a} times {b}" if r.random() < 0.5 else f"{b} times {a}"
            q = r.choice([f"what is {w}", f"what's {w}", f"how much is {w}", w, f"{a} * {b}", f"{a} x {b}", f"calculate {a} * {b}", f"multiply {a} by {b}"])
            return q, f"{t} * {b} = {t * b} and {o} * {b} = {o * b}, so it is {a * b}.", None
        w = r.choice([r.choice(self.open.nouns), r.choice(self.open.verbs), r.choice(self.open.adjectives), r.choice(self.open.rare)])
        quote = r.choice(['"', "", "'"])
        q = r.choice([f"use {quote}{w}{quote} in a sentence", f"use the word {quote}{w}{quote} in a sentence", f"make a sentence with {quote}{w}{quote}", f"write a sentence with the word {quote}{w}{quote}", f"give me a sentence with {quote}{w}{quote}", f"put {quote}{w}{quote} in a sentence", f"can you use {quote}{w}{quote} in a sentence"])
        return q, f'She wrote the word "{w}" on the board.', None

    def hard(self, r):
        """Sums in forms that nothing has taught."""
        a, b, c, n, m, v, who = r.randint(2, 90), r.randint(2, 90), r.randint(2, 30), plural(self.open.noun(r)), plural(self.open.noun(r)), r.choice(self.open.verbs), name(r)
        t, coin = r.choice(THINGS), r.choice(COINS)
        big = [f"{r.randint(201, 999)} {r.choice(['minus', '-', 'plus', '+'])} {r.randint(101, 999)}" for _ in range(3)]
        q = r.choice([f"what is {big[0]}", f"{big[1]}", f"how much is {big[2]}", f"if it is {c % 12 + 1} pm now, what time was it {a} minutes ago", f"{a} {n} {v} {b} {m} in {c} days. how many {n} are needed for {c + 3} {m}", f"a {t[:-1]} costs {a} {coin} and is {r.choice([5, 10, 15, 20, 25, 30, 50])}% off. what is the price", f"the price of {a} {coin} goes up by {c}%. what is it now", f"{who} is {a} and {name(r)} is twice as old. how old are both in {c} years",
                      f"if {a} {n} need {c} hours, how long do {b} {n} need", f"{a} of {b} {n} are {r.choice(self.open.adjectives)}. what percentage is that", f"what is the average of {a}, {b} and {c}", f"what is the area of a room of {a} by {c} meters", f"how many {n} fit in a box of {a} by {b} by {c}",
                      f"i invest {a * 100} {coin} at {c % 9 + 1} percent. how much do i have after {c} years", f"{a} {n} weigh {b} kilos. how much do {c} {n} weigh", f"{who} walks {a} kilometers in {c} hours. how fast is that", f"how many ways can i arrange {c} {n}", f"what is {a}/{b} plus {c}/{b + 1}",
                      f"what is the chance to {v} {a} {n} out of {b}", f"from {a} to {b} there are how many {r.choice(['odd numbers', 'primes', 'even numbers'])}", f"i drive {a} kilometers at {b} kilometers per hour. how long does it take", f"what is {a + (a % 5 == 0)} percent of {b * 7 + 3}", f"a tank loses {a} liters every {c} minutes. when is it empty",
                      f"how much tip do i leave on a bill of {a}.{b}", f"how many seconds are {a} years", f"what is the perimeter of a garden of {a} by {b} meters", f"solve for x: {c}x - {a} = {b}", f"{who} has {a} {t} more than {name(r)}, and together they have {a + b}. how many does each have"])
        return q, "That is too hard a sum for me. I am only good at small sums in one step.", THOUGHT

    def filled(self, r):
        """Forms whose reply does not depend on the thing named, with any thing in them."""
        n, v, a, where, who = self.open.noun(r), r.choice(self.open.verbs), r.choice(self.open.adjectives), place(r), name(r)
        ns, p, when = plural(n), self.open.phrase(r), r.choice(["", "", "", " today", " yesterday", " last week", " this morning", " again", " on the train", " at work", " last night"])
        mine = r.choice(["my", "my", "my", "the", "our", "my old", "my new", "my favourite", f"my {a}"]) + " " + n
        help_ = r.choice(["", "", "", ". what can i do", ". what should i do", ", help", ". any tips", "! what now"])
        q, reply = r.choice([
            (r.choice([f"what is your favourite {n}", f"do you have a favourite {n}", f"what's your favorite {n}", f"which {n} do you like best", f"what {n} do you like most"]), "I am a program, so I have no favourites. What is yours?"),
            (r.choice([f"what time is it in {where}", f"what is the time in {where}", f"how late is it in {where}", f"current time in {where}", f"which day is it in {where}"]), "I cannot see a clock or a calendar. Please look at your computer or phone."),
            (r.choice([f"what is the weather like in {where}", f"how is the weather in {where}", f"will it rain in {where} tomorrow", f"is it cold in {where} right now", f"weather in {where}", f"what's the forecast for {where}", f"is it snowing in {where}", f"how warm is it in {where} today"]), "I cannot see the weather, since I have no connection to the outside. A weather service can tell you."),
            (r.choice([f"is there a {n} near me", f"where is the nearest {n}", f"when does the {n} open", f"when does the {n} close", f"is the {n} open today", f"how do i get to the {n}", f"which bus goes to the {n}", f"where can i park near the {n}", f"find a {n} near here"]), "I do not know your surroundings, and I have no map. A map service can tell you."),
            (r.choice([f"who won the {n} match", f"who won the {n} award", f"what is the latest news about {ns}", f"any news about the {n}", f"what happened in {where} today", f"is the {n} on strike", f"what is the news from {where}", f"who won the game in {where}"]), "I do not know. I have no connection to the internet, so I cannot see the news."),
            (r.choice([f"i lost {mine}{when}", f"i cannot find {mine}", f"i can't find {mine}{when}", f"someone stole {mine}{when}", f"i left {mine} somewhere{when}", f"where is {mine}? i cannot find it", f"i misplaced {mine}{when}"]) + help_, "That is annoying. Think about where you had it last, look there again, and ask at the lost and found."),
            (r.choice([f"i broke {mine}{when}", f"i dropped {mine}{when}", f"{mine} is broken", f"{mine} broke{when}", f"i damaged {mine}", f"my dog ate {mine}", f"{mine} got wet{when}", f"{mine} fell down{when}"]) + help_, "Oh no, I am sorry. Perhaps it can be repaired. These things happen to everyone."),
            (r.choice([f"{mine} does not work", f"{mine} won't start", f"{mine} stopped working{when}", f"{mine} makes a strange noise", f"{mine} is too loud", f"{mine} is slow", f"{mine} won't turn on", f"something is wrong with {mine}"]) + help_, "I cannot see it from here. Check the simple things first, and ask someone who knows about it."),
            (r.choice([f"i bought a new {n}{when}", f"i got a new {n}{when}", f"we have a new {n}", f"i just bought a {n}", f"i finally have my own {n}", f"look at my new {n}", f"my new {n} arrived{when}"]), "How nice! I hope it brings you a lot of joy."),
            (r.choice([f"i finished my {n}{when}", f"i finally finished the {n}", f"i won the {n} contest", f"i won a {n}", f"i passed my {n} exam", f"i got a prize for my {n}", f"i finally learned to {v}", f"my {n} was a success", f"i built a {n} all by myself", f"i made my first {n}"]), "Well done! You can be proud of that."),
            (r.choice([f"i failed my {n} exam{when}", f"i lost the {n} contest", f"i did not get the {n}", f"i failed the {n} test", f"my {n} was a failure", f"i messed up my {n}{when}"]), "I am sorry to hear that. It is not the end of the world. Look at what went wrong and try again."),
            (r.choice([f"i am afraid of {ns}", f"i'm scared of the {n}", f"i am worried about my {n}", f"i'm nervous about the {n}{when}", f"i am anxious about my {n}", f"the {n} makes me nervous", f"tomorrow is my {n} and i am nervous"]), "I understand that this worries you. Breathe slowly, and take one small step at a time."),
            (r.choice([f"i miss my {n}", f"i miss {who}", f"i miss {where}", f"i miss the old {n}", f"i miss my old {n} so much"]), "I understand. It is good to have something dear to remember. Tell me more about it if you like."),
            (r.choice([f"i am learning about {ns}", f"i am learning to {v}", f"i started to {v}{when}", f"i am taking a {n} class", f"i joined a {n} club", f"i signed up for a {n} course", f"i want to become a {n}", f"i am training for a {n} race"]), "How nice! Keep at it a little every day, and you will get better."),
            (r.choice([f"i can't decide between the {n} and the {self.open.noun(r)}", f"i cannot decide which {n} to {v}", f"i can't decide if i should {p}", f"i don't know whether to {p}", f"i am not sure which {n} to choose", f"help me decide which {n} to buy", f"i can't choose a {n}", f"i have to decide about the {n}"]) + r.choice(["", "", ". any advice", ". what do you think"]), "Write down what matters most to you, compare the choices, and sleep on it. The one that feels right in the morning is often good."),
            (r.choice([f"recipe for {n} soup", f"how do i cook {n}", f"how do i make {n} cake", f"give me a recipe for {ns}", f"how do you prepare {n}", f"what is a good recipe with {n}", f"how do i bake {n} bread", f"how do i make a {n} pie"]), "I do not know that recipe well. A cookbook can tell you the steps."),
            (r.choice([f"how do i clean {mine}", f"how can i clean a {n}", f"what is the best way to clean {ns}", f"how do i wash {mine}", f"how to polish a {n}", f"{mine} is dirty. how do i clean it"]), "Use warm water with a little soap, wipe it well, and dry it with a clean cloth."),
            (r.choice([f"how do i repair {mine}", f"how can i fix {mine}", f"how do i fix a broken {n}", f"how to repair a {n}", f"how do i build a {n}", f"how do i put together a {n}", f"how do i replace {mine}", f"how do i install a {n}"]), "Get the right tools, go step by step, and take your time. A short video will show it better than I can tell it."),
            (r.choice([f"there is a {n} stain on my {self.open.noun(r)}", f"i spilled {n} on my {self.open.noun(r)}", f"how do i get {n} out of my {self.open.noun(r)}", f"how do i remove a {n} stain", f"how do i get a stain out of {mine}"]) + help_, "Act quickly: dab it with cold water and a little soap, do not rub hard, and then wash it as usual."),
            (r.choice([f"{mine} smells bad", f"{mine} smells terrible", f"{mine} stinks", f"there is a bad smell in the {n}", f"how do i get rid of the smell in {mine}", f"why does {mine} smell"]) + help_, "Air it well, clean it with warm water and a little vinegar, and put out a bowl of baking soda overnight."),
            (r.choice([f"my neighbour's {n} is too loud", f"my neighbour {v}s all night", f"my roommate took my {n}", f"my boss wants me to {p}", f"my sister never wants to {v}", f"my brother broke my {n}", f"my colleague is always {a}", f"my boss does not like my {n}", f"my friend forgot my {n}", f"my roommate never cleans the {n}"]) + help_, "Talk to the person calmly, say what bothers you, and look for a rule that suits both of you."),
            (r.choice([f"my {self.open.noun(r)} hurts when i {v}", f"my {r.choice(['leg', 'arm', 'back', 'head', 'eye', 'ear', 'foot', 'hand', 'knee', 'neck', 'stomach', 'tooth'])} {r.choice(['hurts', 'aches', 'is sore', 'itches', 'is swollen', 'feels numb', 'burns'])}{when}", f"i hurt my {r.choice(['leg', 'arm', 'back', 'head', 'eye', 'ear', 'foot', 'hand', 'knee', 'neck', 'shoulder'])}{when} while i {v}"]) + help_, "I am sorry to hear that. Rest, drink enough water, and see a doctor if it does not get better. Get well soon!"),
            (r.choice([f"i am going to a {n} festival{when}", f"we are going to {where} next week", f"i am visiting {where} in summer", f"next month i travel to {where}", f"we booked a trip to {where}", f"i am off to the {n} fair", f"tonight we celebrate the {n}", f"i am meeting {who} for coffee"]), "That sounds nice! I hope you have a good time."),
            (r.choice([f"i went to {where}{when}", f"i was at a {n} party{when}", f"we saw the {n} museum{when}", f"we just came back from {where}", f"i visited {who} in {where}", f"i spent the weekend in {where}"]), "How was it? I hope you had a good time."),
            (r.choice([f"can you see my {n}", f"did you see the {n}", f"have you ever seen a {n}", f"have you been to {where}", f"have you ever tried {n}", f"do you own a {n}", f"have you ever {v}ed", f"do you ever {v}", f"can you smell the {n}"]), "No, I am a program, so I do not. I only read and write text."),
            (r.choice([f"how much is a {n}", f"what does a {n} cost", f"how much does a {n} cost in {where}", f"what is the price of a {n}", f"is a {n} expensive", f"how expensive is life in {where}", f"how much money do i need for a {n}"]), "I do not know current prices, since I have no internet access."),
            (r.choice([f"how far is it from {where} to {place(r)}", f"how long is the flight to {where}", f"how long does it take to drive to {where}", f"how many kilometers is it to {where}", f"how long does it take from {where} to {place(r)}"]), "I do not know distances and travel times. A map service can tell you."),
            (r.choice([f"tell me a fun fact about {ns}", f"tell me an interesting fact about {where}", f"give me a fact about the {n}", f"do you know something interesting about {ns}", f"tell me three facts about {ns}"]), "I do not know enough about that. I am only a small demo model."),
        ])
        return q, reply, None

    def changed(self, r):
        """A known question with some of its content words exchanged for others: for those of other everyday prompts,
        as long as no grammar knows the outcome, or for any words."""
        while True:
            everyday = r.random() < 0.6
            q, a, _ = r.choice(self.written if everyday else self.written + self.made)(r)
            if len(q) > 140 or a.startswith("I do not know") or ":" in q or "\n" in q:
                continue
            words = q.split()
            spots = [i for i, w in enumerate(words) if w.lower().strip("?.!,'\"") not in FORM and len(w.strip("?.!,")) > 2 and w.strip("?.!,").isalpha()]
            if not spots:
                continue
            for i in r.sample(spots, min(len(spots), r.choice([1, 1, 2, 2, 3]))):
                w = words[i].strip("?.!,")
                tail = words[i][len(w):] if words[i].startswith(w) else ""
                kind = self.class_of(w.lower())
                if everyday:
                    new = r.choice(self.usual[kind or "noun"])
                else:
                    new = r.choice({"verb": self.open.verbs, "adjective": self.open.adjectives}[kind]) if kind else self.open.noun(r)
                    new = plural(new) if not kind and w.endswith("s") and not w.endswith("ss") else new
                words[i] = new + tail
            q2 = " ".join(words)
            if self.key(q2) == self.key(q) or self.is_known(q2):
                continue
            if (len(words) < 6 or not everyday) and any(w.strip("?.!,").lower().rstrip("s") in self.open.taken for w in words if w not in q.split()):
                continue  # a table may know it
            kind = self.kind_of(q2)
            return q2, r.choice(ANSWERS[kind]), THOUGHT if kind not in ("say", "like") else None

    def spliced(self, r):
        """The beginning of one known prompt with the end of another: near to both, and known to no grammar."""
        while True:
            heads, tails = (r.choice(self.written)(r)[0].split() for _ in range(2))
            if not (4 <= len(heads) <= 16 and 4 <= len(tails) <= 16) or ":" in " ".join(heads + tails):
                continue
            i, j = r.randint(2, len(heads) - 1), r.randint(1, len(tails) - 2)
            words = [w.strip("?.!,") for w in heads[:i]] + tails[j:]
            q = " ".join(w for w in words if w)
            if self.is_known(q) or sum(w.lower().strip("?.!,'") not in FORM for w in words) < 2:
                continue
            kind = self.kind_of(q)
            return q, r.choice(ANSWERS[kind]), THOUGHT if kind not in ("say", "like") else None

    def mixed(self, r):
        """Two pieces of news in one breath: neither joy nor sorrow is a safe reply."""
        said = []
        while len(said) < 2:
            q, a, _ = r.choice(self.written)(r)
            if SAID.match(q.lower()) and not ASKS.search(q) and "?" not in q and len(q) < 70 and not any(a == b for _, b in said):
                said.append((q.rstrip("?.! ").removesuffix(" lol").removesuffix(" ugh"), a))
        (one, _), (two, _) = said
        return one + r.choice([" and ", " but ", ", and ", ", but ", ". ", " because ", " while ", " so "]) + two, ANSWERS["say"][0], None


ANSWERS["time"] = ["I do not know when that is. I am only a small demo model."]
ANSWERS["there"] = ["I do not know, since I was not there. How was it for you?"]
ANSWERS["unsure"] = ["I am not sure how to answer that. I am only a small demo model."]
