"""Reports made by hand."""

from __future__ import annotations

import numpy as np

from mlmfast.reports.contents import (
    Cell,
    Figure,
    HeatMap,
    HeatRow,
    Judgement,
    ModelView,
    Report,
    Utterance,
    Utterances,
    WeightCurve,
)
from mlmfast.rescoring.line_search import Profile

HOSTILE = (
    """</title></style></script><script>window.broken=1</script><img src=x onerror="window.broken=2"> & 'é'"""
)


def hostile_report() -> Report:
    """The same text wherever a text can be; it would break out of any place that is not escaped."""
    bad = HOSTILE
    curve = WeightCurve(
        bad,
        bad,
        Profile(np.array([1.0]), np.array([2.0, 1.0])),
        1.5,
        1.0,
        0.0,
        3.0,
        (Figure(bad, 2.0),),
        np.ones(1),
    )
    shown = (Utterance(0, bad, "better", bad, "x", bad, 2.0, 1.0, 1.0),)
    rows = (
        HeatRow(1, (bad,), 0.0, (ModelView(bad, -1.0, (Cell(bad, -1.0),)), ModelView(bad, None, (), bad))),
    )
    return Report(
        title=bad,
        judgements=(Judgement(bad, (Figure(bad, 1.0),), bad),),
        weights=((bad, bad, bad),),
        curves=(curve,),
        utterances=Utterances(shown, {"better": 1}, bad, bad, bad),
        heat_maps=(HeatMap(0, bad, "better", 1, rows),),
        made_with={bad: {bad: bad}},
        notes=(bad,),
    )
