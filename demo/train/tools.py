"""Tool-call conversations in DSML, and JSON after a schema."""

from grammar import (ADJ, COLOR, FOODS, HOBBIES, JOBS, OBJECTS, PLACES, article, code, disguise, full_name, listing, name,
                     place, syllable_word, upper_first)

CITY = ("string", lambda r: place(r))
PERSON = ("string", lambda r: name(r))
# name | description | requests; a request's {x} are parameters
BANK = """get_weather|Get the current weather for a city|what is the weather in {city}/how is the weather in {city}/is it raining in {city}/weather for {city} please/tell me the weather in {city}/will i need a coat in {city}
get_time|Get the current time in a city|what time is it in {city}/tell me the time in {city}/current time in {city}
get_forecast|Weather forecast for some days|what will the weather be in {city} for the next {days} days/forecast for {city}, {days} days/show me {days} days of forecast for {city}
send_email|Send an email to a person|send an email to {person} saying {text}/write {person} an email: {text}/email {person} that {text}
send_message|Send a short message|send a message to {person}: {text}/tell {person} {text}/message {person} saying {text}
add|Add two numbers|add {a} and {b}/what is {a} plus {b}/please sum {a} and {b}/use the tool to add {a} to {b}
multiply|Multiply two numbers|multiply {a} by {b}/what is {a} times {b}/compute the product of {a} and {b}
calculate|Evaluate an arithmetic expression|calculate {expression}/what is {expression}/evaluate {expression}
search|Search the web|search for {query}/look up {query}/find information about {query}/google {query}
set_alarm|Set an alarm|set an alarm for {clock}/wake me at {clock}/i need an alarm at {clock}
set_timer|Start a timer|set a timer for {minutes} minutes/start a timer of {minutes} minutes/timer for {minutes} minutes please
add_event|Add an event to the calendar|add {title} to my calendar on {day}/put {title} on {day} in the calendar/schedule {title} for {day}
create_reminder|Create a reminder|remind me to {task} on {day}/create a reminder to {task} on {day}/on {day} i must {task}, please remind me
play_music|Play a song or an artist|play {song}/i want to hear {song}/put on {song}
turn_on_light|Turn on the light in a room|turn on the light in the {room}/light on in the {room}/switch on the {room} light
set_temperature|Set the temperature of a room|set the {room} to {degrees} degrees/make it {degrees} degrees in the {room}/heat the {room} to {degrees} degrees
book_flight|Book a flight|book a flight from {city} to {city2} on {day}/i want to fly from {city} to {city2} on {day}/get me a flight to {city2} from {city} on {day}
book_hotel|Book a hotel room|book a hotel in {city} for {nights} nights/i need a room in {city} for {nights} nights/reserve {nights} nights in {city}
book_table|Reserve a table at a restaurant|book a table for {people} people at {clock}/reserve a table at {clock} for {people} people/table for {people} people at {clock} please
order_food|Order food|order {count} {food}/i would like {count} {food}/please get me {count} {food}
translate|Translate a text|translate "{text}" to {language}/how do you say "{text}" in {language}/put "{text}" into {language}
convert_currency|Convert an amount of money|convert {amount} {currency} to {currency2}/how much is {amount} {currency} in {currency2}/change {amount} {currency} into {currency2}
get_stock_price|Get the price of a stock|what is the price of {symbol}/stock price of {symbol}/how is {symbol} doing
find_restaurant|Find restaurants|find a {food} restaurant in {city}/where can i eat {food} in {city}/i want {food} in {city}
get_distance|Distance between two cities|how far is it from {city} to {city2}/distance between {city} and {city2}/what is the distance from {city} to {city2}
read_file|Read a file|read {path}/show me the file {path}/open {path}/what is in {path}
write_file|Write text to a file|write "{text}" to {path}/save "{text}" in {path}/put the text "{text}" into {path}
delete_file|Delete a file|delete {path}/remove the file {path}/please erase {path}
run_command|Run a shell command|run {command}/execute {command}/please run the command {command}
get_user|Get a user by id|get user {id}/show me the user with id {id}/who is user {id}/look up user {id}
create_user|Create a user|create a user {person} with age {age}/add a new user {person}, {age} years old/register {person}, age {age}
update_status|Set the status of an order|set order {id} to {status}/mark order {id} as {status}/order {id} is now {status}
add_to_cart|Add a product to the cart|add {count} {product} to my cart/put {count} {product} in the cart/i want to buy {count} {product}
get_definition|Define a word|define {word}/what does {word} mean/look up the word {word}
random_number|Random number in a range|give me a random number between {low} and {high}/pick a number from {low} to {high}/random number {low} to {high}
get_news|News about a topic|news about {topic}/what is new about {topic}/show me news on {topic}
get_population|Population of a place|how many people live in {city}/population of {city}/what is the population of {city}
set_color|Set the color of an object|make the {object} {color}/set the {object} to {color}/paint the {object} {color}
open_door|Open a door|open the {door} door/please open the {door} door/unlock the {door} door
find_book|Find a book by author|find books by {author}/which books did {author} write/search books of {author}"""

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday tomorrow".split()
TASKS = ["call mom", "buy milk", "water the plants", "pay the rent", "send the report", "clean the car", "feed the cat", "book the hotel", "read the letter", "fix the lamp"]
KINDS = {
    "city": ("string", place), "city2": ("string", place), "days": ("integer", lambda r: r.randint(2, 10)), "person": ("string", name),
    "text": ("string", lambda r: r.choice(["the meeting is at " + clock(r), "I will be late", "happy birthday", "see you on " + r.choice(DAYS), "the " + r.choice(OBJECTS) + " is " + r.choice(COLOR),
                                           "dinner is ready", "call me back", "good luck", "thank you", f"the code is {code(r)}", f"{name(r)} is here"])),
    "a": ("number", lambda r: r.randint(0, 999)), "b": ("number", lambda r: r.randint(0, 999)),
    "expression": ("string", lambda r: f"{r.randint(1, 99)} {r.choice('+-*/')} {r.randint(1, 99)}"), "query": ("string", lambda r: f"{r.choice(ADJ)} {r.choice(OBJECTS)}s" if r.random() < 0.6 else syllable_word(r)),
    "clock": ("string", lambda r: clock(r)), "minutes": ("integer", lambda r: r.randint(1, 90)), "title": ("string", lambda r: r.choice(["lunch", "dentist", "meeting", "gym", "yoga", "party"]) + " with " + name(r)),
    "day": ("string", lambda r: r.choice(DAYS)), "task": ("string", lambda r: r.choice(TASKS)), "song": ("string", lambda r: upper_first(r.choice(ADJ)) + " " + upper_first(r.choice(OBJECTS))),
    "room": ("string", lambda r: r.choice("kitchen bedroom bathroom garage office cellar hall garden".split())), "degrees": ("number", lambda r: r.randint(15, 26)),
    "nights": ("integer", lambda r: r.randint(1, 14)), "people": ("integer", lambda r: r.randint(2, 12)), "count": ("integer", lambda r: r.randint(1, 20)), "food": ("string", lambda r: r.choice(FOODS)),
    "language": ("string", lambda r: r.choice(["French", "German", "Spanish", "Italian", "Dutch", "Polish"])), "amount": ("number", lambda r: r.choice([r.randint(1, 5000), round(r.random() * 100, 2)])),
    "currency": ("string", lambda r: r.choice(["USD", "EUR", "GBP"])), "currency2": ("string", lambda r: r.choice(["JPY", "CHF", "SEK"])), "symbol": ("string", lambda r: "".join(r.choice("ABCDEFGHKLMNPRSTXYZ") for _ in range(r.randint(3, 4)))),
    "path": ("string", lambda r: r.choice(["", "/home/", "docs/", "/tmp/", "src/", "data/" + syllable_word(r) + "/"]) + syllable_word(r, 2, 4) + r.choice(["", "", "_" + r.choice(OBJECTS), "-" + syllable_word(r)]) + r.choice([".txt", ".md", ".json", ".rs", ".csv"])), "command": ("string", lambda r: r.choice(["ls -l", "pwd", "whoami", "date", "cargo build", "git status", "ls " + syllable_word(r), "make " + syllable_word(r)])),
    "id": ("integer", lambda r: r.randint(1, 99999)), "age": ("integer", lambda r: r.randint(18, 90)), "status": ("string", lambda r: r.choice(["shipped", "paid", "open", "closed", "cancelled"])),
    "product": ("string", lambda r: f"{r.choice(COLOR)} {r.choice(OBJECTS)}s"), "word": ("string", lambda r: syllable_word(r) if r.random() < 0.5 else r.choice(OBJECTS)), "low": ("integer", lambda r: r.randint(0, 10)), "high": ("integer", lambda r: r.randint(11, 1000)),
    "topic": ("string", lambda r: r.choice(HOBBIES + FOODS + ["football", "space", "music", "science"])), "object": ("string", lambda r: r.choice(OBJECTS)), "color": ("string", lambda r: r.choice(COLOR)), "door": ("string", lambda r: r.choice(["front", "back", "garage", "cellar", "main"])),
    "author": ("string", lambda r: full_name(r)),
}
ENUMS = {"status": ["open", "paid", "shipped", "closed", "cancelled"], "currency": ["USD", "EUR", "GBP"], "color": COLOR}
NAMES = {"city": ["city", "location", "place", "town"], "person": ["to", "name", "recipient", "person", "contact"], "text": ["text", "body", "message", "content"], "query": ["query", "q", "term"],
         "clock": ["time", "at"], "day": ["day", "date", "when"], "people": ["people", "guests", "party_size"], "count": ["count", "quantity", "number"], "food": ["food", "dish", "cuisine"], "id": ["id", "user_id", "number"],
         "path": ["path", "file", "filename"], "a": ["a", "x", "first"], "b": ["b", "y", "second"], "object": ["object", "item", "target"], "word": ["word", "term"]}
