"""Protein sequences, prepared and read."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models_at_hand import MANY, WITH_JSON, tokenizer_of

from mlmfast.tokenization import prepare_protein

SEQUENCES = st.text(alphabet=st.sampled_from("ACDEFGHIKLMNPQRSTVWYXBZUO-.*acdy \t\n\r\u00a0é日"), max_size=30)


@given(original=SEQUENCES | st.text(max_size=12))
def test_preparation_is_that_of_a_loop(original: str) -> None:
    letters, places, changed = [], [], 0
    for place, letter in enumerate(original):
        if letter.isspace():
            continue
        if letter == "*" and not original[place + 1 :].strip():
            changed += 1
            continue
        if letter in string.ascii_lowercase:
            changed += 1
            letter = chr(ord(letter) - 32)
        letters.append(letter)
        places.append(place)
    prepared = prepare_protein(original)
    assert (prepared.sequence, list(prepared.kept), prepared.num_changed) == (
        "".join(letters),
        places,
        changed,
    )


@pytest.mark.parametrize(
    ("original", "sequence", "changed"),
    [
        ("mKt", "MKT", 2),
        ("MKT*", "MKT", 1),
        ("MKT* \n", "MKT", 1),
        ("MKT**", "MKT*", 1),
        ("M*KT", "M*KT", 0),
        ("*", "", 1),
        (" \n", "", 0),
        ("M K\tT", "MKT", 0),
        ("XBZUO-.", "XBZUO-.", 0),
        ("ßéı", "ßéı", 0),
    ],
)
def test_what_is_changed_is_counted(original: str, sequence: str, changed: int) -> None:
    prepared = prepare_protein(original)
    assert (prepared.sequence, prepared.num_changed) == (sequence, changed)


def test_names_of_special_tokens_are_left_as_they_are() -> None:
    prepared = prepare_protein("mk <mask>\tt<eos><Mask>", ["<mask>", "<eos>"])
    assert (prepared.sequence, prepared.num_changed) == ("MK<mask>T<eos><MASK>", 6)


@pytest.mark.parametrize("name", ["esm2", "sapiens-vh"])
@MANY
@given(original=SEQUENCES)
def test_every_letter_is_one_token_and_one_word(name: str, original: str) -> None:
    tokenizer = tokenizer_of(name)
    sequence = prepare_protein(original).sequence
    encoded = tokenizer.encode([sequence])
    assert encoded.word_ids.tolist() == [-1, *range(len(sequence)), -1]
    assert encoded.char_spans[1:-1].tolist() == [[k, k + 1] for k in range(len(sequence))]
    ids = {token: index for index, token in enumerate(tokenizer.vocabulary)}
    assert encoded.input_ids[1:-1].tolist() == [ids.get(c, tokenizer.special.unknown_id) for c in sequence]


def test_only_protein_vocabularies_are_taken_for_such() -> None:
    assert tokenizer_of("esm2").protein
    assert [name for name in WITH_JSON if tokenizer_of(name).protein] == ["sapiens-vh"]
