"""What the graphs compute, as torch modules."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_heads import head_parts
from mlmfast.engines.torch_load import load_model
from mlmfast.engines.torch_student import StudentHead, load_student
from mlmfast.errors import UnsupportedModelError
from mlmfast.models import HeadLayout, head_layout


class GraphModule(nn.Module):
    """outputs: the names of what it computes; network: the part that float16 casts."""

    outputs: ClassVar[tuple[str, ...]]
    network: Any


class MaskedLogProbs(GraphModule):
    """A masked model: rows to the log-probabilities of their targets."""

    outputs = ("log_probs",)

    def __init__(self, model: Any, layout: HeadLayout) -> None:
        super().__init__()
        self.network = model
        self._transform, self._weight, self._bias = head_parts(model, layout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        target_rows: Tensor,
        target_positions: Tensor,
        target_ids: Tensor,
    ) -> Tensor:
        """int64 [b, L], [b, L] (1 for a token, 0 for padding), [t], [t], [t] to float32 [t]."""
        states = self.network.base_model(input_ids=input_ids, attention_mask=attention_mask)[0]
        features = self._transform(states[target_rows, target_positions])  # [t, D]
        logits = nn.functional.linear(features, self._weight, self._bias)  # [t, V]
        log_probs: Tensor = logits.float().log_softmax(dim=-1).gather(1, target_ids[:, None])
        return log_probs[:, 0]


class StudentScores(GraphModule):
    """A student: texts to their scores."""

    def __init__(self, encoder: Any, head: StudentHead) -> None:
        super().__init__()
        self.network = encoder
        self._weight = nn.Parameter(head.weight[0], requires_grad=False)  # [D]
        self._bias = nn.Parameter(head.bias[0], requires_grad=False)  # []

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """float32 [b, L, D]."""
        states: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask)[0]
        return states.float()

    def values(self, states: Tensor) -> Tensor:
        """[..., D] to [...]."""
        # Not a matrix product, which int8 would quantise: the runtime takes no vector of quantised weights.
        values: Tensor = (states * self._weight).sum(dim=-1)
        return values + self._bias


class TokenScores(StudentScores):
    """Head `token`: the value of each token, and the sum of each text."""

    outputs = ("token_scores", "score")
    special_ids: Tensor

    def __init__(self, encoder: Any, head: StudentHead, special_ids: list[int]) -> None:
        super().__init__(encoder, head)
        self.register_buffer("special_ids", torch.tensor(special_ids))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """int64 [b, L], [b, L] to float32 [b, L] (0 at special tokens and padding) and [b]."""
        values = self.values(self.states(input_ids, attention_mask))
        special = (input_ids[..., None] == self.special_ids).any(dim=-1)
        token_scores = torch.where((attention_mask != 0) & ~special, values, 0.0)
        return token_scores, token_scores.sum(dim=-1)


class TextScores(StudentScores):
    """Head `cls`: one score of each text."""

    outputs = ("score",)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """int64 [b, L], [b, L] to float32 [b]."""
        return self.values(self.states(input_ids, attention_mask)[:, 0])


def masked_module(files: ModelFiles) -> GraphModule:
    """Raises ModelError, or UnsupportedModelError for a family whose head is not known here."""
    layout = head_layout(files.config)
    if layout is None:
        raise UnsupportedModelError(
            f"{files.source.name}: the head of model type {files.config.model_type!r} is not known here, so "
            "it cannot be exported; engine='torch' scores with it"
        )
    model = load_model(files)
    _prepare(files, model.base_model, model)
    return MaskedLogProbs(model, layout).eval()


def student_module(files: ModelFiles) -> GraphModule:
    """Raises ModelError, UnsupportedModelError."""
    encoder, head = load_student(files, torch.device("cpu"))
    _prepare(files, encoder, encoder)
    if files.config.student_head == "cls":
        return TextScores(encoder, head).eval()
    return TokenScores(encoder, head, sorted(files.tokenizer.special.all_ids)).eval()


def _prepare(files: ModelFiles, encoder: Any, model: Any) -> None:
    """Attention in plain operators; no token types, for which graphs have no input."""
    takes_types = "token_type_ids" in inspect.signature(encoder.forward).parameters
    if takes_types and files.tokenizer.encode(["A probe."]).token_type_ids is not None:
        raise UnsupportedModelError(
            f"{files.source.name}: its tokenizer gives token types other than 0, for which exported graphs "
            "have no input"
        )
    model.set_attn_implementation("eager")
