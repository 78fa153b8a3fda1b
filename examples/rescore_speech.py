"""Rescore a recogniser's lists: weights tuned on half of the utterances, word error rates of the other half.

python examples/rescore_speech.py [LISTS]: lists with references, in any format; by default the sample of the
tests.
"""

import sys
from pathlib import Path

import mlmfast
from mlmfast.rescoring import LanguageModel, Rescorer, TextPreparation, mlm_scoring, read_lists
from mlmfast.rescoring.corpus import nbest_corpus
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.optimisation import metric_of
from mlmfast.rescoring.tuning import tune

SAMPLE = Path(__file__).parent.parent / "tests" / "data" / "nbest" / "sample_speech.json"


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else SAMPLE
    wer = metric_named("wer")
    start = mlm_scoring({"mlm": 0.0})
    # The model was trained on written sentences, and the recogniser writes none.
    preparation = TextPreparation(capitalize="first", append_period=True)
    with mlmfast.load() as scorer:
        rescorer = Rescorer([LanguageModel(scorer, preparation=preparation)], start)
        scored = list(rescorer.score_lists(read_lists(source)))
    counts = rescorer.counts
    print(f"{len(scored)} lists, {counts.num_texts} hypotheses, {counts.num_computed} rows\n")

    halves = [
        nbest_corpus([(found.nbest, rescorer.features(found)) for found in half], wer)
        for half in (scored[::2], scored[1::2])
    ]
    print("| tuned on | weight | WER of | first pass | tuned | oracle |\n|---|---:|---|---:|---:|---:|")
    names = ("first half", "second half")
    for tuned_on, judged_on in ((0, 1), (1, 0)):
        weights = tune(halves[tuned_on], wer, start).weights
        judged = halves[judged_on]
        contenders = judged.contenders(weights.missing)
        first_pass = metric_of(judged, wer, judged.first_pass())
        tuned = metric_of(contenders, wer, contenders.winners(weights.values))
        oracle = metric_of(judged, wer, judged.oracle(wer))
        print(
            f"| {names[tuned_on]} | {weights.values[1]:.2f} | {names[judged_on]} "
            f"| {first_pass:.1f} | {tuned:.1f} | {oracle:.1f} |"
        )


if __name__ == "__main__":
    main()
