"""linear_score: scores of one, several and ragged targets, and what else it gives of a row."""

from __future__ import annotations

import pytest
import torch
from rule_problems import DEVICE, KERNEL_RULES, make_problem, rule_id
from score_problems import (
    LOG,
    NAMES,
    NO_TOPK,
    available,
    every_impl,
    every_impl_of_all_rules,
    everything,
    log_probs_of,
    score,
)
from tolerances import BF16X3, FLOAT32

from mlmfast.functional import ScoringRule, linear_scoring_rule_loss
from mlmfast.kernels import score_chunked

CASES = [
    (impl, dtype)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    for impl in available(LOG, dtype=dtype)
]


def tolerance_of(impl: str) -> float:
    return (BF16X3 if impl == "cpu" else FLOAT32).loss


@pytest.mark.parametrize(("impl", "dtype"), CASES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("vocab_size", [1, 2, 251, 30522])
def test_everything_of_a_row(impl: str, dtype: torch.dtype, bias: bool, vocab_size: int) -> None:
    problem = make_problem(vocab_size, 64, 6, dtype=dtype, bias=bias, num_ignored=0)
    k = min(3, vocab_size)
    found = score(problem, problem.target, **everything(impl, k), impl=impl)
    log_probs = log_probs_of(problem)
    of_target = log_probs.gather(1, problem.target[:, None])
    top = log_probs.topk(k)
    wanted = {
        "scores": of_target.T,
        "lse": (problem.input.double() @ problem.weight.double().T
                + (0 if problem.bias is None else problem.bias.double())).logsumexp(-1),
        "entropy": torch.special.entr(log_probs.exp()).sum(-1),
    }  # fmt: skip
    if impl not in NO_TOPK:
        wanted["top_log_probs"] = top.values
        assert torch.equal(found.top_ids, top.indices)
    result = torch.float64 if dtype == torch.float64 else torch.float32
    for name, values in wanted.items():
        value = getattr(found, name)
        assert value.dtype == result
        torch.testing.assert_close(value.double(), values, rtol=1e-5, atol=tolerance_of(impl), msg=name)
    rounding = tolerance_of(impl)
    lowest, highest = ((log_probs > of_target + shift).sum(-1) for shift in (rounding, -rounding))
    assert ((lowest <= found.rank) & (found.rank <= highest)).all()
    assert (highest - lowest).max() < 5 + vocab_size / 1000


@pytest.mark.parametrize(
    ("impl", "rule"),
    [(impl, rule) for rule in KERNEL_RULES for impl in available(rule)],
    ids=lambda x: x if isinstance(x, str) else rule_id(x),
)
def test_scores_are_negative_losses(impl: str, rule: ScoringRule) -> None:
    problem = make_problem(251, 64, 6, num_ignored=0)
    losses = linear_scoring_rule_loss(
        problem.input,
        problem.weight,
        problem.target,
        linear_bias=problem.bias,
        rule=rule.name,
        smoothing=rule.smoothing,
        masked_log=rule.masked_log,
        reduction="none",
        impl="reference",
    )
    found = score(problem, problem.target, rules=[rule], impl=impl)
    torch.testing.assert_close(found.scores, -losses[None], rtol=1e-5, atol=tolerance_of(impl))


@every_impl
def test_only_what_is_asked_for(impl: str) -> None:
    problem = make_problem(251, 64, num_ignored=0)
    for option, value in everything(impl).items():
        name, options = option.removeprefix("return_").replace("topk", "top_ids"), {option: value}
        found = score(problem, problem.target, **options, impl=impl)._asdict()
        given = {field for field, value in found.items() if value is not None}
        assert given == {"scores", name} | ({"top_log_probs"} if name == "top_ids" else set())


@every_impl_of_all_rules
def test_several_targets_of_a_row(impl: str) -> None:
    problem = make_problem(251, 64, 6, num_ignored=0)
    target = torch.randint(251, (6, 4), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    found = score(problem, target, rules=NAMES, return_rank=True, impl=impl)
    assert found.scores.shape == (3, 6, 4)
    for column in range(4):
        alone = score(problem, target[:, column], rules=NAMES, return_rank=True, impl=impl)
        assert torch.equal(found.scores[..., column], alone.scores)
        assert torch.equal(found.rank[:, column], alone.rank)


RAGGED = [[3], [], [7, 7, 250], [0, 9], [], []]


@every_impl_of_all_rules
def test_ragged_targets(impl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a target among them; in one chunk, and in chunks of a row."""
    problem = make_problem(251, 64, 6, num_ignored=0)
    ids = torch.tensor([target for row in RAGGED for target in row], device=DEVICE)
    offsets = torch.tensor([0, 1, 1, 4, 6, 6, 6], device=DEVICE)
    rows = torch.tensor([0, 2, 2, 2, 3, 3], device=DEVICE)
    log_probs = log_probs_of(problem)
    for chunk_bytes in (score_chunked.CHUNK_BYTES, 1):
        for name in ("CHUNK_BYTES", "CUDA_CHUNK_BYTES"):
            monkeypatch.setattr(score_chunked, name, chunk_bytes)
        found = score(problem, (ids, offsets), rules=NAMES, **everything(impl), impl=impl)
        assert found.scores.shape == (3, 6)
        assert found.lse.shape == found.entropy.shape == (6,)
        assert impl in NO_TOPK or found.top_ids.shape == (6, 3)
        torch.testing.assert_close(
            found.scores[0].double(), log_probs[rows, ids], rtol=1e-5, atol=tolerance_of(impl)
        )
        for place, row in enumerate(rows.tolist()):
            alone = score(problem, ids[place].expand(6), rules=NAMES, return_rank=True, impl=impl)
            torch.testing.assert_close(found.scores[:, place], alone.scores[:, row], rtol=1e-5, atol=1e-6)
            assert found.rank[place] == alone.rank[row]


@every_impl_of_all_rules
@pytest.mark.parametrize("num_rows", [0, 1])
def test_few_rows_and_no_targets(impl: str, num_rows: int) -> None:
    problem = make_problem(251, 64, num_rows, num_ignored=0)
    found = score(problem, problem.target, rules=NAMES, **everything(impl), impl=impl)
    assert found.scores.shape == (3, num_rows)
    nothing = (problem.target[:0], torch.zeros(num_rows + 1, dtype=torch.int64, device=DEVICE))
    found = score(problem, nothing, rules=NAMES, **everything(impl), impl=impl)
    assert found.scores.shape == (3, 0)
    assert found.rank.shape == (0,)
    assert impl in NO_TOPK or found.top_log_probs.shape == (num_rows, 3)


@every_impl
def test_rows_and_leading_dimensions(impl: str) -> None:
    problem = make_problem(251, 64, 6, num_ignored=0)
    flat = score(problem, problem.target, **everything(impl), impl=impl)
    rows = torch.tensor([4, 0, 4], device=DEVICE)
    gathered = score(problem, problem.target[rows], rows=rows, **everything(impl), impl=impl)
    torch.testing.assert_close(gathered.scores, flat.scores[:, rows])
    assert torch.equal(gathered.rank, flat.rank[rows])
    problem.input, target = problem.input.reshape(2, 3, 64), problem.target.reshape(2, 3)
    found = score(problem, target, **everything(impl), impl=impl)
    for name, value in found._asdict().items():
        wanted = getattr(flat, name)
        if wanted is None:
            assert value is None
            continue
        shape = (1, 2, 3) if name == "scores" else (2, 3, *wanted.shape[1:])
        assert torch.equal(value, wanted.reshape(shape)), name


@pytest.mark.parametrize("impl", [impl for impl in available(LOG) if impl != "reference"])
def test_near_certainty(impl: str) -> None:
    """Log-probabilities keep their digits, and but for the core's the entropy."""
    problem = make_problem(5, 1, 1, num_ignored=0)
    problem.input = torch.ones_like(problem.input)
    logits = torch.tensor([-1.0, 26.0, 0.5, -40.0, -2.0], device=DEVICE)
    problem.weight, problem.bias = logits[:, None], None
    asked = everything(impl, 1)
    found = score(problem, torch.tensor([1], device=DEVICE), **asked, impl=impl)
    log_probs = logits.double() - logits.double().logsumexp(0)
    rest = torch.exp(logits[logits < 26].double() - 26).sum()
    wanted = -torch.log1p(rest)
    log_probs[1] = wanted
    assert float(found.scores / wanted) == pytest.approx(1, rel=1e-5)
    if "topk" in asked:
        assert float(found.top_log_probs / wanted) == pytest.approx(1, rel=1e-5)
    if impl != "cpu":
        entropy = -(log_probs.exp() * log_probs).sum()
        assert float(found.entropy / entropy) == pytest.approx(1, rel=1e-5)


@every_impl
def test_nan_never_looks_like_the_best(impl: str) -> None:
    problem = make_problem(251, 64, 3, num_ignored=0)
    problem.input[1, 0] = torch.nan
    found = score(problem, problem.target, **everything(impl), impl=impl)
    assert found.scores.isnan().tolist() == [[False, True, False]]
    assert found.rank[1] == -1
    assert found.lse.isnan().tolist() == found.entropy.isnan().tolist() == [False, True, False]
    if impl not in NO_TOPK:
        assert found.top_ids[1].tolist() == [-1, -1, -1]
        assert found.top_log_probs[1].isnan().all()
        assert found.top_log_probs[0].isfinite().all()


@every_impl_of_all_rules
def test_impossible_classes(impl: str) -> None:
    """A bias of -inf takes a class out of every sum, and gives it the log-probability -inf."""
    problem = make_problem(251, 64, num_ignored=0)
    assert problem.bias is not None
    problem.bias[100:] = -torch.inf
    target = torch.tensor([[0, 99, 100, 250]] * 5, device=DEVICE)
    found = score(problem, target, rules=NAMES, **everything(impl), impl=impl)
    problem.weight, problem.bias = problem.weight[:100].contiguous(), problem.bias[:100].contiguous()
    fewer = score(problem, target[:, :2], rules=NAMES, **everything(impl), impl=impl)
    torch.testing.assert_close(found.scores[..., :2], fewer.scores, rtol=1e-5, atol=tolerance_of(impl))
    torch.testing.assert_close(found.lse, fewer.lse, rtol=1e-5, atol=tolerance_of(impl))
    torch.testing.assert_close(found.entropy, fewer.entropy, rtol=1e-5, atol=tolerance_of(impl))
    assert torch.equal(found.rank[:, :2], fewer.rank)
    assert (found.rank[:, 2:] == 100).all()
    assert (found.scores[0, :, 2:] == -torch.inf).all()
