"""The native engine against its peers, one thread: `python benchmarks/bench_engine.py [--sections S ...]`.

Sections: `default` (the default model, BLiMP sentences and texts of about 64 tokens), `shapes` (BERT-base and
XLM-R's vocabulary, random weights), `workers` (two against one), `growth` (time against lines, length,
vocabulary), `gemm` (rates of matrix products by size). Peers run in the virtual environments of
benchmarks/peers.sh, and score the same texts in turn, in batches of equal lengths with the head at the
targets only. Every contestant scores all texts once before the first round. One whose scores differ from the
plain loop's by more than its bound gets no ratio, and the exit status is 1; one that cannot run is named with
the reason.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from engine_comparison import compare
from gemm_rates import Gemms, matrix_bench
from growth import Curve, over_models, over_texts, plot
from machine import banner, cpu_name, load_average
from random_model import save_random_model
from report import Report
from texts import BLIMP, INAUGURAL, read_pieces, read_sentences
from tokenizers import Tokenizer
from two_workers import worker_tables

from mlmfast import _core
from mlmfast.models import resolve

PIECE_TOKENS, LINE_TOKENS = 64, 16
SHAPES = {
    "BERT-base": {"vocab_size": 30_522, "num_layers": 12, "hidden_size": 768, "num_heads": 12},
    "XLM-R's vocabulary": {"vocab_size": 250_002, "num_layers": 6, "hidden_size": 384, "num_heads": 12},
}
NOT_PLOTTED = "- not plotted: a plot goes beside the file of --output"


@dataclass(frozen=True)
class Amount:
    """How much is scored."""

    rounds: int = 5
    num_sentences: int = 120
    num_pieces: int = 4
    num_shape_sentences: int = 20
    num_shape_pieces: int = 1
    most_layers: int = 12
    num_worker_pieces: int = 20
    """Of about a full batch each, so that two workers can share them evenly."""
    gemm_calls: int = 200
    own_gemms: bool = True
    lines: tuple[int, ...] = (25, 50, 100, 200)
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    vocabularies: tuple[int, ...] = (8_000, 32_000, 128_000, 250_000)


QUICK = Amount(
    rounds=2,
    num_sentences=8,
    num_pieces=1,
    num_shape_sentences=2,
    num_shape_pieces=0,
    most_layers=2,
    num_worker_pieces=2,
    gemm_calls=50,
    own_gemms=False,
    lines=(5, 10, 20),
    lengths=(8, 16, 32, 64),
    vocabularies=(8_000, 64_000),
)


def default(report: Report, options: argparse.Namespace, amount: Amount, scratch: Path) -> None:
    source = resolve(options.model)
    report.say(f"### {source.name}")
    texts = {
        f"BLiMP sentences (seed {options.seed})": sentences(options, amount.num_sentences),
        f"Texts of {PIECE_TOKENS} tokens ({options.long.name})": pieces(
            options, source.folder, amount.num_pieces
        ),
    }
    compare(
        report,
        source.folder,
        texts,
        rounds=amount.rounds,
        scratch=scratch,
        compiled=options.compiled,
        asked=options.model is None,
    )


def shapes(report: Report, options: argparse.Namespace, amount: Amount, scratch: Path) -> None:
    for name, full in SHAPES.items():
        shape = full | {"num_layers": min(full["num_layers"], amount.most_layers)}
        report.say(
            f"### {name}: {', '.join(f'{key} {n:,}' for key, n in shape.items())}; random float16 weights"
        )
        folder = save_random_model(scratch / name, **shape)
        texts = {f"{name}, BLiMP sentences": sentences(options, amount.num_shape_sentences)}
        if amount.num_shape_pieces:
            longer = pieces(options, folder, amount.num_shape_pieces)
            texts[f"{name}, texts of {PIECE_TOKENS} tokens"] = longer
        compare(
            report,
            folder,
            texts,
            rounds=amount.rounds,
            scratch=scratch,
            compiled=options.compiled,
            asked=False,
        )


def workers(report: Report, options: argparse.Namespace, amount: Amount, scratch: Path) -> None:
    folder = resolve(options.model).folder
    texts = pieces(options, folder, amount.num_worker_pieces)
    report.say(f"### Two workers against one: {len(texts)} texts of {PIECE_TOKENS} tokens")
    worker_tables(report, folder, texts, amount.rounds, amount.gemm_calls)


def growth(report: Report, options: argparse.Namespace, amount: Amount, scratch: Path) -> None:
    report.say("### How time grows: medians in seconds")
    folder = resolve(options.model).folder
    of_lines = {number: pieces(options, folder, number, LINE_TOKENS) for number in amount.lines}
    of_length = {length: pieces(options, folder, 1, length) for length in amount.lengths}
    texts = sentences(options, amount.num_shape_sentences)
    models = {
        size: save_random_model(scratch / f"vocabulary-{size}", vocab_size=size)
        for size in amount.vocabularies
    }
    curves = [
        over_texts(Curve(f"Lines of {LINE_TOKENS} tokens", "lines"), folder, of_lines, amount.rounds),
        over_texts(Curve("One text", "tokens of the text"), folder, of_length, amount.rounds),
        over_models(
            Curve(f"{len(texts)} BLiMP sentences, random weights", "vocabulary"), models, texts, amount.rounds
        ),
    ]
    for curve in curves:
        report.say(f"{curve.title}:\n\n{curve.table()}")
        report.disagreeing += [f"{name}, growth with {curve.x_label}" for name in sorted(curve.disagreeing)]
    report.say(plot(curves, report.output.with_suffix(".svg")) if report.output else NOT_PLOTTED)


def gemm(report: Report, options: argparse.Namespace, amount: Amount, scratch: Path) -> None:
    report.say("### Matrix products in one thread")
    with Gemms() as gemms:
        report.say(gemms.table())
    if amount.own_gemms:
        report.say(matrix_bench(_core.isa()))
    else:
        report.say("- our own products are left out by --quick")


SECTIONS = {section.__name__: section for section in (default, shapes, workers, growth, gemm)}


def sentences(options: argparse.Namespace, number: int) -> list[str]:
    return read_sentences(options.blimp, number, options.seed)


def pieces(
    options: argparse.Namespace, folder: Path, number: int, num_tokens: int = PIECE_TOKENS
) -> list[str]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return read_pieces(options.long, number, num_tokens, tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="2 rounds, few texts, few layers, --no-compiled")
    parser.add_argument(
        "--compiled",
        action=argparse.BooleanOptionalAction,
        help="let torch.compile take part, which takes minutes for each model",
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--num-sentences", type=int, help="of the default section")
    parser.add_argument("--num-pieces", type=int, help="of the default section")
    parser.add_argument("--model", help="folder or hub id; by default the embedded model")
    parser.add_argument("--blimp", type=Path, default=BLIMP)
    parser.add_argument("--long", type=Path, default=INAUGURAL)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of sentences")
    parser.add_argument("--output", type=Path, help="markdown file; the plot, an svg, goes beside it")
    options = parser.parse_args()
    if options.compiled is None:
        options.compiled = not options.quick
    given = {
        name: value
        for name in ("rounds", "num_sentences", "num_pieces")
        if (value := getattr(options, name)) is not None
    }
    amount = replace(QUICK if options.quick else Amount(), **given)

    report = Report(options.output)
    report.say(f"# The native engine and its peers, {cpu_name()}, one thread")
    report.say(f"`python benchmarks/bench_engine.py {shlex.join(sys.argv[1:])}`")
    report.say(f"{banner()}\n- instruction set of the native engine: {_core.isa()}")
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.sections:
            SECTIONS[name](report, options, amount, Path(scratch))
    if report.versions:
        report.say("\n".join(f"- {name}: {versions}" for name, versions in report.versions.items()))
    report.say(f"- load average at the end: {load_average()}")
    if report.disagreeing:
        raise SystemExit(f"scores disagree with the baseline's: {'; '.join(report.disagreeing)}")


if __name__ == "__main__":
    main()
