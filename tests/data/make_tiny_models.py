"""Makes the weights and tokenizers of `models/`, and its bert-* and electra-discriminator variants.

    python tests/data/make_tiny_models.py

Run once: what it wrote is committed and is the test data. Seeded random weights differ between library
versions, so a second run would change every number a test could have written down; tests read the folders
and never call this. For each family config.json, tokenizer_config.json and esm2's vocab.txt are written by
hand and are input here. The tokenizers are trained on `text/inaugural.txt` and FOREIGN_SENTENCES. The
configurations, tensor names, special tokens and tokenizer pipelines are those the families publish, with one
exception: where a published Unigram tokenizer carries SentencePiece's 240 kB `nmt_nfkc` table, ours names
the normalisers Nmt and NFKC.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers.models import BPE, Unigram, WordPiece

DATA = Path(__file__).parent
MODELS = DATA / "models"

FOREIGN_SENTENCES = [
    "我们的人民热爱和平。",
    "我们今天选择希望，而不是恐惧。",
    "日本語の文も少しあります。",
    "Le peuple français aime la liberté, l'égalité et la fraternité.",
    "Straße, Größe, niño, naïve, café.",
    "Мир и свобода.",
]

Json = dict[str, Any]
StateDict = dict[str, torch.Tensor]


def corpus() -> list[str]:
    return (DATA / "text" / "inaugural.txt").read_text(encoding="utf-8").splitlines() + FOREIGN_SENTENCES * 3


def trained(tokenizer: Tokenizer, trainer: trainers.Trainer) -> Json:
    """The `model` entry of tokenizer.json after training."""
    tokenizer.train_from_iterator(corpus(), trainer)
    model: Json = json.loads(tokenizer.to_str())["model"]
    return model


def numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def in_order(vocabulary: dict[str, int]) -> list[str]:
    return sorted(vocabulary, key=vocabulary.__getitem__)


def special(token: str, **flags: bool) -> AddedToken:
    return AddedToken(token, special=True, normalized=False, **flags)


def template(
    tokenizer: Tokenizer, first: str, last: str, *, roberta_pairs: bool = False
) -> processors.PostProcessor:
    middle = f"{last} {last}" if roberta_pairs else last
    second = 0 if roberta_pairs else 1
    return processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {middle} $B:{second} {last}:{second}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )


def word_piece(specials: Sequence[str], *, vocab_size: int, mpnet: bool = False) -> Tokenizer:
    """BERT's: lower-casing BertNormalizer, BertPreTokenizer. specials: pad, unk, first, last, mask."""
    pad, unk, first, last, mask = specials
    learner = Tokenizer(WordPiece(unk_token=unk))
    learner.normalizer = normalizers.BertNormalizer(lowercase=True)
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model = trained(learner, trainers.WordPieceTrainer(vocab_size=vocab_size - 5, show_progress=False))
    pieces = in_order(model["vocab"])
    order = [first, pad, last, unk, *pieces, mask] if mpnet else [pad, unk, first, last, mask, *pieces]
    tokenizer = Tokenizer(WordPiece(numbered(order), unk_token=unk))
    tokenizer.normalizer = learner.normalizer
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    tokenizer.add_special_tokens(
        [special(pad), special(unk), special(first), special(last), special(mask, lstrip=mpnet)]
    )
    tokenizer.post_processor = template(tokenizer, first, last, roberta_pairs=mpnet)
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def byte_level_bpe(*, vocab_size: int, first: Sequence[str] = (), last: Sequence[str] = ()) -> Tokenizer:
    """GPT-2's BPE over bytes; `first` and `last` are the special tokens before and after the learned ones."""
    learner = Tokenizer(BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(first) - len(last),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model = trained(learner, trainer)
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(BPE(numbered([*first, *in_order(model["vocab"]), *last]), merges))
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def roberta_tokenizer() -> Tokenizer:
    tokenizer = byte_level_bpe(vocab_size=420, first=["<s>", "<pad>", "</s>", "<unk>"], last=["<mask>"])
    tokenizer.add_special_tokens(
        [*map(special, ("<s>", "<pad>", "</s>", "<unk>")), special("<mask>", lstrip=True)]
    )
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return tokenizer


def gpt2_tokenizer() -> Tokenizer:
    tokenizer = byte_level_bpe(vocab_size=400, last=["<|endoftext|>"])
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def modernbert_tokenizer() -> Tokenizer:
    """Its runs of spaces are ordinary added tokens; its special tokens come after them."""
    tokenizer = byte_level_bpe(vocab_size=392)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in (4, 3, 2)])
    tokenizer.add_special_tokens(
        [*map(special, ("[UNK]", "[CLS]", "[SEP]", "[PAD]")), special("[MASK]", lstrip=True)]
    )
    tokenizer.post_processor = template(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def unigram(
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    *,
    vocab_size: int,
    unk: str,
    before: Sequence[str],
    mask: str,
    mask_is_last: bool = True,
) -> Tokenizer:
    """SentencePiece's Unigram; `before` are the tokens before the learned pieces, in published order."""
    learner = Tokenizer(Unigram())
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    pieces = [(piece, score) for piece, score in trained(learner, trainer)["vocab"] if piece != "<unk>"]
    vocabulary = [*((token, 0.0) for token in before), *pieces, *([(mask, 0.0)] if mask_is_last else [])]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=before.index(unk)))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(
        [*(special(token) for token in before if token != mask), special(mask, lstrip=True)]
    )
    return tokenizer


