"""bert-gen's published self-BLEU and unique n-grams (Wang & Cho 2019), computed again from its samples.

`python benchmarks/bert_gen_figures.py FOLDER [--vocabulary FILE] [--wikitext FILE] [--books FILE]`

FOLDER: `data` of nyu-dl/bert-gen. The published rows of BERT are of word pieces between [CLS] and [SEP]; the
samples are published as words. With BERT's vocabulary (vocab.txt or tokenizer.json of bert-base-uncased) the
words are cut into pieces again, the longest first, as BERT's tokenizer does; a sample had 40. --wikitext,
--books: `wiki103.5k.txt` and `tbc.5k.txt` of the same folder, for what is relative to references.

The published values come from two places. The authors' notebook (bert-babble.ipynb, commit c4e1b67) has
printed, for BERT base, self-BLEU and all that is relative to references. The others, all of GPT and of BERT
large and the unique n-grams of BERT base, it has not printed: they are of the paper's table, written down
from memory and not held against its text since.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit

from mlmfast.evaluation import Overlap

PIECES = 40
"""That a sample of BERT had, without [CLS] and [SEP]."""
UNKNOWN = "[UNK]"
NOTEBOOK, PAPER = "notebook", "paper, from memory"
"""Where a published value comes from."""
Text = list[str]


@dataclass(frozen=True)
class Model:
    """A row of the paper's tables; figures in percent.

    self_bleu_source: where self_bleu comes from. unique: n-grams of order 2 to 4, from the paper. against:
    corpus BLEU and unique n-grams relative to a reference, of order 1 to 4, from the notebook.
    """

    name: str
    file: str
    self_bleu: float
    unique: tuple[float, float, float]
    has_pieces: bool
    self_bleu_source: str = PAPER
    against: dict[str, tuple[float, ...]] = field(default_factory=dict)


MODELS = (
    Model("GPT", "gpt-len40-topk100-temp1.000.txt", 40.02, (31.13, 67.01, 87.28), has_pieces=False),
    Model(
        "BERT base",
        "bert-base-uncased-len40-burnin250-topk100-temp1.000.txt",
        10.06,
        (60.76, 91.76, 98.14),
        has_pieces=True,
        self_bleu_source=NOTEBOOK,
        against={
            "WikiText-103": (7.80, 8.01, 57.90, 91.72, 98.55),
            "Toronto Book Corpus": (7.06, 10.55, 60.94, 92.04, 98.56),
        },
    ),
    Model(
        "BERT large",
        "bert-large-uncased-len40-burnin250-topk100-temp1.000.txt",
        9.43,
        (63.15, 92.38, 98.01),
        has_pieces=True,
    ),
)
REMARK_ON_SOURCES = f"""
`{NOTEBOOK}`: printed in the authors' bert-babble.ipynb (nyu-dl/bert-gen, commit c4e1b67). That has no printed
figure of GPT or BERT large, nor of the unique n-grams of BERT base among its own samples. `{PAPER}`: of
the table of Wang & Cho 2019, written down from memory and not held against its text since."""
REPLACED = {
    "WikiText-103": {"@@unknown@@": UNKNOWN},
    "Toronto Book Corpus": {"``": '"', "''": '"'},
}


def read_texts(path: Path) -> list[Text]:
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()]


def read_references(path: Path, name: str) -> list[Text]:
    """As the notebook prepares them: lower case, then some tokens replaced."""
    replaced = REPLACED[name]
    return [[replaced.get(word, word) for word in map(str.lower, text)] for text in read_texts(path)]


def piece_cutter(path: Path) -> Callable[[Text], Text]:
    """Cuts each word into the longest pieces of a vocabulary, from its left."""
    if path.suffix == ".json":
        vocabulary = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
    else:
        vocabulary = {
            piece: index for index, piece in enumerate(path.read_text("utf-8").rstrip("\n").split("\n"))
        }
    cutter = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=1000))
    cutter.pre_tokenizer = WhitespaceSplit()
    return lambda words: list(cutter.encode(" ".join(words)).tokens)


def row(name: str, source: str, published: float, found: float | None) -> str:
    if found is None:
        raise SystemExit(f"{name}: the samples have no n-grams of this order")
    verdict = "yes" if f"{found:.2f}" == f"{published:.2f}" else f"{found - published:+.4f}"
    return f"| {name} | {source} | {published:.2f} | {found:.4f} | {verdict} |"


def rows_of(model: Model, label: str, overlap: Overlap) -> Iterator[str]:
    bleu = overlap.self_bleu()
    found = None if bleu is None else bleu.score
    yield row(f"{label}, self-BLEU", model.self_bleu_source, model.self_bleu, found)
    for order, published in enumerate(model.unique, 2):
        found = overlap.unique_in_samples()[order - 1]
        yield row(f"{label}, unique {order}-grams", PAPER, published, found)


def reference_rows(model: Model, label: str, name: str, overlap: Overlap) -> Iterator[str]:
    bleu, *unique = model.against[name]
    yield row(f"{label}, corpus BLEU, {name}", NOTEBOOK, bleu, overlap.corpus_bleu().score)
    for order, published in enumerate(unique, 1):
        found = overlap.unique_against_references()[order - 1]
        yield row(f"{label}, unique {order}-grams, {name}", NOTEBOOK, published, found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=Path)
    parser.add_argument("--wikitext", type=Path)
    parser.add_argument("--books", type=Path)
    options = parser.parse_args()
    cut = None if options.vocabulary is None else piece_cutter(options.vocabulary)
    files = {"WikiText-103": options.wikitext, "Toronto Book Corpus": options.books}
    references = {name: read_references(path, name) for name, path in files.items() if path is not None}

    print("# Published figures of bert-gen, computed again by `benchmarks/bert_gen_figures.py`\n")
    print("| figure | published in | published | computed | same digits |")
    print("|---|---|---:|---:|---|")
    remarks = []
    for model in MODELS:
        texts = read_texts(options.folder / model.file)
        label = f"{model.name}, words"
        if model.has_pieces and cut is not None:
            texts = [cut(text) for text in texts]
            label = f"{model.name}, pieces"
            merged = sum(PIECES - len(text) for text in texts)
            num_short = sum(len(text) != PIECES for text in texts)
            remarks.append(
                f"{model.name}: cut again, {num_short:,} of {len(texts):,} samples do not have the {PIECES} "
                f"pieces they were made of; {merged:,} pieces in all are missing."
            )
        if model.has_pieces:
            texts = [["[CLS]", *text, "[SEP]"] for text in texts]
        print(*rows_of(model, label, Overlap(texts)), sep="\n")
        for name in [name for name in model.against if name in references]:
            print(*reference_rows(model, label, name, Overlap(texts, references[name])), sep="\n")
    print("", *remarks, REMARK_ON_SOURCES, sep="\n")


if __name__ == "__main__":
    main()
