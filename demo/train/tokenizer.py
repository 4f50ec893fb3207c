"""The demo's tokenizer: byte-level BPE of 4096 ids with the release's special tokens, and its Engram token map."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from config import VOCAB

FIRST = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
NOISE = "<｜place▁holder▁no▁799｜>"
# as the released tokenizer spells them; `special` there is false for the second list
SPECIAL = [
    NOISE, "<｜end_of_query｜>", "<｜rl_image_pad｜>", "<｜rl_image_start｜>", "<｜/polygon｜>", "<｜polygon｜>",
    "<｜/point｜>", "<｜point｜>", "<｜/box｜>", "<｜box｜>", "<｜/ref｜>", "<｜ref｜>", "<｜image｜>",
]
PLAIN = [
    "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜User｜>", "<｜Assistant｜>", "<|EOT|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>", "<think>", "</think>", "｜DSML｜", "<｜System｜>", "<｜begin▁sys｜>", "<｜end▁sys｜>",
    "<｜latest_reminder｜>", "<｜search▁begin｜>", "<｜search▁end｜>",
]
# the release's split, but for digits: each is its own token
SPLITS = [
    r"\p{N}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]


def train(texts, path):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in SPLITS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    count = VOCAB - len(SPECIAL) - len(PLAIN)
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=count, special_tokens=FIRST, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tok.add_tokens([AddedToken(t, normalized=True, special=False) for t in PLAIN])
    assert tok.get_vocab_size() == VOCAB, tok.get_vocab_size()
    tok.save(path, pretty=False)


def load(path):
    return Tokenizer.from_file(path)


def noise_id(tok):
    return tok.token_to_id(NOISE)


def token_map(tok):
    """Token id -> compressed id: ids whose texts differ only in case, accents or spacing share one."""
    guard, seen, out = "\ue000", {}, []
    norm = normalizers.Sequence([
        normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "), normalizers.Replace(Regex(r"^ $"), guard), normalizers.Strip(),
        normalizers.Replace(guard, " "),
    ])
    for i in range(tok.get_vocab_size()):
        text = tok.decode([i], skip_special_tokens=False)
        key = tok.id_to_token(i) if "\ufffd" in text else norm.normalize_str(text) or text
        out.append(seen.setdefault(key, len(seen)))
    return out


class Encoder:
    """Pieces to ids and kinds: plain text without the added vocabulary, special tokens by their id."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            raw = json.load(f)
        self.special = {t["content"]: t["id"] for t in raw["added_tokens"]}
        raw["added_tokens"] = []
        self.plain = Tokenizer.from_str(json.dumps(raw))
        self.cache = {}

    def encode(self, pieces):
        """(ids, kinds) of rendered pieces; neighbouring plain pieces are one text for the tokenizer."""
        ids, kinds, run = [], [], []
        for piece in pieces:
            if piece[1]:
                self.flush(run, ids, kinds)
                ids.append(self.special[piece[0]])
                kinds.append(piece[2])
            else:
                run.append(piece)
        self.flush(run, ids, kinds)
        return ids, kinds

    def flush(self, run, ids, kinds):
        if not run:
            return
        text = "".join(p[0] for p in run)
        cacheable = len(run) == 1 and len(text) > 40 and run[0][2] == 0
        if cacheable and text in self.cache:
            new = self.cache[text]
            ids += new
            kinds += [0] * len(new)
        elif len({p[2] for p in run}) == 1:
            new = self.plain.encode(text, add_special_tokens=False).ids
            if cacheable and len(self.cache) < 500:
                self.cache[text] = new
            ids += new
            kinds += [run[0][2]] * len(new)
        else:
            ends, at = [], 0
            for p in run:
                at += len(p[0])
                ends.append((at, p[2]))
            enc, i = self.plain.encode(text, add_special_tokens=False), 0
            ids += enc.ids
            for start, _ in enc.offsets:
                while ends[i][0] <= start and i + 1 < len(ends):
                    i += 1
                kinds.append(ends[i][1])
        run.clear()
