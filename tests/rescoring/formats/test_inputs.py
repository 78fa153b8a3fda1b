"""Inputs that cannot be looked at twice, or not to their end."""

from __future__ import annotations

import gzip
import os
import zlib

import pytest
from list_files import MANIFEST, read

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.lines import is_stream
from mlmfast.rescoring import detect_format, read_lists

LINE = b"0 ||| a text of many words %d ||| F0= -1 ||| -1\n"


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_the_format_of_a_pipe_is_not_guessed(pipe):
    with pytest.raises(SettingsError, match="the format of a stream or pipe is not guessed; name it"):
        detect_format(pipe)
    with pytest.raises(SettingsError, match="NeMo beams are read twice, so not from a stream or pipe"):
        read(pipe, "nemo", manifest=MANIFEST)


def test_what_is_a_stream(pipe, tmp_path):
    (tmp_path / "file").write_text("")
    assert is_stream(pipe)
    assert is_stream("-")
    with (tmp_path / "file").open("rb") as stream:
        assert is_stream(stream)
    assert not any(is_stream(path) for path in (tmp_path, tmp_path / "file", str(tmp_path / "none")))


def damaged(kind: str) -> bytes:
    whole = gzip.compress(b"".join(LINE % zlib.crc32(b"%d" % index) for index in range(3000)))
    middle = len(whole) // 4
    return {
        "cut": whole[:middle],
        "damaged": whole[:20] + b"\xff" * 200 + whole[220:],
        "header only": whole[:10],
    }[kind]


@pytest.mark.parametrize("kind", ["cut", "damaged", "header only"])
def test_a_gzip_file_that_is_not_whole(tmp_path, kind):
    path = tmp_path / "lists.gz"
    path.write_bytes(damaged(kind))
    with pytest.raises(InputError):
        read_lists(path)
    with pytest.raises(InputError):
        read(path, "moses")


def test_where_it_is_not_whole_is_said(tmp_path):
    path = tmp_path / "lists.gz"
    path.write_bytes(damaged("cut"))
    with pytest.raises(InputError, match=rf"cannot read {path}: .*; check that the file is whole"):
        detect_format(path)
