"""Held-out measures of a trained model: exact answers by task, recall by length and depth, drafts, free chat.

A span is one reply (or one reasoning plus reply). Greedy decoding gives the span exactly if and only if the
argmax at every position of it, fed the span itself, is the next token: so one pass measures free running.
"""

from random import Random

import torch

import steps
from grammar import disguise, held_out
from pack import padded
from render import render
from tasks import fact, subject


def spans(kinds_row):
    """[(start, end)] of the runs of answer tokens."""
    out, start = [], None
    for i, k in enumerate(list(kinds_row) + [0]):
        if k == 1 and start is None:
            start = i
        elif k != 1 and start is not None:
            out.append((start, i))
            start = None
    return out


def probe(tasks, r, length, depth):
    """One long chat with a fact at `depth` (0 the beginning, 1 the end) and the question at the end."""
    s, q, a = fact(r)
    style = Random(r.random())
    fill = tasks.filler(style, int((length - 110) * 3.4), [subject(a)])
    i = min(len(fill), round(depth * len(fill)))
    parts = [(x + " ", 2) for x in fill[:i]] + [(s + " ", 0)] + [(x + " ", 2) for x in fill[i:]]
    return render({"messages": [{"role": "user", "content": parts + [("\n\n" + disguise(q, r), 0)]}, {"role": "assistant", "content": a}]})


