"""The model's fake quantisers, each with a straight-through gradient.

A quantiser maps a float tensor onto the values its stored format can hold. The gradient passes as if
nothing were rounded. Scales are powers of two taken from the bits of the f32 (never from log()).
"""

import torch

E4M3 = torch.float8_e4m3fn


def pow2_at_least(x):
    """Smallest power of two >= x for positive normal f32 x."""
    bits = x.contiguous().view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return (exponent << 23).view(torch.float32)


def round_e4m3(x):
    """Nearest e4m3 value, ties to even, saturating at 448."""
    return x.clamp(-448.0, 448.0).to(E4M3).to(torch.float32)


def round_e2m1(x):
    """Nearest of 0, .5, 1, 1.5, 2, 3, 4, 6 with either sign, ties to the even code."""
    mag = x.abs().clamp(max=6.0)
    step = torch.where(mag < 2.0, 0.5, torch.where(mag < 4.0, 1.0, 2.0))
    return torch.copysign(torch.round(mag / step) * step, x)


def _grouped(x, size):
    return x.float().unflatten(-1, (x.shape[-1] // size, size))


def e4m3_block32(x):
    """e4m3 with one power-of-two scale per 32 channels: activations and window rows."""
    g = _grouped(x.detach(), 32)
    amax = g.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    scale = pow2_at_least(amax * (1.0 / 448.0))
    q = (round_e4m3(g / scale) * scale).flatten(-2).to(x.dtype)
    return x + (q - x.detach())


def e2m1_block32(x):
    """e2m1 with one power-of-two scale per 32 channels: index queries and keys."""
    g = _grouped(x.detach(), 32)
    amax = g.abs().amax(-1, keepdim=True).clamp(min=6.0 * 2.0**-126)
    scale = pow2_at_least(amax * (1.0 / 6.0))
    q = (round_e2m1(g / scale) * scale).flatten(-2).to(x.dtype)
    return x + (q - x.detach())


def e2m1_block16(x):
    """e2m1 with one e4m3 scale per 16 channels: compressed rows."""
    g = _grouped(x.detach(), 16)
    amax = g.abs().amax(-1, keepdim=True).clamp(min=6.0 * 2.0**-9)
    scale = round_e4m3(amax / 6.0)
    q = (round_e2m1((g / scale).clamp(-6, 6)) * scale).flatten(-2).to(x.dtype)
    return x + (q - x.detach())


def weight_fp8(w):
    """[..., out, in] weights on e4m3 with one power-of-two scale per 32 x 32 tile."""
    out, inner = w.shape[-2:]
    t = w.reshape(*w.shape[:-2], out // 32, 32, inner // 32, 32)
    amax = t.abs().amax((-3, -1), keepdim=True).clamp(min=1e-12)
    scale = pow2_at_least(amax * (1.0 / 448.0))
    return (round_e4m3(t / scale) * scale).reshape(w.shape)


def weight_fp4(w):
    """[..., out, in] weights on e2m1 with one power-of-two scale per 32 inputs."""
    t = w.unflatten(-1, (w.shape[-1] // 32, 32))
    scale = pow2_at_least(t.abs().amax(-1, keepdim=True).clamp(min=1e-12) * (1.0 / 6.0))
    return (round_e2m1(t / scale) * scale).flatten(-2)


def table_fp8(w):
    """[rows, channels] on e4m3 with one power-of-two scale per 32 channels of a row."""
    t = w.unflatten(-1, (w.shape[-1] // 32, 32))
    scale = pow2_at_least(t.abs().amax(-1, keepdim=True).clamp(min=1e-12) * (1.0 / 448.0))
    return (round_e4m3(t / scale) * scale).flatten(-2)
