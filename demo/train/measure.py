"""Measure a running server that serves the demo model: recall, tool calls, JSON, chat, tokens a draft round.

    finback serve &
    python measure.py http://127.0.0.1:8080 --real ../work/real.held.txt.xz --prompts ../blind.txt --out measured.json

Needs the standard library, and `tokenizers` to size the long prompts. Every request is greedy (temperature 0) except
the second half of the rounds; thinking is left to the server's default unless --thinking says otherwise. Prompts are
made by the training generators with seeds that training does not use. Each part prints its figures and adds them,
with every reply, to the output file; --only names the parts to run.
"""

import argparse
import json
import time
import urllib.error
import urllib.request
from random import Random

from grammar import disguise
from tasks import Tasks, fact, subject, value_of
from tools import json_conversation, tool_conversation

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LENGTHS = {"1k": 1000, "4k": 4000, "8k": 8150}  # prompt tokens, at most
# kinds of fact that no table of the generators holds
UNUSUAL = ["launch code", "locker combination", "wifi password", "project codename", "safe word", "booking reference", "alarm code", "gate number", "tracking number",
           "flight number", "seat number", "coupon code", "meeting room", "license plate", "backup phrase", "hotel room number", "invoice number", "badge number", "zip code", "router password"]
MIX = {"chat": 0.50, "tool": 0.13, "json": 0.08, "needle": 0.17, "lookup": 0.05, "copy": 0.04}  # pack.py's final mix, without plain text


class Server:
    def __init__(self, url, thinking):
        self.url, self.thinking = url.rstrip("/"), thinking

    def chat(self, messages, temperature=0.0, **more):
        """The reply to a conversation: (message, finback block, usage)."""
        body = {"messages": messages, "temperature": temperature, "max_tokens": 400, **more}
        if self.thinking:
            body["thinking"] = {"type": {"on": "enabled", "off": "disabled"}[self.thinking]}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=1200) as f:
                got = json.load(f)
        except urllib.error.HTTPError as e:
            raise SystemExit(f"the server refused a request: {e.read().decode()}")
        return got["choices"][0]["message"], got["finback"], got["usage"]


def joined(content):
    return content if isinstance(content, str) else "".join(s for s, _ in content)


