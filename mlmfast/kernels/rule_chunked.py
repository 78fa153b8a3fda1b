"""impl "torch": linear + scoring rule in closed form, any rule, alpha and device, logits never whole.

Forward and backward each compute the logits a tile at a time (see logit_tiles for the bound); the
backward needs 7 numbers a row from the forward, the coefficients of rule_closed_form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.kernels.logit_tiles import compute_dtype, logit_tile, slices, tile_shape
from mlmfast.kernels.rule_closed_form import (
    ClassSums,
    Coefficients,
    below_logit,
    log_sum_exp,
    losses_and_coefficients,
    merged,
)
from mlmfast.kernels.rules import ScoringRule

MAX_ALPHA = 6
"""In float32: (1/V)^alpha, the smallest sum p^alpha, is a normal number for V up to a million."""


def can_run(input: Tensor, weight: Tensor, rule: ScoringRule) -> str | None:
    """None if it can, else why not."""
    return needs_float64(input, rule)


def needs_float64(input: Tensor, rule: ScoringRule) -> str | None:
    """Why this alpha cannot be computed in the precision of the input, if so."""
    if rule.alpha > MAX_ALPHA and input.dtype != torch.float64:
        return f"it takes alpha up to {MAX_ALPHA} in {input.dtype}, not {rule.alpha}"
    return None


def forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    rule: ScoringRule,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """input [N, D], weight [V, D], bias [V], target int64[N] to losses [N] and coefficients [N, 7]."""
    dtype = compute_dtype(input.dtype)
    losses = input.new_empty(len(input), dtype=dtype)
    coefficients = input.new_empty(len(input), len(Coefficients._fields), dtype=dtype)
    num_rows, num_classes = tile_shape(len(input), weight, dtype)
    for rows in slices(len(input), num_rows):
        losses[rows], coefficients[rows] = forward_rows(
            input[rows].to(dtype), weight, bias, target[rows], rule, ignore_index, num_classes
        )
    return losses, coefficients


def forward_rows(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    rule: ScoringRule,
    ignore_index: int,
    num_classes: int,
) -> tuple[Tensor, Tensor]:
    """forward of hidden [r, D], in the precision to compute in, `num_classes` at a time.

    One sweep over the classes; a second one for the masked-log term, which needs the log-sum-exp.
    """
    vocab_size = len(weight)
    sums, target_logits = None, torch.zeros_like(hidden[:, 0])
    for classes in slices(vocab_size, num_classes):
        logits = tile_of(hidden, weight, bias, classes)
        place, is_here = place_in(classes, target)
        target_logits = torch.where(is_here, logits.gather(1, place).squeeze(1), target_logits)
        of_tile = class_sums(logits, rule)
        sums = of_tile if sums is None else merged(sums, of_tile, rule)
    assert sums is not None
    if rule.has_masked_log:
        lse = log_sum_exp(sums.top, sums.rest)
        for classes in slices(vocab_size, num_classes):
            sums = with_classes_below(
                sums, tile_of(hidden, weight, bias, classes), lse, below_logit(lse, rule, vocab_size)
            )
    return losses_and_coefficients(sums, target_logits, target == ignore_index, rule, vocab_size)


def backward(
    grad_loss: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficients: Tensor,
    rule: ScoringRule,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """grad_loss [N] to the gradients of input, weight and bias, None where not needed.

    Sums are in float32: those of the weight a block of classes at a time, those of the input whole.
    """
    dtype = coefficients.dtype
    grad_input = torch.zeros_like(input, dtype=dtype) if needs[0] else None
    grad_weight = torch.empty_like(weight) if needs[1] else None
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    num_rows, num_classes = tile_shape(len(input), weight, dtype)
    for classes in slices(len(weight), num_classes):
        block = weight[classes].to(dtype)
        block_bias = None if bias is None else bias[classes]
        grad_block, grad_block_bias = torch.zeros_like(block), block.new_zeros(len(block))
        for rows in slices(len(input), num_rows):
            hidden = input[rows].to(dtype)
            grad = logit_gradients(
                logit_tile(hidden, block, block_bias), *place_in(classes, target[rows]),
                coefficients[rows], rule, len(weight),
            ).mul_(grad_loss[rows, None])  # fmt: skip
            if grad_input is not None:
                grad_input[rows].addmm_(grad, block)
            if grad_weight is not None:
                grad_block.addmm_(grad.T, hidden)
            if grad_bias is not None:
                grad_block_bias += grad.sum(0)
            del grad  # before the next tile
        if grad_weight is not None:
            grad_weight[classes] = grad_block
        if grad_bias is not None:
            grad_bias[classes] = grad_block_bias
    return None if grad_input is None else grad_input.to(input.dtype), grad_weight, grad_bias


def tile_of(hidden: Tensor, weight: Tensor, bias: Tensor | None, classes: slice) -> Tensor:
    return logit_tile(hidden, weight[classes].to(hidden.dtype), None if bias is None else bias[classes])


def place_in(classes: slice, target: Tensor) -> tuple[Tensor, Tensor]:
    """Where in a tile's classes the targets [r] are, int64[r, 1], and bool[r]: whether they are there."""
    place = target - classes.start
    last = classes.stop - classes.start - 1
    return place.clamp(0, last)[:, None], (place >= 0) & (place <= last)


