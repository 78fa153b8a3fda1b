"""Reports of real lists, scored by a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mlmfast
from mlmfast.reports import Report, render
from mlmfast.reports.chosen_lists import lean
from mlmfast.reports.rescored import RescoredLists
from mlmfast.reports.tuning import tuning_report
from mlmfast.rescoring import LanguageModel, NBestList, Rescorer, TextPreparation, mlm_scoring, read_lists
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.tuned_lists import TunedLists, tune_lists
from mlmfast.rescoring.tuning import TuningSettings

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def lists() -> list[NBestList]:
    """10 best of 23 utterances, 21 of them with a reference."""
    return [
        found for found in read_lists(DATA / "nbest" / "sample_speech.json") if isinstance(found, NBestList)
    ]


@pytest.fixture(scope="session")
def model() -> Iterator[LanguageModel]:
    with mlmfast.load(DATA / "models" / "bert", workers=1) as scorer:
        yield LanguageModel(scorer, preparation=TextPreparation(append_period=True), overlong="window")


@pytest.fixture(scope="session")
def tuned(lists: list[NBestList], model: LanguageModel) -> TunedLists:
    settings = TuningSettings(folds=3, num_resamples=200)
    return tune_lists(Rescorer([model], mlm_scoring({"mlm": 0.0})), lists, metric_named("wer"), settings)


@pytest.fixture(scope="session")
def tuned_report(tuned: TunedLists, lists: list[NBestList], model: LanguageModel) -> Report:
    by_id = {nbest.id: lean(nbest) for nbest in lists}
    return tuning_report(tuned, by_id, [model], title="speech", made_with={"models": model.settings()})


@pytest.fixture(scope="session")
def rescored_report(lists: list[NBestList], model: LanguageModel) -> Report:
    rescorer = Rescorer([model], mlm_scoring({"mlm": 0.5}))
    kept = RescoredLists(metric_named("wer"))
    for scored in rescorer.score_lists(lists):
        kept.add(rescorer.ranked(scored), rescorer.features(scored))
    return kept.report(rescorer.weights, [model], title="rescored", made_with={})


@pytest.fixture(scope="session")
def page(tuned_report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "tuned.html"
    path.write_text(render(tuned_report), encoding="utf-8")
    return path
