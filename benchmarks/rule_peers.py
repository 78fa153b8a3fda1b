"""What the scoring-rule benchmark times: ours, and the best that torch offers, on the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mlmfast.functional import linear_score, linear_scoring_rule_loss

ASPECT_RATIOS = (1, 2, 4)
"""Of the chunks of torch's linear_cross_entropy."""


@dataclass(frozen=True)
class Shape:
    """N rows of D features, V classes."""

    num_rows: int
    num_features: int
    vocab_size: int

    def __str__(self) -> str:
        return f"N={self.num_rows} D={self.num_features} V={self.vocab_size}"

    @property
    def logits_mb(self) -> float:
        """Of logits in float32."""
        return self.num_rows * self.vocab_size * 4 / 2**20


@dataclass
class Problem:
    """input [N, D], weight [V, D] and bias [V], which take gradients; target int64[N]."""

    input: Tensor
    weight: Tensor
    bias: Tensor
    target: Tensor

    def clear(self) -> None:
        for tensor in self.leaves:
            tensor.grad = None

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.input, self.weight, self.bias

    def double(self) -> Problem:
        """The same values in float64."""
        input, weight, bias = (x.detach().double().requires_grad_() for x in self.leaves)
        return Problem(input, weight, bias, self.target)


def make_problem(shape: Shape, dtype: torch.dtype) -> Problem:
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(size, generator=generator) * scale
        return values.to(dtype).requires_grad_()

    scale = 3.0 * shape.num_features**-0.5
    return Problem(
        input=normal(shape.num_rows, shape.num_features),
        weight=normal(shape.vocab_size, shape.num_features, scale=scale),
        bias=normal(shape.vocab_size),
        target=torch.randint(shape.vocab_size, (shape.num_rows,), generator=generator),
    )


Loss = Callable[[Problem], Tensor]


def eager(p: Problem) -> Tensor:
    return F.cross_entropy(F.linear(p.input, p.weight, p.bias).float(), p.target)


def eager_brier(p: Problem) -> Tensor:
    probabilities = F.linear(p.input, p.weight, p.bias).float().softmax(-1)
    of_target = probabilities.gather(1, p.target[:, None]).squeeze(1)
    return (probabilities.square().sum(-1) - 2 * of_target).mean()


def eager_spherical(p: Problem) -> Tensor:
    probabilities = F.linear(p.input, p.weight, p.bias).float().softmax(-1)
    of_target = probabilities.gather(1, p.target[:, None]).squeeze(1)
    return -(of_target / probabilities.norm(dim=-1)).mean()


EAGER = {"log": eager, "brier": eager_brier, "spherical": eager_spherical}


def ours(rule: str) -> Loss:
    return lambda p: linear_scoring_rule_loss(p.input, p.weight, p.target, linear_bias=p.bias, rule=rule)


def losses(rule: str, *, compiled: bool = False, chunked: bool = True) -> Iterator[tuple[str, Loss]]:
    """Name and loss of every contestant, ours first. chunked: also torch's linear_cross_entropy in chunks."""
    yield "mlmfast", ours(rule)
    yield "torch eager", EAGER[rule]
    if compiled:
        yield "torch.compile", torch.compile(EAGER[rule])
    if rule == "log" and hasattr(F, "linear_cross_entropy"):
        yield "linear_cross_entropy", linear_cross_entropy(None)
        if chunked and hasattr(torch.nn, "LinearCrossEntropyOptions"):
            automatic = torch.nn.LinearCrossEntropyOptions()
            yield "linear_cross_entropy auto chunks", linear_cross_entropy(automatic)
            for ratio in ASPECT_RATIOS:
                options = torch.nn.LinearCrossEntropyOptions(chunking_method=f"aspect_ratio:{ratio}")
                yield f"linear_cross_entropy aspect_ratio:{ratio}", linear_cross_entropy(options)


def linear_cross_entropy(options: object) -> Loss:
    extra = {} if options is None else {"options": options}
    return lambda p: F.linear_cross_entropy(p.input, p.weight, p.target, linear_bias=p.bias, **extra).float()


def score_ours(p: Problem) -> Tensor:
    return linear_score(p.input, p.weight, p.target, linear_bias=p.bias).scores[0]


def score_eager(p: Problem) -> Tensor:
    log_probs = F.linear(p.input, p.weight, p.bias).float().log_softmax(-1)
    return log_probs.gather(1, p.target[:, None]).squeeze(1)


SCORERS = {"mlmfast": score_ours, "torch eager": score_eager}
