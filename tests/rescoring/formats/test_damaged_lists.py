"""Damaged input: an error of ours that says where, never another one, and never a made-up score."""

from __future__ import annotations

import math
import random
import shutil

import pytest
from list_files import MANIFEST, SAMPLES

from mlmfast.errors import InputError
from mlmfast.rescoring import NBestList, read_lists

DAMAGED = [
    ("speech.json", "mlm-scoring", {}),
    ("beams.nobpe", "nobpe", {}),
    ("nemo_beams.tsv", "nemo", {"manifest": MANIFEST}),
    ("marian/aligned.nbest", "moses", {}),
    ("marian/nematus.nbest", "moses", {}),
    ("fairseq.log", "fairseq", {}),
    ("decipher/one", "srilm", {}),
    ("decipher/two.nbest", "srilm", {}),
    ("srilm/LJ001-0002", "srilm", {}),
    ("kaldi/words_text", "kaldi", {}),
    ("kaldi/ac_cost", "kaldi", {}),
    ("espnet/logdir/output.1/2best_recog/text", "espnet", {}),
    ("espnet/logdir/output.1/1best_recog/score", "espnet", {}),
]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, dropped or doubled, or the end cut off."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(content))
        kind = rng.randrange(5)
        if kind == 0:
            content[place] = rng.choice(b'\x00\n\r\t |-.,:"={}()x1\xff\xc3')
        elif kind == 1:
            del content[place]
        elif kind == 2:
            content[place:place] = content[max(0, place - rng.randint(1, 30)) : place]
        elif kind == 3:
            content[place:place] = rng.choice([b"nan", b"-inf", b"1e999", b"9" * 5000, b"\n\n", b" ||| "])
        elif rng.random() < 0.2:
            del content[max(1, place) :]
    return bytes(content)


@pytest.mark.parametrize(("name", "format", "options"), DAMAGED)
def test_damage_is_named_or_harmless(name, format, options, tmp_path):
    top = name.split("/")[0]
    is_folder = format in ("kaldi", "espnet")
    if is_folder:
        shutil.copytree(SAMPLES / top, tmp_path / top)
    path = tmp_path / (name if is_folder else name.split("/")[-1])
    source = tmp_path / top if is_folder else path
    rng = random.Random(name)
    named = 0
    for _ in range(150):
        path.write_bytes(damaged((SAMPLES / name).read_bytes(), rng))
        try:
            items = list(read_lists(source, format, on_error="skip", **options))
        except InputError:
            named += 1
            continue
        errors = [item for item in items if isinstance(item, InputError)]
        named += bool(errors)
        for item in items:
            if isinstance(item, NBestList):
                for hypothesis in item.hypotheses:
                    assert not any(map(math.isinf, hypothesis.features.values()))
                    assert "first_pass" in hypothesis.features
        if errors:
            with pytest.raises(InputError):
                list(read_lists(source, format, **options))
    assert named > 30
