"""The engine's arithmetic in PyTorch: its order of every sum and its elementary functions, for comparing bits.

`Ordered` is net.py's pass with each segment's arithmetic written anew: eval only, one row, CPU tensors, f32 that holds
bf16 values where the model rounds. The orders are those that crates/numerics (`order`, `math`) and crates/cpu (`linear`)
document. A sum runs in eight lanes that `tree` adds. Most products are exact in f32 (bf16, e4m3 and e2m1 values), so a
multiplication and an addition are the fused step; `fma` rounds once where they are not.
"""

import numpy as np
import torch

import net
from quant import e2m1_block16, e2m1_block32, e4m3_block32

EPS = 1e-20
LANES = 8


def f32(x):
    return float(np.float32(x))


# ---- elementary functions ----------------------------------------------------------------------


def fma(a, b, c):
    """a * b + c for f32 tensors or numbers, rounded once to f32.

    The f64 product is exact and the f64 sum rounds, so rounding it to f32 (normal results) rounds twice. The second errs only where
    the f64 sum lies on the middle of two f32 values and the true sum does not: there it is moved off the middle."""
    a, b, c = (x.double() if torch.is_tensor(x) else x for x in (a, b, c))
    p = a * b
    s = p + c
    middle = (s.view(torch.int64) & 0x1FFFFFFF) == 0x10000000
    if middle.any():
        back = s - p
        lost = (p - (s - back)) + (c - back)
        up = torch.nextafter(s, torch.full_like(s, torch.inf))
        down = torch.nextafter(s, torch.full_like(s, -torch.inf))
        s = torch.where(middle & (lost > 0), up, torch.where(middle & (lost < 0), down, s))
    return s.float()


def sqrt(x):
    """Rounded once: torch's own f32 root on the CPU may be the neighbour of the right one."""
    return x.double().sqrt().float()


TO_INTEGER = 12582912.0
LN2_HIGH, LN2_LOW, LOG2_E = f32(0.69314575), f32(1.4286068e-6), f32(np.log2(np.e))


def power_of_two(n):
    return ((n + 127) << 23).view(torch.float32)


def exp_parts(x):
    x = x.clamp(-128.0, 128.0)
    n = fma(x, LOG2_E, TO_INTEGER) - TO_INTEGER
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x))
    p = fma(r, f32(1.3950594e-3), f32(8.368954e-3))
    for c in (4.1666206e-2, 0.16666518, 0.5, 1.0, 1.0):
        p = fma(p, r, f32(c))
    n = n.to(torch.int32)
    return p, power_of_two(n >> 1), power_of_two(n - (n >> 1))


def exp(x):
    p, first, second = exp_parts(x)
    return p * first * second


def sigmoid(x):
    small = exp(-x.abs())
    return torch.where(x < 0, small, 1.0) / (small + 1.0)


def silu(x):
    p, first, second = exp_parts(-x.abs())
    low = x.clamp(min=-128.0) * p * first * second
    return torch.where(x < 0, low, x) / (p * first * second + 1.0)


def ln(x):
    """Of normal x above 0."""
    bits = x.view(torch.int32)
    above = bits - int(np.float32(np.sqrt(0.5)).view(np.int32))
    f = (bits - (above & -0x800000)).view(torch.float32) - 1.0
    e = (above >> 23).float()
    s = f / (f + 2.0)
    z = s * s
    r = fma(fma(fma(z, f32(0.2359), f32(0.2853692)), z, f32(0.4000034)), z, f32(0.6666666)) * z
    return fma(e, LN2_HIGH, f + fma(e, LN2_LOW, s * (r - f)))


def softplus(x):
    small = exp(-x.abs())
    w = small + 1.0
    return x.clamp(min=0.0) + (ln(w) + (small - (w - 1.0)) / w)


# ---- sums --------------------------------------------------------------------------------------


def bf(x):
    return x.to(torch.bfloat16).float()


