"""Questions about hand-written facts: data/known.txt (things, people, reasons, places) and data/tables.txt.

Every maker returns (question, answer, thought)."""

import os

from grammar import HERE, NUMBERS, article, listing, upper_first

KNOWN = "I know this one."  # the thought before a fact


def read_known(path=os.path.join(HERE, "data/known.txt")):
    """kind -> [(subject, answer)]."""
    out = {"D": [], "P": [], "W": [], "L": [], "H": [], "I": [], "X": []}
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line[0] in out and line[1] == " ":
                subject, answer = line[2:].strip().split(" | ")
                out[line[0]].append((subject, answer))
    return out


def read_tables(path=os.path.join(HERE, "data/tables.txt")):
    """section name -> its lines."""
    out, section = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("# "):
                section = out.setdefault(line[2:].split(":")[0].strip(), [])
            elif line.strip():
                section.append(line.strip())
    return out


def pairs(lines):
    return [p.strip().split(" ", 1) for p in " ".join(lines).split(";") if p.strip()]


class Known:
    def __init__(self):
        self.known = read_known()
        t = read_tables()
        self.uses = dict(line.split(" | ") for line in t["uses"])
        self.jobs = dict(line.split(" | ") for line in t["jobs"])
        self.sizes = [line.split() for line in t["sizes"]]
        self.speeds = t["speeds"][0].split()
        self.plurals, self.pasts = pairs(t["plurals"]), pairs(t["past tenses"])
        self.synonyms, self.rhymes = pairs(t["synonyms"]), pairs(t["rhymes"])
        self.animal_rows = t["animals"]
        self.states = [(a, b.replace("_", " ")) for a, b in pairs(t["states"])]
        self.letters = [w.split() for w in " ".join(t["letters"]).split(";")]

    def thing(self, r):
        x, a = r.choice(self.known["D"])
        bare = x.split(" ", 1)[1] if x.split()[0] in ("a", "an", "the") else x
        q = r.choice([f"what is {x}", f"what is {x}", f"what's {x}", f"what is {bare}", f"explain {x}", f"explain {bare}", f"tell me about {x}", f"tell me about {bare}",
                      f"define {bare}", f"can you explain {x}", f"can you explain what {x} is", f"do you know what {x} is", f"tell me what {x} is", f"describe {x}",
                      f"what does {bare} mean", f"what exactly is {x}", f"explain {x} to a child", f"explain {x} to a five-year-old", f"explain {x} like i am five", f"explain {bare} like i'm five", f"what on earth is {x}", f"explain {bare} in simple words", f"what do you know about {bare}",
                      f"what is meant by {bare}", f"i want to know what {x} is", f"could you tell me what {x} is", f"give me a definition of {bare}", f"what are {bare}s",
                      f"how would you explain {x}", f"in simple words, what is {x}", f"my child asks what {x} is", f"{bare}", f"explain to me what {x} is", f"meaning of {bare}"])
        return q, a, KNOWN

    def person(self, r):
        x, a = r.choice(self.known["P"])
        last = x.split()[-1] if x.split()[0] != "the" and r.random() < 0.25 and len(x) > 12 else x
        q = r.choice([f"who is {last}", f"who was {last}", f"who was {x}", f"tell me about {x}", f"what did {x} do", f"what is {x} known for", f"do you know {x}", f"who exactly was {x}",
                      f"what do you know about {x}", f"why is {x} famous", f"have you heard of {x}", f"can you tell me who {x} was", f"what do you know of {last}", f"explain who {x} is"])
        return q, a, KNOWN

    def reason(self, r):
        x, a = r.choice(self.known["W"])
        ask, say = x.split(" = ")
        q = r.choice([f"why {ask}", f"why {ask}", f"why {ask}", f"how come {say}", f"do you know why {say}", f"can you explain why {say}", f"what is the reason that {say}",
                      f"explain why {say}", f"why is it that {say}", f"tell me why {say}", f"my child asks why {say}", f"i wonder why {say}", f"could you explain why {say}"])
        return q, a, KNOWN

    def where(self, r):
        x, a = r.choice(self.known["L"])
        q = r.choice([f"where is {x}", f"where is {x}", f"where can i find {x}", f"in which country is {x}", f"where is {x} located", f"tell me about {x}", f"what is {x}", f"which country is {x} in",
                      f"do you know where {x} is", f"where do i find {x}", f"what do you know about {x}", f"in what part of the world is {x}"])
        return q, a, KNOWN

    def job(self, r):
        n, does = r.choice(list(self.jobs.items()))
        one = article(n)
        if r.random() < 0.6:
            q = r.choice([f"what does {one} do", f"what is {one}", f"what is the job of {one}", f"what do {n}s do", f"what does {one} do all day", f"explain what {one} does", f"who is {one}",
                          f"tell me what {one} does", f"describe the work of {one}"])
        else:
            q = r.choice([f"who {does}", f"what do you call a person who {does}", f"which job is it when someone {does}", f"what is the name for someone who {does}"])
        return q, f"{upper_first(one)} {does}.", KNOWN

    def works(self, r):
        x, a = r.choice(self.known["H"])
        ask, say = x.split(" = ")
        q = r.choice([f"how {ask}", f"how {ask}", f"how {ask}", f"can you explain how {say}", f"explain how {say}", f"do you know how {say}", f"tell me how {say}", f"i want to know how {say}",
                      f"how exactly {ask}", f"could you tell me how {say}", f"explain to a child how {say}", f"in simple words, how {ask}"])
        return q, a, KNOWN

    def idiom(self, r):
        x, a = r.choice(self.known["I"])
        if r.random() < 0.3:
            x = x.removeprefix("a ").removeprefix("to ").removeprefix("the ")
        quote = r.choice(['"', "'", ""])
        q = r.choice([f"what does {quote}{x}{quote} mean", f"what is the meaning of {quote}{x}{quote}", f"explain {quote}{x}{quote}", f"what do people mean by {quote}{x}{quote}", f"why do people say {quote}{x}{quote}",
                      f"what does the saying {quote}{x}{quote} mean", f"meaning of {quote}{x}{quote}"])
        return q, a, None

    def difference(self, r):
        x, a = r.choice(self.known["X"])
        one, two = x.split(" and ")
        one, two = (one, two) if r.random() < 0.5 else (two, one)
        q = r.choice([f"what is the difference between {one} and {two}", f"difference between {one} and {two}", f"how does {one} differ from {two}", f"what makes {one} different from {two}", f"how are {one} and {two} different",
                      f"compare {one} and {two}", f"explain the difference between {one} and {two}", f"is there a difference between {one} and {two}"])
        return q, a, None

    def state(self, r):
        n, c = r.choice(self.states)
        q = r.choice([f"what is the capital of {n}", f"capital of {n}", f"what's the capital city of {n}", f"which city is the capital of {n}", f"name the capital of {n}", f"do you know the capital of {n}"])
        return q, f"The capital of {n} is {c}.", None

    def letter(self, r, animals):
        if r.random() < 0.5:
            words = r.choice(self.letters)
            x = words[0][0]
            q = r.choice([f"give me a word that starts with {x}", f"a word with {x.upper()}", f"which word begins with the letter {x}", f"tell me a word beginning with {x.upper()}", f"name something that starts with {x.upper()}"])
            return q, f"{upper_first(words[0])}.", None
        n = r.choice(animals)
        x = n[0]
        n = min(a for a in animals if a[0] == x)
        q = r.choice([f"name an animal that starts with {x.upper()}", f"an animal with {x}", f"which animal begins with {x}", f"give me an animal that begins with the letter {x.upper()}"])
        return q, f"{upper_first(n)}.", None

    def prime(self, r):
        n = r.randint(2, 100)
        d = next((d for d in range(2, n) if n % d == 0), None)
        q = r.choice([f"is {n} a prime number", f"is {n} prime", f"is the number {n} a prime"])
        return q, (f"Yes, {n} is a prime number." if d is None else f"No, {n} is {d} times {n // d}."), None

    def agree(self, r):
        """A sentence whose verb does not fit its subject."""
        verb, s = r.choice([("go", "goes"), ("eat", "eats"), ("like", "likes"), ("live", "lives"), ("have", "has"), ("play", "plays"), ("want", "wants"), ("do", "does"), ("work", "works"), ("love", "loves")])
        rest = r.choice(["to school every day", "an apple", "in a big city", "a red car", "with the dog", "many books", "in the garden", "a lot of music", "at home", "very much"])
        who = r.choice(["she", "he", "my brother", "the teacher", "Anna", "it"])
        wrong, right = (f"{who} {verb} {rest}", f"{who} {s} {rest}")
        if r.random() < 0.3:
            who = r.choice(["they", "we", "you", "the children"])
            wrong, right = (f"{who} {s} {rest}", f"{who} {verb} {rest}")
        q = r.choice([f"correct this sentence: {wrong}", f"fix the grammar: {wrong}", f"what is wrong with this sentence: {wrong}", f"correct the mistake: {wrong}", f"is this correct? {wrong}", f"correct my english: {wrong}"])
        return q, upper_first(right) + ".", None

    def later(self, r):
        """Clock and calendar sums."""
        days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
        if r.random() < 0.5:
            h, k = r.randint(1, 12), r.randint(1, 6)
            t = (h + k - 1) % 12 + 1
            q = r.choice([f"it is {h} o'clock. what time is it in {k} hours", f"if it is {h} o'clock now, what time is it in {k} hours", f"what time is it {k} hours after {h} o'clock", f"what is {k} hours after {h} o'clock"])
            return q, f"It is {t} o'clock then.", f"{h} + {k} = {h + k}."
        i, k = r.randrange(7), r.randint(2, 4)
        q = r.choice([f"today is {days[i]}. what day is it in {k} days", f"which day is {NUMBERS[k]} days after {days[i]}", f"if today is {days[i]}, which day is in {k} days"])
        return q, f"It is {days[(i + k) % 7]} then.", ", ".join(days[(i + j) % 7] for j in range(k + 1)) + "."

    def tool_for(self, r, uses):
        n, use = r.choice(list(uses.items()))
        one = article(n) if not n.endswith("s") and n not in ("soap", "chalk", "glue", "shampoo", "paint", "sandpaper", "sunscreen", "tape") else n
        does = use[3:]
        q = r.choice([f"what do i need {use}", f"what do you use {use}", f"which tool do i need {use}", f"with what can i {does}", f"what can i use {use}", f"i want {use}. what do i need",
                      f"what is used {use}", f"which thing do i use {use}"])
        return q, f"You use {one} {use}.", KNOWN

    def bigger(self, r):
        row = r.choice(self.sizes[:2] + self.sizes)
        speed = r.random() < 0.25
        row = self.speeds if speed else row
        i, j = sorted(r.sample(range(len(row)), 2))
        time = row[0] == "second"
        small, big = article(row[i]).replace("a hour", "an hour"), article(row[j]).replace("a hour", "an hour")
        a, b = r.sample([small, big], 2)
        word = r.choice(["faster", "slower"] if speed else ["longer", "shorter"] if time else ["bigger", "smaller", "larger", "heavier"])
        best = big if word in ("faster", "longer", "bigger", "larger", "heavier") else small
        rest = small if best == big else big
        q = r.choice([f"which is {word}, {a} or {b}", f"what is {word}: {a} or {b}", f"what is {word}, {a} or {b}", f"is {a} {word} than {b}", f"is {a} or {b} {word}", f"which one is {word}: {a} or {b}"])
        ans = f"{upper_first(best)} is {word} than {rest}."
        if q.startswith("is") and " than " in q:
            ans = ("Yes, " if a == best else "No, ") + ans[0].lower() + ans[1:]
        return q, ans, f"{upper_first(best)} is {word}."

    def word_form(self, r):
        x = r.randrange(5)
        quote = r.choice(["", "", '"'])
        if x == 0:
            a, b = r.choice(self.plurals)
            q = r.choice([f"what is the plural of {quote}{a}{quote}", f"plural of {a}", f"one {a}, two what", f"how do you say more than one {a}", f"what is the plural form of {a}"])
            return q, f'The plural of "{a}" is "{b}".', None
        if x == 1:
            a, b = r.choice(self.pasts)
            q = r.choice([f"what is the past tense of {quote}{a}{quote}", f"past tense of {a}", f"what is the past of {quote}to {a}{quote}", f"put {quote}{a}{quote} in the past tense", f"how do you say {a} in the past"])
            return q, f'The past tense of "{a}" is "{b}".', None
        if x == 2:
            a, b = r.choice(self.synonyms)
            q = r.choice([f"give me a synonym for {quote}{a}{quote}", f"synonym for {a}", f"what is another word for {quote}{a}{quote}", f"which word means the same as {a}", f"another word for {a}", f"what is a synonym of {a}", f"how else can i say {a}"])
            return q, f'Another word for "{a}" is "{b}".', None
        if x == 3:
            a, b = r.choice(self.rhymes)
            a, b = (b, a) if r.random() < 0.3 else (a, b)
            q = r.choice([f"what rhymes with {quote}{a}{quote}", f"give me a rhyme for {a}", f"which word rhymes with {a}", f"find a rhyme for {quote}{a}{quote}", f"a word that rhymes with {a}", f"do you know a rhyme for {a}"])
            return q, f'"{upper_first(b)}" rhymes with "{a}".', None
        a = r.choice([w for w, _ in self.synonyms] + [w for w, _ in self.plurals] + list(self.jobs) + ["necessary", "banana", "beautiful", "accommodation", "my name", "rhythm", "weird", "separate", "february"])
        q = r.choice([f"how do you spell {quote}{a}{quote}", f"spell {a}", f"can you spell {quote}{a}{quote}", f"spell the word {a}", f"how is {a} spelled", f"what is the spelling of {a}", f"how many letters does {a} have", f"what is the first letter of {a}", f"spell {a} backwards"])
        return q, "I am not good at working with single letters, so please do that yourself.", None

    def member(self, r, lists):
        """Is a thing of a kind?"""
        names = [k for k in lists if k.split("|")[0] in ("fruits", "vegetables", "planets", "sports", "musical instruments", "tools", "flowers", "trees", "metals", "gemstones", "languages", "colors")]
        kind = r.choice(names)
        thing = r.choice(lists[r.choice([kind, r.choice(names)])].split())
        one = {"fruits": "fruit", "vegetables": "vegetable", "insects": "insect", "birds": "bird", "fish": "fish", "planets": "planet", "sports": "sport", "musical instruments": "musical instrument",
               "tools": "tool", "flowers": "flower", "trees": "tree", "metals": "metal", "gemstones": "gemstone", "languages": "language", "colors": "color"}[kind.split("|")[0]]
        yes = thing in lists[kind].split()
        bare = kind.split("|")[0] in ("planets", "sports", "metals", "languages", "colors") or any(thing in lists[k].split() for k in names if k.split("|")[0] in ("planets", "sports", "metals", "languages", "colors"))
        x = thing if bare else article(thing)
        q = r.choice([f"is {x} {article(one)}", f"is {x} {article(one)}", f"would you say {x} is {article(one)}", f"{x} is {article(one)}, right", f"tell me if {x} is {article(one)}"])
        return q, (f"Yes, {x} is {article(one)}." if yes else f"No, {x} is not {article(one)}."), None

    def half(self, r):
        """Small sums said in words."""
        x = r.randrange(9)
        n = r.randint(1, 50)
        if x == 0:
            q, a = r.choice([f"what is half of {2 * n}", f"half of {2 * n}", f"how much is half of {2 * n}", f"what is {2 * n} divided by two"]), f"Half of {2 * n} is {n}."
        elif x == 1:
            q, a = r.choice([f"what is double {n}", f"double {n}", f"twice {n}", f"what is two times {n}", f"what is twice {n}"]), f"Twice {n} is {2 * n}."
        elif x == 2:
            p, base = r.choice([(10, 10 * n), (100, n)])
            v = base * p // 100
            q, a = r.choice([f"what is {p} percent of {base}", f"{p}% of {base}", f"how much is {p} percent of {base}", f"calculate {p}% of {base}"]), f"{p}% of {base} is {v}."
        elif x == 3:
            n = r.randint(1, 12)
            q, a = r.choice([f"what is {n} squared", f"the square of {n}", f"{n} squared", f"{n} to the power of two", f"what is the square of {n}"]), f"{n} * {n} = {n * n}."
        elif x == 4:
            n = r.randint(1, 12)
            q, a = r.choice([f"what is the square root of {n * n}", f"square root of {n * n}", f"root of {n * n}"]), f"The square root of {n * n} is {n}."
        elif x == 5:
            q, a = r.choice([f"what number comes after {n}", f"which number follows {n}", f"what comes after {n}", f"the number after {n}"]), f"The number after {n} is {n + 1}."
        elif x == 6:
            q, a = r.choice([f"is {n} even or odd", f"is {n} an even number", f"is {n} odd", f"is the number {n} even"]), f"{n} is {'even' if n % 2 == 0 else 'odd'}."
        elif x == 7:
            q = r.choice([f"what number comes before {n}", f"which number is before {n}", f"the number before {n}"])
            a = f"The number before {n} is {n - 1}."
        else:
            a_, b_, c_ = r.randint(1, 20), r.randint(1, 20), r.randint(1, 20)
            q, a = r.choice([f"what is {a_} + {b_} + {c_}", f"{a_} plus {b_} plus {c_}", f"add {a_}, {b_} and {c_}", f"sum of {a_}, {b_} and {c_}"]), f"{a_} + {b_} + {c_} = {a_ + b_ + c_}."
        return q, a, None

    def number_word(self, r):
        n = r.randint(1, 12)
        m = r.randint(1, 12)
        if r.random() < 0.5:
            q, a = r.choice([f"what is {NUMBERS[n]} plus {NUMBERS[m]}", f"{NUMBERS[n]} plus {NUMBERS[m]}", f"how much is {NUMBERS[n]} and {NUMBERS[m]}", f"add {NUMBERS[n]} and {NUMBERS[m]}"]), f"{n} + {m} = {n + m}."
        elif r.random() < 0.5:
            q, a = r.choice([f"what is {NUMBERS[n]} times {NUMBERS[m]}", f"{NUMBERS[n]} times {NUMBERS[m]}", f"how much is {NUMBERS[n]} times {NUMBERS[m]}"]), f"{n} * {m} = {n * m}."
        else:
            n, m = max(n, m), min(n, m)
            q, a = r.choice([f"what is {NUMBERS[n]} minus {NUMBERS[m]}", f"{NUMBERS[n]} minus {NUMBERS[m]}", f"how much is {NUMBERS[n]} minus {NUMBERS[m]}", f"take {NUMBERS[m]} from {NUMBERS[n]}"]), f"{n} - {m} = {n - m}."
        return q, a, None

    def group(self, r, lists):
        items = r.sample(r.choice(list(lists.values())).split(), 3)
        q = r.choice([f"make a sentence with the words {listing(items)}", f"use {listing(items)} in a sentence", f"write a sentence with {items[0]}", f"make a sentence with the word {items[0]}"])
        if len(q.split(",")) > 1 or " and " in q:
            return q, f"I see {items[0]}, {items[1]} and {items[2]}.", None
        return q, f"I like the word {items[0]}.", None
