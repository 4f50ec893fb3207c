"""Muon for matrices, AdamW for the rest, over stacked f32 masters."""

import torch

MUON = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "w1", "w2", "w3", "sh_w1", "sh_w2", "sh_w3", "comp_wkv", "comp_wgate",
        "eng_wkv", "main_proj")
ADAM = {  # learning rates by the last part of the name
    "embed": 3e-3, "head": 2e-3, "norm": 2e-3, "attn_norm": 2e-3, "ffn_norm": 2e-3, "q_norm": 2e-3, "kv_norm": 2e-3,
    "comp_norm": 2e-3, "attn_sink": 2e-3, "hc_attn_fn": 1e-3, "hc_ffn_fn": 1e-3, "hc_attn_base": 5e-3,
    "hc_ffn_base": 5e-3, "hc_attn_scale": 5e-3, "hc_ffn_scale": 5e-3, "gate": 1e-3, "idx_wq_b": 2e-3,
    "idx_wproj": 2e-3, "idx_wk": 2e-3, "idx_k_norm": 2e-3, "eng_q": 2e-3, "eng_k": 2e-3, "eng_table0": 5e-3,
    "eng_table1": 5e-3, "main_norm": 2e-3, "dft_norm": 2e-3, "mk_embed": 3e-3, "mk_head": 2e-3, "conf": 2e-3,
}


def orthogonal(g, steps=5):
    """Newton-Schulz: the nearest semi-orthogonal matrices of a stack [..., r, c], roughly."""
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if tall else x


class Optimizer:
    def __init__(self, master, names, muon_lr=0.02):
        self.master, self.muon_lr = master, muon_lr
        short = lambda n: n.split(".")[-1]
        self.muon = [n for n in names if short(n) in MUON]
        self.adam = [n for n in names if short(n) not in MUON and short(n) != "gate_bias"]
        self.rates = {n: ADAM[short(n)] for n in self.adam}
        self.momentum = {n: torch.zeros_like(master[n]) for n in self.muon}
        self.first = [torch.zeros_like(master[n]) for n in self.adam]
        self.second = [torch.zeros_like(master[n]) for n in self.adam]
        device = next(iter(master.values())).device
        self.decay = torch.ones(2, device=device)
        self.betas = torch.tensor([0.9, 0.95], device=device)

    @torch.no_grad()
    def step(self, leaves, scale):
        """One update from the leaves' gradients; scale, a 0-dim tensor, multiplies every learning rate. No value is
        read back, so that a CUDA graph can hold the step."""
        for n in self.muon:
            g, w, v = leaves[n].grad, self.master[n], self.momentum[n]
            g = g.float()
            v.lerp_(g, 0.05)
            rows, cols = w.shape[-2:]
            lr = self.muon_lr * max(1, rows / cols) ** 0.5
            w.mul_(1 - 0.02 * self.muon_lr * scale)
            w.sub_(orthogonal(g.lerp(v, 0.95)).float() * (lr * scale))
        grads = [leaves[n].grad.float() for n in self.adam]
        self.decay *= self.betas
        b1, b2 = 0.9, 0.95
        torch._foreach_lerp_(self.first, grads, 1 - b1)
        torch._foreach_mul_(self.second, b2)
        torch._foreach_addcmul_(self.second, grads, grads, 1 - b2)
        den = torch._foreach_sqrt(self.second)
        torch._foreach_mul_(den, torch.rsqrt(1 - self.decay[1]))
        torch._foreach_add_(den, 1e-8)
        step = torch._foreach_div(self.first, den)
        torch._foreach_mul_(step, [-self.rates[n] for n in self.adam])
        torch._foreach_mul_(step, scale / (1 - self.decay[0]))
        torch._foreach_add_([self.master[n] for n in self.adam], step)