HINTS = {"city": ["The name of the city", "City", "e.g. Paris"], "days": ["Number of days"], "person": ["Name of the person"], "text": ["The text", "What to say"], "clock": ["Time as HH:MM"], "path": ["Path of the file"]}


def clock(r):
    return f"{r.randint(0, 23):02d}:{r.choice(['00', '15', '30', '45', '10', '05'])}"


def bank_tool(r):
    """(definition, make): make(r) gives a request and the arguments it names."""
    tool, about, requests = r.choice(BANK.split("\n")).split("|")
    requests = requests.split("/")
    slots = [s.split("}")[0] for s in requests[0].split("{")[1:]]
    slots = sorted(set(slots), key=slots.index)
    named = {s: (r.choice(NAMES[s]) if s in NAMES and r.random() < 0.5 else {"city": "city", "city2": "destination", "currency2": "target", "clock": "time"}.get(s, s)) for s in slots}
    if len(set(named.values())) < len(slots):
        named = {s: s for s in slots}
    if r.random() < 0.3:
        tool = camel(tool)
    props = {}
    for s in slots:
        p = {"type": KINDS[s][0]}
        if r.random() < 0.5:
            p["description"] = r.choice(HINTS.get(s, [f"The {named[s]}", upper_first(named[s])]))
        if s in ENUMS and r.random() < 0.6:
            p["enum"] = ENUMS[s]
        props[named[s]] = p
    required = list(props)
    if r.random() < 0.25:  # a parameter nobody mentions is left out
        extra = r.choice(["unit", "limit", "verbose", "format", "priority"])
        props[extra] = {"type": "integer" if extra == "limit" else "boolean" if extra == "verbose" else "string"}
    schema = {"type": "object", "properties": props}
    if r.random() < 0.85:
        schema["required"] = required
    if r.random() < 0.2:
        schema["additionalProperties"] = False

    def make(r):
        values = {s: KINDS[s][1](r) for s in slots}
        return r.choice(requests).format(**values), {named[s]: values[s] for s in slots}

    return {"name": tool, "description": about if r.random() < 0.85 else "", "parameters": schema}, make


