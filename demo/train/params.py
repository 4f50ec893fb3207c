"""The parameters: names, shapes, stored formats and first values.

Layers of one shape are stacked, so that quantising and optimising run over few tensors. `blk.*` stacks the
backbone's layers, `dft.*` the draft blocks. The f32 masters are what the optimiser moves; `leaves` makes
the values the file can hold, and the forward pass uses only those.
"""

import math

import torch

from quant import table_fp8, weight_fp4, weight_fp8


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def engram_primes(text):
    """[layer][order][head] bucket sizes: ascending primes from engram_vocab_size, none used twice."""
    used, out = set(), []
    for _ in text["engram_layer_ids"]:
        orders = []
        for _ in range(text["engram_max_ngram_size"] - 1):
            p, heads = text["engram_vocab_size"] - 1, []
            for _ in range(text["engram_n_heads"]):
                p += 1
                while p in used or not is_prime(p):
                    p += 1
                used.add(p)
                heads.append(p)
            orders.append(heads)
        out.append(orders)
    return out


def block_specs(prefix, t, n, experts):
    """(name, shape, format, first values) of n stacked layers."""
    d, hd, r = t["hidden_size"], t["head_dim"], t["q_lora_rank"]
    heads, groups, o_rank = t["num_attention_heads"], t["o_groups"], t["o_lora_rank"]
    inter, hc = t["moe_intermediate_size"], t["hc_mult"]
    mix = (2 + hc) * hc
    out = [
        ("attn_norm", (n, d), "bf16", 1.0), ("ffn_norm", (n, d), "bf16", 1.0),
        ("wq_a", (n, r, d), "fp8", "fan"), ("q_norm", (n, r), "bf16", 1.0),
        ("wq_b", (n, heads * hd, r), "fp8", "fan"), ("wkv", (n, hd, d), "fp8", "fan"),
        ("kv_norm", (n, hd), "bf16", 1.0),
        ("wo_a", (n, groups * o_rank, heads * hd // groups), "fp8", "fan"),
        ("wo_b", (n, d, groups * o_rank), "fp8", "fan.3"), ("attn_sink", (n, heads), "f32", 0.0),
        ("gate", (n, experts, d), "bf16", "fan"), ("gate_bias", (n, experts), "buffer", 0.0),
        ("w1", (n, experts, inter, d), "fp4", "fan"), ("w3", (n, experts, inter, d), "fp4", "fan"),
        ("w2", (n, experts, d, inter), "fp4", "fan.3"),
        ("sh_w1", (n, inter, d), "fp8", "fan"), ("sh_w3", (n, inter, d), "fp8", "fan"),
        ("sh_w2", (n, d, inter), "fp8", "fan.3"),
    ]
    for site in ("attn", "ffn"):
        out += [
            (f"hc_{site}_fn", (n, mix, hc * d), "fn", "fan"),
            (f"hc_{site}_base", (n, mix), "f32", "hc_base"),
            (f"hc_{site}_scale", (n, 3), "f32", 0.3),
        ]
    return [(f"{prefix}.{a}", b, c, e) for a, b, c, e in out]


def specs(t):
    d, v, hd = t["hidden_size"], t["vocab_size"], t["head_dim"]
    layers, sources, index = t["num_hidden_layers"], t["kv_source_layer_ids"], t["index_source_layer_ids"]
    gated = [s for s in sources if t["compress_ratios"][s] > 1]
    columns = (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"] * t["engram_head_dim"]
    hc, eng, rank = t["hc_mult"], len(t["engram_layer_ids"]), t["dspark_markov_rank"]
    out = [("embed", (v, d), "bf16", "n0.5"), ("norm", (d,), "bf16", 1.0), ("head", (v, d), "bf16", "n0.01")]
    out += block_specs("blk", t, layers, t["n_routed_experts"])
    out += [
        ("comp_wkv", (len(sources), hd, d), "bf16", "fan"), ("comp_wgate", (len(gated), hd, d), "bf16", "fan"),
        ("comp_norm", (len(sources), hd), "bf16", 1.0),
        ("idx_wq_b", (len(index), t["index_n_heads"] * t["index_head_dim"], t["q_lora_rank"]), "fp8", "fan"),
        ("idx_wproj", (len(index), t["index_n_heads"], d), "bf16", "fan"),
        ("idx_wk", (len(sources), t["index_head_dim"], hd), "bf16", "fan"),
        ("idx_k_norm", (len(sources), t["index_head_dim"]), "bf16", 1.0),
        ("eng_wkv", (eng, d * (hc + 1), columns), "fp8", "fan"),
        ("eng_q", (eng, hc, d), "f32", 1.0), ("eng_k", (eng, hc, d), "f32", 1.0),
    ]
    for i, orders in enumerate(engram_primes(t)):
        out.append((f"eng_table{i}", (sum(map(sum, orders)), t["engram_head_dim"]), "table", "n0.5"))
    out += block_specs("dft", t, t["num_nextn_predict_layers"], t["dspark_n_routed_experts"])
    out += [
        ("main_proj", (d, d * len(t["dspark_target_layer_ids"])), "fp8", "fan"), ("main_norm", (d,), "bf16", 1.0),
        ("dft_norm", (d,), "bf16", 1.0), ("mk_embed", (v, rank), "bf16", "n0.5"), ("mk_head", (v, rank), "bf16", "n0.01"),
        ("conf", (1, d + rank), "bf16", "n0.01"),
    ]
    return out


DRAFT = ("dft", "main_", "mk_", "conf")


def is_draft(name):
    return name.startswith(DRAFT)


class Params:
    def __init__(self, text, seed=0, device="cpu"):
        self.text, self.specs = text, specs(text)
        self.format = {name: fmt for name, _, fmt, _ in self.specs}
        gen = torch.Generator().manual_seed(seed)
        self.master = {}
        for name, shape, _, first in self.specs:
            self.master[name] = first_values(shape, first, gen, text["hc_mult"]).to(device)

    def leaves(self, draft=None):
        """name -> value on the stored grid, ready to collect a gradient. draft: None both, else that half."""
        out = {}
        for name, w in self.master.items():
            if draft is not None and is_draft(name) != draft:
                continue
            out[name] = stored(w, self.format[name]).requires_grad_(self.format[name] != "buffer")
        return out

    def state(self):
        return {k: v.detach().cpu() for k, v in self.master.items()}

    def load(self, state):
        for k, v in state.items():
            self.master[k].copy_(v)


def stored(w, fmt):
    """The value the checkpoint file holds for master w: bf16 for weights, f32 for what is stored as F32."""
    with torch.no_grad():
        if fmt == "fp8":
            return weight_fp8(w).to(torch.bfloat16)
        if fmt == "fp4":
            return weight_fp4(w).to(torch.bfloat16)
        if fmt == "table":
            return table_fp8(w).to(torch.bfloat16)
        if fmt in ("bf16", "fn"):  # hc_*_fn is F32 in the file; its values stay on the bf16 grid
            return w.to(torch.bfloat16)
        return w.clone()


def first_values(shape, first, gen, hc):
    normal = lambda std: torch.randn(shape, generator=gen) * std
    if isinstance(first, float):
        return torch.full(shape, first)
    if first.startswith("n"):
        return normal(float(first[1:]))
    if first.startswith("fan"):
        return normal(shape[-1] ** -0.5 * float(first[3:] or 1))
    assert first == "hc_base"
    # the noise breaks the symmetry of equal streams
    base = normal(0.3)
    base[:, :hc] -= 1.1
    comb = torch.eye(hc).flatten() * 3.0
    base[:, 2 * hc :] = comb + normal(0.3)[:, 2 * hc :]
    return base
