"""References by line: they are those of the lists only if the counts agree."""

from __future__ import annotations

import pytest
from list_files import read_text, skipped

from mlmfast.errors import InputError


def moses(*ids: object) -> str:
    return "".join(f"{id} ||| text of {id} ||| F0= -1 ||| -1\n" for id in ids)


@pytest.fixture
def references(tmp_path):
    path = tmp_path / "refs"
    path.write_text("zero\none\ntwo\nthree\n")
    return {"references": [path]}


@pytest.mark.parametrize(
    ("format", "content", "count"),
    [
        ("moses", moses(1, 2, 3, 4), 5),
        ("moses", moses(0, 1), 2),
        ("text", "a\nb\nc\n", 3),
        ("text", "a\nb\nc\nd\ne\n", 5),
        ("text", "", 0),
    ],
)
def test_other_counts_are_named(tmp_path, references, format, content, count):
    with pytest.raises(InputError, match=f"are for {count} reference lines, but 4 came"):
        read_text(tmp_path, content, format, **references)


def test_no_reference_at_all(tmp_path):
    (tmp_path / "refs").write_text("")
    with pytest.raises(InputError, match="are for 2 reference lines, but 0 came"):
        read_text(tmp_path, "a\nb\n", "text", references=[tmp_path / "refs"])


def test_ids_that_are_no_lines(tmp_path, references):
    for id in ("u0", "00"):
        with pytest.raises(InputError, match=f"^line 1: id '{id}' is not the number of a line of references"):
            read_text(tmp_path, moses(id), "moses", **references)
    lists = '{"id": "u0", "hypotheses": []}\n'
    with pytest.raises(InputError, match=r"^line 1: id 'u0' is not the number"):
        read_text(tmp_path, lists, "jsonl", reference_style="lines", **references)


def test_a_list_that_was_left_out_may_be_the_last(tmp_path, references):
    (tmp_path / "lists").write_bytes(b"a\nb\nc\n\xff\n")
    lists, errors = skipped(tmp_path / "lists", "text", **references)
    assert [(nbest.id, nbest.flags) for nbest in lists] == [
        ("0", ()),
        ("1", ()),
        ("2", ()),
        ("3", ("missing",)),
    ]
    assert len(errors) == 1
    (tmp_path / "lists").write_bytes(b"a\nb\nc\n\xff\ne\n")
    with pytest.raises(InputError, match="for 5 reference lines, but 4 came"):
        skipped(tmp_path / "lists", "text", **references)
