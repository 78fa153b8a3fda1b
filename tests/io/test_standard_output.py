"""Standard output: records as they come, and a reader that leaves is no error."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from mlmfast.errors import OutputError, SettingsError
from mlmfast.io import ResumableOutput, StdoutOutput, open_output


@pytest.mark.parametrize("records", [[], ["a é\n", "b\n"]])
def test_header_and_records(records):
    stream = io.BytesIO()
    with StdoutOutput(header="h\n", stream=stream) as output:
        assert (output.already_written, output.already_complete) == (0, False)
        for i, text in enumerate(records):
            output.write(text, f"input {i}")
            assert stream.getvalue().decode() == "h\n" + "".join(records[: i + 1])
        output.finish({})
    assert stream.getvalue().decode() == "h\n" + "".join(records)


def test_nothing_to_skip():
    with pytest.raises(OutputError, match="no records to skip"):
        StdoutOutput(stream=io.BytesIO()).skip("a")


def test_reader_that_leaves_ends_the_block_quietly():
    script = (
        "from mlmfast.io import open_output\n"
        "with open_output('-', settings={}, resume=False, header='h\\n') as output:\n"
        "    while True: output.write('x' * 1000 + '\\n', '')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"h\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 0


def test_a_broken_pipe_of_someone_else_is_not_swallowed():
    with pytest.raises(BrokenPipeError), StdoutOutput(stream=io.BytesIO()):
        raise BrokenPipeError


def test_other_exceptions_pass_after_the_reader_left():
    reader, writer = os.pipe()
    os.close(reader)

    def scored(stream):
        with StdoutOutput(stream=stream) as output:
            with pytest.raises(BrokenPipeError):
                output.write("a\n", "")
            raise KeyError

    with os.fdopen(writer, "wb") as stream, pytest.raises(KeyError):
        scored(stream)


def test_open_output(tmp_path):
    with open_output(tmp_path / "out", settings={}, resume=False, header="h\n") as output:
        assert isinstance(output, ResumableOutput)
        output.finish({})
    assert (tmp_path / "out").read_text() == "h\n"
    assert isinstance(open_output("-", settings={}, resume=False), StdoutOutput)
    with pytest.raises(SettingsError, match="cannot be resumed"):
        open_output("-", settings={}, resume=True)