def split_metaspace() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])


def nmt_nfkc() -> list[normalizers.Normalizer]:
    return [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]


def albert_tokenizer() -> Tokenizer:
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    lower = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer = unigram(
        normalizers.Sequence([*quotes, *lower, *nmt_nfkc()]),
        split_metaspace(),
        vocab_size=350,
        unk="<unk>",
        before=["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        mask="[MASK]",
        mask_is_last=False,
    )
    tokenizer.post_processor = template(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def xlm_roberta_tokenizer(before: Sequence[str] = ("<s>", "<pad>", "</s>", "<unk>")) -> Tokenizer:
    tokenizer = unigram(
        normalizers.Sequence(nmt_nfkc()),
        split_metaspace(),
        vocab_size=380,
        unk="<unk>",
        before=list(before),
        mask="<mask>",
    )
    tokenizer.post_processor = template(tokenizer, "<s>", "</s>", roberta_pairs=True)
    return tokenizer


def camembert_tokenizer() -> Tokenizer:
    """fairseq's leftovers come first, so that `<s>` is 5 and `</s>` is 6."""
    leftovers = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]
    return xlm_roberta_tokenizer([*leftovers, "<s>", "</s>"])


def deberta_tokenizer() -> Tokenizer:
    tokenizer = unigram(
        normalizers.Sequence(
            [
                normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "),
                normalizers.NFC(),
                normalizers.Strip(left=False, right=True),
            ]
        ),
        pre_tokenizers.Sequence([pre_tokenizers.Metaspace()]),
        vocab_size=360,
        unk="[UNK]",
        before=["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
        mask="[MASK]",
    )
    tokenizer.post_processor = template(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def llama_tokenizer() -> Tokenizer:
    """Llama 2's: BPE with byte fallback, no pre-tokenizer (a text is one word), `<s>` from the template."""
    learner = Tokenizer(BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    model = trained(learner, trainers.BpeTrainer(vocab_size=180, limit_alphabet=80, show_progress=False))
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = numbered(["<unk>", "<s>", "</s>", *byte_tokens, *in_order(model["vocab"])])
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([*map(special, ("<unk>", "<s>", "</s>"))])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MPNET_SPECIALS = ["<pad>", "[UNK]", "<s>", "</s>", "<mask>"]


@dataclass(frozen=True)
class Family:
    """What a family's release looks like beyond its config.json.

    tokenizer: None where the release has a vocab.txt only. drop_tied: leave tied tensors out, as most
    safetensors releases do. published_name: the library's tensor name -> the hub's. extra: buffers that old
    releases carry and nothing reads. weight_std: of linear layers; large, so that a wrong position, mask,
    norm or activation shows in the output, but not so large that float32 itself is off by more than 3e-5.
    """

    tokenizer: Callable[[], Tokenizer] | None
    drop_tied: bool = True
    published_name: Callable[[str], str] = str
    extra: StateDict | None = None
    weight_std: float = 0.25


def bert_tokenizer() -> Tokenizer:
    return word_piece(BERT_SPECIALS, vocab_size=320)


def mpnet_tokenizer() -> Tokenizer:
    return word_piece(MPNET_SPECIALS, vocab_size=320, mpnet=True)


def inverse_frequencies(name: str, head_size: int) -> StateDict:
    """Rotary frequencies under `name`, a template for the layer's number."""
    frequencies = 1.0 / 10000 ** (torch.arange(0, head_size, 2) / head_size)
    return {name.format(layer): frequencies.clone() for layer in range(2)}


POSITION_IDS = torch.arange(66)[None]

FAMILIES = {
    "bert": Family(bert_tokenizer),
    "roberta": Family(roberta_tokenizer),
    "distilbert": Family(bert_tokenizer),
    "albert": Family(albert_tokenizer, drop_tied=False),
    "electra": Family(bert_tokenizer),
    "xlm-roberta": Family(xlm_roberta_tokenizer, extra={"roberta.embeddings.position_ids": POSITION_IDS}),
    "camembert": Family(camembert_tokenizer, drop_tied=False),
    "mpnet": Family(mpnet_tokenizer),
    "deberta-v2": Family(deberta_tokenizer),
    "deberta-v2-legacy": Family(deberta_tokenizer),
    "modernbert": Family(modernbert_tokenizer, weight_std=0.18),
    "esm2": Family(
        None,
        extra={
            "esm.embeddings.position_embeddings.weight": torch.arange(66.0 * 32).sin().reshape(66, 32),
            "esm.embeddings.position_ids": POSITION_IDS,
            **inverse_frequencies("esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq", 16),
        },
    ),
    "gpt2": Family(
        gpt2_tokenizer,
        published_name=lambda name: name.removeprefix("transformer."),
        extra={f"h.{layer}.attn.bias": torch.tril(torch.ones(1, 1, 64, 64)) for layer in range(2)},
    ),
    "llama": Family(
        llama_tokenizer,
        extra=inverse_frequencies("model.layers.{}.self_attn.rotary_emb.inv_freq", 8),
        weight_std=0.18,
    ),
}


def fill(model: torch.nn.Module, vocab_size: int, weight_std: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_norm = "norm" in name.lower() or ".ln_" in name
        is_table = "embed" in name or len(parameter) == vocab_size
        std = 0.3 if is_norm else 0.2 if parameter.ndim == 1 else 0.5 if is_table else weight_std
        mean = 1.0 if is_norm and name.endswith("weight") else 0.0
        with torch.no_grad():
            parameter.normal_(mean, std, generator=generator)


def read_json(path: Path) -> Json:
    content: Json = json.loads(path.read_text(encoding="utf-8"))
    return content


def write_json(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_weights(tensors: StateDict, path: Path) -> None:
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path, {"format": "pt"})


def make_family(name: str, family: Family, seed: int) -> None:
    folder = MODELS / name
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0])(config)
    fill(model, config.vocab_size, family.weight_std, seed)
    tied = model.all_tied_weights_keys if family.drop_tied else {}
    parameters = model.named_parameters(remove_duplicate=False)
    tensors = {family.published_name(key): value.data for key, value in parameters if key not in tied}
    save_weights(tensors | (family.extra or {}), folder / "model.safetensors")
    if family.tokenizer is not None:
        family.tokenizer().save(str(folder / "tokenizer.json"), pretty=False)


def make_variant(
    name: str,
    *,
    config: Json | None = None,
    tensors: StateDict | None = None,
    tokenizer_config: Json | None = None,
    without_mask: bool = False,
) -> Path:
    """A copy of bert with other config entries, tensors or tokenizer entries (None removes an entry)."""
    source, folder = MODELS / "bert", MODELS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file, changes in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        changed = read_json(source / file) | (changes or {})
        write_json(folder / file, {key: value for key, value in changed.items() if value is not None})
    text = (source / "tokenizer.json").read_text(encoding="utf-8")
    if without_mask:
        tokenizer = json.loads(text.replace("[MASK]", "[unused0]"))
        added = [token for token in tokenizer["added_tokens"] if token["content"] != "[unused0]"]
        text = json.dumps(tokenizer | {"added_tokens": added}, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    if tensors is not None:
        save_weights(tensors, folder / "model.safetensors")
    return folder


def legacy_names(bert: StateDict, generator: torch.Generator) -> StateDict:
    """As Google's first releases: gamma and beta, the bias twice, the pooler, the next-sentence head."""
    tensors = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for key, value in bert.items()
    }
    tensors["cls.predictions.decoder.bias"] = bert["cls.predictions.bias"]
    tensors["cls.seq_relationship.weight"] = torch.randn(2, 32, generator=generator)
    tensors["cls.seq_relationship.bias"] = torch.randn(2, generator=generator)
    return tensors | pooler("bert.pooler", generator)


def pooler(prefix: str, generator: torch.Generator) -> StateDict:
    return {
        f"{prefix}.dense.weight": torch.randn(32, 32, generator=generator),
        f"{prefix}.dense.bias": torch.randn(32, generator=generator),
    }


def make_shards(folder: Path, tensors: StateDict) -> None:
    names = sorted(tensors)
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    weight_map: dict[str, str] = {}
    for number, half in enumerate(halves, start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_weights({name: tensors[name] for name in half}, folder / file)
        weight_map |= dict.fromkeys(half, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": weight_map}
    )


def make_variants() -> None:
    generator = torch.Generator().manual_seed(100)
    bert = load_file(MODELS / "bert" / "model.safetensors")
    encoder = {key.removeprefix("bert."): value for key, value in bert.items() if key.startswith("bert.")}
    other_bias = {"cls.predictions.decoder.bias": torch.randn(320, generator=generator)}
    one_layer = {key: value for key, value in bert.items() if ".layer.1." not in key}

    make_variant("bert-legacy-names", tensors=legacy_names(bert, generator))
    make_variant(
        "bert-no-head", config={"architectures": ["BertModel"]}, tensors=encoder | pooler("pooler", generator)
    )
    make_variant("bert-two-biases", tensors=bert | other_bias)
    make_variant(
        "bert-no-mask-token",
        tensors=bert,
        tokenizer_config={"mask_token": None, "tokenizer_class": "PreTrainedTokenizerFast"},
        without_mask=True,
    )
    make_variant(
        "bert-mask-is-unk", tensors=bert, tokenizer_config={"mask_token": "[UNK]"}, without_mask=True
    )
    make_shards(make_variant("bert-sharded"), bert)
    torch.save(bert, make_variant("bert-pickle-only") / "pytorch_model.bin")
    make_variant("bert-no-weights")
    make_variant("bert-softcap", config={"final_logit_softcapping": 30.0}, tensors=bert)
    make_variant(
        "bert-decoder", config={"architectures": ["BertLMHeadModel"], "is_decoder": True}, tensors=bert
    )
    make_variant("bert-partial", tensors=one_layer)
    make_discriminator(generator)


def make_discriminator(generator: torch.Generator) -> None:
    """ELECTRA's other half: the same encoder, and a head that only tells replaced tokens from real ones."""
    source, folder = MODELS / "electra", MODELS / "electra-discriminator"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    write_json(
        folder / "config.json",
        read_json(source / "config.json") | {"architectures": ["ElectraForPreTraining"]},
    )
    encoder = load_file(source / "model.safetensors")
    head = {
        "discriminator_predictions.dense.weight": torch.randn(32, 32, generator=generator),
        "discriminator_predictions.dense.bias": torch.randn(32, generator=generator),
        "discriminator_predictions.dense_prediction.weight": torch.randn(1, 32, generator=generator),
        "discriminator_predictions.dense_prediction.bias": torch.randn(1, generator=generator),
    }
    kept = {key: value for key, value in encoder.items() if not key.startswith("generator_")}
    save_weights(kept | head, folder / "model.safetensors")


if __name__ == "__main__":
    for seed, (name, family) in enumerate(FAMILIES.items()):
        make_family(name, family, seed)
    make_variants()
