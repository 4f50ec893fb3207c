"""Triton kernels for the steps the compiler does badly, with plain versions for the CPU.

  sinkhorn    hyper-connection mixing: softmax, then alternating column and row normalisation, exact backward
  index_score sum_h w_h relu(q_h . k) for every query and key
  top_mask    the k largest of each row as a bool mask, by bisection on the bits
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU versions need none
    triton = None


def sinkhorn_plain(logits, iters, eps):
    """[N, 4, 4] logits to mixing matrices; differentiable, any device."""
    c = torch.softmax(logits, -1) + eps
    c = c / (c.sum(-2, keepdim=True) + eps)
    for _ in range(iters - 1):
        c = c / (c.sum(-1, keepdim=True) + eps)
        c = c / (c.sum(-2, keepdim=True) + eps)
    return c


def top_mask_plain(score, k):
    """bool [..., C]: the k largest finite scores of each row, ties to the lower index."""
    order = torch.sort(score, stable=True, dim=-1, descending=True).indices[..., :k]
    mask = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, order, True)
    return mask & (score > -torch.inf)


if triton is not None:

    @triton.jit
    def _sinkhorn_fwd(x_ptr, y_ptr, sums_ptr, n, eps, ITERS: tl.constexpr, B: tl.constexpr):
        row = tl.program_id(0) * B + tl.arange(0, B)
        i = tl.arange(0, 4)
        ok = row < n
        at = row[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        x = tl.load(x_ptr + at, mask=ok[:, None, None], other=0.0)
        x = tl.exp(x - tl.max(x, 2)[:, :, None])
        c = x / tl.sum(x, 2)[:, :, None] + eps
        base = row[:, None] * (8 * ITERS) + i[None, :]
        s = tl.sum(c, 1) + eps
        tl.store(sums_ptr + base, s, mask=ok[:, None])
        c = c / s[:, None, :]
        for it in range(1, ITERS):
            s = tl.sum(c, 2) + eps
            tl.store(sums_ptr + base + 8 * it - 4, s, mask=ok[:, None])
            c = c / s[:, :, None]
            s = tl.sum(c, 1) + eps
            tl.store(sums_ptr + base + 8 * it, s, mask=ok[:, None])
            c = c / s[:, None, :]
        tl.store(y_ptr + at, c, mask=ok[:, None, None])

    @triton.jit
    def _sinkhorn_bwd(y_ptr, sums_ptr, g_ptr, o_ptr, n, eps, ITERS: tl.constexpr, B: tl.constexpr):
        row = tl.program_id(0) * B + tl.arange(0, B)
        i = tl.arange(0, 4)
        ok = row < n
        at = row[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        y = tl.load(y_ptr + at, mask=ok[:, None, None], other=0.25)
        g = tl.load(g_ptr + at, mask=ok[:, None, None], other=0.0)
        base = row[:, None] * (8 * ITERS) + i[None, :]
        for back in range(1, ITERS):
            it = ITERS - back
            s = tl.load(sums_ptr + base + 8 * it, mask=ok[:, None], other=1.0)
            g = (g - tl.sum(g * y, 1)[:, None, :]) / s[:, None, :]
            y = y * s[:, None, :]
            s = tl.load(sums_ptr + base + 8 * it - 4, mask=ok[:, None], other=1.0)
            g = (g - tl.sum(g * y, 2)[:, :, None]) / s[:, :, None]
            y = y * s[:, :, None]
        s = tl.load(sums_ptr + base, mask=ok[:, None], other=1.0)
        g = (g - tl.sum(g * y, 1)[:, None, :]) / s[:, None, :]
        p = y * s[:, None, :] - eps
        g = p * (g - tl.sum(g * p, 2)[:, :, None])
        tl.store(o_ptr + at, g, mask=ok[:, None, None])

    @triton.jit
    def _index_score(q_ptr, k_ptr, w_ptr, o_ptr, T, C, ratio,
                     H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
        b = tl.program_id(2)
        m = tl.program_id(0) * BM + tl.arange(0, BM)
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        d = tl.arange(0, D)
        acc = tl.zeros([BM, BN], tl.float32)
        if tl.program_id(1) * BN * ratio < (tl.program_id(0) + 1) * BM + 1:
            k = tl.load(k_ptr + (b * C + n[None, :]) * D + d[:, None], mask=n[None, :] < C, other=0.0)
            for h in tl.static_range(H):
                q = tl.load(q_ptr + ((b * T + m[:, None]) * H + h) * D + d[None, :], mask=m[:, None] < T, other=0.0)
                w = tl.load(w_ptr + (b * T + m) * H + h, mask=m < T, other=0.0)
                acc += w[:, None] * tl.maximum(tl.dot(q, k), 0.0)
        seen = (m + 1) // ratio
        acc = tl.where(n[None, :] < seen[:, None], acc, float("-inf"))
        at = o_ptr + (b * T + m[:, None]).to(tl.int64) * C + n[None, :]
        tl.store(at, acc, mask=(m[:, None] < T) & (n[None, :] < C))

    @triton.jit
    def _top_mask(s_ptr, o_ptr, C, K, P: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        c = tl.arange(0, P)
        x = tl.load(s_ptr + row * C + c, mask=c < C, other=float("-inf"))
        bits = x.to(tl.int32, bitcast=True)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # order of the floats as signed integers
        least = tl.full([], -2147483648, tl.int64)
        step = tl.full([], 1, tl.int64) << 31
        for _ in range(32):
            guess = least + step
            enough = tl.sum((key.to(tl.int64) >= guess).to(tl.int32)) >= K
            least = tl.where(enough, guess, least)
            step = step >> 1
        keep = (key.to(tl.int64) >= least) & (x > float("-inf"))
        tl.store(o_ptr + row * C + c, tl.where(keep, 1, 0).to(tl.int8), mask=c < C)


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, iters, eps):
        logits = logits.contiguous()
        n = logits.shape[0]
        y = torch.empty_like(logits)
        sums = torch.empty(n, 8 * iters, device=logits.device)
        _sinkhorn_fwd[(triton.cdiv(n, 64),)](logits, y, sums, n, eps, ITERS=iters, B=64, num_warps=2)
        ctx.save_for_backward(y, sums)
        ctx.iters, ctx.eps = iters, eps
        return y

    @staticmethod
    def backward(ctx, grad):
        y, sums = ctx.saved_tensors
        n = y.shape[0]
        out = torch.empty_like(y)
        _sinkhorn_bwd[(triton.cdiv(n, 64),)](
            y, sums, grad.contiguous(), out, n, ctx.eps, ITERS=ctx.iters, B=64, num_warps=2
        )
        return out, None, None


def sinkhorn(logits, iters, eps):
    """[N, 4, 4] f32 logits to doubly stochastic mixing matrices (model's own iteration count)."""
    if logits.is_cuda:
        return _Sinkhorn.apply(logits, iters, eps)
    return sinkhorn_plain(logits, iters, eps)


def index_score(q, k, w, ratio):
    """f32 [B, T, C] scores; -inf where group c is not closed at position t.

    q [B, T, H, D] and k [B, C, D] bf16 (already on the e2m1 grid), w [B, T, H] f32 with both scales folded in."""
    (b, t, h, d), c = q.shape, k.shape[1]
    if not q.is_cuda:
        s = torch.einsum("bthc,bth->btc", torch.einsum("bthd,bcd->bthc", q.float(), k.float()).relu(), w)
        seen = (torch.arange(t) + 1) // ratio
        return s.masked_fill(torch.arange(c)[None] >= seen[:, None], -torch.inf)
    out = torch.empty(b, t, c, device=q.device)
    grid = (triton.cdiv(t, 64), triton.cdiv(c, 128), b)
    _index_score[grid](q.contiguous(), k.contiguous(), w.contiguous(), out, t, c, ratio, H=h, D=d, BM=64, BN=128)
    return out


def top_mask(score, k):
    """bool mask of the k largest finite scores of each row of the last axis (rows tied at the edge all stay)."""
    if not score.is_cuda:
        return top_mask_plain(score, k)
    score = score.contiguous()
    c = score.shape[-1]
    out = torch.empty(score.shape, dtype=torch.int8, device=score.device)
    width = max(128, triton.next_power_of_2(c))
    _top_mask[(score.numel() // c,)](score, out, c, min(k, c), P=width, num_warps=8 if width > 2048 else 4)
    return out.view(torch.bool)
