"""Compile check and throughput of the training steps on this machine's GPU, on random tokens."""

import sys
import time

import torch

import steps
from export import finished_text
from net import Net
from optim import Optimizer
from params import Params


def main():
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 256
    torch._dynamo.config.accumulated_cache_size_limit = 1024
    torch._dynamo.config.automatic_dynamic_shapes = False
    device = "cuda"
    token_map = list(range(3500)) + [0] * 596
    text = finished_text(token_map, 70)
    params = Params(text, device=device)
    net = Net(text, token_map, device, compiled=True)
    plain = Net(text, token_map, device)
    opt = Optimizer(params.master, steps.names(params, False))
    n = 65536
    print("parameters", sum(w.numel() for w in params.master.values()), flush=True)
    with torch.no_grad():
        tokens = torch.randint(3, 4096, (4, 512), device=device)
        leaves = {k: v.detach() for k, v in params.leaves().items()}
        leaves["head"] = leaves["head"] * 10
        for select in (False, True):
            a = net.forward(leaves, tokens, select)[0] @ leaves["head"].t()
            b = plain.forward(leaves, tokens, select)[0] @ leaves["head"].t()
            d = (a.float() - b.float()).abs().amax(-1)
            print("compiled against plain, select", select, "median", d.median().item(), "of", b.float().std().item(), flush=True)
    from kernels import sinkhorn, sinkhorn_plain, top_mask, top_mask_plain
    x = torch.randn(1000, 4, 4, device=device, requires_grad=True)
    g = torch.randn_like(x)
    y = sinkhorn(x, 20, 1e-6); y.backward(g); ga = x.grad.clone(); x.grad = None
    z = sinkhorn_plain(x, 20, 1e-6); z.backward(g)
    print("sinkhorn", (y - z).abs().max().item(), (ga - x.grad).abs().max().item())
    s = torch.randn(500, 3000, device=device).masked_fill(torch.rand(500, 3000, device=device) < 0.9, -torch.inf)
    print("top_mask equal", bool((top_mask(s, 64) == top_mask_plain(s, 64)).all()), flush=True)
    only = [int(v) for v in sys.argv[1:]] or [512, 2048, 8192]
    for t, select, queries in ((512, False, 32), (512, True, 32), (2048, False, 128), (8192, True, 192)):
        if t not in only:
            continue
        tokens = torch.randint(3, 4096, (n // t, t), device=device)
        kinds = torch.randint(0, 3, (n // t, t), device=device)
        start = time.time()
        steps.backbone_step(net, params, opt, tokens, kinds, 0.1, select, queries)
        torch.cuda.synchronize()
        first = time.time() - start
        steps.backbone_step(net, params, opt, tokens, kinds, 0.1, select, queries)
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(4):
            out = steps.backbone_step(net, params, opt, tokens, kinds, 0.1, select, queries)
        torch.cuda.synchronize()
        each = (time.time() - start) / 4
        print(f"T {t} select {select}: first {first:.1f} s, step {each * 1e3:.0f} ms, {n / each / 1e3:.0f}k tok/s, "
              f"memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", out.tolist(), flush=True)
        if t == 512 and select:
            profile(lambda: steps.backbone_step(net, params, opt, tokens, kinds, 0.1, select, queries))
    tokens = torch.randint(3, 4096, (n // 512, 512), device=device)
    kinds = torch.randint(0, 3, (n // 512, 512), device=device)
    dopt = Optimizer(params.master, steps.names(params, True))
    frozen = params.leaves(draft=False)
    loss_fn = torch.compile(steps.draft_loss, dynamic=False)
    for i in range(4):
        start = time.time()
        t2, best, taps = steps.own_continuation(net, frozen, tokens, kinds, 0)
        torch.cuda.synchronize()
        mid = time.time()
        out = steps.draft_step(net, params, dopt, frozen, t2, best, taps, kinds, 64, 0.1, loss_fn)
        torch.cuda.synchronize()
        print(f"draft {i}: target {mid - start:.2f} s, step {time.time() - mid:.2f} s", out.tolist(), flush=True)


def profile(fn):
    from torch.profiler import ProfilerActivity, profile as prof

    with prof(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
        fn()
        torch.cuda.synchronize()
    print(p.key_averages().table(sort_by="self_cuda_time_total", row_limit=28, max_name_column_width=60)[:7000])


if __name__ == "__main__":
    main()