def tree(x):
    """Adds the eight lanes of the last axis."""
    x = x[..., :4] + x[..., 4:]
    x = x[..., :2] + x[..., 2:]
    return x[..., 0] + x[..., 1]


def chain(terms):
    """Adds along the first axis, ascending, from 0."""
    out = torch.zeros_like(terms[0])
    for term in terms:
        out = out + term
    return out


def places(width, layout):
    """[quads, 4 vectors, 8 lanes]: the input that each place of a weight row holds."""
    q, v, l = np.ogrid[: width // 32, :4, :LANES]
    at = {"bytes": 32 * q + 4 * l + v, "halves": 32 * q + 16 * (v // 2) + 2 * l + v % 2, "words": 32 * q + 8 * v + l,
          "nibbles": 64 * (q // 2) + 8 * l + 2 * v + q % 2}[layout]
    return torch.from_numpy(at)


def linear(x, w, layout, out=bf):
    """x [N, K] @ w [O, K].T: quads of four chained products, which enter the lanes in turn."""
    x, w = x.float(), w.float()
    at = places(w.shape[1], layout)
    x, w = x[:, at], w.t().contiguous()[at]  # [N, quads, 4, 8], [quads, 4, 8, O]
    size = max(1, 16384 // (LANES * w.shape[-1]))
    return out(torch.cat([_linear(part, w) for part in x.split(size)]) if len(x) else x.new_zeros(0, w.shape[-1]))


def _linear(x, w):
    quad = x.new_zeros(len(x), LANES, w.shape[-1])
    lanes = torch.zeros_like(quad)
    for q in range(w.shape[0]):
        torch.mul(x[:, q, 0, :, None], w[q, 0], out=quad)
        for v in range(1, 4):
            quad.addcmul_(x[:, q, v, :, None], w[q, v])  # exact products: fused or not is the same
        lanes += quad
    return tree(lanes.transpose(1, 2))


def inverse_rms(x):
    """Of bf16 values, whose squares are exact."""
    squares = (x * x).unflatten(-1, (-1, LANES)).movedim(-2, 0)
    return 1.0 / sqrt(tree(chain(squares)) / x.shape[-1] + EPS)


def rms(x, w):
    x = x.float()
    return bf(x * inverse_rms(x)[..., None] * w.float())


def rope(x, cos, sin):
    r = 2 * cos.shape[-1]
    a, b = x[..., -r::2], x[..., 1 - r :: 2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([x[..., :-r], bf(turned)], -1)


def collapse(streams, pre):
    out = torch.zeros(())
    for i in range(pre.shape[1]):
        out = fma(pre[:, i, None], streams[:, i], out)
    return bf(out)


def expand(y, streams, post, comb):
    out = post[..., None] * y[:, None]
    for i in range(post.shape[1]):
        out = fma(comb[:, i, :, None], streams[:, i, None], out)
    return bf(out)


def sinkhorn(logits, iters, eps):
    """[N, hc, hc] logits to mixing matrices."""
    c = exp(logits - logits.amax(-1, keepdim=True))
    c = c / chain(c.unbind(-1))[..., None] + eps
    columns = lambda c: c / (chain(c.unbind(-2)) + eps)[:, None]
    c = columns(c)
    for _ in range(1, iters):
        c = columns(c / (chain(c.unbind(-1)) + eps)[..., None])
    return c


# ---- segments: the signatures of model.py -------------------------------------------------------


def hc_mix(streams, fn, base, scale, hc=4):
    m = linear(streams.flatten(1), fn, "words", out=lambda x: x) * inverse_rms(streams.flatten(1))[:, None]
    part = lambda i, j, s: fma(m[:, i:j], scale[s], base[i:j])
    pre = sigmoid(part(0, hc, 0)) + 1e-6
    post = 2 * sigmoid(part(hc, 2 * hc, 1))
    return pre, post, part(2 * hc, None, 2).unflatten(-1, (hc, hc))


def seg_in(streams, pre, fn, base, scale, attn_norm, wq_a, q_norm, wq_b, wkv, kv_norm, cos, sin):
    streams = streams.float()
    pre_a, post, comb = hc_mix(streams, fn, base, scale)
    x = rms(collapse(streams, pre), attn_norm)
    xq = e4m3_block32(x)
    qr = rms(linear(xq, wq_a, "bytes"), q_norm)
    q = linear(e4m3_block32(qr), wq_b, "bytes").unflatten(-1, (-1, wkv.shape[0]))
    kv = e4m3_block32(rope(rms(linear(xq, wkv, "bytes"), kv_norm), cos, sin))
    return x, qr, rope(q, cos[:, None], sin[:, None]), kv, pre_a, post, comb


def seg_mid(keys, scores, sink, streams, post, comb, pre_a, wo_a, wo_b, fn, base, scale, ffn_norm, cos, sin, groups=2):
    """keys [N, K, hd] and scores [N, H, K] as `Ordered.attend` leaves them, -inf where a row has fewer."""
    streams = streams.float()
    top = torch.maximum(scores.amax(-1), sink)
    e = exp(scores - top[..., None])
    by = tree(chain(e.unflatten(-1, (-1, LANES)).movedim(-2, 0))) + exp(sink - top)
    o = torch.zeros(())
    for k in range(keys.shape[1]):
        o = fma(e[:, :, k, None], keys[:, None, k], o)
    o = rope(bf(o / by[..., None]), cos[:, None], -sin[:, None]).unflatten(1, (groups, -1)).flatten(2)
    w = wo_a.unflatten(0, (groups, -1))
    z = torch.cat([linear(o[:, g], w[g], "bytes") for g in range(groups)], -1)
    y = linear(e4m3_block32(z), wo_b, "bytes")
    streams = expand(y, streams, post, comb)
    pre_f, post, comb = hc_mix(streams, fn, base, scale)
    return streams, rms(collapse(streams, pre_a), ffn_norm), pre_f, post, comb


def seg_out(x, streams, post, comb, gate, bias, w1, w3, w2, s1, s3, s2, topk):
    score = sqrt(softplus(linear(x, gate, "halves", out=lambda v: v)))
    best = torch.sort(score + bias, stable=True, descending=True, dim=-1).indices[:, :topk]
    picked = score.gather(1, best)
    weight = torch.zeros_like(score).scatter(1, best, picked / (chain(picked.unbind(1))[:, None] + 1e-20) * 1.5)
    xq = e4m3_block32(x)
    y = torch.zeros_like(x)
    for e in range(len(w1)):
        at = (best == e).any(1).nonzero()[:, 0]
        h = bf(swiglu(xq[at], w1[e], w3[e], "nibbles") * weight[at, e, None])
        y[at] = y[at] + linear(e4m3_block32(h), w2[e], "nibbles")
    h = bf(swiglu(xq, s1, s3, "bytes") * 1.0)
    y = bf(y + linear(e4m3_block32(h), s2, "bytes"))
    return expand(y, streams, post, comb), torch.zeros(len(w1)), 0.0


def swiglu(x, gate, up, layout, limit=10.0):
    gate, up = linear(x, gate, layout), linear(x, up, layout)
    return silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def seg_latent1(x, wkv, norm, cos, sin):
    latent = rms(linear(x, wkv, "halves"), norm)
    return latent, e2m1_block16(rope(latent, cos, sin))


def seg_latent2(x, wkv, wgate, norm, cos, sin):
    kv, gate = (linear(x, w, "halves", out=lambda v: v).unflatten(0, (-1, 2)) for w in (wkv, wgate))
    e = exp(gate - gate.amax(1, keepdim=True))
    pooled = fma(e[:, 1], kv[:, 1], e[:, 0] * kv[:, 0]) / (e[:, 0] + e[:, 1])
    latent = rms(bf(pooled), norm)
    return latent, e2m1_block16(rope(latent, cos, sin))


def seg_index_key(latent, wk, k_norm, cos, sin):
    return e2m1_block32(rope(rms(linear(latent, wk, "halves"), k_norm), cos, sin))


def seg_index_query(qr, x, wq_b, wproj, cos, sin):
    heads = wproj.shape[0]
    q = linear(e4m3_block32(qr), wq_b, "bytes").unflatten(-1, (heads, -1))
    scale = 1.0 / (np.sqrt(np.float32(q.shape[-1])) * np.sqrt(np.float32(heads)))
    return e2m1_block32(rope(q, cos[:, None], sin[:, None])), linear(x, wproj, "halves") * float(scale)


def seg_engram(streams, rows, wkv, qw, kw):
    streams = streams.float()
    n, hc, d = streams.shape
    kv = linear(e4m3_block32(rows.float()), wkv, "bytes")
    key, value = kv[:, : hc * d].unflatten(-1, (hc, d)), kv[:, hc * d :]
    lanes = torch.zeros(())
    for h, w, k in zip(*(v.unflatten(-1, (-1, LANES)).unbind(-2) for v in (streams, (qw * kw).expand(n, -1, -1), key))):
        lanes = fma(h * w, k, lanes)
    dot = tree(lanes) * inverse_rms(streams) * inverse_rms(key) / float(np.sqrt(np.float32(d)))
    gate = sigmoid(torch.copysign(sqrt(dot.abs().clamp(min=f32(1e-6))), dot))
    return bf(fma(gate[..., None], value[:, None], streams))


def index_score(q, keys, w, ratio):
    """f32 [1, T, C]; -inf where group c is not closed at position t."""
    scores = dots(q[0], keys[0][None].expand(len(q[0]), -1, -1)).relu()
    total = torch.zeros(())
    for h in range(scores.shape[1]):
        total = fma(w[0, :, h, None], scores[:, h], total)
    seen = (torch.arange(len(total)) + 1) // ratio
    return total.masked_fill(torch.arange(total.shape[1])[None] >= seen[:, None], -torch.inf)[None]


def dots(q, keys):
    """q [N, H, d], keys [N, K, d] to [N, H, K]; products are exact."""
    out = []
    for q, keys in zip(q.float().split(8), keys.float().split(8)):
        q, keys = (v.transpose(1, 2).unflatten(1, (-1, LANES)).contiguous() for v in (q, keys))  # [n, steps, 8, H or K]
        lanes = q.new_zeros(len(q), LANES, q.shape[-1], keys.shape[-1])
        for s in range(q.shape[1]):
            lanes.addcmul_(q[:, s, :, :, None], keys[:, s, :, None])
        out.append(tree(lanes.movedim(1, -1)))
    return torch.cat(out)


class Ordered(net.Net):
    def __init__(self, text, token_map):
        super().__init__(text, token_map)
        here = globals()
        self.seg = {name: here.get(name) for name in self.seg}

    def attend(self, q, kv, rows, chosen, ratio):
        """A row's keys, window then picks ascending, and its scores over them: what `seg_mid` goes on with."""
        t, window = q.shape[1], self.t["sliding_window"]
        at = torch.arange(t)
        mask, keys = (at[None] <= at[:, None]) & (at[None] > at[:, None] - window), kv[0]
        if rows is not None:
            mask, keys = torch.cat([mask, chosen[0]], -1), torch.cat([kv[0], rows[0]])
        count = mask.sum(-1)
        most = -(-int(count.max()) // LANES) * LANES
        order = torch.sort(~mask, stable=True, dim=-1).indices[:, :most]
        keys = keys[order]
        scores = dots(q[0], keys) * float(1.0 / np.sqrt(np.float32(q.shape[-1])))
        scores = scores.masked_fill((torch.arange(order.shape[1])[None] >= count[:, None])[:, None], -torch.inf)
        return keys, scores
