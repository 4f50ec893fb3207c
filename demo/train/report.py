"""All held-out figures of a trained model, as report.json: what the model card is written from."""

import json
import time
from random import Random

from evaluate import Evaluator
from render import render
from tasks import Tasks
from tools import json_conversation, tool_conversation
from tokenizer import load


def single_calls(tasks, encoder, count):
    """Requests that need one call, with one to three tools on offer."""
    r, out = Random("single"), []
    while len(out) < count:
        conv = tool_conversation(r, tasks.chat)
        replies = [m for m in conv["messages"] if m["role"] == "assistant"]
        if len(replies) == 1 and len(replies[0].get("calls", [])) == 1 and not conv.get("thinking"):
            out.append(encoder.encode(render(conv)))
    return out


def json_validity(ev, tasks, encoder, tok, count):
    """Share of free-running greedy replies that parse and hold the asked keys, and the share that is exact."""
    r, convs = Random("json"), []
    while len(convs) < count:
        conv = json_conversation(r, tasks.chat)
        if not conv.get("thinking"):
            convs.append(conv)
    want = [c["messages"].pop()["content"] for c in convs]
    replies = ev.generate([encoder.encode(render(c, open_end=True))[0] for c in convs], 2048, 120)
    valid = exact = 0
    for reply, w in zip(replies, want):
        text = tok.decode(reply)
        exact += text == w
        try:
            valid += set(json.loads(text)) == set(json.loads(w))
        except (ValueError, TypeError):
            pass
    return valid / count, exact / count


def report(run, encoder, out, quick=False, look=None):
    tasks, tok = Tasks(run.a.real.replace(".txt", ".held.txt")), load(run.a.tokenizer)
    draft = run.params.leaves(draft=True)
    ev = Evaluator(run.net, run.params.leaves(draft=False), tasks, encoder, draft=draft)
    r, start = {}, time.time()

    def note(name, value):
        r[name] = value
        print(f"{time.time() - start:.0f} s {name}: {value if not isinstance(value, list) else len(value)}", flush=True)
        with open(f"{out}/report.json", "w") as f:
            json.dump(r, f, ensure_ascii=False, indent=1)

    if look:
        with open(look, encoding="utf-8") as f:
            prompts = [line.strip() for line in f if line.strip()]
        for thinking in (False, True):
            for q, x in ev.everyday(tok.decode, thinking, prompts):
                print(f"  {q} -> {x}", flush=True)
    note("everyday", ev.everyday(tok.decode))
    for q, a in r["everyday"]:
        print(f"  {q} -> {a}", flush=True)
    sets = {kind: ev.documents(kind, 32 if quick else 192, 1) for kind in ("chat", "tool", "json", "needle", "lookup", "copy", "text")}
    for kind, docs in sets.items():
        if kind != "text":
            note(f"exact {kind}", ev.exact(docs, 2048))
        note(f"loss {kind}", ev.loss(docs, 2048))
    sums = Random("sums")
    docs = []
    while len(docs) < 192:
        q, a, _ = tasks.chat.arithmetic(sums)
        if " + " in a:
            docs.append(encoder.encode(render({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]})))
    note("exact addition", ev.exact(docs, 2048))
    single = single_calls(tasks, encoder, 100)
    note("single tool call", ev.exact(single, 2048))
    note("json validity", json_validity(ev, tasks, encoder, tok, 100))
    for length, row, count in ((1000, 2048, 64), (4000, 8192, 40), (7900, 8192, 40)):
        note(f"recall {length}", ev.recall(length, row, 8 if quick else count))
    if quick:
        return
    note("everyday thinking", ev.everyday(tok.decode, True))
    for kind in ("chat", "tool", "json", "needle", "lookup", "copy"):
        note(f"rounds greedy {kind}", ev.rounds(sets[kind][:96], 2048, False, 256))
        note(f"rounds sampled {kind}", ev.rounds(sets[kind][:32], 2048, True, 256))
