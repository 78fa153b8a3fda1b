"""Lists from values in memory: what is taken, and what is refused by its place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlmfast.errors import SettingsError
from mlmfast.rescoring import Rescorer, Weights
from mlmfast.rescoring.weights import FIRST_PASS

RESCORER = Rescorer([], Weights((FIRST_PASS,)))
EXPECTED = ((1, 0), (-2.0, -1.0))


@pytest.mark.parametrize(
    "scores",
    [
        (-2, -1),
        np.array([-2, -1], dtype=np.float32),
        torch.tensor([-2.0, -1.0]),
        {"first_pass": [-2.0, -1.0], "other": [0.0, 0.0]},
    ],
)
def test_numbers_of_all_kinds(scores: object) -> None:
    assert RESCORER.rescore(["a", "b"], scores) == EXPECTED


def test_iterators() -> None:
    assert RESCORER.rescore((text for text in "ab"), iter([-2.0, -1.0])) == EXPECTED


@pytest.mark.parametrize(
    ("hypotheses", "scores", "message"),
    [
        ("ab", [-2.0, -1.0], "hypotheses are 'ab'; give a sequence"),
        (None, [], "hypotheses are None; give a sequence"),
        (["a", None], [-2.0, -1.0], "hypothesis 2 is None, where a str was expected"),
        ([1, "b"], [-2.0, -1.0], "hypothesis 1 is 1, where a str was expected"),
        (["a", b"a"], [-2.0, -1.0], "hypothesis 2 is b'a', where a str was expected"),
        (["a", "b"], None, "scores 'first_pass' are None; give a sequence"),
        (["a", "b"], "12", "scores 'first_pass' are '12'; give a sequence"),
        (["a", "b"], [-2.0, None], "score 'first_pass' of hypothesis 2 is None; give a number"),
        (["a", "b"], ["x", -1.0], "score 'first_pass' of hypothesis 1 is 'x'; give a number"),
        (["a", "b"], [-2.0, "-1"], "score 'first_pass' of hypothesis 2 is '-1'; give a number"),
        (["a"], [True], "score 'first_pass' of hypothesis 1 is True; give a number"),
        (["a"], [10**400], "score 'first_pass' of hypothesis 1 is 10+; give a number"),
        (["a"], {"am": [-1.0]}, "there are scores 'am', but no 'first_pass'"),
        (["a", "b"], (-1.0 for _ in range(3)), "2 hypotheses, but 3 scores 'first_pass'"),
    ],
)
def test_what_is_no_list(hypotheses: object, scores: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RESCORER.rescore(hypotheses, scores)
