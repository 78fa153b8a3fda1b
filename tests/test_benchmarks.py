"""What the benchmarks count, compare and print; no times."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from contestant_batches import Batch, batches, gathered_scorer
from engine_field import BF16, CTRANSLATE2, ENTRIES, GRAPH, HERE, OURS_BF16, OURS_EXACT, contestants
from flops import EncoderSize
from goals import Goal, gemm_line, rank_correlation
from growth import Curve
from rounds import EXACT, Bound, Contestant, Field, Steadiness, Times, table
from texts import INAUGURAL, read_pieces

from mlmfast.models import resolve

FOLDER = resolve(None).folder
LOOP, FLOAT32, BF16X3, BFLOAT16 = (
    "plain loop, float32",
    "mlmfast native, float32",
    "mlmfast native, bf16x3",
    "mlmfast native, bfloat16",
)


def times(seconds: float, log_probs: list[list[float]]) -> Times:
    return Times(seconds=[seconds], cpu_seconds=[seconds], log_probs=log_probs)


@pytest.mark.parametrize(
    ("rates", "kept", "counts"),
    [
        ([100, 100], 1, (1, 0, 0)),
        ([100, 50, 90, 80], 3, (1, 2, 0)),  # neither before nor after a turn
        ([100, 50, 50, 50, 50], 4, (1, 3, 1)),
        ([60, 100, 99], 2, (1, 1, 0)),  # the best is seen late
    ],
)
def test_turns_are_taken_again_until_the_machine_is_steady(
    rates: list[float], kept: int, counts: tuple[int, int, int]
) -> None:
    measured, taken = iter(rates), iter(range(1, 9))
    steadiness = Steadiness(lambda: next(measured))
    assert steadiness.turn(lambda: {"turn": next(taken)}) == {"turn": kept}
    assert (steadiness.num_turns, steadiness.num_repeated, steadiness.num_unsteady) == counts
    assert next(measured, None) is None


def row_of(lines: str, name: str) -> list[str]:
    (row,) = [line for line in lines.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_flops_are_those_that_torch_counts(tmp_path: Path) -> None:
    import torch
    from contestant_torch import GatheredLogProbs
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=40,
        attn_implementation="eager",
    )
    config.save_pretrained(tmp_path)
    module = GatheredLogProbs(BertForMaskedLM(config)).eval()
    num_rows, length = 5, 7
    index = torch.arange(num_rows)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        module(torch.ones(num_rows, length, dtype=torch.int64), index, index)
    size = EncoderSize.of(tmp_path)
    assert size.row_flops(length) * num_rows == counter.get_total_flops()
    assert size.text_flops([length - 2, 0]) == (length - 2) * size.row_flops(length)


def test_flops_of_another_kind_of_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert"}))
    with pytest.raises(SystemExit, match="albert"):
        EncoderSize.of(tmp_path)


@pytest.mark.parametrize(
    ("scores", "bound", "agrees"),
    [
        ([[-1.0, -2.0], [-3.0]], EXACT, True),
        ([[-1.0, -2.00005], [-3.0]], EXACT, True),
        ([[-1.0, -2.0002], [-3.0]], EXACT, False),
        ([[-1.0, -2.0], [math.nan]], EXACT, False),
        ([[-1.0, -2.02], [-3.0]], BF16, True),
        ([[-1.0, -2.2], [-3.0]], BF16, False),
        ([[-1.0, -2.00005], [-3.0]], BF16, False),  # so near that it is no bfloat16
        ([[-1.06, -2.06], [-3.0]], Bound(per_token=0.1, per_text=0.1), False),
    ],
)
def test_a_contestant_that_disagrees_gets_no_ratio(
    scores: list[list[float]], bound: Bound, agrees: bool
) -> None:
    found = {"loop": times(2.0, [[-1.0, -2.0], [-3.0]]), "other": times(1.0, scores)}
    lines, disagreeing = table(found, {"loop": EXACT, "other": bound})
    assert disagreeing == ([] if agrees else ["other"])
    assert row_of(lines, "other")[4:6] == (["2.00", "2.00"] if agrees else ["disagrees", "disagrees"])


def test_another_number_of_tokens_is_nothing_to_compare() -> None:
    found = {"loop": times(2.0, [[-1.0, -2.0]]), "other": times(1.0, [[-1.0]])}
    with pytest.raises(SystemExit, match="different numbers of tokens"):
        table(found, {"loop": EXACT, "other": EXACT})


def test_the_table_says_why_a_contestant_is_missing_and_adds_columns() -> None:
    found = {"loop": times(2.0, [[-1.0]]), "other": Times(unavailable="no such precision")}
    lines, disagreeing = table(found, {"loop": EXACT, "other": EXACT}, rates={"half": lambda s: f"{s / 2}"})
    assert row_of(lines, "other")[1] == "not available: no such precision"
    assert row_of(lines, "contestant")[-1] == "half"
    assert row_of(lines, "loop")[-1] == "1.0"
    assert {line.count("|") for line in lines.splitlines()} == {11}
    assert disagreeing == []


def test_without_its_baseline_there_is_no_table() -> None:
    with pytest.raises(SystemExit, match="no model"):
        table({"loop": Times(unavailable="no model")}, {"loop": EXACT})


def test_what_is_known_to_be_unavailable_is_not_started(tmp_path: Path) -> None:
    missing = tmp_path / ".venv-none" / "bin" / "python"
    entrants = [
        Contestant("a", missing, [], EXACT),
        Contestant("b", HERE, [], EXACT, unavailable="known beforehand"),
    ]
    with Field(entrants) as field:
        found = field.interleave(["text"], 1, warm_up=1)
    assert ".venv-none is missing" in str(found["a"].unavailable)
    assert found["b"].unavailable == "known beforehand"


def test_every_entry_is_entered_and_what_was_not_asked_for_says_so() -> None:
    field = contestants(FOLDER, entries=ENTRIES, graph=None, compiled=False)
    assert [contestant.name for contestant in field] == [entry.name for entry in ENTRIES]
    for contestant, entry in zip(field, ENTRIES, strict=True):
        assert (contestant.unavailable is not None) == (
            entry.compiled or (entry.needs_graph and GRAPH.exists())
        )
    assert {entry.python for entry in ENTRIES} == {HERE, GRAPH, CTRANSLATE2}


def test_batches_hold_each_masked_copy_once_and_no_padding() -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    texts = ["the cat sat", "", "a", "the dog ran", "the cat sat on the mat"]
    encoded = tokenizer.encode_batch(texts)
    mask_id = tokenizer.token_to_id("[MASK]")
    found = list(batches(encoded, mask_id, max_batch_tokens=10))
    assert all(b.input_ids.size <= 10 for b in found)
    slots = np.concatenate([b.slots for b in found])
    targets = np.concatenate([b.target_ids for b in found])
    expected = [i for text in encoded for i in text.ids[1:-1]]
    assert targets[np.argsort(slots)].tolist() == expected
    assert sorted(slots) == list(range(len(expected)))
    for batch in found:
        rows = np.arange(len(batch.input_ids))
        assert ((batch.input_ids == mask_id).sum(axis=1) == 1).all()
        assert (batch.input_ids[rows, batch.positions] == mask_id).all()


def test_gathered_scores_come_back_in_the_order_of_the_texts() -> None:
    def forward(batch: Batch) -> np.ndarray:
        return -batch.target_ids.astype(np.float64)

    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    texts = ["the cat sat on the mat", "", "a cat"]
    score = gathered_scorer(str(FOLDER), forward, max_batch_tokens=16)
    assert score(texts) == [[-i for i in tokenizer.encode(text).ids[1:-1]] for text in texts]
    assert score([]) == []


def test_goals_compare_the_fastest_that_agree() -> None:
    agreeing = {
        LOOP: times(8.0, [[-1.0]]),
        "OpenVINO, float32": times(4.0, [[-1.0]]),
        "ONNX Runtime, float32": times(3.0, [[-1.0]]),
        FLOAT32: times(2.0, [[-1.0]]),
        BF16X3: times(1.0, [[-1.0]]),
    }
    line = Goal(OURS_EXACT, "float32 peers", 3.0).line(agreeing)
    assert BF16X3 in line
    assert "ONNX Runtime, float32): 3.00x" in line
    assert line.endswith("goal 3x: met")
    assert Goal(OURS_EXACT, "plain loop", 9.0).line(agreeing).endswith("goal 9x: missed")
    assert "goal" not in Goal(OURS_EXACT, "plain loop").line(agreeing)
    assert "not compared, no contestant of mlmfast bfloat16" in Goal(OURS_BF16, OURS_EXACT).line(agreeing)
    assert "not compared" in gemm_line(agreeing, 10**9, 1.0, asked=True)
    agreeing[BFLOAT16] = times(0.5, [[-1.0]])
    assert "50% of the best bfloat16 GEMM's 400; goal 50%: met" in gemm_line(
        agreeing, 10**11, 400.0, asked=True
    )


def test_rank_correlation() -> None:
    assert rank_correlation([1.0, 2.0, 3.0], [-5.0, 0.0, 50.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert math.isnan(rank_correlation([1.0], [1.0]))


def test_curves_know_their_exponent_and_who_disagrees() -> None:
    curve = Curve("title", "lines")
    for x in (10, 20, 40):
        curve.add(
            x,
            {
                FLOAT32: times(0.1 * x, [[-1.0]]),
                BF16X3: times(0.01 * x**2, [[-1.0 if x < 40 else -2.0]]),
                BFLOAT16: Times(unavailable="no reason"),
            },
        )
    assert curve.exponent(FLOAT32) == pytest.approx(1.0)
    assert curve.exponent(BF16X3) == pytest.approx(2.0)
    assert curve.disagreeing == {BF16X3}
    lines = curve.table()
    assert "| 40 | 4.000 |" in lines
    assert f"{BF16X3}: disagrees" in lines
    assert f"{BFLOAT16}: not available: no reason" in lines


def test_pieces_are_as_long_as_asked() -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    pieces = read_pieces(INAUGURAL, 20, 64, tokenizer)
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(pieces)]
    assert max(lengths) <= 64
    assert min(lengths) > 56
    assert (
        INAUGURAL.read_text(encoding="utf-8").split()[: len(" ".join(pieces).split())]
        == " ".join(pieces).split()
    )
    with pytest.raises(SystemExit, match="take fewer"):
        read_pieces(INAUGURAL, 10**6, 64, tokenizer)
