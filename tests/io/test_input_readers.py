"""Readers: one record per record of the input, in its place, whatever the bytes."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmfast.errors import InputError, SettingsError
from mlmfast.io import read_records


def read(data: bytes, **options):
    return list(read_records(io.BytesIO(data), **options))


def texts(data: bytes, **options):
    return [record.text for record in read(data, **options)]


WITHOUT_NUL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def only_error(data: bytes, **options) -> InputError:
    """The error of the one bad record; the others must be good."""
    bad = [record for record in read(data, **options) if record.error is not None]
    assert len(bad) == 1
    assert bad[0].text is None
    assert bad[0].error.line == bad[0].line
    return bad[0].error


class TestText:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", []),
            (b"\n", [""]),
            (b"a", ["a"]),
            (b"a\n", ["a"]),
            (b"a\n\nb\n", ["a", "", "b"]),
            (b"a\n\n", ["a", ""]),
            (b"a\r\nb\r\n", ["a", "b"]),
            (b"a\r\r\nb\r", ["a\r", "b"]),
            (b"a\rb\n", ["a\rb"]),
            ("a\u2028b\u0085c\x0bd\x0ce\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce"]),
            (b"  a \n", ["  a "]),
            (codecs.BOM_UTF8 + b"a\nb\n", ["a", "b"]),
            (codecs.BOM_UTF8, []),
            (codecs.BOM_UTF8 + b"\n", [""]),
            (b"a\n" + codecs.BOM_UTF8 + b"b\n", ["a", "\ufeffb"]),
        ],
    )
    def test_lines(self, data, expected):
        records = read(data)
        assert [record.text for record in records] == expected
        assert [record.line for record in records] == list(range(1, len(expected) + 1))
        assert all(record.id is None and record.error is None for record in records)

    @pytest.mark.parametrize(
        ("line", "byte", "column"),
        [
            (b"caf\xe9", "0xe9", 4),
            (b"\xff", "0xff", 1),
            ("é".encode() + b"\xc3", "0xc3", 3),
            (b"\xed\xa0\x80", "0xed", 1),  # a surrogate
        ],
    )
    def test_invalid_utf8_names_byte_and_column(self, line, byte, column):
        data = b"good\n" + line + b"\nalso good\n"
        error = only_error(data)
        assert error.line == 2
        assert f"byte {byte} at column {column}," in str(error)
        assert str(error).startswith("line 2: ")
        assert texts(data) == ["good", None, "also good"]

    def test_utf_16_is_an_error_in_every_line(self):
        data = "good\nalso good\n".encode("utf-16-le")
        records = read(data)
        assert [record.text for record in records] == [None, None, None]
        assert str(records[0].error).startswith("line 1: NUL byte at column 2, counted in bytes")

    @given(
        st.binary(max_size=200)
        | st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xff", b"\0"])).map(b"".join)
    )
    def test_number_of_records_is_number_of_lines(self, data):
        body = data.removeprefix(codecs.BOM_UTF8)
        lines = body.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        records = read(data)
        assert len(records) == len(lines)
        for number, (record, line) in enumerate(zip(records, lines, strict=True), 1):
            assert record.line == number
            assert (record.text is None) == (record.error is not None)
            if record.text is not None:
                assert record.text.encode() == line.removesuffix(b"\r")

    @given(st.lists(WITHOUT_NUL.filter(lambda text: "\n" not in text and not text.endswith("\r"))))
    def test_round_trip(self, expected):
        data = "".join(f"{text}\n" for text in expected).encode()
        if not data.startswith(codecs.BOM_UTF8):
            assert texts(data) == expected


class TestJsonl:
    def test_records(self):
        data = b'{"text": "a", "id": "x"}\r\n{"id": 7, "text": ""}\n{"text": "\\ud83d\\ude00"}'
        records = read(data, input_format="jsonl")
        assert [(r.line, r.text, r.id, r.error) for r in records] == [
            (1, "a", "x", None),
            (2, "", "7", None),
            (3, "😀", None, None),
        ]

    @pytest.mark.parametrize("value", [True, 1.5, None, ["a"], {"a": 1}])
    def test_id_of_another_type_is_no_id(self, value):
        assert read(json.dumps({"text": "a", "id": value}).encode(), input_format="jsonl")[0].id is None

    def test_field(self):
        assert texts(b'{"text": "a", "s": "b"}', input_format="jsonl", field="s") == ["b"]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b"{", "not JSON: Expecting property name"),
            (b'{"text": "a"} x', "not JSON: Extra data at column 15"),
            (b"", "a blank line"),
            (b" \t", "a blank line"),
            (b"[1]", "a JSON array, where an object"),
            (b'"a"', "a JSON string, where an object"),
            (b"null", "a JSON null, where an object"),
            (b"1.5", "a JSON number, where an object"),
            (b"true", "a JSON boolean, where an object"),
            (b'{"sentence": "a", "label": 1}', "no field 'text'; there are: 'sentence', 'label';"),
            (b"{}", "no field 'text'; there are: none;"),
            (b'{"text": 5}', "field 'text' is a number, where a string"),
            (b'{"text": null}', "field 'text' is a null, where a string"),
            (b'{"text": "a\\ud800"}', "field 'text' has a lone surrogate"),
            (b'{"text": "a", "id": "\\udfff"}', "the id has a lone surrogate"),
            (b'{"text": "caf\xe9"}', "byte 0xe9 at column 14"),
            (b"[" * 200_000, "JSON that cannot be read"),
            (b'{"text": ' + b"1" * 5_000 + b"}", "JSON that cannot be read"),
        ],
    )
    def test_bad_lines(self, line, message):
        data = b'{"text": "a"}\n' + line + b'\n{"text": "b"}\n'
        error = only_error(data, input_format="jsonl")
        assert error.line == 2
        assert message in str(error)
        str(error).encode()
        assert texts(data, input_format="jsonl") == ["a", None, "b"]

    def test_fields_named_in_an_error_are_few_and_printable(self):
        fields = {f"\ud800{i}" + "x" * 1000: 1 for i in range(100)}
        message = str(only_error(json.dumps(fields).encode(), input_format="jsonl"))
        assert len(message.encode()) < 1500

    def test_bad_record_keeps_its_id(self):
        assert read(b'{"id": "x", "text": 1}', input_format="jsonl")[0].id == "x"

    @given(st.lists(st.text()))
    def test_round_trip(self, expected):
        data = "".join(json.dumps({"text": text}) + "\n" for text in expected).encode()
        assert texts(data, input_format="jsonl") == expected


class TestTables:
    def test_quoted_newlines_and_the_line_a_record_starts_at(self):
        data = b'id,text\r\n1,"two\nlines, ""quoted"""\r\n2,plain\n,"\n\n"\n4,last'
        records = read(data, input_format="csv")
        assert [(r.line, r.text, r.id) for r in records] == [
            (2, 'two\nlines, "quoted"', "1"),
            (4, "plain", "2"),
            (5, "\n\n", None),
            (8, "last", "4"),
        ]

    def test_field_and_byte_order_mark(self):
        data = codecs.BOM_UTF8 + b"sentence,text\na,b\n"
        assert texts(data, input_format="csv", field="sentence") == ["a"]

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (b"1", "1 columns, but the header has 2"),
            (b"1,a,b", "3 columns, but the header has 2"),
            (b"", "1 columns, but the header has 2"),
            (b'1,"a"b', "not valid CSV"),
            (b"1,a\rb", "not valid CSV"),
            (b"1,caf\xe9", "field 2: invalid UTF-8: byte 0xe9 at column 4"),
            (b"\xe9\0,a", "field 1: invalid UTF-8: byte 0xe9 at column 1"),
        ],
    )
    def test_bad_rows_do_not_end_the_file(self, row, message):
        data = b"id,text\n1,a\n" + row + b'\n2,"b\nc"\n'
        error = only_error(data, input_format="csv")
        assert error.line == 3
        assert message in str(error)
        records = read(data, input_format="csv")
        assert [(r.line, r.text) for r in records] == [(2, "a"), (3, None), (4, "b\nc")]

    def test_invalid_utf8_in_a_quoted_record(self):
        data = b'id,text\n1,"a\n\xff\nb"\n2,c\n'
        assert [(r.line, r.text) for r in read(data, input_format="csv")] == [(2, None), (5, "c")]

    def test_unclosed_quote_is_an_error_not_a_text(self):
        error = only_error(b'text\na\n"b\nc\n', input_format="csv")
        assert error.line == 3
        assert "check the quotes" in str(error)

    def test_blank_line_of_a_single_column_is_an_empty_text(self):
        assert texts(b'text\na\n\n""\n', input_format="csv") == ["a", "", ""]

    def test_control_characters_pass_but_nul(self):
        assert texts("text\na\x0b\u2028c\n".encode(), input_format="csv") == ["a\x0b\u2028c"]
        error = only_error(b"text\na\0b\n", input_format="csv")
        assert str(error).startswith("line 2: field 1: NUL byte at column 2")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "the table is empty"),
            (codecs.BOM_UTF8, "the table is empty"),
            (b"id,sentence\n1,a\n", "no column 'text'; the header has: 'id', 'sentence';"),
            (b"text,text\na,b\n", "more than one column 'text'"),
            (b"caf\xe9,text\na,b\n", "byte 0xe9 at column 4"),
            (b'"text"x\na\n', "the header row is not valid CSV"),
        ],
    )
    def test_no_records_at_all_raises_at_once(self, data, message):
        with pytest.raises(InputError, match=message) as caught:
            read_records(io.BytesIO(data), input_format="csv")
        assert caught.value.line == 1

    def test_header_alone_has_no_records(self):
        assert read(b"text\n", input_format="csv") == []

    @pytest.mark.parametrize(("name", "format"), [("t.tsv", "csv"), ("t.tsv.gz", "csv"), ("t.csv", "tsv")])
    def test_tsv_by_extension_or_format(self, tmp_path, name, format):
        path = tmp_path / name
        with (gzip.open if name.endswith(".gz") else open)(path, "wb") as file:
            file.write(b"id\ttext\n1\ta, b\n")
        assert [record.text for record in read_records(path, input_format=format)] == ["a, b"]

    @given(st.lists(st.tuples(WITHOUT_NUL, WITHOUT_NUL)), st.sampled_from("\t,"))
    def test_round_trip(self, rows, delimiter):
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([("id", "text"), *rows])
        data = file.getvalue().encode()
        records = read(data, input_format="csv" if delimiter == "," else "tsv")
        assert [(record.id or "", record.text) for record in records] == rows


