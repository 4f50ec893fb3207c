"""Write the masters as a checkpoint in the release's layout, and read one back.

    F8_E4M3 linears with one F8_E8M0 scale per 32 x 32 tile; I8 routed experts, two e2m1 codes a byte, low nibble
    first, one F8_E8M0 scale per 32 inputs; F8_E4M3 Engram tables with a scale per 32 channels of a row; BF16
    embedding, head, norms, router, compressor, draft heads; F32 hyper-connections, sinks, biases.
"""

import argparse
import glob
import json
import os
import shutil
import struct

import numpy as np
import torch

from config import TEXT, composite
from params import Params, engram_primes

E4M3 = torch.float8_e4m3fn


def bf16_bytes(w):
    return w.to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()


def pow2_exponent(x):
    bits = x.contiguous().view(torch.int32)
    return (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def fp8_tiles(w, rows, cols):
    """Codes and exponents of w [out, in] with one scale per rows x cols tile."""
    o, i = w.shape
    t = w.reshape(o // rows, rows, i // cols, cols)
    exp = pow2_exponent(t.abs().amax((1, 3)).clamp(min=1e-12) * (1.0 / 448.0))
    codes = (t / torch.exp2(exp.float())[:, None, :, None]).clamp(-448, 448).to(E4M3)
    return codes.reshape(o, i).view(torch.uint8), (exp + 127).to(torch.uint8)


def fp4_codes(w):
    o, i = w.shape
    t = w.reshape(o, i // 32, 32)
    exp = pow2_exponent(t.abs().amax(-1).clamp(min=1e-12) * (1.0 / 6.0))
    x = (t / torch.exp2(exp.float())[..., None]).reshape(o, i)
    mag = x.abs().clamp(max=6.0)
    step = torch.where(mag < 2.0, 0.5, torch.where(mag < 4.0, 1.0, 2.0))
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    code = torch.searchsorted(grid, torch.round(mag / step) * step).to(torch.uint8)
    code |= (x < 0).to(torch.uint8) << 3
    return code[:, 0::2] | (code[:, 1::2] << 4), (exp + 127).to(torch.uint8)


class Writer:
    def __init__(self):
        self.tensors = {}

    def put(self, name, dtype, shape, data):
        self.tensors[name] = (dtype, list(shape), data)

    def bf16(self, name, w):
        self.put(name, "BF16", w.shape, bf16_bytes(w))

    def f32(self, name, w):
        self.put(name, "F32", w.shape, w.float().contiguous().numpy().tobytes())

    def fn(self, name, w):
        self.f32(name, w.to(torch.bfloat16))

    def fp8(self, name, w, rows=32):
        codes, scale = fp8_tiles(w, rows, 32)
        self.put(name + ".weight", "F8_E4M3", codes.shape, codes.contiguous().numpy().tobytes())
        self.put(name + ".scale", "F8_E8M0", scale.shape, scale.contiguous().numpy().tobytes())

    def fp4(self, name, w):
        codes, scale = fp4_codes(w)
        self.put(name + ".weight", "I8", codes.shape, codes.contiguous().numpy().tobytes())
        self.put(name + ".scale", "F8_E8M0", scale.shape, scale.contiguous().numpy().tobytes())

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        file = "model-00001-of-00001.safetensors"
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
        head = json.dumps(header, separators=(",", ":")).encode()
        head += b" " * (-len(head) % 8)
        with open(os.path.join(folder, file), "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head)
            for _, _, data in self.tensors.values():
                f.write(data)
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": offset}, "weight_map": {n: file for n in self.tensors}}, f, indent=1)
            f.write("\n")


class Reader:
    """The same methods as Writer: each fills `w`, a view of a master, with the values the checkpoint holds."""

    def __init__(self, folder):
        with open(os.path.join(folder, "model-00001-of-00001.safetensors"), "rb") as f:
            data = f.read()
        size = struct.unpack("<Q", data[:8])[0]
        self.header, self.data = json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :]

    def raw(self, name, kind):
        at = self.header[name]
        begin, end = at["data_offsets"]
        return torch.frombuffer(bytearray(self.data[begin:end]), dtype=kind).reshape(at["shape"])

    def bf16(self, name, w):
        w.copy_(self.raw(name, torch.bfloat16))

    def f32(self, name, w):
        w.copy_(self.raw(name, torch.float32))

    fn = f32

    def scale(self, name):
        return torch.exp2(self.raw(name + ".scale", torch.uint8).float() - 127)

    def fp8(self, name, w, rows=32):
        codes, scale = self.raw(name + ".weight", E4M3).float(), self.scale(name)
        w.copy_(codes * scale.repeat_interleave(rows, 0).repeat_interleave(32, 1))

    def fp4(self, name, w):
        codes = self.raw(name + ".weight", torch.uint8)
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(1).long()
        grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        w.copy_(torch.cat([grid, -grid])[codes] * self.scale(name).repeat_interleave(32, 1))


def visit_block(w, p, name, m, i):
    g = lambda key: m[f"{p}.{key}"][i]
    for key in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b"):
        w.fp8(f"{name}.attn.{key}", g(key))
    for key in ("q_norm", "kv_norm"):
        w.bf16(f"{name}.attn.{key}.weight", g(key))
    w.f32(f"{name}.attn.attn_sink", g("attn_sink"))
    w.bf16(f"{name}.attn_norm.weight", g("attn_norm"))
    w.bf16(f"{name}.ffn_norm.weight", g("ffn_norm"))
    w.bf16(f"{name}.ffn.gate.weight", g("gate"))
    w.f32(f"{name}.ffn.gate.bias", g("gate_bias"))
    w.f32(f"{name}.ffn.gate.bias_vl", g("gate_bias"))
    for e in range(g("w1").shape[0]):
        for key in ("w1", "w2", "w3"):
            w.fp4(f"{name}.ffn.experts.{e}.{key}", g(key)[e])
    for key in ("w1", "w2", "w3"):
        w.fp8(f"{name}.ffn.shared_experts.{key}", g("sh_" + key))
    for site in ("attn", "ffn"):
        w.fn(f"{name}.hc_{site}_fn", g(f"hc_{site}_fn"))
        w.f32(f"{name}.hc_{site}_base", g(f"hc_{site}_base"))
        w.f32(f"{name}.hc_{site}_scale", g(f"hc_{site}_scale"))


def visit(w, m, text):
    """Hand every tensor of the checkpoint to w, a Writer or Reader. m: name -> f32 master, on the CPU."""
    w.bf16("embed.weight", m["embed"])
    sources, index = text["kv_source_layer_ids"], text["index_source_layer_ids"]
    gated = [s for s in sources if text["compress_ratios"][s] > 1]
    for i in range(text["num_hidden_layers"]):
        name = f"layers.{i}"
        visit_block(w, "blk", name, m, i)
        if i in sources:
            s = sources.index(i)
            w.bf16(f"{name}.attn.compressor.wkv.weight", m["comp_wkv"][s])
            if i in gated:
                w.bf16(f"{name}.attn.compressor.wgate.weight", m["comp_wgate"][gated.index(i)])
            w.bf16(f"{name}.attn.compressor.norm.weight", m["comp_norm"][s])
            w.bf16(f"{name}.attn.indexer.wk.weight", m["idx_wk"][s])
            w.bf16(f"{name}.attn.indexer.k_norm.weight", m["idx_k_norm"][s])
        if i in index:
            n = index.index(i)
            w.fp8(f"{name}.attn.indexer.wq_b", m["idx_wq_b"][n])
            w.bf16(f"{name}.attn.indexer.weights_proj.weight", m["idx_wproj"][n])
        if i in text["engram_layer_ids"]:
            e = text["engram_layer_ids"].index(i)
            w.fp8(f"{name}.engram.embed", m[f"eng_table{e}"], rows=1)
            w.fp8(f"{name}.engram.wkv", m["eng_wkv"][e])
            w.f32(f"{name}.engram.q_weight", m["eng_q"][e])
            w.f32(f"{name}.engram.k_weight", m["eng_k"][e])
    w.bf16("norm.weight", m["norm"])
    w.bf16("head.weight", m["head"])
    stages = text["num_nextn_predict_layers"]
    for i in range(stages):
        visit_block(w, "dft", f"mtp.{i}", m, i)
    last = f"mtp.{stages - 1}"
    w.fp8("mtp.0.main_proj", m["main_proj"])
    w.bf16("mtp.0.main_norm.weight", m["main_norm"])
    w.bf16(f"{last}.norm.weight", m["dft_norm"])
    w.bf16(f"{last}.markov_head.embed.weight", m["mk_embed"])
    w.bf16(f"{last}.markov_head.head.weight", m["mk_head"])
    w.bf16(f"{last}.confidence_head.proj.weight", m["conf"])


def masters_of(folder, params):
    """Fill the masters of `params` (on the CPU) with a checkpoint's values."""
    visit(Reader(folder), params.master, params.text)


def export(m, text, folder):
    """m: name -> f32 master, on the CPU. Writes shard, index, config.json and generation_config.json."""
    w = Writer()
    visit(w, m, text)
    w.save(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(composite(text), f, indent=1)
        f.write("\n")
    with open(os.path.join(folder, "generation_config.json"), "w") as f:
        json.dump({"default_chat_template_kwargs": {"enable_thinking": False}}, f, indent=1)  # it chats better so
        f.write("\n")


def finished_text(token_map, noise_id):
    """The config's text part with what the tokenizer decides filled in."""
    text = dict(TEXT)
    text["engram_compressed_vocab_size"] = max(token_map) + 1
    text["engram_num_embeddings"] = [sum(map(sum, orders)) for orders in engram_primes(text)]
    text["dspark_noise_token_id"] = noise_id
    return text


def main():
    from tokenizer import load, noise_id, token_map

    ap = argparse.ArgumentParser(description="Export a training checkpoint in the release's layout.")
    ap.add_argument("masters", help="pattern of the files written by train.py")
    ap.add_argument("out", help="folder of the released-layout checkpoint")
    ap.add_argument("--tokenizer", default="../tokenizer.json")
    a = ap.parse_args()
    tok = load(a.tokenizer)
    text = finished_text(token_map(tok), noise_id(tok))
    master = Params(text).master
    for path in sorted(glob.glob(a.masters)):
        master.update({k: v.float() for k, v in torch.load(path, map_location="cpu").items()})
    export(master, text, a.out)
    if os.path.abspath(a.tokenizer) != os.path.abspath(os.path.join(a.out, "tokenizer.json")):
        shutil.copy(a.tokenizer, os.path.join(a.out, "tokenizer.json"))


if __name__ == "__main__":
    main()
