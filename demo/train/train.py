"""Train the demo model on one GPU, in stages that a later call can take up.

    python train.py --real REAL.txt.xz --out DIR --stages short,long
    python train.py --real REAL.txt.xz --out DIR --resume DIR --spent 711 --stages wide --look FILE
    python train.py --real REAL.txt.xz --out DIR --resume DIR --stages drafts --report
    python train.py --real REAL.txt.xz --out DIR --resume .. --spent 2199 --stages home,redraft --device cpu --shrink 8 --tokens 1024 --scale 0.05 --workers 1

The last one only tries the stages out: short rows, few steps, a CPU.
Writes DIR/masters.N.pt (bf16 masters in parts), DIR/log.json and, with --report, DIR/report.json.
"""

import argparse
import glob
import json
import os
import time

import torch

import steps
from export import finished_text, masters_of
from net import Net
from optim import Optimizer
from pack import Stream
from params import Params
from tokenizer import Encoder, load, noise_id, token_map

TOKENS = 65536  # a step, at every length
PARTS = [(2048, "final", True, 64), (2048, "final", True, 64), (8192, "long", True, 192)]
# name -> parts in turn: (length, mix, selection on, index-loss queries), seconds
STAGES = {
    "short": ([(2048, "base", False, 64)], 284),
    "long": ([(8192, "long", True, 192)], 112),
    "mixed": (PARTS, 315),
    "wide": (PARTS, 425),
    "settle": (PARTS, 270),
    "far": ([(2048, "final", True, 64), (8192, "far", True, 192)], 400),
    "talk": ([(2048, "talk", True, 64), (2048, "talk", True, 64), (8192, "far", True, 192)], 420),
    "home": ([(2048, "talk", True, 64), (2048, "talk", True, 64), (8192, "far", True, 192)], 265),
    "drafts": ([(2048, "final", True, 0)], 105),
    "redraft": ([(2048, "final", True, 0)], 100),
    "mend": ([(2048, "talk", True, 64), (2048, "talk", True, 64), (8192, "far", True, 192)], 55),
    "mend-drafts": ([(2048, "final", True, 0)], 55),
}
# backbone seconds: (from, to, learning-rate factor at the start, share of the time it stays there)
PLAN = [(0, 711, 1.0, 0.35), (711, 1136, 0.8, 0.9), (1136, 1406, 0.8, 0.15), (1406, 1794, 0.7, 0.3), (1794, 2199, 0.6, 0.2), (2199, 2464, 0.6, 0.2), (2464, 2519, 0.25, 0.2)]


def rate(seconds, count, until=None):
    """Learning-rate factor after `seconds` of backbone training, `count` steps into this call. `until`: when the
    part of the plan that holds `seconds` ends, if earlier than planned."""
    begin, end, top, flat = next((p for p in PLAN if seconds < p[1]), PLAN[-1])
    end = until or end
    x = (seconds - begin) / (end - begin)
    fall = 1.0 if x < flat else max(0.04, 1 - 0.96 * (x - flat) / (1 - flat))
    return top * fall * min(1.0, (count + 1) / (150 if seconds < 100 else 50))


