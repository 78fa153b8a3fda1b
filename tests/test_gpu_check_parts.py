"""What the parts of `make gpu-check` share: workers, batches, figures."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

if sys.platform != "linux":
    pytest.skip("triton is for Linux", allow_module_level=True)

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))
sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks" / "gpu_check"))

import cuda_tests
import device_processes
import engine_run
import kernel_work
import onnx_cuda
import packed_contestants
import packed_correctness
import packed_profile
from absent import AbsentError
from contestant_workers import ContestantWorkers
from executed_flops import BatchCounts, executed_flops, product_flops
from flops import EncoderSize
from kernel_compilation import all_variants
from kernel_spans import Span, busy_and_idle, durations, longest
from kernel_work import MODELS
from onnx_runtime import onnx_runtime
from packed_batches import groups, in_slots, masked_copies, padded_batches
from packed_contestants import GATHERED, ONNX, OURS, PADDED, Ours
from packed_correctness import FEW_MASKS
from packed_scores import log_probs
from packed_timings import aims, first_texts, summed_up, with_ratios
from score_differences import difference, rank_flips
from texts import BLIMP, read_sentences
from timing_cells import CELLS, DRY_SIZE, SIZES, Cell, Model, make_cell, single_token_words
from vocabularies import VOCABULARIES
from worker import LateError, Worker, WorkerError

from mlmfast.engines import Outputs
from mlmfast.engines.packed.devices import DeviceProcesses
from mlmfast.loading import open_model
from mlmfast.models.source import EMBEDDED_FOLDER
from mlmfast.types import RowBatch, TargetOutputs

CALLS = """
import os, time

def double(x):
    print("said in between")
    return 2 * x

def fail():
    raise ValueError("as it should")

def end():
    print("the last words", flush=True)
    os._exit(3)