def made_up_tool(r):
    verb = r.choice("get set find create update delete list check start stop add remove show count move open".split())
    noun = r.choice(OBJECTS + JOBS) if r.random() < 0.6 else syllable_word(r)
    words = [noun]
    while len(words) < 3 and r.random() < 0.4:  # names of several joined words
        words.insert(r.randrange(len(words)), r.choice([r.choice(OBJECTS), r.choice(JOBS), r.choice(COLOR), r.choice(ADJ), syllable_word(r), r.choice("user order file cart page room list item team task group account report status price email".split())]))
    noun = " ".join(words)
    tool = "_".join([verb] + words + (["for", r.choice(JOBS)] if r.random() < 0.08 else []))
    if r.random() < 0.3:
        tool = camel(tool)
    elif r.random() < 0.12:
        tool = tool.replace("_", "-")
    props, makers = {}, {}
    for p in r.sample(["name", "size", "color", "count", "owner", "city", "level", "active", "label", "price", "tags", "note", "speed", "target", "width", syllable_word(r)], r.randint(1, 3)):
        if p in ("size", "count", "level", "speed", "width"):
            t, f = "integer", lambda r: r.randint(1, 500)
        elif p == "price":
            t, f = "number", lambda r: round(r.random() * 90 + 1, 2)
        elif p == "active":
            t, f = "boolean", lambda r: r.random() < 0.5
        elif p == "tags":
            t, f = "array", lambda r: r.sample(OBJECTS, r.randint(2, 3))
        else:
            t, f = "string", lambda r: r.choice([syllable_word(r), name(r), r.choice(COLOR), r.choice(OBJECTS)])
        props[p], makers[p] = {"type": t} | ({"items": {"type": "string"}} if t == "array" else {}), f

    def make(r):
        values = {p: f(r) for p, f in makers.items()}
        says = lambda v: ("yes" if v else "no") if isinstance(v, bool) else listing(v) if isinstance(v, list) else str(v)
        head = r.choice([f"{verb} the {noun}", f"please {verb} {article(noun)}", f"{verb} {article(noun)}", f"i want to {verb} a {noun}", f"can you {verb} the {noun}"])
        shape = r.choice(["{p} {v}", "{p}: {v}", "{p} = {v}", "the {p} is {v}"])
        return f"{head} {r.choice(['with', 'where', ':'])} {', '.join(shape.format(p=p, v=says(v)) for p, v in values.items())}", values

    about = r.choice([f"{upper_first(verb)} {article(noun)}", "", f"{upper_first(verb)}s the {noun} in the system"])
    return {"name": tool, "description": about, "parameters": {"type": "object", "properties": props, "required": list(props)}}, make