class Run:
    def __init__(self, a):
        self.a, self.log, self.start, self.cuda = a, [], time.time(), a.device == "cuda"
        self.streams, self.stages = {}, {}
        for name in a.stages.split(","):  # processes start before the GPU is touched
            parts, seconds = STAGES[name]
            self.stages[name] = [(length // a.shrink, *rest) for length, *rest in parts], seconds
            for length, mix, _, _ in self.stages[name][0]:
                if (length, mix) not in self.streams:
                    self.streams[length, mix] = Stream(a.real, a.tokenizer, mix, length, a.tokens, a.workers, f"{a.seed}/{a.stages}")
        tok = load(a.tokenizer)
        ids = token_map(tok)
        self.text = finished_text(ids, noise_id(tok))
        self.params = Params(self.text, seed=a.seed, device=a.device)
        if a.resume:
            start = Params(self.text)
            paths = sorted(glob.glob(f"{a.resume}/masters.*.pt"))
            if not paths:
                masters_of(a.resume, start)
            for path in paths:
                start.load({k: v.float() for k, v in torch.load(path, map_location="cpu").items()})
            self.params.load(start.master)
        self.net = Net(self.text, ids, a.device, compiled=self.cuda)
        self.spent, self.end = a.spent, None
        self.steps = {}

    def batch(self, length, mix):
        pair = (torch.from_numpy(x.astype("int64")) for x in self.streams[length, mix].take())
        return tuple(x.pin_memory().to("cuda", non_blocking=True) if self.cuda else x for x in pair)

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def backbone(self, name):
        parts, seconds = self.stages[name]
        if not hasattr(self, "opt"):
            self.begun = time.time()
            self.opt, self.count = Optimizer(self.params.master, steps.names(self.params, False)), 0
        for part in parts:
            if part not in self.steps:
                length, _, select, queries = part
                dev = self.a.device
                slots = [torch.zeros(self.a.tokens // length, length, dtype=torch.int64, device=dev) for _ in range(2)]
                slots += [torch.arange(64, 64 + queries, device=dev), torch.zeros((), device=dev)]
                begun = self.begun = time.time()
                step = steps.Replayed(lambda t, k, at, s, select=select: steps.backbone_step(
                    self.net, self.params, self.opt, t, k, at, s, select), slots)
                for _ in range(4 if self.cuda else 1):
                    self.one(step, part)
                self.sync()
                self.steps[part] = step
                print(f"{name} {part}: ready after {time.time() - begun:.1f} s, graph {step.graph is not None}", flush=True)
        seconds *= self.a.scale
        if self.a.until:  # the call must end by then, drafts included
            seconds = min(seconds, self.a.until - (time.time() - self.start) - (self.stages[self.a.stages.split(",")[-1]][1] + 8 if "draft" in self.a.stages else 5))
            self.end = self.spent + seconds
        begun = shown = saved = self.begun = time.time()
        waited, i, first = 0.0, 0, self.count
        while time.time() - begun < seconds:
            part = parts[i % len(parts)]
            mark = time.time()
            out = self.one(self.steps[part], part)
            waited += time.time() - mark
            i += 1
            if time.time() - saved > 75:
                self.sync()
                self.save()
                saved = time.time()
            if time.time() - shown > 5:
                v = out.tolist()
                shown = time.time()
                self.log.append([name, self.spent + shown - begun, self.count] + v)
                print(f"{name} {shown - begun:.0f} s, step {self.count}, lr {rate(self.spent + shown - begun, self.count, self.end):.2f}, "
                      + "loss {:.3f} answers {:.3f} right {:.4f} kl {:.3f} balance {:.2f}".format(*v), flush=True)
        self.sync()
        took = time.time() - begun
        self.spent += took
        print(f"{name}: {self.count - first} steps in {took:.0f} s, {(self.count - first) * self.a.tokens / took / 1e3:.1f}k tok/s, {waited:.0f} s in launches and data", flush=True)

    def one(self, step, part):
        length, mix, _, queries = part
        tokens, kinds = self.batch(length, mix)
        at = (torch.randperm(length - 64, device=self.a.device)[:queries] + 64).sort().values
        scale = torch.tensor(rate(self.spent + time.time() - self.begun, self.count, self.end), device=self.a.device)
        self.count += 1
        return step(tokens, kinds, at, scale)

    def drafts(self, name):
        (part,), seconds = self.stages[name]
        length, mix = part[:2]
        opt = Optimizer(self.params.master, steps.names(self.params, True))
        frozen = self.params.leaves(draft=False)
        loss_fn = torch.compile(steps.draft_loss, dynamic=False) if self.cuda else steps.draft_loss
        begun = shown = time.time()
        count = 0
        seconds = seconds * self.a.scale
        if self.a.until:
            seconds = min(seconds, self.a.until - (time.time() - self.start) - 3)
        anchors = length // 8  # for each row
        while time.time() - begun < seconds:
            tokens, kinds = self.batch(length, mix)
            own, best, taps = steps.own_continuation(self.net, frozen, tokens, kinds, 1)
            for _ in range(2):
                x = (time.time() - begun) / seconds
                scale = min(1.0, (count + 1) / 40) * (1.0 if x < 0.4 else max(0.05, 1 - 0.95 * (x - 0.4) / 0.6))
                out = steps.draft_step(self.net, self.params, opt, frozen, own, best, taps, kinds, anchors,
                                       torch.tensor(scale, device=self.a.device), loss_fn)
                count += 1
            if time.time() - shown > 5:
                shown = time.time()
                v = out.tolist()
                self.log.append([name, shown - begun, count] + v)
                print(f"{name} {shown - begun:.0f} s, step {count}, lr {scale:.2f}, "
                      + "loss {:.3f} accepted {:.3f} first {:.3f} confidence {:.3f}".format(*v), flush=True)
        print(f"{name}: {count} steps", flush=True)

    def save(self):
        os.makedirs(self.a.out, exist_ok=True)
        parts, size = [{}], 0
        for k, v in self.params.state().items():
            v = v.to(torch.bfloat16) if self.params.format[k] not in ("f32", "buffer") else v
            if size + v.nbytes > 15_500_000:
                parts.append({})
                size = 0
            parts[-1][k] = v
            size += v.nbytes
        for i, part in enumerate(parts):
            torch.save(part, f"{self.a.out}/masters.{i}.pt.part")
            os.replace(f"{self.a.out}/masters.{i}.pt.part", f"{self.a.out}/masters.{i}.pt")
        with open(f"{self.a.out}/log.json", "w") as f:
            json.dump({"spent": self.spent, "log": self.log}, f)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--real", required=True), ap.add_argument("--tokenizer", default="../tokenizer.json")
    ap.add_argument("--out", required=True), ap.add_argument("--resume", help="folder of masters.N.pt or of an exported checkpoint"), ap.add_argument("--spent", type=float, default=0)
    ap.add_argument("--stages", default="short"), ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--workers", type=int, default=14), ap.add_argument("--report", action="store_true")
    ap.add_argument("--look", help="file of prompts, one a line, to answer at the end"), ap.add_argument("--quick", action="store_true", help="fewer figures")
    ap.add_argument("--until", type=float, help="seconds after which this call must be over: stages are shortened")
    ap.add_argument("--scale", type=float, default=1.0, help="factor on every stage's seconds, for trying out")
    ap.add_argument("--device", default="cuda"), ap.add_argument("--shrink", type=int, default=1, help="divides the length of rows, for trying out")
    ap.add_argument("--tokens", type=int, default=TOKENS, help="tokens a step")
    a = ap.parse_args()
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 256
    torch._dynamo.config.accumulated_cache_size_limit = 1024
    torch._dynamo.config.automatic_dynamic_shapes = False
    run = Run(a)
    print(f"set up after {time.time() - run.start:.1f} s", flush=True)
    for name in a.stages.split(","):
        (run.drafts if "draft" in name else run.backbone)(name)
        run.save()
    for s in run.streams.values():
        s.stop()
    if a.report and (not a.until or time.time() - run.start < a.until - 60):
        from report import report

        report(run, Encoder(a.tokenizer), a.out, a.quick, a.look)
    print(f"all after {time.time() - run.start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