def sleep():
    time.sleep(60)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    (tmp_path / "worker_calls.py").write_text(CALLS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker("worker_calls") as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Model(DRY_SIZE, 500).save(tmp_path_factory.mktemp("models"), "cpu")


def test_a_worker_outlives_calls_that_fail_end_it_or_are_late(worker: Worker) -> None:
    assert worker.ask("double", 60, x=2) == 4
    with pytest.raises(WorkerError, match="ValueError: as it should"):
        worker.ask("fail", 60)
    assert worker.ask("double", 60, x=3) == 6
    with pytest.raises(WorkerError, match=r"(?s)status 3: .*the last words"):
        worker.ask("end", 60)
    with pytest.raises(LateError, match="not finished after 0 seconds"):
        worker.ask("sleep", 0.1)
    assert worker.ask("double", 60, x=4) == 8


def test_who_is_late_is_left_out_of_the_rest_on_that_model(tmp_path: Path) -> None:
    with ContestantWorkers("cpu") as workers:
        for _ in range(2):
            found = workers.prepare([OURS], tmp_path, ["a"], 0)
            assert found == {OURS: {"error": "not finished after 0 seconds"}}


def test_what_the_gpu_is_asked_for_is_there() -> None:
    for dry in (True, False):
        cases = packed_correctness.cases(dry)
        assert all((Path(case.folder or EMBEDDED_FOLDER) / "config.json").exists() for case in cases)
    assert all(set(case.bounds) == {"float32", "bfloat16", "float16"} for case in cases)
    models = packed_correctness.random_models(dry=False)
    assert models[0].name == "BERT-base, vocabulary 30522"
    assert {(m.size, m.vocab_size) for m in models} == set(itertools.product(SIZES, VOCABULARIES))
    assert len(models) == len(SIZES) * len(VOCABULARIES)
    for num_sentences in (engine_run.NUM_SENTENCES, onnx_cuda.NUM_SENTENCES):
        assert len(read_sentences(BLIMP, num_sentences, seed=0)) == num_sentences


def test_models_of_random_weights_score_sentences_and_texts_of_every_length(tmp_path: Path) -> None:
    model = Model(DRY_SIZE, VOCABULARIES[0])
    case = packed_correctness.random_case(model, tmp_path, "cpu", dry=False)
    tokenizer = open_model(Path(case.folder or "")).tokenizer
    short, long = (tokenizer.encode(case.texts[m]).lengths for m in ("original", FEW_MASKS))
    assert len(short) == packed_correctness.NUM_SENTENCES_OF_RANDOM + 3
    for length, found in zip((13, 32, 64, 256), (*sorted(short[-3:]), *long), strict=True):
        assert abs(found - length) <= length / 4
    scores = log_probs(case.folder, case.texts, engine="native", precision="float32", device="cpu")
    assert [len(text) for text in scores[FEW_MASKS]] == list(long - 2)


def test_a_contestant_that_cannot_run_here_says_why(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for package in ("onnxscript", "onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
        found = packed_contestants.prepare(ONNX, str(folder), ["a"], "cpu")
        assert found.keys() == {"absent"}
        assert package in found["absent"]


def test_onnx_runtime_without_the_provider_is_absent() -> None:
    with pytest.raises(AbsentError, match=r"onnxruntime .* has no NONSENSEExecutionProvider, but .*CPU"):
        onnx_runtime("nonsense")


FAKE_NVCC = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo '#!/bin/sh
echo said by $(basename $0); case $0 in *rules*) exit 3;; esac' > "$2"
chmod +x "$2"
"""


@pytest.mark.parametrize("compiles", [True, False])
def test_programs_of_the_cuda_kernels(
    compiles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = (cuda_tests.ROOT / "csrc" / "cuda" / "tests").glob("*.cu")
    assert set(cuda_tests.TESTS) == {source.stem for source in sources}
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(FAKE_NVCC if compiles else "#!/bin/sh\necho no such header >&2; exit 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_tests, "find_nvcc", lambda: str(nvcc))
    monkeypatch.setattr(cuda_tests, "architecture", lambda: "sm_90")
    found = cuda_tests.run(dry=False, save=lambda found: None)
    assert found["head_test"] == ("said by head_test\n" if compiles else "no such header\n")
    failed = "3 of scoring_rules_test" if compiles else "1 of nvcc"
    assert found["error"] == f"scoring_rules_test: exit status {failed}"


def test_rank_flips_are_the_share_of_pairs_in_another_order() -> None:
    exact = np.array([1.0, 2.0, 3.0])
    assert rank_flips(exact, exact) == 0
    assert rank_flips(np.array([2.0, 1.0, 3.0]), exact) == pytest.approx(1 / 3)
    assert rank_flips(exact[::-1], exact) == 1
    assert rank_flips(np.array([1.0, 1.0, 3.0]), exact) == pytest.approx(1 / 6)
    assert rank_flips(exact[:1], exact[:1]) == 0


@pytest.mark.parametrize("value", [-1.5, float("nan")])
def test_scores_beyond_the_bound_are_an_error(value: float) -> None:
    exact = {"original": [[-1.0, -2.0], [-3.0]]}
    assert "error" not in packed_correctness.compared(exact, exact, 1e-4)
    assert "error" in packed_correctness.compared({"original": [[value, -2.0], [-3.0]]}, exact, 0.1)


def test_time_between_kernels() -> None:
    spans = [Span("a", 0, 4), Span("b", 1, 2), Span("a", 3, 6), Span("c", 10, 11)]
    assert busy_and_idle(spans) == (7, 4)
    assert busy_and_idle(spans[:1]) == (4, 0)
    assert durations(spans) == {"a": [4, 3], "b": [1], "c": [1]}
    assert longest([1, 10, 9, 8, 11]) == 10


def test_products_left_of_a_batch_are_those_that_torch_multiplies(folder: Path) -> None:
    """Beside the decoder's, which a kernel of ours computes on a GPU."""
    shape = packed_profile.DRY_SHAPE
    step = packed_profile.make_step(folder, shape, "cpu")
    with FlopCounterMode(display=False) as counter:
        step()
    counts = counter.get_flop_counts()["Global"]
    products = counts[torch.ops.aten.addmm] + counts.get(torch.ops.aten.mm, 0)
    decoder = 2 * shape.rows * shape.hidden_size * shape.vocab_size
    size, batch = packed_profile.size_and_counts(shape, packed_profile.DRY_LAYERS)
    assert products - decoder == product_flops(size, batch)
    assert counter.get_total_flops() == executed_flops(size, batch)


def test_what_is_executed_is_counted_in_batches(folder: Path) -> None:
    """By hand: texts of 3 and 5 tokens, each of which but the special ones is masked."""
    contestant = Ours()
    contestant.load(str(folder), "cpu")
    words = single_token_words(folder)
    contestant.prepare([words[0], " ".join(words[1:4])])
    batches = [BatchCounts.of(batch) for batch, _ in contestant._batches]
    totals = {name: sum(getattr(batch, name) for batch in batches) for name in vars(batches[0])}
    assert len(batches) == 1
    assert totals == {"pool": 8 + 4, "tokens": 18, "places": 4, "pairs": 9 + 75, "place_pairs": 18}
    assert contestant.executed_flops() == executed_flops(EncoderSize.of(folder), batches[0])


def test_bounds_are_those_of_the_kernels_they_are_named_after() -> None:
    variants = {
        variant.name: variant.kernel.__name__
        for dtype in (torch.bfloat16, torch.float32)
        for variant in all_variants(dtype, (9, 0))
    }
    names = packed_profile.variant_names(packed_profile.SHAPE)
    assert {kernel: variants[name] for kernel, name in names.items()} == {name: name for name in names}
    bounds = packed_profile.bounds_of(packed_profile.SHAPE, dry=True)
    assert bounds.keys() == names.keys()
    assert all(microseconds > 0 for microseconds, _ in bounds.values())


@pytest.mark.parametrize("wrong", [None, "order", "value"])
def test_processes_are_held_to_the_results_of_one(
    wrong: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least four batches, so that both processes get some."""
    task = device_processes.DRY_TASK
    cell = make_cell(folder, task.length, task.row_tokens)
    scores: list[TargetOutputs] = []

    class Processes(DeviceProcesses):
        def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
            found = super().score(batch, outputs)
            scores.append(found)
            if wrong == "order":
                return replace(found, log_prob=found.log_prob[::-1])
            return replace(found, log_prob=found.log_prob + np.float32(0.001)) if wrong else found

    monkeypatch.setattr(device_processes, "DeviceProcesses", Processes)
    found = device_processes.compared(open_model(folder), cell, ("cpu", "cpu"), task)
    assert len(scores) >= 4 * (1 + task.rounds)
    assert found["texts"] == len(cell.texts)
    assert found["one_process"]["tokens_per_second"] > 0
    assert found["processes"]["tokens_per_second"] > 0
    assert ("error" in found) == (wrong is not None)


@pytest.mark.parametrize(("num_gpus", "devices"), [(1, "cuda:0 cuda:0"), (3, "cuda:0 cuda:1 cuda:2")])
def test_every_gpu_has_a_process_and_the_only_one_two(
    num_gpus: int, devices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    assert device_processes.visible_gpus() == tuple(devices.split())


def test_texts_have_the_tokens_asked_for(folder: Path) -> None:
    cell = make_cell(folder, 12, 1000)
    assert 1000 <= cell.row_tokens < 1000 + 15 * 13
    assert set(cell.lengths) <= set(range(9, 16))
    assert cell.num_scored == sum(cell.lengths) - 2 * len(cell.lengths)
    assert len(set(cell.texts)) == len(cell.texts)
    lengths = [row.size for row, _, _ in masked_copies(str(folder), cell.texts)]
    assert sum(lengths) == cell.row_tokens
    assert len(first_texts(Cell(["a"] * 300, [3] * 300))) == 256
    assert first_texts(Cell(["a", "b"], [5, 5])) == ["a", "b"]


def test_sizes_are_those_of_the_published_models() -> None:
    """Hidden size and heads of those that are timed, and of those that bounds are given of."""
    assert {size.name: (size.num_layers, size.hidden_size, size.num_heads) for size in SIZES} == {
        "6x384": (6, 384, 12),
        "BERT-base": (12, 768, 12),
        "BERT-large": (24, 1024, 16),
    }
    for size in SIZES:
        shape = MODELS[size.name]
        assert (shape.hidden_size, shape.num_heads) == (size.hidden_size, size.num_heads)
        assert shape.intermediate_size == 4 * size.hidden_size
    assert VOCABULARIES == kernel_work.VOCABULARIES


def test_copies_in_padded_batches(folder: Path) -> None:
    texts = make_cell(folder, 8, 300).texts
    copies = list(masked_copies(str(folder), texts))
    found = []
    for input_ids, mask, positions, target_ids in padded_batches(iter(copies), max_tokens=30):
        assert input_ids.size <= 30 or len(input_ids) == 1
        assert mask[:, 0].all()
        assert mask.sum(1).max() == input_ids.shape[1]
        found += [
            (row[kept > 0].tolist(), position, target)
            for row, kept, position, target in zip(input_ids, mask, positions, target_ids, strict=True)
        ]
    assert found == [(row.tolist(), position, target) for row, position, target in copies]
    assert [len(group) for group in groups(iter(copies), max_tokens=1)] == [1] * len(copies)
    mask_id = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]["[MASK]"]
    assert all(row[position] == mask_id for row, position, _ in found)


def test_scores_go_where_their_slots_say() -> None:
    found = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
    assert in_slots(found).tolist() == [1, 2, 3]
    assert in_slots(found, np.array([2, 0, 1])).tolist() == [2, 3, 1]


def test_only_who_agrees_has_a_ratio() -> None:
    figures = {
        OURS: {"seconds": [1.0], "agrees": True},
        PADDED: {"seconds": [5.0], "agrees": True},
        GATHERED: {"seconds": [3.0], "agrees": False},
        "absent": {"absent": "why"},
    }
    found = with_ratios(figures)
    assert [found[name].get("times_as_long") for name in figures] == [1.0, 5.0, None, None]
    assert summed_up(found).split("; ")[1:] == [f"{PADDED} 5.0", f"{GATHERED} disagrees", "absent absent"]
    ours_wrong = {OURS: {"seconds": [1.0], "agrees": False}, PADDED: {"seconds": [5.0], "agrees": True}}
    assert all("times_as_long" not in row for row in with_ratios(ours_wrong).values())


def test_a_difference_is_a_share_of_the_spread() -> None:
    assert difference([1.0, 3.0], [1.0, 3.0]) == 0
    assert difference([2.0, 4.0], [1.0, 3.0]) == 1
    assert np.isnan(difference([np.nan, 4.0], [1.0, 3.0]))


def every_cell() -> dict[str, dict[str, dict[str, object]]]:
    """That is timed, with the same figures."""
    return {
        cell: {
            OURS: {"mfu_executed": 0.6, "agrees": True},
            PADDED: {"times_as_long": 6.0},
            GATHERED: {"times_as_long": 2.0},
        }
        for cell in CELLS
    }


def test_aims_are_met_where_every_cell_meets_them() -> None:
    cells = every_cell()
    assert list(aims(cells).values()) == [
        "met: 6 to 6 in 24 of 24 cells",
        "missed: 2 to 2 in 24 of 24 cells",
        "met: 0.6 to 0.6 in 6 of 6 cells",
    ]
    cells["BERT-base, vocabulary 30522, 13 tokens"][OURS]["mfu_executed"] = 0.1  # not among the six
    cells["6x384, vocabulary 30522, 13 tokens"][PADDED]["times_as_long"] = 4.0
    assert list(aims(cells).values())[::2] == [
        "missed: 4 to 6 in 24 of 24 cells",
        "met: 0.6 to 0.6 in 6 of 6 cells",
    ]
    cells["BERT-base, vocabulary 250002, 256 tokens"][OURS]["mfu_executed"] = 0.4
    assert list(aims(cells).values())[2] == "missed: 0.4 to 0.6 in 6 of 6 cells"


def test_aims_say_in_how_many_cells_they_were_measured() -> None:
    """Cells not reached, a peer that failed, and ours where it disagrees have no figures."""
    cells = every_cell()
    del cells["BERT-base, vocabulary 30522, 32 tokens"]
    cells["BERT-large, vocabulary 30522, 32 tokens"][PADDED] = {"error": "out of memory"}
    cells["BERT-base, vocabulary 30522, 64 tokens"] = {OURS: {}}
    cells["BERT-base, vocabulary 30522, 256 tokens"][OURS]["agrees"] = False
    assert list(aims(cells).values()) == [
        "met as far as measured: 6 to 6 in 21 of 24 cells",
        "missed: 2 to 2 in 22 of 24 cells",
        "met as far as measured: 0.6 to 0.6 in 3 of 6 cells",
    ]
    assert set(aims({}).values()) == {"not measured: 0 of 24 cells", "not measured: 0 of 6 cells"}
