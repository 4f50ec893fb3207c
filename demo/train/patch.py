"""A short last tuning of the backbone on the CPU, over short rows that are rich in facts to recall.

    python patch.py 'MASTERS*.pt' OUT_DIR --real REAL.txt.xz

Writes OUT_DIR/masters.0.pt and OUT_DIR/log.json. Drafts are left as they are."""

import argparse
import glob
import json
import os
import time

import numpy as np
import torch

import steps
from export import finished_text
from net import Net
from optim import Optimizer
from pack import Packer
from params import Params
from tasks import Tasks
from tokenizer import Encoder, load, noise_id, token_map


def save(params, out):
    os.makedirs(out, exist_ok=True)
    state = {k: v.to(torch.bfloat16) if params.format[k] not in ("f32", "buffer") else v for k, v in params.state().items()}
    torch.save(state, f"{out}/masters.0.pt.part")
    os.replace(f"{out}/masters.0.pt.part", f"{out}/masters.0.pt")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("masters"), ap.add_argument("out"), ap.add_argument("--real", required=True)
    ap.add_argument("--tokenizer", default="../tokenizer.json"), ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--length", type=int, default=384), ap.add_argument("--rows", type=int, default=4)
    ap.add_argument("--seconds", type=float, default=1080), ap.add_argument("--rate", type=float, default=0.05, help="factor on every learning rate")
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    tok = load(a.tokenizer)
    ids = token_map(tok)
    text = finished_text(ids, noise_id(tok))
    params = Params(text)
    for path in sorted(glob.glob(a.masters)):
        params.load({k: v.float() for k, v in torch.load(path, map_location="cpu").items()})
    net, opt = Net(text, ids), Optimizer(params.master, steps.names(params, False))
    packer = Packer(Tasks(a.real), Encoder(a.tokenizer), "patch", "patch")
    begun, count, log = time.time(), 0, []
    while time.time() - begun < a.seconds:
        rows = [packer.row(a.length) for _ in range(a.rows)]
        tokens, kinds = (torch.from_numpy(np.stack([r[i] for r in rows]).astype("int64")) for i in range(2))
        x = (time.time() - begun) / a.seconds
        scale = a.rate * min(1.0, (count + 1) / 10) * (1.0 if x < 0.5 else max(0.1, 1 - (x - 0.5) / 0.5))
        leaves = params.leaves(draft=False)
        hidden, _, aux = net.forward(leaves, tokens, True)
        labels, weight = steps.targets(tokens, kinds)
        losses, _ = net.seg["cross_entropy"](hidden, leaves["head"], labels, weight)
        loss = losses.sum() / weight.sum()
        (loss + 0.002 * aux["balance"]).backward()
        for leaf in leaves.values():  # the indexers get no gradient here
            if leaf.requires_grad and leaf.grad is None:
                leaf.grad = torch.zeros_like(leaf)
        opt.step(leaves, torch.tensor(scale))
        count += 1
        log.append(["patch", time.time() - begun, count, loss.item()])
        print(f"patch {log[-1][1]:.0f} s, step {count}, loss {log[-1][3]:.3f}", flush=True)
        if count % 25 == 0:
            save(params, a.out)
    save(params, a.out)
    with open(f"{a.out}/log.json", "w") as f:
        json.dump({"log": log}, f)


if __name__ == "__main__":
    main()
