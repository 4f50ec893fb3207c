"""Compare this PyTorch model with an independent numpy reference of the architecture on one checkpoint.

    python check_reference.py REFERENCE_DIR      # the folder that holds the reference's model.py

Random masters of the demo's config are exported, loaded by the reference, and both run one prompt of a few
hundred tokens (selection on) and a few drafts. The figures printed are the largest logit differences per row.
"""

import argparse
import importlib.util
import json
import os
import tempfile

import numpy as np
import torch

import model as m
from export import export, finished_text
from net import Net
from params import Params


def load_reference(folder):
    spec = importlib.util.spec_from_file_location("reference", os.path.join(folder, "model.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("reference")
    ap.add_argument("--length", type=int, default=400)
    ap.add_argument("--plain", action="store_true", help="f32 everywhere, linear inputs not rounded")
    a = ap.parse_args()
    rng = np.random.default_rng(0)
    vocab = 4096
    token_map = rng.permutation(vocab) % 3000
    seen = {}
    token_map = [seen.setdefault(int(v), len(seen)) for v in token_map]
    text = finished_text(token_map, 4000)
    params = Params(text, seed=1)
    with torch.no_grad():
        params.master["head"] *= 10  # logits of order one, so that the differences mean something
        params.master["mk_head"] *= 10
        params.master["conf"] *= 10
        params.master["blk.attn_sink"].normal_()
    m.per_expert = True
    if a.plain:
        m.BF = torch.float32
        m.round_input = lambda x: x
        m.angle_type = np.float64
    folder = tempfile.mkdtemp()
    export(params.master, text, folder)
    with open(os.path.join(folder, "engram_token_map.json"), "w") as f:
        json.dump(token_map, f)
    options = {} if a.plain else {"act_quant": True, "bf16": True, "rope32": True}
    ref = load_reference(a.reference).Model.load(folder, **options)
    tokens = rng.integers(3, vocab, a.length)
    state = ref.new_state()
    want = ref.forward(tokens, state)
    draft = ref.draft(state, 17)

    net = Net(text, token_map)
    leaves = params.leaves()
    if a.plain:
        leaves = {k: v.detach().float() for k, v in leaves.items()}
    padded = torch.as_tensor(np.append(tokens, [17, 5] if a.length % 2 == 0 else [17]))[None]
    with torch.no_grad():
        hidden, taps, _ = net.forward(leaves, padded, select=True)
        got = (hidden.float() @ leaves["head"].float().t())[: a.length]
        h, normed = net.draft(leaves, taps, padded, torch.tensor([[a.length]]))
    row = (got - torch.as_tensor(want)).abs().amax(-1)
    print(f"logits: std {want.std():.3f}, row difference median {row.median():.2e}, p90 {row.quantile(0.9):.2e}, "
          f"max {row.max():.2e}, argmax {(got.argmax(-1) == torch.as_tensor(want).argmax(-1)).float().mean():.4f}")
    print("rows", ["%.0e" % v for v in row[:: max(1, a.length // 40)]])
    prev = [17] + draft["tokens"][:-1]
    mk = leaves["mk_embed"][prev].float()
    logits = normed[0, 0].float() @ leaves["head"].float().t() + mk @ leaves["mk_head"].float().t()
    conf = torch.cat([h[0, 0].float(), mk], -1) @ leaves["conf"].float().t()
    print("draft: row differences", (logits - torch.as_tensor(draft["logits"])).abs().amax(-1).tolist(),
          "confidence", (conf[:, 0] - torch.as_tensor(draft["confidence"])).abs().max().item())


if __name__ == "__main__":
    main()