def camel(tool):
    a, *b = tool.split("_")
    return a + "".join(upper_first(x) for x in b)


def tool_conversation(r, chat):
    """A request with tools: one call, several, a result read out, or no call at all."""
    pool = {}
    for _ in range(r.choice([1, 1, 2, 2, 3])):
        t, make = bank_tool(r) if r.random() < 0.6 else made_up_tool(r)
        pool[t["name"]] = (t, make)
    if r.random() < 0.12:  # a tool whose name is like another's
        near, make = made_up_tool(r)
        other = r.choice(list(pool))
        near["name"] = r.choice([other + "_" + r.choice(["all", "now", "list", "v2"]), other.split("_")[0] + "_" + syllable_word(r), other[:3] + near["name"]])
        if near["name"] not in pool and near["name"].replace("_", "").lower() not in {n.replace("_", "").lower() for n in pool}:
            pool[near["name"]] = (near, None)
    tools = [t for t, _ in pool.values()]
    conv = {"tools": tools, "messages": []}
    if r.random() < 0.3:
        conv["messages"].append({"role": "system", "content": r.choice(["You are a helpful assistant.", "Use the tools when they help.", "You are an assistant with tools.", "Answer briefly."])})
    thinking = r.random() < 0.3
    if thinking:
        conv["thinking"], conv["effort"] = True, r.choice(["high", "high", "low", "max"])

    def say(role, content, **more):
        conv["messages"].append({"role": role, "content": content, **more})

    for _ in range(r.choice([1, 1, 1, 2])):
        tool, make = r.choice([p for p in pool.values() if p[1]])
        n, x = tool["name"], r.random()
        request, args = make(r)
        if x < 0.13:
            q, a, thought = chat.single(r)
            say("user", q), say("assistant", a, reasoning="No tool is needed here." if thinking else "")
            continue
        calls = [(n, args)]
        if x > 0.9:
            more, args2 = make(r)
            request = f"{request} and {r.choice(['also ', 'then ', ''])}{more}"
            calls.append((n, args2))
        say("user", disguise(request, r) if r.random() < 0.6 else upper_first(request) + r.choice(["", ".", "?"]))
        say("assistant", "", calls=calls, reasoning=f"I call {n}." if thinking else "")
        if r.random() < 0.5:
            answers = []
            for _, a in calls:
                key, value = r.choice([("result", r.randint(0, 999)), ("status", "ok"), ("temperature", r.randint(-9, 38)), ("value", code(r)), ("answer", r.choice(ADJ)), ("name", name(r)), ("time", clock(r))])
                say("tool", r.choice([f'{{"{key}": {value if isinstance(value, int) else chr(34) + str(value) + chr(34)}}}', f"{key}: {value}", str(value)]))
                answers.append(value)
            text = "It is done." if answers == ["ok"] * len(answers) else f"The result is {listing(map(str, answers))}."
            say("assistant", text, reasoning="The tool has answered." if thinking else "")
    return conv


