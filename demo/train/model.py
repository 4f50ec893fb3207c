"""The architecture in PyTorch, for training: the equations of the release with the model's fake quantisers.

Everything per token runs on flat [N, ...] rows, N = batch x length, so that one compiled version of each
segment serves every length. Rounding follows the release's runtime: activations bf16, linear inputs e4m3.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from params import engram_primes
from quant import e2m1_block16, e2m1_block32, e4m3_block32

BF = torch.bfloat16
per_expert = False  # round each expert's output to bf16, as the release does; training rounds their sum once
angle_type = np.float32  # of rotation angles, as the release computes them
round_input = e4m3_block32  # what an FP8 or FP4 linear does to its input


class _MM32(torch.autograd.Function):
    """x @ w.T with an f32 result from bf16 operands."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        if x.is_cuda:
            return torch.mm(x, w.t(), out_dtype=torch.float32)
        return x.float() @ w.float().t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g.to(BF)
        return g @ w, g.t() @ x


mm32 = _MM32.apply


class _Lookup(torch.autograd.Function):
    """table[ids] whose gradient adds up in f32, with no value read back to the host."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table[ids]

    @staticmethod
    def backward(ctx, g):
        (ids,) = ctx.saved_tensors
        return torch.zeros(ctx.shape, device=g.device).index_add_(0, ids, g.float()).to(g.dtype), None


lookup = _Lookup.apply


def rms(x, w, eps=1e-20):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps) * w.float()).to(BF)


def rope(x, cos, sin):
    """Rotate adjacent pairs of the last 2 x len(cos) channels; cos, sin broadcast over x's leading axes."""
    r = 2 * cos.shape[-1]
    keep, turn = x[..., :-r], x[..., -r:].float().unflatten(-1, (r // 2, 2))
    a, b = turn[..., 0], turn[..., 1]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([keep, turned.to(x.dtype)], -1)


def collapse(streams, pre):
    return (pre[..., None] * streams.float()).sum(1).to(BF)


def expand(y, streams, post, comb):
    """out[k] = post[k] y + sum_j comb[j, k] streams[j]"""
    s = streams.float()
    mixed = (comb[..., None] * s[:, :, None]).sum(1)
    return (post[..., None] * y.float()[:, None] + mixed).to(BF)


def hc_mix(streams, fn, base, scale, hc=4):
    """pre [N, hc], post [N, hc] and the logits [N, hc, hc] of the stream mixing."""
    flat = streams.flatten(1)
    stat = torch.rsqrt(flat.float().square().mean(-1, keepdim=True) + 1e-20)
    m = mm32(flat, fn) * stat
    pre = torch.sigmoid(m[:, :hc] * scale[0] + base[:hc]) + 1e-6
    post = 2 * torch.sigmoid(m[:, hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    comb = m[:, 2 * hc :] * scale[2] + base[2 * hc :]
    return pre, post, comb.unflatten(-1, (hc, hc))


def seg_in(streams, pre, fn, base, scale, attn_norm, wq_a, q_norm, wq_b, wkv, kv_norm, cos, sin):
    """From the streams to queries and the window row of a layer's attention."""
    pre_a, post, comb = hc_mix(streams, fn, base, scale)
    x = rms(collapse(streams, pre), attn_norm)
    xq = round_input(x)
    qr = rms(F.linear(xq, wq_a), q_norm)
    q = F.linear(round_input(qr), wq_b).unflatten(-1, (-1, wkv.shape[0]))
    q = rope(q, cos[:, None], sin[:, None])
    kv = window_row(F.linear(xq, wkv), kv_norm, cos, sin)
    return x, qr, q, kv, pre_a, post, comb


def window_row(kv, kv_norm, cos, sin):
    return e4m3_block32(rope(rms(kv, kv_norm), cos, sin))


def seg_mid(o, lse, sink, streams, post, comb, pre_a, wo_a, wo_b, fn, base, scale, ffn_norm, cos, sin, groups=2):
    """From raw attention output [N, H, hd] and its log-sum to the streams after attention and the MoE input."""
    o = (o.float() * torch.sigmoid(lse - sink)[..., None]).to(BF)
    o = rope(o, cos[:, None], -sin[:, None]).unflatten(1, (groups, -1)).flatten(2)
    w = wo_a.unflatten(0, (groups, -1))
    z = torch.cat([F.linear(o[:, g], w[g]) for g in range(groups)], -1)
    y = F.linear(round_input(z), wo_b)
    streams = expand(y, streams, post, comb)
    pre_f, post, comb = hc_mix(streams, fn, base, scale)
    x = rms(collapse(streams, pre_a), ffn_norm)
    return streams, x, pre_f, post, comb


def route(x, gate, bias, topk):
    """Per-expert weights [N, E] (zero where not chosen) and the balance terms."""
    score = torch.sqrt(F.softplus(mm32(x, gate)))
    rank = (score + bias).detach()
    e = torch.arange(rank.shape[-1], device=rank.device)
    ahead = (rank[:, None] > rank[..., None]) | ((rank[:, None] == rank[..., None]) & (e[None] < e[:, None]))
    chosen = (ahead.sum(-1) < topk).float()
    picked = score * chosen
    weight = picked / (picked.sum(-1, keepdim=True) + 1e-20) * 1.5
    load = chosen.mean(0)
    share = (score / score.sum(-1, keepdim=True)).mean(0)
    return weight, load, (load.detach() * share).sum() * (rank.shape[-1] / topk)


def seg_out(x, streams, post, comb, gate, bias, w1, w3, w2, s1, s3, s2, topk):
    """The mixture of experts (all experts dense) and the streams after it."""
    weight, load, balance = route(x, gate, bias, topk)
    xq = round_input(x)
    experts, inter, _ = w1.shape
    y = swiglu(F.linear(xq, w1.flatten(0, 1)), F.linear(xq, w3.flatten(0, 1)))
    y = (y.unflatten(-1, (experts, inter)) * weight[..., None]).flatten(1).to(BF)
    y = round_input(y)
    if per_expert:
        routed = sum(F.linear(v, w).float() for v, w in zip(y.unflatten(-1, (experts, inter)).unbind(1), w2))
    else:
        routed = F.linear(y, w2.transpose(0, 1).flatten(1))
    shared = swiglu(F.linear(xq, s1), F.linear(xq, s3)).to(BF)
    y = (routed.float() + F.linear(round_input(shared), s2).float()).to(BF)
    return expand(y, streams, post, comb), load, balance


def swiglu(gate, up, limit=10.0):
    return F.silu(gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit)


def seg_latent1(x, wkv, norm, cos, sin):
    latent = rms(F.linear(x, wkv), norm)
    return latent, e2m1_block16(rope(latent, cos, sin))


def seg_latent2(x, wkv, wgate, norm, cos, sin):
    kv, gate = mm32(x, wkv).unflatten(0, (-1, 2)), mm32(x, wgate).unflatten(0, (-1, 2))
    latent = rms((kv * torch.softmax(gate, 1)).sum(1).to(BF), norm)
    return latent, e2m1_block16(rope(latent, cos, sin))


def seg_index_key(latent, wk, k_norm, cos, sin):
    return e2m1_block32(rope(rms(F.linear(latent, wk), k_norm), cos, sin))


def seg_index_query(qr, x, wq_b, wproj, cos, sin):
    heads = wproj.shape[0]
    q = F.linear(round_input(qr), wq_b).unflatten(-1, (heads, -1))
    w = F.linear(x, wproj).float() * (q.shape[-1] ** -0.5 * heads**-0.5)
    return e2m1_block32(rope(q, cos[:, None], sin[:, None])), w


def seg_engram(streams, rows, wkv, qw, kw):
    """rows [N, columns x dim]: the looked-up table rows."""
    n, hc, d = streams.shape
    kv = F.linear(round_input(rows), wkv).float()
    key, value = kv[:, : hc * d].unflatten(-1, (hc, d)), kv[:, hc * d :]
    h = streams.float()
    norm = lambda v: torch.rsqrt(v.square().mean(-1) + 1e-20)
    dot = (h * (qw * kw) * key).sum(-1) * norm(h) * norm(key) * d**-0.5
    root = torch.copysign(torch.sqrt(dot.abs().clamp(min=1e-6)), dot)
    return (h + torch.sigmoid(root)[..., None] * value[:, None]).to(BF)


def cross_entropy(hidden, head, labels, weight):
    """Weighted sum of the losses, the argmax and its loss-free logit rows are left to the caller."""
    logits = F.linear(hidden, head).float()
    return F.cross_entropy(logits, labels, reduction="none") * weight, logits.detach().argmax(-1)


def angles(text, positions, compressed):
    """[S, rope/2] rotation angles, the `angle_type` product of position and frequency, in f64; compressed layers use
    their own base and YaRN."""
    t = angle_type
    dim, half = text["qk_rope_head_dim"], text["qk_rope_head_dim"] // 2
    base = text["compress_rope_theta"] if compressed else text["rope_theta"]
    i = np.arange(half).astype(t)
    power = (float(base) ** (2 * i / t(dim)).astype(np.float64)).astype(t)  # numpy's own f32 power is not rounded right
    freq = (1 / power).astype(t)
    yarn = text.get("rope_scaling")
    if compressed and yarn:
        original = yarn["original_max_position_embeddings"]
        turn = lambda n: dim * math.log(original / (n * 2 * math.pi)) / (2 * math.log(base))
        low = max(math.floor(turn(yarn["beta_fast"])), 0)
        high = min(math.ceil(turn(yarn["beta_slow"])), dim - 1)
        ramp = np.clip((i - t(low)) / t(max(high - low, 1e-3)), 0, 1)
        freq = freq / t(yarn["factor"]) * ramp + freq * (1 - ramp)
    return (np.asarray(positions).astype(t)[:, None] * freq[None]).astype(np.float64)


class EngramHash:
    """Table rows of every position, from token ids alone."""

    def __init__(self, text, token_map, device):
        self.map = torch.as_tensor(token_map, dtype=torch.int64, device=device)
        count = int(self.map.max()) + 1
        self.pad = int(self.map[text["engram_pad_token_id"]])
        self.ngram, self.primes = text["engram_max_ngram_size"], engram_primes(text)
        bound = max(1, (np.iinfo(np.int64).max // count) // 2)
        draw = lambda l: np.random.default_rng(10007 * l).integers(0, bound, size=self.ngram, dtype=np.int64)
        self.mult = [(2 * draw(l) + 1).tolist() for l in text["engram_layer_ids"]]

    def rows(self, which, tokens):
        """[B, T] tokens to [B, T, columns] rows of table `which`."""
        ids = self.map[tokens]
        mixed, columns, base = ids * self.mult[which][0], [], 0
        for back in range(1, self.ngram):
            shifted = torch.full_like(ids, self.pad)
            shifted[:, back:] = ids[:, :-back]
            mixed = mixed ^ (shifted * self.mult[which][back])
            for prime in self.primes[which][back - 1]:
                columns.append(mixed % prime + base)
                base += prime
        return torch.stack(columns, -1)
