"""HTK lattices: the n best texts, exactly."""

from __future__ import annotations

import json
import math
import random

import pytest
from list_files import SAMPLES, read, skipped, texts, totals

from mlmfast.errors import InputError
from mlmfast.rescoring.formats.lattice import NULL, SILENT, Lattice, Link, best_sentences

AMI = SAMPLES / "ami" / "AMI-3E0501_u3005_134168_134318.lat.gz"

SMALL = """VERSION=1.0
UTTERANCE=small
lmscale=2.0 wdpenalty=-1.0 acscale=0.5
N=4 L=4
I=0 t=0.0 W=!NULL
I=1 t=0.1 W="it\\'s"
I=2 t=0.1 W=its
I=3 t=0.2 W=</s>
J=0 S=0 E=1 a=-10 l=-1
J=1 S=0 E=2 a=-8 l=-3
J=2 S=1 E=3 a=-2 l=-1 r=-0.5
J=3 S=2 E=3 a=-2 l=-1
"""


def all_sentences(lattice: Lattice) -> dict[tuple[str, ...], float]:
    """Every word sequence with its best total, path by path."""
    best: dict[tuple[str, ...], float] = {}
    waiting: list[tuple[int, tuple[str, ...], float]] = [(lattice.start, (), 0.0)]
    while waiting:
        node, said, total = waiting.pop()
        if lattice.words[node] not in SILENT:
            said = (*said, lattice.words[node])
        if node == lattice.end:
            best[said] = max(total, best.get(said, -math.inf))
        waiting += [(link.end, said, total + link.total) for link in lattice.links if link.start == node]
    return best


def random_lattice(rng: random.Random) -> Lattice:
    """Nodes 0 to n - 1 shuffled, links from earlier to later ones; whole scores, so that sums are exact."""
    count = rng.randint(2, 9)
    names = list(range(count))
    rng.shuffle(names)
    words = [rng.choice(["a", "b", "c", NULL, NULL, "<s>"]) for _ in names]
    links = []
    for one in range(count):
        for other in range(one + 1, count):
            for _ in range(rng.choice([0, 1, 1, 2])):
                score = float(rng.randint(-20, 5))
                links.append(Link(names[one], names[other], score, score, 0.0))
    rng.shuffle(links)
    return Lattice(words, links, names[0], names[-1])


def test_the_best_sentences_are_those_of_all_paths():
    rng = random.Random(0)
    several = 0
    for _ in range(400):
        lattice = random_lattice(rng)
        expected = all_sentences(lattice)
        count = rng.choice([1, 2, 5, 1000])
        if not expected:
            with pytest.raises(InputError, match="no path leads"):
                best_sentences(lattice, count)
            continue
        found = best_sentences(lattice, count)
        assert len(found) == min(count, len(expected))
        assert len({words for words, _ in found}) == len(found)
        assert [path.total for _, path in found] == sorted(expected.values(), reverse=True)[: len(found)]
        assert all(path.total == expected[words] == path.acoustic for words, path in found)
        several += len(expected) > 5
    assert several > 50


def test_a_hundred_sentences_of_a_real_lattice():
    """Against an extraction by another program, in the sample's expected.json."""
    expected = json.loads((SAMPLES / "ami" / "expected.json").read_text())
    (nbest,) = read(AMI)
    assert texts(nbest) == [hypothesis["text"] for hypothesis in expected]
    for hypothesis, other in zip(nbest.hypotheses, expected, strict=True):
        assert hypothesis.features == pytest.approx(
            {"acoustic": other["score"], "lm": other["lm_score"], "first_pass": other["total"]}
        )


def test_fewer_sentences_are_the_first_of_more():
    assert texts(read(AMI, nbest=7)[0]) == texts(read(AMI)[0])[:7]


def test_a_lattice_without_a_language_model():
    (nbest,) = read(SAMPLES / "slf", nbest=3)
    assert nbest.id == "cards-002"
    assert nbest.hypotheses[0].features.keys() == {"acoustic", "first_pass"}


def test_scales_penalty_and_quotes(tmp_path):
    (tmp_path / "small.lat").write_text(SMALL)
    (nbest,) = read(tmp_path / "small.lat")
    # a word: 0.5 a + 2 l + r - 1, the end of sentence too
    assert texts(nbest) == ["it's", "its"]
    assert totals(nbest) == [0.5 * -12 + 2 * -2 - 0.5 - 2, 0.5 * -10 + 2 * -4 - 2]
    assert nbest.hypotheses[0].features["lm"] == -2
    assert totals(read(tmp_path, lm_scale=0.0)[0]) == [-7.0, -8.5]


def test_another_base(tmp_path):
    (tmp_path / "small.lat").write_text("base=10\n" + SMALL)
    (nbest,) = read(tmp_path)
    assert nbest.hypotheses[0].features["acoustic"] == pytest.approx(-12 * math.log(10))
    assert totals(nbest)[0] == pytest.approx(-12.5 * math.log(10))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("J=3 S=2 E=3 a=-2 l=-1\n", "", "^bad.lat: 3 links, but the header has L=4"),
        ("I=3", "I=2", "^bad.lat, line 8: I=2 comes twice"),
        ("J=3 S=2 E=3", "J=3 S=2 E=9", "^bad.lat: E=9 of J=3 is no node"),
        ("J=3 S=2 E=3 a=-2", "J=3 S=2 E=3 a=-2x", "a= of J=3 is '-2x'"),
        ("J=3 S=2 E=3", "J=3 S=2 E=2", "cycle"),
        ("J=3 S=2 E=3", "J=3 S=0 E=3", "2 nodes could be the end"),
        ("VERSION=1.0", "VERSION=1.0\nbase=0", "base=0: scores that are not logarithms"),
        ("VERSION=1.0", "VERSION=1.0\nSUBLAT=x", "sub-lattices"),
        ("J=3 S=2 E=3", "J=3 S=2 E=3 W=word", "words on links"),
        ("J=3 S=2 E=3", "J=3 glued-2 S=2 E=3", "^bad.lat, line 12: .*name=value fields"),
    ],
)
def test_a_bad_lattice_is_named_and_its_utterance_kept(old, new, reason, tmp_path):
    assert SMALL.count(old) == 1
    (tmp_path / "bad.lat").write_text(SMALL.replace(old, new))
    (tmp_path / "good.lat").write_text(SMALL)
    with pytest.raises(InputError, match=reason) as caught:
        read(tmp_path, "htk")
    assert "bad.lat" in str(caught.value)
    lists, errors = skipped(tmp_path, "htk")
    assert len(errors) == 1
    assert [(nbest.id, len(nbest.hypotheses)) for nbest in lists] == [("bad", 0), ("good", 2)]