class TestFasta:
    def test_records(self):
        data = b";comment\n\n>sp|P1 first one\nMKV\r\n; comment\n L T \n\n>empty\n>\nAC*\nD9\n>last\n"
        records = read(data, input_format="fasta")
        assert [(r.line, r.text, r.id, r.error) for r in records] == [
            (3, "MKVLT", "sp|P1", None),
            (8, "", "empty", None),
            (9, "AC*D9", None, None),
            (12, "", "last", None),
        ]

    def test_data_before_the_first_header(self):
        data = b"\nMKV\nLT\n>a\nM\n"
        error = only_error(data, input_format="fasta")
        assert error.line == 2
        assert "before the first header" in str(error)
        assert texts(data, input_format="fasta") == [None, "M"]

    def test_invalid_utf8_in_the_sequence(self):
        data = b">a\nM\nK\xff\nV\n>b\nM\n"
        error = only_error(data, input_format="fasta")
        assert error.line == 1
        assert "on line 3: invalid UTF-8: byte 0xff at column 2" in str(error)
        assert [(r.text, r.id) for r in read(data, input_format="fasta")] == [(None, "a"), ("M", "b")]

    def test_invalid_utf8_in_the_header(self):
        assert "in the header" in str(only_error(b">\xff\nM\n>b\nM\n", input_format="fasta"))

    def test_bare_carriage_returns_are_not_swallowed_with_the_header(self):
        assert "carriage return" in str(only_error(b">a\rMKV\r>b\rMKV\r", input_format="fasta"))

    def test_empty_and_byte_order_mark(self):
        assert read(b"", input_format="fasta") == []
        assert texts(codecs.BOM_UTF8 + b">a\nM", input_format="fasta") == ["M"]


