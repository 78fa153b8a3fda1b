"""linear_score as a torch operator (`torch.ops.mlmfast.linear_score`)."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.errors import SettingsError
from mlmfast.kernels.impl_choice import choose_impl
from mlmfast.kernels.rules import ScoringRule
from mlmfast.kernels.score_chunked import ScoreColumns, ScoreRequest, empty_columns

FUNCTION = "linear_score"


@torch.library.custom_op(
    "mlmfast::linear_score",
    mutates_args=(),
    schema="(Tensor input, Tensor weight, Tensor? bias, Tensor target_ids, Tensor target_offsets, "
    "str[] rules, float[] alphas, float[] smoothings, bool[] masked_logs, "
    "bool lse, bool entropy, bool rank, int topk, str impl) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def linear_score(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target_ids: Tensor,
    target_offsets: Tensor,
    rules: list[str],
    alphas: list[float],
    smoothings: list[float],
    masked_logs: list[bool],
    lse: bool,
    entropy: bool,
    rank: bool,
    topk: int,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See score_chunked: the columns of ScoreColumns. Not differentiable."""
    request = score_request(rules, alphas, smoothings, masked_logs, lse, entropy, rank, topk)
    module = choose_impl(FUNCTION, impl, input, weight, request)
    with torch.autocast(input.device.type, enabled=False):
        columns: ScoreColumns = module.score(
            input.contiguous(),
            weight.contiguous(),
            None if bias is None else bias.contiguous(),
            target_ids.contiguous(),
            checked_offsets(target_offsets, len(input), len(target_ids)),
            request,
        )
    return columns


@linear_score.register_fake
def _(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target_ids: Tensor,
    target_offsets: Tensor,
    rules: list[str],
    alphas: list[float],
    smoothings: list[float],
    masked_logs: list[bool],
    lse: bool,
    entropy: bool,
    rank: bool,
    topk: int,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    request = score_request(rules, alphas, smoothings, masked_logs, lse, entropy, rank, topk)
    return empty_columns(input, target_ids.shape[0], request)


def score_request(
    rules: list[str],
    alphas: list[float],
    smoothings: list[float],
    masked_logs: list[bool],
    lse: bool,
    entropy: bool,
    rank: bool,
    topk: int,
) -> ScoreRequest:
    settings = zip(rules, alphas, smoothings, masked_logs, strict=True)
    return ScoreRequest(tuple(ScoringRule(*values) for values in settings), lse, entropy, rank, topk)


def score_columns(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target_ids: Tensor,
    target_offsets: Tensor,
    request: ScoreRequest,
    impl: str,
) -> ScoreColumns:
    """The operator with its request as one."""
    rules = request.rules
    return ScoreColumns(
        *linear_score(
            input,
            weight,
            bias,
            target_ids,
            target_offsets,
            [rule.name for rule in rules],
            [rule.alpha for rule in rules],
            [rule.smoothing for rule in rules],
            [rule.masked_log for rule in rules],
            request.lse,
            request.entropy,
            request.rank,
            request.topk,
            impl,
        )
    )


def checked_offsets(offsets: Tensor, num_rows: int, num_targets: int) -> Tensor:
    """Raises SettingsError unless int64[N+1] offsets rise from 0 to T."""
    if offsets.shape != (num_rows + 1,) or offsets.dtype != torch.int64:
        raise SettingsError(
            f"target offsets: expected int64[{num_rows + 1}], "
            f"got {str(offsets.dtype).removeprefix('torch.')}{list(offsets.shape)}"
        )
    falls = offsets.diff() < 0
    # One answer from the device; what is wrong is asked only once something is.
    if not torch.stack([falls.any(), offsets[0] != 0, offsets[-1] != num_targets]).any():
        return offsets.contiguous()
    if falls.any():
        row = int(falls.int().argmax())
        raise SettingsError(
            f"target offsets: expected offsets that never fall, got {int(offsets[row])} "
            f"then {int(offsets[row + 1])} at row {row}"
        )
    raise SettingsError(
        f"target offsets: expected to run from 0 to the {num_targets} targets, "
        f"got {int(offsets[0])} to {int(offsets[-1])}"
    )