def class_sums(logits: Tensor, rule: ScoringRule) -> ClassSums:
    """logits [r, c] to what the rule needs of them, but for the masked-log term."""
    top, top_index = logits.max(dim=-1, keepdim=True)
    shift = top.masked_fill(top == -torch.inf, 0)  # classes that are all impossible sum to 0
    powers = (logits - shift).exp_().scatter_(1, top_index, 0)
    rest = powers.sum(-1)
    rest_alpha = rest_low = None
    if rule.family != "log" and rule.alpha == 2:
        rest_low, rest_alpha = rest, powers.square_().sum(-1)
    elif rule.family != "log":
        shifted = torch.sub(logits, shift, out=powers)
        rest_alpha = (rule.alpha * shifted).exp_().scatter_(1, top_index, 0).sum(-1)
        rest_low = shifted.mul_(rule.alpha - 1).exp_().scatter_(1, top_index, 0).sum(-1)
    total = logits.sum(-1) if rule.name == "log" and rule.smoothing else None
    return ClassSums(top.squeeze(1), rest, rest_alpha, rest_low, total)


def with_classes_below(sums: ClassSums, logits: Tensor, lse: Tensor, threshold: Tensor) -> ClassSums:
    """The sums with those of `logits` [r, c] that are below `threshold` [r] counted in; lse [r]."""
    is_below = logits < threshold[:, None]
    log_probs = (logits - lse[:, None]).masked_fill_(~is_below, 0)
    num_below, total = is_below.sum(-1).to(lse.dtype), log_probs.sum(-1)
    if sums.num_below is not None and sums.below_log_probs is not None:
        num_below, total = sums.num_below + num_below, sums.below_log_probs + total
    return sums._replace(num_below=num_below, below_log_probs=total)


def logit_gradients(
    logits: Tensor,
    place: Tensor,
    is_here: Tensor,
    coefficients: Tensor,
    rule: ScoringRule,
    vocab_size: int,
) -> Tensor:
    """logits [r, c], overwritten, to the gradients of the losses through them.

    place int64[r, 1]: where the target is, if is_here bool[r]; coefficients [r, 7].
    """
    c = Coefficients(*coefficients[:, :, None].unbind(1))
    is_below = logits < below_logit(c.lse, rule, vocab_size) if rule.has_masked_log else None
    log_probs = logits.sub_(c.lse)
    if rule.family == "log":
        grad = log_probs.exp_().add_(c.U)
    elif rule.alpha == 2:
        probs = log_probs.exp_()
        grad = (probs * c.B).add_(c.A).mul_(probs)
    else:
        low_powers = torch.exp_(log_probs * (rule.alpha - 1))
        probs = log_probs.exp_()
        grad = (low_powers * c.B).add_(c.A).mul_(probs).add_(low_powers.mul_(c.C))
    if is_below is not None:
        grad.add_(torch.mul(is_below, c.D, out=logits))  # whose values are used up
    of_target = torch.where(is_here[:, None], c.target_gradient, grad.gather(1, place))
    return grad.scatter_(1, place, of_target)
