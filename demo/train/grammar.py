"""Shared pieces of the generators: choices, names, numbers, and the little grammar of chat.txt."""

import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = """Anna Ben Clara David Emma Felix Grace Henry Ida Jonas Kate Leo Mia Noah Olga Paul Rosa Sam Tina Victor Wendy Yusuf Zoe Ali
Bruno Carlos Dina Elif Fatima George Hana Ivan Julia Karim Lena Marco Nina Omar Petra Quentin Ravi Sofia Tom Uma Vera Will Xenia Yara Aisha
Boris Chen Diego Eva Frank Gita Hugo Iris Jack Kofi Lucy Maria Nils Otto Pablo Rita Sven Tara Ugo Viola Wang Amir Bella Cora Dan Ella Finn
Priya Maya Liam Oscar Ruth Simon Theo Alice Bob Carol Dora Erik Fiona""".split()
SURNAMES = """Smith Johnson Brown Miller Davis Wilson Moore Taylor Anderson Thomas Jackson White Harris Martin Thompson Clark Lewis Walker Hall Young King Wright Hill Green Adams
Baker Nelson Carter Mitchell Roberts Turner Phillips Campbell Parker Evans Edwards Collins Stewart Morris Rogers Reed Cook Morgan Bell Murphy Bailey Cooper Richardson Cox Howard Ward Peterson Gray Watson
Brooks Kelly Sanders Price Bennett Wood Barnes Ross Henderson Coleman Jenkins Perry Powell Long Hughes Flores Butler Simmons Foster Bryant Alexander Russell Griffin Diaz Hayes Schmidt Weber Wagner Becker
Hoffmann Koch Richter Klein Wolf Neumann Schwarz Braun Hofmann Lange Krause Werner Lehmann Rossi Russo Ferrari Bianchi Romano Garcia Fernandez Lopez Perez Sanchez Dubois Moreau Laurent Simon Michel Lefevre
Kowalski Novak Horvat Ivanov Petrov Tanaka Suzuki Sato Kim Park Lee Chen Wang Li Zhang Singh Patel Kumar Sharma Khan Ali Hassan Okafor Mensah Silva Santos Oliveira Larsen Hansen Nilsen Berg Lindqvist""".split()
MORE_FIRST = """James John Robert Michael William David Richard Joseph Thomas Charles Christopher Daniel Matthew Anthony Mark Donald Steven Andrew Kenneth Mary Patricia Jennifer Linda Elizabeth Barbara Susan
Jessica Sarah Karen Lisa Nancy Sandra Ashley Emily Donna Michelle Laura Amanda Melissa Stephanie Rebecca Taylor Marlene Greta Ingrid Astrid Bjorn Lars Pierre Jean Marie Louise Charlotte Giulia Luca Matteo
Alejandro Isabel Juan Pedro Dmitri Natasha Olga Yuki Hiroshi Wei Mei Raj Anjali Mohammed Layla Amina Kwame Zainab Albert Isaac Leonardo Vincent Nelson Martin Agatha Jane Mozart Bartholomew Hector Cornelius
Matilda Gwendolyn Percival Ophelia Tobias Winston Elvis Walt Steve Bill Neil Marco Stephen Alan Ada""".split()
PLACES = """Paris London Berlin Rome Madrid Tokyo Cairo Oslo Vienna Lisbon Prague Dublin Athens Boston Chicago Toronto Sydney Lima Nairobi
Delhi Seoul Bangkok Geneva Hamburg Munich Milan Porto Krakow Bergen Zurich Lyon Seville Naples Austin Denver Seattle Quebec""".split()
OBJECTS = """key box book lamp ring coin map letter cup hat bag clock pen ticket stone watch camera phone basket bottle knife chair table
mirror drum flute rope candle shell brush ladder wallet badge card spoon kite bell mask vase globe anchor compass lantern""".split()
COLOR = "red blue green yellow white black orange purple grey pink brown silver golden".split()
ADJ = "small big old new round heavy light strange quiet bright dark broken wooden shiny soft tall cold warm lucky hidden".split()
FOODS = "pizza soup rice pasta bread cheese salad curry pancakes apples cherries fish beans honey cake tomatoes noodles plums".split()
JOBS = "teacher doctor baker farmer nurse carpenter pilot painter engineer gardener cook singer sailor tailor lawyer dentist writer".split()
HOBBIES = "reading painting hiking cooking singing chess swimming running sewing fishing cycling dancing climbing gardening".split()
PETS = "dog cat rabbit parrot hamster turtle goldfish horse pony".split()
SYLLABLES = [c + v for c in "b d f g h j k l m n p r s t v w z br dr kr tr st sh ch th pl gl".split() for v in "a e i o u ai ea oo".split()]
TAILS = ["", "", "n", "r", "l", "s", "k", "x", "m", "t", "ng", "nd"]


