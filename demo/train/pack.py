"""Rows of token ids for training, made on the fly by worker processes, and padded rows for measuring."""

import multiprocessing as mp
import traceback
from random import Random

import numpy as np

PAD = 2
MIXES = {
    "base": {"chat": 0.36, "needle": 0.24, "lookup": 0.07, "tool": 0.11, "json": 0.08, "copy": 0.06, "text": 0.08},
    "long": {"chat": 0.30, "needle": 0.34, "lookup": 0.09, "tool": 0.09, "json": 0.07, "copy": 0.06, "text": 0.05},
    "far": {"chat": 0.22, "needle": 0.50, "lookup": 0.06, "tool": 0.08, "json": 0.06, "copy": 0.05, "text": 0.03},
    "talk": {"chat": 0.64, "needle": 0.11, "lookup": 0.04, "tool": 0.10, "json": 0.06, "copy": 0.03, "text": 0.02},
    "patch": {"chat": 0.62, "needle": 0.20, "lookup": 0.03, "tool": 0.08, "json": 0.05, "copy": 0.02},
    "final": {"chat": 0.50, "needle": 0.17, "lookup": 0.05, "tool": 0.13, "json": 0.08, "copy": 0.04, "text": 0.03},
}


def room_for(kind, r, length):
    """Tokens a document may take: long ones are rare but they exist at every length."""
    if kind in ("needle", "lookup"):
        top = length - 40
        return min(top, int(r.choice([120, 300, 700, length, length]) * r.uniform(0.5, 1.0))) if length <= 2048 else int(
            r.choice([400, 1000, 2000, 4000, 8100, 8100, 8100]) * r.uniform(0.6, 1.0))
    return min(length, 800)


class Packer:
    """Fills rows by tokens in the mix's shares: a document starts wherever the one before it ended."""

    def __init__(self, tasks, encoder, mix, seed):
        self.tasks, self.encoder, self.r = tasks, encoder, Random(seed)
        self.mix, self.spent = MIXES[mix], {k: 1.0 for k in MIXES[mix]}

    def row(self, length):
        ids, kinds = [], []
        while len(ids) < length:
            left = length - len(ids)
            kind = min(self.mix, key=lambda k: self.spent[k] / self.mix[k] * self.r.uniform(0.9, 1.1))
            if not ids and length > 4096 and self.r.random() < 0.6:
                kind = "needle"  # only the first document of a row can take all of it
            new, k = self.encoder.encode(self.tasks.document(kind, self.r, room_for(kind, self.r, length)))
            if kind in ("needle", "lookup") and len(new) > left and left < length:
                if left > length // 3:  # a long document that would be cut before its question goes to a smaller room
                    new, k = self.encoder.encode(self.tasks.document(kind, self.r, max(100, int(left * 0.8))))
                elif self.r.random() < 0.8:
                    new, k = self.encoder.encode(self.tasks.document("chat", self.r, left))
                    kind = "chat"
            self.spent[kind] += len(new)
            ids += new
            kinds += k
        return np.array(ids[:length], np.uint16), np.array(kinds[:length], np.uint8)


def _work(real, tokenizer, mix, length, rows, seed, queue):
    from tasks import Tasks
    from tokenizer import Encoder

    packer = Packer(Tasks(real), Encoder(tokenizer), mix, seed)
    while True:
        try:
            pairs = [packer.row(length) for _ in range(rows)]
        except Exception:  # one document in many millions must not starve a run that cannot be repeated
            traceback.print_exc()
            continue
        queue.put((np.stack([a for a, _ in pairs]), np.stack([b for _, b in pairs])))


class Stream:
    """Batches [tokens / length, length] from `workers` processes; take() gives the next."""

    def __init__(self, real, tokenizer, mix, length, tokens, workers, seed):
        ctx = mp.get_context("fork")
        self.queue = ctx.Queue(maxsize=workers * 4)
        self.batch = tokens // length
        part = min(self.batch, max(1, 16384 // length))
        self.parts = self.batch // part
        self.procs = [ctx.Process(target=_work, args=(real, tokenizer, mix, length, part, f"{seed}/{mix}/{length}/{i}", self.queue), daemon=True)
                      for i in range(workers)]
        for p in self.procs:
            p.start()

    def take(self):
        got = [self.queue.get() for _ in range(self.parts)]
        return np.concatenate([a for a, _ in got]), np.concatenate([b for _, b in got])

    def stop(self):
        for p in self.procs:
            p.terminate()


def padded(docs, length):
    """[(ids, kinds)] as rows of one length; longer documents are left out."""
    keep = [(i, k) for i, k in docs if len(i) <= length]
    tokens = np.full((len(keep), length), PAD, np.uint16)
    kinds = np.zeros((len(keep), length), np.uint8)
    for n, (i, k) in enumerate(keep):
        tokens[n, : len(i)], kinds[n, : len(i)] = i, k
    return tokens, kinds