class Evaluator:
    def __init__(self, net, leaves, tasks, encoder, tokens=65536, device="cuda", draft=None):
        self.net, self.p, self.tasks, self.encoder, self.n, self.device, self.draft = net, leaves, tasks, encoder, tokens, device, draft

    def batches(self, docs, length):
        """Full batches of padded rows: the last one is filled with repeats, marked unused."""
        tokens, kinds = padded(docs, length)
        size = self.n // length
        for i in range(0, len(tokens), size):
            t, k = tokens[i : i + size], kinds[i : i + size]
            used = len(t)
            fill = lambda x: torch.as_tensor(x.astype("int64"), device=self.device)
            t, k = fill(t), fill(k)
            if used < size:
                t, k = (torch.cat([x, x[:1].expand(size - used, -1)]) for x in (t, k))
            yield t.contiguous(), k.contiguous(), used

    def argmax(self, tokens):
        hidden, taps, _ = self.net.forward(self.p, tokens, True)
        return steps.choices(hidden.detach(), self.p["head"].detach()).view_as(tokens)

    def exact(self, docs, length):
        """(share of spans exact, spans, share of documents whose every span is exact)."""
        good = total = whole = count = 0
        for tokens, kinds, used in self.batches(docs, length):
            hit = (torch.roll(self.argmax(tokens), 1, 1) == tokens).cpu()
            for row, k in zip(hit[:used], kinds[:used].cpu().tolist()):
                ok = [bool(row[a:b].all()) for a, b in spans(k)]
                good, total = good + sum(ok), total + len(ok)
                whole, count = whole + all(ok), count + 1
        return good / max(total, 1), total, whole / max(count, 1)

    def loss(self, docs, length):
        """Mean loss a token over all real tokens, and over answers."""
        sums = torch.zeros(4, device=self.device)
        for tokens, kinds, used in self.batches(docs, length):
            hidden, _, _ = self.net.forward(self.p, tokens, True)
            labels, _ = steps.targets(tokens, kinds)
            rows, _ = self.net.seg["cross_entropy"](hidden, self.p["head"], labels, torch.ones(labels.shape, device=self.device))
            rows = rows.detach().view_as(tokens)[:used, :-1]
            label, kind = tokens[:used, 1:], kinds[:used, 1:]
            real, answer = (label != 2).float(), (kind == 1).float()
            sums += torch.stack([(rows * real).sum(), real.sum(), (rows * answer).sum(), answer.sum()])
        s = sums.tolist()
        return s[0] / max(s[1], 1), s[2] / max(s[3], 1)

    def documents(self, kind, count, seed, room=400):
        r = Random(f"held-out/{kind}/{seed}")
        return [self.encoder.encode(self.tasks.document(kind, r, room)) for _ in range(count)]

    def recall(self, length, row, count, seed=1):
        """depth -> share of facts recalled exactly, prompts of about `length` tokens in rows of `row`."""
        out = {}
        for depth in (0.0, 0.25, 0.5, 0.75, 1.0):
            r = Random(f"recall/{length}/{depth}/{seed}")
            docs = []
            while len(docs) < count:
                ids, kinds = self.encoder.encode(probe(self.tasks, r, length, depth))
                if 0.7 * length <= len(ids) <= min(row, 1.15 * length):
                    docs.append((ids, kinds))
            out[depth] = self.exact(docs, row)[0]
        return out

    def generate(self, prompts, length, limit):
        """Greedy replies to encoded prompts, by running the whole rows again for every token."""
        size = self.n // length
        out = []
        for i in range(0, len(prompts), size):
            part = prompts[i : i + size]
            rows = torch.full((size, length), 2, device=self.device)
            ends = []
            for n, ids in enumerate(part):
                rows[n, : len(ids)] = torch.as_tensor(ids, device=self.device)
                ends.append(len(ids))
            ends += [1] * (size - len(part))
            rows[len(part) :, 0] = 0
            at = torch.tensor(ends, device=self.device)
            done = torch.zeros(size, dtype=torch.bool, device=self.device)
            done[len(part) :] = True
            n = torch.arange(size, device=self.device)
            for step in range(limit):
                best = self.argmax(rows)[n, at - 1]
                best = torch.where(done, 2, best)
                rows[n, at.clamp(max=length - 1)] = torch.where(done, rows[n, at.clamp(max=length - 1)], best)
                at = torch.where(done, at, (at + 1).clamp(max=length - 1))
                done |= best == 1
                if step % 8 == 7 and bool(done.all()):
                    break
            for k in range(len(part)):
                out.append(rows[k, len(part[k]) : int(at[k])].tolist())
        return out

    def everyday(self, decode, thinking=False, prompts=None):
        prompts = prompts or held_out()
        ids = [self.encoder.encode(render({"messages": [{"role": "user", "content": q}], "thinking": thinking}, open_end=True))[0] for q in prompts]
        return [(q, decode(a)) for q, a in zip(prompts, self.generate(ids, 2048, 96))]

    def rounds(self, docs, length, sampled, anchors):
        """Tokens a draft round along the model's own replies (greedy, or sampled at temperature 1)."""
        emitted = taken = 0
        block, size = self.net.t["dspark_block_size"], self.n // length
        for tokens, kinds, used in self.batches(docs, length):
            noise = None
            if sampled:
                gen = torch.Generator(device=self.device).manual_seed(7)
                u = torch.rand(self.n, self.net.t["vocab_size"], device=self.device, generator=gen)
                noise = -torch.log(-torch.log(u.clamp(1e-9, 1 - 1e-7)))
            own, best, taps = steps.own_continuation(self.net, self.p, tokens, kinds, 24 if sampled else 10, noise)
            steady = (torch.roll(best, 1, 1) == own) | (kinds != 1)
            where = torch.zeros(size, anchors, dtype=torch.int64)
            lists = []
            for row in range(size):
                pos = []
                for a, b in spans(kinds[row].tolist()):
                    ok = steady[row, a:b].tolist()
                    while b - a > 1 and not all(ok[: b - a]):
                        b -= 1
                    pos += [(p, b) for p in range(a, b - 1)]
                pos = [x for x in pos if x[0] + block + 1 < length][:anchors]
                lists.append(pos)
                where[row, : len(pos)] = torch.tensor([p for p, _ in pos], dtype=torch.int64)
                where[row, len(pos) :] = 4
            where = where.to(self.device)
            guess = self.guess(own, taps, where, noise)
            label = torch.gather(own, 1, (where[..., None] + 1 + torch.arange(block, device=self.device)).flatten(1)).view_as(guess)
            accepted = (guess == label).long().cumprod(-1).sum(-1).cpu()
            for row in range(used):
                index = {p: (i, b) for i, (p, b) in enumerate(lists[row])}
                for p, b in lists[row]:
                    if p - 1 in index and index[p - 1][1] == b:
                        continue  # not the first token of its reply
                    while p in index:
                        gain = min(int(accepted[row, index[p][0]]) + 1, b - 1 - p)
                        emitted, taken, p = emitted + gain, taken + 1, p + gain
        return emitted / max(taken, 1), taken

    def guess(self, tokens, taps, anchors, noise):
        """The drafted tokens [B, A, block], each fed the drafted token before it."""
        p = {**self.draft, "embed": self.p["embed"].detach()}
        _, normed = self.net.draft(p, taps, tokens, anchors)
        normed = normed.detach()
        prev = torch.gather(tokens, 1, anchors)
        out = []
        for j in range(normed.shape[2]):
            chosen = []
            for i in range(0, normed.shape[0], 8):
                logits = normed[i : i + 8, :, j].flatten(0, 1) @ self.p["head"].detach().t()
                logits = logits.float() + (p["mk_embed"].detach()[prev[i : i + 8].flatten()] @ p["mk_head"].detach().t()).float()
                if noise is not None:
                    row = torch.arange(i, min(i + 8, normed.shape[0]), device=self.device)[:, None] * tokens.shape[1]
                    logits = logits + noise[(row + anchors[i : i + 8] + j).flatten()]
                chosen.append(logits.argmax(-1).view(-1, normed.shape[1]))
            prev = torch.cat(chosen)
            out.append(prev)
        return torch.stack(out, -1)