def syllable_word(r, low=2, high=3):
    """A made-up word that no list contains."""
    return "".join(r.choice(SYLLABLES) for _ in range(r.randint(low, high))) + r.choice(TAILS)


def name(r):
    """A first name: often one nobody has heard."""
    return r.choice(FIRST) if r.random() < 0.45 else syllable_word(r).capitalize()


def full_name(r):
    return f"{name(r)} {syllable_word(r).capitalize()}"


def place(r):
    return r.choice(PLACES) if r.random() < 0.45 else syllable_word(r).capitalize()


def number(r):
    """A whole number, small ones more often."""
    return r.choice([r.randint(1, 20), r.randint(10, 99), r.randint(100, 999), r.randint(1000, 9999)])


def code(r):
    """An access code: digits, letters and digits, or a made-up word."""
    kind = r.random()
    if kind < 0.5:
        return "".join(r.choice("0123456789") for _ in range(r.randint(3, 7)))
    if kind < 0.75:
        return "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(2)) + "-" + str(r.randint(10, 9999))
    return syllable_word(r)


NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
MACROS = {
    "HOW": "{how do i|how can i|how to|how do you|how would i|how would you|what is the best way to|tell me how to|how should i|what is a good way to|can you tell me how to|any tips to|"
           "could you explain how to|do you know how to|explain how to|show me how to|is there a trick to|how does one|help me|teach me to|what do i do to|how could i|how do people}",
    "WRITE": "{write|write me|can you write|could you write|please write|i need|give me|compose|help me write|make|create|draft|i want|would you write|can you make|can you help me write|prepare|come up with}",
    "MYREL": "my {dog|cat|grandmother|grandfather|grandma|grandpa|friend|best friend|uncle|aunt|father|mother|mom|dad|hamster|rabbit|horse|bird|brother|sister|wife|husband|son|daughter|"
             "neighbour|cousin|boss|colleague|teacher|girlfriend|boyfriend|puppy|kitten|partner|child|roommate}",
    "WHEN": "|| today| yesterday| last week| last month| last night| this morning| a year ago| on Monday| recently| two days ago| this week| just now| again",
    "THINGS": "{music|cats|dogs|football|books|movies|pizza|rain|winter|summer|chess|art|math|people|coffee|chocolate|jazz|games|poetry|travelling|snow|tennis|soccer|the sea|mondays|cooking|painting|school|"
              "work|sports|opera|cheese|tea|trains|robots|television|dancing|history|birds|gardening|cars|philosophy|spiders|swimming|hiking|running|reading|fishing|shopping|vegetables|fruit|flowers|horses|"
              "old films|video games|rock music|classical music|photography|knitting|baking|cycling|camping|the beach|the mountains|big cities|my job|long walks|ice cream|sushi|spicy food|sweets|mornings|"
              "traffic|loud noise|cold weather|hot weather|waiting|flying|social media|computers|science|space|the moon|stars|board games|comics|theatre|museums|babies|insects|snakes|autumn|spring|"
              "christmas|parties|basketball|yoga|the gym|beer|wine|soup|bread|the internet|politics|money|weekends|sleeping|my homework|cleaning|stamps|coins|singing|hip hop|pop music|anime}",
    "JOY": "{i am so happy|i can't believe it|i am over the moon|i could dance|i start on monday|i had to tell someone|what a day|it feels great|i worked so hard for it|my family is so proud|i am so excited|i'm thrilled|i can't stop smiling|we are so proud|we will celebrate tonight|this is the best day ever}",
    "SAD": "{i miss them so much|the house feels so empty|i cry every evening|i do not know what to do|it hurts so much|i keep thinking about it|nothing helps|i feel so alone|it was so sudden|i can hardly sleep|i still can't believe it|we had so many years together|i see the toys everywhere}",
    "PLACE": "{Spain|Japan|Norway|Portugal|Greece|the Alps|the north|Canada|Morocco|Vienna|Prague|Lisbon|the coast|the islands}",
    "NOUN": "{cats|the sea|history|climate change|my holiday|love|football|friendship|the future|school|science|art|a king|robots|my town|nature|music|space|health|dogs|technology|food|war|peace|trains}",
}


def article(word):
    return ("an " if word[0].lower() in "aeiou" else "a ") + word


def listing(items, end="and"):
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {end} " + items[-1]


def upper_first(s):
    return s[:1].upper() + s[1:]