class TestSources:
    def test_path_and_gzip(self, tmp_path):
        (tmp_path / "plain.txt").write_bytes(b"a\nb\n")
        with gzip.open(tmp_path / "packed.txt.gz", "wb") as file:
            file.write(b"a\nb\n")
        for path in (tmp_path / "plain.txt", str(tmp_path / "packed.txt.gz")):
            assert [record.text for record in read_records(path)] == ["a", "b"]

    def test_empty_gzip_file(self, tmp_path):
        (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
        assert list(read_records(tmp_path / "empty.gz")) == []

    def test_standard_input(self):
        script = "from mlmfast.io import read_records; print([r.text for r in read_records('-')])"
        done = subprocess.run(
            [sys.executable, "-c", script], input=b"a\r\n\nb", capture_output=True, check=True
        )
        assert done.stdout.strip() == b"['a', '', 'b']"

    def test_given_stream_stays_open_and_opened_file_is_closed(self, tmp_path, monkeypatch):
        stream = io.BytesIO(b"a\n")
        assert len(list(read_records(stream))) == 1
        assert not stream.closed

        opened = []
        (tmp_path / "in").write_bytes(b"a\nb\n")
        monkeypatch.setattr(
            "mlmfast.io.lines.open_file", lambda path: opened.append(path.open("rb")) or opened[-1]
        )
        records = read_records(tmp_path / "in")
        next(records)
        assert not opened[0].closed
        records.close()
        assert opened[0].closed
        with pytest.raises(InputError):
            read_records(tmp_path / "in", input_format="csv")
        assert opened[1].closed

    def test_unreadable_sources_raise_at_once(self, tmp_path):
        (tmp_path / "not.gz").write_bytes(b"plain text")
        for path, message in [
            (tmp_path / "missing", "No such file"),
            (tmp_path / "missing.gz", "No such file"),
            (tmp_path, "directory"),
            (tmp_path / "not.gz", "Not a gzipped file"),
        ]:
            with pytest.raises(InputError, match=message) as caught:
                read_records(path)
            assert str(path) in str(caught.value)

    @pytest.mark.parametrize("format", ["text", "jsonl", "csv", "fasta"])
    @pytest.mark.parametrize("damage", ["cut off", "changed"])
    def test_broken_gzip_raises_where_it_breaks(self, tmp_path, format, damage):
        heads = {"text": b"", "jsonl": b"", "csv": b"text\n", "fasta": b">a\n"}
        data = heads[format] + b"".join(b"%d\n" % i for i in range(100_000))
        packed = bytearray(gzip.compress(data))
        if damage == "cut off":
            del packed[len(packed) // 2 :]
        else:
            packed[-8:-4] = b"\0\0\0\0"
        (tmp_path / "broken.gz").write_bytes(packed)
        records = read_records(tmp_path / "broken.gz", input_format=format)
        with pytest.raises(InputError, match="breaks off here") as caught:
            for _ in records:
                pass
        assert 10_000 < caught.value.line <= 100_002

    def test_settings(self):
        for options, message in [
            ({"input_format": "xml"}, "unknown input format 'xml'; choose one of text, jsonl"),
            ({"field": "a"}, "text input has none"),
            ({"input_format": "fasta", "field": "a"}, "fasta input has none"),
        ]:
            with pytest.raises(SettingsError, match=message):
                read_records(io.BytesIO(b"a"), **options)
        with pytest.raises(SettingsError, match="binary mode"):
            read_records(io.StringIO("a"))


class TestSize:
    @pytest.mark.parametrize("format", ["text", "jsonl", "csv", "fasta"])
    def test_a_line_of_100_megabytes(self, format):
        size = 100_000_000
        wrap = {"text": b"%b\n", "jsonl": b'{"text": "%b"}\n', "csv": b"text\n%b\n", "fasta": b">a\n%b\n"}
        (record,) = read(wrap[format] % (b"a" * size), input_format=format)
        assert len(record.text) == size

    @pytest.mark.parametrize("format", ["text", "jsonl", "csv", "fasta"])
    def test_memory_does_not_grow_with_the_input(self, format):
        one = {
            "text": b"some words\n",
            "jsonl": b'{"text": "some words"}\n',
            "csv": b"text\n",
            "fasta": b">a\nMKV\n",
        }

        class Endless(io.RawIOBase):
            def __init__(self, repeats):
                self.left = repeats

            def readable(self):
                return True

            def readinto(self, buffer):
                if self.left == 0:
                    return 0
                self.left -= 1
                buffer[: len(one[format])] = one[format]
                return len(one[format])

        def peak(repeats):
            tracemalloc.start()
            count = sum(1 for _ in read_records(io.BufferedReader(Endless(repeats)), input_format=format))
            assert count in (repeats, repeats - 1)  # the first line of csv is its header
            used = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return used

        peak(100)
        assert peak(20_000) < peak(1_000) + 50_000


def test_canonical_tells_records_apart():
    records = [
        *read(b"a\nb\n\xff\n\xfe\n"),
        *read(b'{"text": "a", "id": "1"}', input_format="jsonl"),
        *read(b'{"text": ""}', input_format="jsonl"),
    ]
    assert len({record.canonical for record in records}) == len(records)
    assert read(b"a\n")[0].canonical == records[0].canonical
