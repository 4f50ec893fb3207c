"""Compare the engine's logits with this PyTorch model's on held-out rows of the final training mix, in release mode.

    python check_engine.py FINBACK CHECKPOINT 'MASTERS*.pt' --real ../work/real.held.txt.xz [--reference REFERENCE_DIR]

FINBACK is the binary, CHECKPOINT what export.py wrote from MASTERS. Rows are packed as in training; every position is
compared, and the figures are given for all positions, for those that training scores as context or reply, and for
replies. PyTorch runs twice: with sums in its own order, and in the engine's order (ordered.py), where every logit must
have the engine's bits: the command fails where one does not. One longer row is compared over its last positions alone,
where both levels of selection leave rows out. With a reference, its own f32 and f64 sums are compared too: how far sums
of another order alone lead.
"""

import argparse
import glob
import json
import os
import struct
import subprocess
import tempfile

import numpy as np
import torch

import model as m
from check_reference import load_reference
from export import finished_text
from net import Net
from ordered import Ordered, linear
from pack import Packer
from params import Params
from steps import WEIGHTS
from tasks import Tasks
from tokenizer import Encoder, load, noise_id, token_map

PIECE = 16  # prompt rows the binary writes


def tensor(path, name):
    """An F32 tensor of a safetensors file."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(size))
        begin, end = head[name]["data_offsets"]
        f.seek(8 + size + begin)
        return np.frombuffer(f.read(end - begin), np.float32).reshape(head[name]["shape"])


def engine_logits(binary, checkpoint, tokens, first=0):
    """[T, V]: the engine's logits at every position from `first` on, by prompts that end 16 positions apart."""
    out = np.zeros((len(tokens), 4096), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.safetensors")
        for end in range(first + PIECE, len(tokens) + 1, PIECE):
            subprocess.run([binary, "run", "--checkpoint", checkpoint, "--threads", "1", "--temperature", "0", "--max-tokens", "1", "--no-drafts",
                            "--prompt-ids", ",".join(map(str, tokens[:end])), "--logits", path], check=True, capture_output=True)
            out[end - PIECE : end] = tensor(path, "prompt")[-PIECE:]
            os.remove(path)
    return out


def own_logits(net, leaves, tokens):
    with torch.no_grad():
        hidden, _, _ = net.forward(leaves, torch.from_numpy(tokens.astype("int64"))[None], True)
        return (hidden.float() @ leaves["head"].float().t()).numpy()


def ordered_logits(net, leaves, tokens):
    with torch.no_grad():
        hidden, _, _ = net.forward(leaves, torch.from_numpy(tokens.astype("int64"))[None], True)
        return linear(hidden, leaves["head"], "halves", out=lambda x: x).numpy()


class Tally:
    """Where two sets of logits name the same token."""

    def __init__(self, name):
        self.name, self.counts, self.gaps, self.rows, self.equal = name, {}, [], [], 0

    def add(self, a, b, kinds):
        same = a.argmax(-1) == b.argmax(-1)
        top = np.sort(b, -1)[:, -2:]
        self.gaps += (top[:, 1] - top[:, 0])[~same].tolist()
        self.rows += np.abs(a - b).max(-1).tolist()
        self.equal += int((a == b).all(-1).sum())
        for part, at in (("all", kinds >= 0), ("context and replies", (kinds == 0) | (kinds == 1)), ("replies", kinds == 1)):
            good, total = self.counts.get(part, (0, 0))
            self.counts[part] = good + int((same & at).sum()), total + int(at.sum())
        weight = np.select([kinds == k for k in range(3)], WEIGHTS, 0.0)
        good, total = self.counts.get("weighted as in training", (0, 0))
        self.counts["weighted as in training"] = good + float((same * weight).sum()), total + float(weight.sum())

    def show(self):
        print(self.name, "; ".join(f"{k} {100 * g / max(n, 1e-9):.2f}% of {n:.0f}" for k, (g, n) in self.counts.items()))
        gaps = np.array(self.gaps)
        print(f"  {len(self.gaps)} differ: margin of the two best logits max {gaps.max(initial=0):.3f}, {(gaps < 0.05).sum()} under 0.05; row difference median {np.median(self.rows):.3f}; "
              f"{self.equal} of {len(self.rows)} rows have equal logits", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("binary"), ap.add_argument("checkpoint"), ap.add_argument("masters")
    ap.add_argument("--real"), ap.add_argument("--reference"), ap.add_argument("--tokenizer", default="../tokenizer.json")
    ap.add_argument("--rows", type=int, default=8), ap.add_argument("--length", type=int, default=512)
    ap.add_argument("--long", type=int, default=2048, help="tokens of the longer row")
    a = ap.parse_args()
    torch.set_num_threads(1)
    tok = load(a.tokenizer)
    ids = token_map(tok)
    text = finished_text(ids, noise_id(tok))
    params = Params(text)
    for path in sorted(glob.glob(a.masters)):
        params.load({k: v.float() for k, v in torch.load(path, map_location="cpu").items()})
    m.per_expert = True
    net, ordered, leaves = Net(text, ids), Ordered(text, ids), params.leaves(draft=False)
    packer = Packer(Tasks(a.real), Encoder(a.tokenizer), "final", "check engine")
    tallies = {"engine": Tally("engine and PyTorch:"), "ordered": Tally("engine and PyTorch in the engine's order:")}
    if a.reference:
        reference = load_reference(a.reference).Model
        make = lambda kind: reference.load(a.checkpoint, act_quant=True, bf16=True, rope32=True, dtype=kind)
        refs = {"f32": make(np.float32), "f64": make(np.float64)}
        tallies |= {"engine f32": Tally("engine and reference (f32 sums):"), "torch f32": Tally("PyTorch and reference (f32 sums):"), "f32 f64": Tally("reference, f32 and f64 sums:")}
    for _ in range(a.rows):
        tokens, kinds = packer.row(a.length)
        kinds = np.append(kinds[1:].astype(int), -1)  # of the token each position has to name; the last names none
        got = engine_logits(a.binary, a.checkpoint, tokens.tolist())
        ours = own_logits(net, leaves, tokens)
        tallies["engine"].add(got, ours, kinds)
        tallies["ordered"].add(got, ordered_logits(ordered, leaves, tokens), kinds)
        if a.reference:
            f32, f64 = (refs[k].forward(tokens.astype(int), refs[k].new_state()) for k in ("f32", "f64"))
            tallies["engine f32"].add(got, f32, kinds), tallies["torch f32"].add(ours, f32, kinds), tallies["f32 f64"].add(f32, f64, kinds)
    for tally in tallies.values():
        tally.show()
    tokens, kinds = packer.row(a.long)
    got = engine_logits(a.binary, a.checkpoint, tokens.tolist(), a.long - PIECE)[-PIECE:]
    late = Tally(f"the same, the last {PIECE} of {a.long} tokens:")
    late.add(got, ordered_logits(ordered, leaves, tokens)[-PIECE:], np.append(kinds[1:].astype(int), -1)[-PIECE:])
    late.show()
    differ = sum(len(t.rows) - t.equal for t in (tallies["ordered"], late))
    if differ:
        raise SystemExit(f"{differ} rows differ from the engine's in its own order of sums")


if __name__ == "__main__":
    main()