# ---- JSON ---------------------------------------------------------------------------------------

FIELDS = {
    "name": ("string", name), "age": ("integer", lambda r: r.randint(1, 99)), "city": ("string", place), "job": ("string", lambda r: r.choice(JOBS)), "color": ("string", lambda r: r.choice(COLOR)),
    "price": ("number", lambda r: round(r.random() * 100, 2)), "count": ("integer", lambda r: r.randint(0, 500)), "active": ("boolean", lambda r: r.random() < 0.5), "food": ("string", lambda r: r.choice(FOODS)),
    "items": ("array", lambda r: r.sample(OBJECTS, r.randint(1, 4))), "code": ("string", code), "hobby": ("string", lambda r: r.choice(HOBBIES)), "year": ("integer", lambda r: r.randint(1900, 2030)), "title": ("string", lambda r: f"The {upper_first(r.choice(ADJ))} {upper_first(r.choice(OBJECTS))}"),
    "email": ("string", lambda r: f"{syllable_word(r)}@{syllable_word(r)}.com"), "scores": ("array", lambda r: [r.randint(0, 20) for _ in range(r.randint(2, 4))]), "married": ("boolean", lambda r: r.random() < 0.5), "country": ("string", lambda r: r.choice(["France", "Japan", "Kenya", "Peru", "Canada", "Italy"])),
    "weight": ("number", lambda r: round(r.random() * 50, 1)), "id": ("integer", lambda r: r.randint(1, 99999)),
}


def json_conversation(r, chat):
    """Facts in words, a schema, and the object that follows it."""
    fields = {f: FIELDS[f] for f in r.sample(list(FIELDS), r.randint(1, 5))}
    if r.random() < 0.2:
        fields[syllable_word(r)] = ("string", code)
    values = {f: make(r) for f, (_, make) in fields.items()}
    props = {}
    for f, (t, _) in fields.items():
        props[f] = {"type": t}
        if t == "array":
            props[f]["items"] = {"type": "integer" if values[f] and isinstance(values[f][0], int) else "string"}
        if r.random() < 0.15:
            props[f]["description"] = f"The {f}"
    schema = {"type": "object", "properties": props}
    if r.random() < 0.8:
        schema["required"] = list(props)
    if r.random() < 0.4:
        schema["additionalProperties"] = False
    says = lambda v: ("yes" if v else "no") if isinstance(v, bool) else ", ".join(map(str, v)) if isinstance(v, list) else str(v)
    mixed = list(values.items())
    if r.random() < 0.4:
        r.shuffle(mixed)
    style = r.randrange(4)
    if style == 0:
        text = ", ".join(f"{f}: {says(v)}" for f, v in mixed)
    elif style == 1:
        text = "\n".join(f"{upper_first(f)}: {says(v)}" for f, v in mixed)
    elif style == 2:
        text = " ".join(f"The {f} is {says(v)}." for f, v in mixed)
    else:
        text = listing(f"the {f} is {says(v)}" for f, v in mixed)
    from render import dumps

    ask = r.choice(["Turn this into JSON", "Extract the data as JSON", "Give me this as JSON", "Write the JSON for this", "json please", "Fill the schema", "Make a JSON object from this"])
    conv = {"messages": []}
    x = r.random()
    if x < 0.5:
        conv["schema"] = schema
        q = r.choice([f"{text}", f"{ask}: {text}", f"{text}\n\n{ask}."])
    elif x < 0.7:
        conv["schema"] = "object"
        q = f"{ask} with the keys {listing(values)}: {text}"
    elif x < 0.9:
        q = r.choice([f"{ask}: {text}\n\nSchema: {dumps(schema)}", f"Follow this schema: {dumps(schema)}\n\n{text}", f"{dumps(schema)}\n{ask}: {text}"])
    else:
        q = f"{ask} with the keys {listing(values)}: {text}"
    if r.random() < 0.2:
        conv["messages"].append({"role": "system", "content": r.choice(["You are a helpful assistant.", "You answer in JSON.", "Reply with JSON only."])})
    conv["messages"] += [{"role": "user", "content": q}, {"role": "assistant", "content": dumps(values)}]
    if r.random() < 0.15:
        conv["thinking"] = True
        conv["messages"][-1]["reasoning"] = f"The keys are {listing(values)}."
    return conv