def expand(text, r):
    """One expansion of {a|b} choices, innermost last."""
    out, i = [], 0
    while i < len(text):
        if text[i] != "{":
            j = text.find("{", i)
            j = len(text) if j < 0 else j
            out.append(text[i:j])
            i = j
            continue
        depth, j, cuts = 0, i, [i]
        while True:
            c = text[j]
            depth += (c == "{") - (c == "}")
            if c == "|" and depth == 1:
                cuts.append(j)
            if depth == 0:
                break
            j += 1
        cuts.append(j)
        k = r.randrange(len(cuts) - 1)
        out.append(expand(text[cuts[k] + 1 : cuts[k + 1]], r))
        i = j + 1
    return "".join(out)


def key(text):
    """What counts as the same prompt: letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def read_chat(name="chat.txt"):
    """[(questions, answers)] of a grammar file in data/."""
    out, q, a = [], [], []
    with open(os.path.join(HERE, "data", name), encoding="utf-8") as f:
        for line in f.read().split("\n") + [""]:
            for macro, text in MACROS.items():
                line = line.replace("$" + macro, text)
            if line.startswith("Q: "):
                q.append(line[3:])
            elif line.startswith("A: "):
                a.append(line[3:])
            elif not line and q:
                out.append((q, a))
                q, a = [], []
    return out


def read_asked():
    """[(prompt, reply)] of data/asked.txt."""
    with open(os.path.join(HERE, "data/asked.txt"), encoding="utf-8") as f:
        return [tuple(line.strip().split(" | ")) for line in f if " | " in line and not line.startswith("#")]


def held_out(name="everyday.txt"):
    """The prompts of a list in data/ that no training text may hold."""
    with open(os.path.join(HERE, "data", name), encoding="utf-8") as f:
        return [line.strip() for line in f if line.strip()]


BEFORE = ["hey ", "hi! ", "hello! ", "hello finback, ", "dear finback, ", "i was wondering, ", "just a question: ", "sorry, ", "by the way, ", "oh, ", "um, ", "question: ", "hm, ", "listen, ", "actually, ", "good morning! ", "good evening! ", "good afternoon, ", "hey there, ", "hi finback! ", "hello there! ", "yo, ", "alright, ", "and ", "but ", "hey, ", "hi, ", "hello, ", "please ", "quick question: ", "can you tell me: ", "tell me, ", "i have a question. ", "so, ", "ok, ",
          "well, ", "excuse me, ", "i wonder, ", "one more thing: ", "now ", "Finback, ", "could you tell me, ", "i'd like to know: "]
AFTER = [" please", ", please", " thanks", ", thank you", " for me", "?!", "...", " in short", " in one sentence", " briefly", " exactly"]


CONTRACTIONS = [(a + " " + b, a + c) for a, b, c in (
    ("what", "is", "'s"), ("that", "is", "'s"), ("it", "is", "'s"), ("who", "is", "'s"), ("where", "is", "'s"), ("how", "is", "'s"),
    ("there", "is", "'s"), ("this", "is", " is"), ("i", "am", "'m"), ("you", "are", "'re"), ("we", "are", "'re"), ("i", "have", "'ve"))] + [
    ("do not", "don't"), ("does not", "doesn't"), ("did not", "didn't"), ("cannot", "can't"), ("is not", "isn't"), ("could not", "couldn't"),
    ("i would like", "i'd like"), ("i will", "i'll"), ("let us", "let's"), ("was not", "wasn't"), ("are not", "aren't")]


# words that many people write with capitals and the grammars do not
PROPER = """World War I;World War II;World War One;World War Two;WWII;WW2;WW1;Titanic;Mona Lisa;Last Supper;Starry Night;Sunflowers;Romeo and Juliet;Hamlet;Macbeth;Othello;King Lear;Harry Potter;Lord of the Rings;The Hobbit;Alice in Wonderland;Pride and Prejudice;
Animal Farm;Treasure Island;Oliver Twist;A Christmas Carol;David Copperfield;Moby Dick;Don Quixote;War and Peace;Anna Karenina;Little Prince;Sherlock Holmes;Magic Flute;America;United States;USA;US;UK;EU;England;Great Britain;Britain;Scotland;Ireland;Germany;France;Italy;Spain;Portugal;
Japan;China;India;Brazil;Canada;Australia;Russia;Mexico;Egypt;Africa;Asia;Europe;Antarctica;Argentina;Chile;Peru;Cuba;Colombia;Greece;Poland;Sweden;Norway;Austria;Switzerland;Tanzania;Kenya;New Zealand;South America;North America;California;Texas;Hawaii;Iceland;Vietnam;Thailand;
London;Paris;Rome;Berlin;Tokyo;New York;Madrid;Lisbon;Vienna;Athens;Prague;Venice;Munich;Hollywood;Berlin Wall;Eiffel Tower;Great Wall;Burj Khalifa;Mount Everest;Nile;Amazon;French Revolution;American Civil War;Cold War;Black Death;Great Depression;Christmas;Easter;Halloween;Thanksgiving;
Ramadan;Diwali;Hanukkah;Valentine's Day;Mother's Day;Father's Day;New Year;New Year's Eve;Independence Day;Good Friday;Black Friday;Earth;Mars;Venus;Jupiter;Saturn;Mercury;Pluto;Neptune;Uranus;Milky Way;God;Bible;DNA;JSON;WiFi;TV;AI;HTML;CSS;SQL;PDF;GPS;CEO;LOL;OMG;ASAP;NASA;FBI;USB;
Python;Rust;Java;JavaScript;TypeScript;Linux;Google;Facebook;Netflix;Wikipedia;Instagram;YouTube;iPhone;Android;Bluetooth;Coca Cola;French;Spanish;German;Italian;English;Chinese;Japanese;Russian;Portuguese;Arabic;Latin;Greek;Dutch;Polish;Turkish;Hindi;Swedish;Korean;Finnish;
Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday;January;February;April;June;July;August;September;October;November;December;Columbus;Einstein;Napoleon;Mozart;Beethoven;Shakespeare;Picasso;Cleopatra;Taylor Swift;Tom Cruise;Cinderella;Snow White;Robin Hood;Little Red Riding Hood;
Guernica;The Scream;Night Watch;Sistine Chapel;Frankenstein;Dracula;Odyssey;Iliad;Faust;Les Miserables;Jungle Book;Peter Pan;Great Gatsby;Winnie the Pooh;Pinocchio;Robinson Crusoe;Jane Eyre;Swan Lake;Nutcracker;Moonlight Sonata;Four Seasons;Star Wars;Lion King;Thriller;Bohemian Rhapsody;
Greenland;Baikal;Mariana Trench;Kilimanjaro;Mont Blanc;Mount Fuji;Sahara;Alps;Pacific;Atlantic;Netherlands;Belgium;Caspian Sea;English Channel;Grand Canyon;Olympic Games;World Cup;Super Bowl;Oktoberfest;Santa Claus;Celsius;Fahrenheit;Internet;ChatGPT;Siri;Alexa;Elon Musk;Mom;Dad"""
PROPER = {w.lower(): w for w in PROPER.replace("\n", "").split(";")}
IS_PROPER = re.compile(r"\b(" + "|".join(sorted(map(re.escape, PROPER), key=len, reverse=True)) + r")\b")


def disguise(q, r):
    """The same question as different people would type it."""
    if r.random() < 0.6:
        q = IS_PROPER.sub(lambda m: PROPER[m.group()], q)
    x = r.random()
    if x < 0.13:
        q = r.choice(BEFORE) + q
    elif x < 0.18 and not q.endswith((".", "!")):
        q = q.rstrip("?") + r.choice(AFTER)
    style = r.random()
    if style < 0.45:
        q = upper_first(q)
    end = r.random()
    if q[-1] not in "?.!" and end < 0.5:
        q += r.choice("???.!") if end < 0.45 else " ?"
    elif q[-1] in "?.!" and end > 0.88:
        q = q[:-1]
    if r.random() < 0.35:
        for long, short in CONTRACTIONS:
            if r.random() < 0.7:
                q = q.replace(long, short).replace(upper_first(long), upper_first(short))
    elif r.random() < 0.15:
        for long, short in CONTRACTIONS:
            q = q.replace(short, long).replace(upper_first(short), upper_first(long))
    if r.random() < 0.5:
        q = re.sub(r"\bi\b", "I", q)
    return q


NEAR = dict(zip("qwertyuiopasdfghjklzxcvbnm", "wqretyuoiposdafghjlkzcxvbnm"))


def slip(q, r):
    """Sometimes as a hurried person types: a letter lost, doubled, swapped or hit beside, a space lost, all one case."""
    for _ in range(r.choice([0] * 14 + [1, 1, 1, 2])):
        if len(q) < 8:
            break
        i = r.randrange(1, len(q) - 2)
        x = r.randrange(5)
        q = [q[:i] + q[i + 1 :], q[:i] + q[i] + q[i:], q[:i] + q[i + 1] + q[i] + q[i + 2 :], q[:i] + NEAR.get(q[i], q[i]) + q[i + 1 :], q.replace(" ", "", 1) if r.random() < 0.3 else q][x]
    x = r.random()
    return q.lower() if x < 0.06 else q.upper() if x < 0.085 else q.title() if x < 0.095 else q
