"""The backbone's forward pass over packed rows of one length, with selection and the index loss.

Attention is one call a layer over [window rows ++ compressed rows]; selection is a bool per (query, row).
No gradient passes through the selection: the index loss aligns each indexer's scores with the attention
mass that the layers sharing its selection place on the rows.
"""

import torch
import torch.nn.functional as F

import model as m
from kernels import index_score, sinkhorn, top_mask

SEGMENTS = ("seg_in", "seg_mid", "seg_out", "seg_latent1", "seg_latent2", "seg_index_key", "seg_index_query",
            "seg_engram", "window_row", "rms", "cross_entropy")


class Net:
    def __init__(self, text, token_map, device="cpu", compiled=False):
        self.t, self.device = text, device
        self.hash = m.EngramHash(text, token_map, device)
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.seg = {name: wrap(getattr(m, name)) for name in SEGMENTS}
        self.seg |= {"collapse": m.collapse, "sinkhorn": sinkhorn, "index_score": index_score}
        self.flex = None
        if compiled:
            from torch.nn.attention.flex_attention import flex_attention

            self.flex = torch.compile(flex_attention, dynamic=False)
        self.tables, self.masks = {}, {}

    # ---- tables ------------------------------------------------------------------------------

    def rope_table(self, batch, length, compressed, step=1):
        """cos, sin [batch * length / step, rope/2] at positions 0, step, .. repeated over the batch."""
        key = (batch, length, compressed, step)
        if key not in self.tables:
            a = torch.as_tensor(m.angles(self.t, range(0, length - step + 1, step), compressed))
            both = [f(a).float().to(self.device).repeat(batch, 1) for f in (torch.cos, torch.sin)]
            self.tables[key] = both
        return self.tables[key]

    def block_mask(self, length, ratio):
        """Static visibility of window and compressed rows at this length."""
        from torch.nn.attention.flex_attention import create_block_mask

        if (length, ratio) not in self.masks:
            window, groups = self.t["sliding_window"], length // ratio if ratio else 0

            def visible(b, h, q, k):
                near = (k <= q) & (k > q - window) & (k < length)
                if not ratio:
                    return near
                return near | ((k >= length) & (k - length < (q + 1) // ratio))

            self.masks[length, ratio] = create_block_mask(
                visible, None, None, length, length + groups, device=self.device
            )
        return self.masks[length, ratio]

    # ---- attention ---------------------------------------------------------------------------

    def attend(self, q, kv, rows, chosen, ratio):
        """q [B, T, H, hd]; kv [B, T, hd]; rows [B, C, hd] or None; chosen bool [B, T, C] or None (all visible).
        Returns [B * T, H, hd] and the log-sum of scores [B * T, H], the sink not yet counted."""
        b, t, h, hd = q.shape
        keys = kv if rows is None else torch.cat([kv, rows], 1)
        scale = hd**-0.5
        if self.flex is not None:
            mod = None
            if rows is not None:

                def mod(score, bi, hi, qi, ki):
                    sel = chosen[bi, qi, (ki - t).clamp(min=0)]
                    return torch.where((ki < t) | sel, score, -torch.inf)

            k = keys[:, None]
            o, lse = self.flex(q.transpose(1, 2), k, k, score_mod=mod, block_mask=self.block_mask(t, ratio),
                               scale=scale, enable_gqa=True, return_lse=True)
        else:
            s = torch.einsum("bthd,bkd->bhtk", q.float(), keys.float()) * scale
            at = torch.arange(t, device=q.device)
            mask = (at[None] <= at[:, None]) & (at[None] > at[:, None] - self.t["sliding_window"])
            mask = mask[None].expand(b, -1, -1)
            if rows is not None:
                mask = torch.cat([mask, chosen], -1)
            s = s.masked_fill(~mask[:, None], -torch.inf)
            lse = torch.logsumexp(s, -1)
            o = torch.einsum("bhtk,bkd->bhtd", torch.softmax(s, -1), keys.float())
        return o.transpose(1, 2).reshape(b * t, h, hd), lse.transpose(1, 2).reshape(b * t, h)

    def visible(self, b, t, ratio):
        key = ("all", b, t, ratio)
        if key not in self.masks:
            at = torch.arange(t, device=self.device)
            c = torch.arange(t // ratio, device=self.device)
            self.masks[key] = (c[None] < ((at + 1) // ratio)[:, None]).expand(b, -1, -1).contiguous()
        return self.masks[key]

    # ---- selection ---------------------------------------------------------------------------

    def select(self, layer, q, w, keys, ratio, shared):
        """bool [B, T, C]: the compressed rows each query attends to."""
        t = self.t
        score = self.seg["index_score"](q, keys, w, ratio)
        b, length, c = score.shape
        size, source = t["candidate_block_size"], t["candidate_source_layer_id"]
        if layer == source:
            best = F.pad(score, (0, -c % size), value=-torch.inf).unflatten(-1, (-1, size)).amax(-1)
            at = torch.arange(length, device=score.device)
            newest = ((at + 1) // ratio - 1) // size
            pin = torch.arange(best.shape[-1], device=score.device)[None] == newest[:, None]
            keep = top_mask(best.masked_fill(pin[None], torch.inf), t["candidate_topk_blocks"])
            shared["candidates"] = keep.repeat_interleave(size, -1)[..., :c]
        elif layer > source:
            score = score.masked_fill_(~shared["candidates"], -torch.inf)
        return top_mask(score, t["index_topk"])

    def index_loss(self, at, group, b, t):
        """KL from the attention mass on compressed rows to the softmax of the index scores, at queries `at`."""
        ratio, hd, window = group["ratio"], self.t["head_dim"], self.t["sliding_window"]
        rows = group["rows"].detach()
        c = rows.shape[1]
        seen = torch.arange(c, device=self.device)[None] < ((at + 1) // ratio)[:, None]
        near = (at[:, None] - window + 1 + torch.arange(window, device=self.device)[None]).clamp(min=0)
        mass = 0
        with torch.no_grad():
            for q, kv, sink in group["layers"]:
                q, kv = q.detach()[:, at], kv.detach()[:, near]
                far = torch.einsum("bqhd,bcd->bhqc", q, rows).float() * hd**-0.5
                far = far.masked_fill(~seen, -torch.inf)
                local = torch.einsum("bqhd,bqkd->bhqk", q, kv).float() * hd**-0.5
                rest = torch.logaddexp(torch.logsumexp(local, -1), sink.detach()[None, :, None])
                total = torch.logaddexp(torch.logsumexp(far, -1), rest)
                mass = mass + torch.exp(far - total[..., None]).mean(1)
            mass = mass / len(group["layers"])
            far = mass.sum(-1, keepdim=True)
            target, weight = mass / far.clamp(min=1e-9), far[..., 0] + 0.05
        q, w, keys = group["index"]
        q, w = q.unflatten(0, (b, t))[:, at], w.unflatten(0, (b, t))[:, at]
        score = torch.einsum("bqhd,bcd->bqhc", q, keys).float().relu()
        score = (score * w[..., None]).sum(2).masked_fill(~seen, -torch.inf)
        logp = torch.log_softmax(score, -1).masked_fill(~seen, 0)
        kl = (target * (torch.log(target.clamp(min=1e-9)) - logp)).sum(-1)
        return (kl * weight).sum() / weight.sum()

    # ---- the pass ----------------------------------------------------------------------------

    def forward(self, p, tokens, select, kl_at=None):
        """p: leaves. tokens [B, T]. select: keep only the chosen compressed rows. kl_at: query positions of the
        index loss, or None. Returns hidden [N, D] after the last norm, taps [N, 3D], and the auxiliary terms."""
        t, seg = self.t, self.seg
        b, length = tokens.shape
        stack = {k[4:]: v.unbind(0) for k, v in p.items() if k.startswith("blk.")}
        sources, index_sources, ratios = t["kv_source_layer_ids"], t["index_source_layer_ids"], t["compress_ratios"]
        streams = m.lookup(p["embed"], tokens.flatten())[:, None].expand(-1, t["hc_mult"], -1).contiguous()
        pre = torch.zeros(b * length, t["hc_mult"], device=self.device)
        pre[:, 0] = 1
        taps, loads, balance, kls, group, shared = [], [], 0, [], None, {}
        iters, eps, topk = t["hc_sinkhorn_iters"], t["hc_eps"], t["num_experts_per_tok"]
        kv_of, gated = {}, [s for s in sources if ratios[s] > 1]
        for i in range(t["num_hidden_layers"]):
            w = {k: v[i] for k, v in stack.items()}
            ratio = ratios[i]
            if i in t["engram_layer_ids"]:
                e = t["engram_layer_ids"].index(i)
                rows = m.lookup(p[f"eng_table{e}"], self.hash.rows(e, tokens).flatten()).view(b * length, -1)
                streams = seg["seg_engram"](streams, rows, p["eng_wkv"][e], p["eng_q"][e], p["eng_k"][e])
            if i in t["dspark_target_layer_ids"]:
                taps.append(streams.float().mean(1).to(m.BF))
            cos, sin = self.rope_table(b, length, ratio > 0)
            x, qr, q, kv, pre_a, post, comb = seg["seg_in"](
                streams, pre, w["hc_attn_fn"], w["hc_attn_base"], w["hc_attn_scale"], w["attn_norm"], w["wq_a"],
                w["q_norm"], w["wq_b"], w["wkv"], w["kv_norm"], cos, sin)
            comb = seg["sinkhorn"](comb, iters, eps)
            rows = chosen = None
            q4, kv3 = q.unflatten(0, (b, length)), kv.unflatten(0, (b, length))
            if ratio:
                if i in sources:
                    s = sources.index(i)
                    table = self.rope_table(b, length, True, ratio)
                    if ratio == 1:
                        latent, rows = seg["seg_latent1"](x, p["comp_wkv"][s], p["comp_norm"][s], *table)
                    else:
                        wgate = p["comp_wgate"][gated.index(i)]
                        latent, rows = seg["seg_latent2"](x, p["comp_wkv"][s], wgate, p["comp_norm"][s], *table)
                    rows = rows.unflatten(0, (b, -1))
                    kv_of = {"latent": latent.detach(), "rows": rows, "source": s, "table": table}
                rows = kv_of["rows"]
                if i in index_sources:
                    if group is not None and kl_at is not None:
                        kls.append(self.index_loss(kl_at, group, b, length))
                    n, s = index_sources.index(i), kv_of["source"]
                    if select or kl_at is not None:
                        keys = seg["seg_index_key"](kv_of["latent"], p["idx_wk"][s], p["idx_k_norm"][s], *kv_of["table"])
                        keys = keys.unflatten(0, (b, -1))
                        iq, iw = seg["seg_index_query"](
                            qr.detach(), x.detach(), p["idx_wq_b"][n], p["idx_wproj"][n], cos, sin)
                        group = {"ratio": ratio, "rows": rows, "layers": [], "index": (iq, iw, keys)}
                    if select:
                        with torch.no_grad():
                            chosen = self.select(i, iq.detach().unflatten(0, (b, length)), iw.detach().unflatten(
                                0, (b, length)), keys.detach(), ratio, shared)
                    else:
                        chosen = self.visible(b, length, ratio)
                    kv_of["chosen"] = chosen
                chosen = kv_of["chosen"]
                if kl_at is not None:
                    group["layers"].append((q4, kv3, w["attn_sink"]))
            o, lse = self.attend(q4, kv3, rows, chosen, ratio)
            streams, x, pre, post, comb = seg["seg_mid"](
                o, lse, w["attn_sink"], streams, post, comb, pre_a, w["wo_a"], w["wo_b"], w["hc_ffn_fn"],
                w["hc_ffn_base"], w["hc_ffn_scale"], w["ffn_norm"], cos, sin)
            comb = seg["sinkhorn"](comb, iters, eps)
            streams, load, bal = seg["seg_out"](
                x, streams, post, comb, w["gate"], w["gate_bias"], w["w1"], w["w3"], w["w2"], w["sh_w1"], w["sh_w3"],
                w["sh_w2"], topk)
            loads.append(load)
            balance = balance + bal
        if group is not None and kl_at is not None:
            kls.append(self.index_loss(kl_at, group, b, length))
        hidden = seg["rms"](seg["collapse"](streams, pre), p["norm"])
        return hidden, torch.cat(taps, -1), {"loads": torch.stack(loads), "balance": balance, "kl": kls}

    # ---- drafts ------------------------------------------------------------------------------

    def draft(self, p, taps, tokens, anchors):
        """Base logits' hidden rows of the blocks drafted at `anchors` [B, A] (positions of the newest token).
        Returns h before the last norm and the normed rows, each [B, A, block, D]."""
        t, seg = self.t, self.seg
        (b, length), a, block = tokens.shape, anchors.shape[1], t["dspark_block_size"]
        n, window = b * a, t["sliding_window"]
        stack = {k[4:]: v.unbind(0) for k, v in p.items() if k.startswith("dft.")}
        cos, sin = self.rope_table(b, length, False)
        main = seg["rms"](F.linear(m.round_input(taps), p["main_proj"]), p["main_norm"])
        main_q = m.round_input(main)
        back = anchors[..., None] - window + torch.arange(window, device=self.device)
        usable, back = (back >= 0).flatten(0, 1), back.clamp(min=0)
        flat = (back + (torch.arange(b, device=self.device) * length)[:, None, None]).flatten()
        pos = (anchors[..., None] + torch.arange(block, device=self.device)).flatten()
        last = length + block
        bcos, bsin = (x[pos] for x in self.rope_table(1, last, False))
        ids = torch.full((n, block), t["dspark_noise_token_id"], device=self.device)
        ids[:, 0] = torch.gather(tokens, 1, anchors).flatten()
        streams = m.lookup(p["embed"], ids.flatten())[:, None].expand(-1, t["hc_mult"], -1).contiguous()
        pre = torch.zeros(n * block, t["hc_mult"], device=self.device)
        pre[:, 0] = 1
        for i in range(t["num_nextn_predict_layers"]):
            w = {k: v[i] for k, v in stack.items()}
            context = seg["window_row"](F.linear(main_q, w["wkv"]), w["kv_norm"], cos, sin)[flat].unflatten(0, (n, window))
            x, _, q, kv, pre_a, post, comb = seg["seg_in"](
                streams, pre, w["hc_attn_fn"], w["hc_attn_base"], w["hc_attn_scale"], w["attn_norm"], w["wq_a"],
                w["q_norm"], w["wq_b"], w["wkv"], w["kv_norm"], bcos, bsin)
            comb = sinkhorn(comb, t["hc_sinkhorn_iters"], t["hc_eps"])
            keys = torch.cat([context, kv.unflatten(0, (n, block))], 1)
            q = q.unflatten(0, (n, block))
            s = torch.einsum("nqhd,nkd->nqhk", q.float(), keys.float()) * q.shape[-1] ** -0.5
            mask = F.pad(usable, (0, block), value=True)
            s = s.masked_fill(~mask[:, None, None], -torch.inf)
            lse = torch.logsumexp(s, -1)
            o = torch.einsum("nqhk,nkd->nqhd", torch.exp(s - lse[..., None]), keys.float())
            streams, x, pre, post, comb = seg["seg_mid"](
                o.flatten(0, 1), lse.flatten(0, 1), w["attn_sink"], streams, post, comb, pre_a, w["wo_a"], w["wo_b"],
                w["hc_ffn_fn"], w["hc_ffn_base"], w["hc_ffn_scale"], w["ffn_norm"], bcos, bsin)
            comb = sinkhorn(comb, t["hc_sinkhorn_iters"], t["hc_eps"])
            streams, _, _ = seg["seg_out"](
                x, streams, post, comb, w["gate"], w["gate_bias"], w["w1"], w["w3"], w["w2"], w["sh_w1"], w["sh_w3"],
                w["sh_w2"], t["dspark_num_experts_per_tok"])
        h = m.collapse(streams, pre)
        shape = (b, a, block, -1)
        return h.reshape(shape), m.rms(h, p["dft_norm"]).reshape(shape)