def as_request(conv):
    """The messages before the last reply, and the request's other fields."""
    messages, made, answered = [], 0, 0
    for m in conv["messages"][:-1]:
        out = {"role": m["role"], "content": joined(m["content"])}
        if m.get("calls"):
            out["tool_calls"] = [{"id": f"call_{made + i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, (n, a) in enumerate(m["calls"])]
            made += len(m["calls"])
        if m["role"] == "tool":
            out["tool_call_id"] = f"call_{answered}"
            answered += 1
        messages.append(out)
    more = {}
    if conv.get("tools"):
        more["tools"] = [{"type": "function", "function": t} for t in conv["tools"]]
    return messages, more


def long_prompt(tasks, encoder, r, length, depth, given):
    """A text of just under `length` tokens with one fact at `depth` (0 is the beginning) and the question after it."""
    s, q, a = given
    ask = "\n\n" + disguise(q, r)
    size = lambda text: len(encoder.encode([(text, False, 0)])[0])
    left = length - size(s + ask) - 60
    fill = []
    for piece in tasks.filler(r, length * 8, [subject(a)]):
        left -= size(" " + piece) + 1
        if left < 0:
            break
        fill.append(piece)
    fill.insert(round(depth * len(fill)), s)
    return " ".join(fill) + ask


def recall(server, tasks, encoder, name, length, count):
    out = []
    for n in range(count):
        depth = DEPTHS[n % len(DEPTHS)]
        r = Random(f"measure/{name}/{n}")
        given = fact(r)
        while True:  # text of long pieces can fall short of the length
            prompt = long_prompt(tasks, encoder, r, length, depth, given)
            if len(prompt) > 2.2 * length and len(encoder.encode([(prompt, False, 0)])[0]) > 0.95 * length - 60:
                break
        out.append(asked(server, prompt, given[2], depth))
    return out


def asked(server, prompt, answer, depth):
    began = time.time()
    message, _, usage = server.chat([{"role": "user", "content": prompt}])
    got = message["content"] or ""
    print(f"  {usage['prompt_tokens']} tokens, depth {depth}: {'right' if got == answer else 'WRONG'}, {time.time() - began:.0f} s  {answer!r} {'' if got == answer else repr(got)}", flush=True)
    return {"tokens": usage["prompt_tokens"], "depth": depth, "right": got == answer, "want": answer, "got": got}


def unusual(server, tasks, encoder, count):
    """Facts whose kinds are named here and nowhere in the training tables, in 1,000 tokens."""
    out = []
    for n in range(count):
        r = Random(f"measure/unusual/{n}")
        what, value = UNUSUAL[n % len(UNUSUAL)], value_of(r)
        given = (f"The {what} is {value}.", f"What is the {what}?", f"The {what} is {value}.")
        out.append(asked(server, long_prompt(tasks, encoder, r, 1000, DEPTHS[n % 5], given), given[2], DEPTHS[n % 5]))
    return out


def calls(server, tasks, count):
    """Requests that need one call, one to three tools on offer: name and arguments as the server parsed them."""
    r, out = Random("measure/calls"), []
    while len(out) < count:
        conv = tool_conversation(r, tasks.chat)
        replies = [m for m in conv["messages"] if m["role"] == "assistant"]
        if len(replies) != 1 or len(replies[0].get("calls", [])) != 1:
            continue
        at = conv["messages"].index(replies[0])
        messages, more = as_request({**conv, "messages": conv["messages"][: at + 1]})
        message, _, _ = server.chat(messages, **more)
        got = []
        for c in message.get("tool_calls") or []:
            try:
                got.append([c["function"]["name"], json.loads(c["function"]["arguments"])])
            except ValueError:
                got.append([c["function"]["name"], c["function"]["arguments"]])
        want = [list(replies[0]["calls"][0])]
        out.append({"right": got == want, "want": want, "got": got or message["content"], "request": messages[-1]["content"]})
    return out


def objects(server, tasks, count):
    """JSON asked for in the prompt, with no grammar: does the reply parse, with the asked keys, exactly as wanted?"""
    r, out = Random("measure/json"), []
    while len(out) < count:
        conv = json_conversation(r, tasks.chat)
        if conv.get("schema"):
            schema = conv["schema"]
            ask = "Answer with a JSON object." if schema == "object" else f"Answer with JSON after this schema: {json.dumps(schema)}"
            conv["messages"][-2]["content"] += "\n\n" + ask
        want = conv["messages"][-1]["content"]
        messages, _ = as_request(conv)
        got = server.chat(messages)[0]["content"] or ""
        try:
            value = json.loads(got)
            parses, keys = True, set(value) == set(json.loads(want)) if isinstance(value, dict) else False
        except ValueError:
            parses = keys = False
        out.append({"right": keys, "parses": parses, "exact": parses and value == json.loads(want), "want": want, "got": got})
    return out


def everyday(server, path):
    with open(path, encoding="utf-8") as f:
        prompts = [line.strip() for line in f if line.strip()]
    out = []
    for q in prompts:
        message, _, _ = server.chat([{"role": "user", "content": q}])
        out.append({"prompt": q, "got": message["content"], "thought": message.get("reasoning_content")})
        print(f"  {q} -> {message['content']}", flush=True)
    return out


def rounds(server, tasks, temperature, count):
    """Tokens a round by kind and over the mix: as many replies of each kind as its share of the final training mix."""
    out = {}
    for kind in MIX:
        r, total, taken, replies = Random(f"measure/rounds/{kind}"), 0, 0, 0
        while replies < max(4, round(count * MIX[kind])):
            conv = conversation(tasks, kind, r)
            messages, more = as_request(conv)
            if temperature:
                more["seed"] = replies
            _, block, usage = server.chat(messages, temperature, **more)
            replies += 1
            total, taken = total + usage["completion_tokens"], taken + block["rounds"]
        out[kind] = {"replies": replies, "tokens": total, "rounds": taken, "a round": total / max(taken, 1)}
    out["mix"] = {"a round": sum(v["tokens"] for v in out.values()) / sum(v["rounds"] for v in out.values())}
    return out


def conversation(tasks, kind, r):
    """A held-out conversation of a kind whose last message is the model's; documents of pieces are taken apart again."""
    if kind == "chat":
        conv = tasks.chat.conversation(r)
    elif kind in ("tool", "json"):
        conv = (tool_conversation if kind == "tool" else json_conversation)(r, tasks.chat)
        conv.pop("schema", None)
    else:
        conv = tasks.conversation(kind, r, 350)
    for i, m in enumerate(conv["messages"]):
        if m.get("calls") and conv["messages"][i + 1 : i + 2] and conv["messages"][i + 1]["role"] != "tool":
            del conv["messages"][i + 1 :]  # the server wants every call answered
    while conv["messages"][-1]["role"] != "assistant":
        conv["messages"].pop()
    return conv


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("url")
    ap.add_argument("--real", help="held-out paragraphs from real_text.py, for the long texts")
    ap.add_argument("--tokenizer", default="../tokenizer.json")
    ap.add_argument("--prompts", help="file of everyday prompts, one a line")
    ap.add_argument("--thinking", choices=("on", "off"))
    ap.add_argument("--only", default="calls,json,chat,rounds,unusual,1k,4k,8k")
    ap.add_argument("--count", type=int, default=40, help="long prompts of each length")
    ap.add_argument("--out", default="measured.json")
    a = ap.parse_args()
    from tokenizer import Encoder

    server, tasks, encoder, results = Server(a.url, a.thinking), Tasks(a.real), Encoder(a.tokenizer), {}
    share = lambda rows, key="right": f"{sum(x[key] for x in rows)} of {len(rows)}"
    for part in a.only.split(","):
        began = time.time()
        if part in LENGTHS:
            results[part] = rows = recall(server, tasks, encoder, part, LENGTHS[part], a.count)
            said = share(rows) + ", by depth " + " ".join(share([x for x in rows if x["depth"] == d]) for d in DEPTHS)
        elif part == "unusual":
            results[part] = rows = unusual(server, tasks, encoder, 20)
            said = share(rows)
        elif part == "calls":
            results[part] = rows = calls(server, tasks, 100)
            said = share(rows)
        elif part == "json":
            results[part] = rows = objects(server, tasks, 100)
            said = f"parses {share(rows, 'parses')}, asked keys {share(rows)}, exact {share(rows, 'exact')}"
        elif part == "chat":
            results[part] = everyday(server, a.prompts) if a.prompts else []
            said = f"{len(results[part])} replies"
        elif part == "rounds":
            results["rounds greedy"], results["rounds sampled"] = rounds(server, tasks, 0.0, 100), rounds(server, tasks, 1.0, 100)
            said = "\n  ".join(f"{how}: " + ", ".join(f"{k} {v['a round']:.2f}" for k, v in results[f"rounds {how}"].items()) for how in ("greedy", "sampled"))
        else:
            ap.error(f"--only names {part}; parts are calls, json, chat, rounds, unusual, {', '.join(LENGTHS)}")
        print(f"{part}: {said} ({time.time() - began:.0f} s)", flush=True)
        with open(a.out, "w", encoding="utf-8") as f:
            json.dump(results, f, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
