"""One training step of the backbone and one of the drafts."""

import torch

from model import lookup
from params import is_draft

WEIGHTS = (0.15, 1.0, 0.02)  # context, answer, unpredictable text
WEIGHT_ON = {}


def targets(tokens, kinds):
    """Next-token labels [N] and their loss weights [N]; the last position of a row has none."""
    labels = torch.roll(tokens, -1, 1)
    if tokens.device not in WEIGHT_ON:
        WEIGHT_ON[tokens.device] = torch.tensor(WEIGHTS, device=tokens.device)
    weight = WEIGHT_ON[tokens.device][torch.roll(kinds, -1, 1).long()]
    weight = weight * (labels != 2)
    weight[:, -1] = 0
    return labels.flatten(), weight.flatten()


def backbone_step(net, params, opt, tokens, kinds, at, scale, select):
    """Forward, backward, update. at: query positions of the index loss; scale: 0-dim tensor on every learning rate.
    Returns a tensor [loss, answer loss, answer accuracy, kl, balance]."""
    leaves = params.leaves(draft=False)
    hidden, _, aux = net.forward(leaves, tokens, select, at)
    labels, weight = targets(tokens, kinds)
    loss_rows, best = net.seg["cross_entropy"](hidden, leaves["head"], labels, weight)
    ce = loss_rows.sum() / weight.sum()
    kl = sum(aux["kl"])
    (ce + 0.002 * aux["balance"] + kl).backward()
    opt.step(leaves, scale)
    with torch.no_grad():
        load = aux["loads"]
        params.master["blk.gate_bias"] += 0.002 * torch.sign(load.mean(-1, keepdim=True) - load)
        answer = (weight == 1.0).float()
        n = answer.sum().clamp(min=1)
        return torch.stack([ce.detach(), (loss_rows.detach() * answer).sum() / n,
                            ((best == labels) * answer).sum() / n, kl.detach(), aux["balance"].detach()])


class Replayed:
    """A step captured as one CUDA graph after a few plain runs: the launches cost nothing from then on."""

    side = None  # one stream for all plain runs, so that their memory is shared

    def __init__(self, step, inputs, warmup=3):
        self.step, self.inputs, self.warmup, self.graph, self.out = step, inputs, warmup, None, None

    def __call__(self, *values):
        for slot, value in zip(self.inputs, values):
            slot.copy_(value)
        if self.graph is not None:
            self.graph.replay()
        elif not self.inputs[0].is_cuda:
            self.out = self.step(*self.inputs)
        elif self.warmup > 0:
            self.warmup -= 1
            side = Replayed.side = Replayed.side or torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.out = self.step(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
        else:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    self.out = self.step(*self.inputs)
                self.graph = graph
                graph.replay()
            except RuntimeError as e:  # slower, but right
                print("no graph:", str(e)[:300], flush=True)
                torch.cuda.synchronize()
                self.warmup = 1 << 30
                self.out = self.step(*self.inputs)
        return self.out


def own_continuation(net, leaves, tokens, kinds, rounds, noise=None, select=True):
    """Replace answer tokens by the model's own choices, all positions at once, `rounds` times: where a choice
    repeats itself the text is the model's own reply. Returns tokens, the last choices [B, T] and taps."""
    for i in range(rounds + 1):
        hidden, taps, _ = net.forward(leaves, tokens, select)
        hidden, taps = hidden.detach(), taps.detach()
        best = choices(hidden, leaves["head"], noise).view_as(tokens)
        if i < rounds:
            own = torch.roll(best, 1, 1)
            tokens = torch.where((kinds == 1) & (tokens != 2), own, tokens)
            tokens[:, 0] = 0
    return tokens, best, taps


@torch.no_grad()
def choices(hidden, head, noise=None):
    """argmax of the logits, or with noise [N, V] the sampled choice at temperature 1."""
    out = []
    for i in range(0, hidden.shape[0], 16384):
        logits = torch.nn.functional.linear(hidden[i : i + 16384], head).float()
        if noise is not None:
            logits = logits + noise[i : i + 16384]
        out.append(logits.argmax(-1))
    return torch.cat(out)


def pick_anchors(kinds, count, block):
    """[B, count] positions, most of them in or right before answers."""
    score = torch.rand(kinds.shape, device=kinds.device) + 4.0 * (torch.roll(kinds, -1, 1) == 1)
    score[:, -block - 1 :] = -1
    score[:, :2] = -1
    return score.topk(count, -1).indices.sort(-1).values


def draft_rows(net, draft, embed, taps, tokens, best, anchors):
    """For every drafted row: logits [R, V], label, weight, and confidence logit; R = B * A * block."""
    block = net.t["dspark_block_size"]
    h, normed = net.draft({**draft, "embed": embed[0]}, taps, tokens, anchors)
    j = torch.arange(block, device=tokens.device)
    at = (anchors[..., None] + j).flatten(1)
    prev = torch.gather(tokens, 1, at).unflatten(1, (-1, block))
    label = torch.gather(best, 1, at).unflatten(1, (-1, block))
    follow = torch.gather(tokens, 1, at + 1).unflatten(1, (-1, block)) == label
    valid = torch.cat([torch.ones_like(follow[..., :1]), follow[..., :-1]], -1).cumprod(-1).float()
    mk = lookup(draft["mk_embed"], prev.flatten()).unflatten(0, prev.shape)
    feature = torch.cat([h, mk], -1).detach()
    confidence = torch.nn.functional.linear(feature, draft["conf"]).float()[..., 0]
    return normed.flatten(0, 2), mk.flatten(0, 2), label, valid * 0.8**j, confidence


def draft_loss(normed, mk, head, mk_head, labels, weight):
    logits = torch.nn.functional.linear(normed, head).float() + torch.nn.functional.linear(mk, mk_head).float()
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none") * weight, logits.detach().argmax(-1)


def draft_step(net, params, opt, frozen, tokens, best, taps, kinds, count, scale, loss_fn):
    draft = params.leaves(draft=True)
    anchors = pick_anchors(kinds, count, net.t["dspark_block_size"])
    embed = (frozen["embed"].detach(),)
    normed, mk, label, weight, confidence = draft_rows(net, draft, embed, taps, tokens, best, anchors)
    rows, guess = loss_fn(normed, mk, frozen["head"].detach(), draft["mk_head"], label.flatten(), weight.flatten())
    right = (guess.view_as(label) == label).float()
    bce = torch.nn.functional.binary_cross_entropy_with_logits(confidence, right, reduction="none")
    live = (weight > 0).float()
    loss = rows.sum() / weight.sum() + (bce * live).sum() / live.sum()
    loss.backward()
    opt.step(draft, scale)
    with torch.no_grad():
        accepted = (right * live).cumprod(-1).sum(-1).mean()
        return torch.stack([loss.detach(), accepted, right[..., 0].mean(), (bce * live).sum() / live.sum()])


def names(params, draft):
    return [n for n in params.master if is_draft(n) == draft]
