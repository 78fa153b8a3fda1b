"""The resumable output: whatever interrupts it, a resumed file equals one that was never interrupted."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from output_runs import HEADER, SETTINGS, expected, read_meta, record, run
from waiting import wait_until

from mlmfast.errors import OutputError
from mlmfast.io import ResumableOutput
from mlmfast.io import output as output_module


def meta_with(**progress) -> bytes:
    """A meta of ours, but for these in its progress."""
    progress = {"records": 0, "bytes": 0, "input_sha256": "", "complete": True} | progress
    return json.dumps({"format_version": 1, "settings": {}, "progress": progress, "summary": None}).encode()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.tsv"


class TestUninterrupted:
    def test_file_and_meta(self, path):
        run(path, 10)
        assert path.read_bytes() == expected(10)
        digest = hashlib.sha256()
        for i in range(10):
            consumed = record(i)[1].encode()
            digest.update(len(consumed).to_bytes(8, "little") + consumed)
        assert read_meta(path) == {
            "format_version": 1,
            "settings": SETTINGS,
            "progress": {
                "records": 10,
                "bytes": len(expected(10)),
                "input_sha256": digest.hexdigest(),
                "complete": True,
                "totals": {},
            },
            "summary": {"texts": 10, "pppl": None},
        }
        assert sorted(p.name for p in path.parent.iterdir()) == ["out.tsv", "out.tsv.meta.json"]

    def test_no_records(self, path):
        run(path, 0)
        assert path.read_bytes() == HEADER.encode()
        assert read_meta(path)["progress"]["complete"]
        assert run(path, 0, resume=True).already_complete

    def test_flushes_by_number_of_records(self, path):
        with ResumableOutput(path, settings={}, resume=False, flush_records=3) as output:
            seen = []
            for i in range(7):
                output.write(*record(i))
                seen.append(read_meta(path)["progress"]["records"])
                assert path.read_bytes() == expected(seen[-1])[len(HEADER.encode()) :]
        assert seen == [0, 0, 3, 3, 3, 6, 6]
        assert read_meta(path)["progress"]["records"] == 7

    def test_flushes_by_time_though_no_record_follows(self, path):
        with ResumableOutput(path, settings={}, resume=False, flush_seconds=0.01) as output:
            for safe in (1, 2):
                output.write(*record(0))
                wait_until(lambda safe=safe: read_meta(path)["progress"]["records"] == safe)

    def test_data_is_synced_before_the_meta_counts_it(self, path, monkeypatch):
        events = []
        names = {}
        real_sync, real_replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.fstat(fd).st_ino), real_sync(fd)))
        monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), real_replace(a, b)))
        with ResumableOutput(path, settings={}, resume=False) as output:
            names[path.stat().st_ino] = "data"
            names[path.parent.stat().st_ino] = "folder"
            events.clear()
            output.write(*record(0))
        named = [event if event == "replace" else names.get(event, "meta") for event in events]
        assert named == ["data", "meta", "replace", "folder"]


class TestResume:
    def test_without_any_file_starts_fresh(self, path):
        run(path, 5, resume=True)
        assert path.read_bytes() == expected(5)

    @given(st.lists(st.integers(0, 12), max_size=4), st.integers(1, 5))
    @settings(deadline=None, max_examples=40)
    def test_any_stops_give_the_uninterrupted_file(self, tmp_path_factory, stops, flush_records):
        path = tmp_path_factory.mktemp("stops") / "out.tsv"
        done = 0
        for stop in stops:
            output = run(path, 12, resume=True, stop_after=stop, finish=False, flush_records=flush_records)
            assert output.already_written == done
            done = max(done, min(stop, 12))
        output = run(path, 12, resume=True)
        assert (output.already_written, output.already_complete) == (done, False)
        assert path.read_bytes() == expected(12)
        uninterrupted = path.parent / "whole.tsv"
        run(uninterrupted, 12)
        assert read_meta(path) == read_meta(uninterrupted)

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_an_exception_keeps_what_was_written(self, path, error):
        def failing_run():
            with ResumableOutput(path, settings=SETTINGS, resume=False, header=HEADER) as output:
                output.write(*record(0))
                output.write(*record(1))
                raise error

        with pytest.raises(error):
            failing_run()
        assert path.read_bytes() == expected(2)
        assert read_meta(path)["progress"]["records"] == 2
        assert run(path, 6, resume=True).already_written == 2
        assert path.read_bytes() == expected(6)

    def test_data_beyond_the_meta_is_cut(self, path):
        run(path, 5, finish=False)
        with path.open("ab") as file:
            file.write(b"half a record" * 1000)
        run(path, 6, resume=True)
        assert path.read_bytes() == expected(6)

    def test_complete_output_is_left_alone(self, path):
        run(path, 5)
        before = [(p.name, p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(path.parent.iterdir())]
        output = run(path, 5, resume=True)
        assert (output.already_complete, output.already_written) == (True, 5)
        with ResumableOutput(path, settings=SETTINGS, resume=True) as output:
            for i in range(5):
                output.skip(record(i)[1])
            output.finish({})
        assert [
            (p.name, p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(path.parent.iterdir())
        ] == before

    def test_complete_output_takes_no_more_records(self, path):
        run(path, 1)
        with ResumableOutput(path, settings=SETTINGS, resume=True) as output:
            output.skip(record(0)[1])
            with pytest.raises(OutputError, match="complete with 1 records, but the input goes on"):
                output.write(*record(1))

    def test_other_settings_are_named(self, path):
        run(path, 2, finish=False)
        other = {
            "model": "m",
            "masking": "none",
            "weights": {"sha256": "cd"},
            "top": 3,
            "environment": {"workers": 9},
        }
        with pytest.raises(OutputError) as caught:
            run(path, 2, resume=True, settings=other)
        message = str(caught.value)
        assert (
            '(masking: "original", now "none"; weights.sha256: "ab", now "cd"; top: absent, now 3)' in message
        )
        assert read_meta(path)["progress"]["records"] == 2
        assert path.read_bytes() == expected(2)

    def test_environment_may_differ_and_tuples_are_lists(self, path):
        run(path, 2, finish=False, settings={"a": (1, 2), "environment": {"workers": 1}})
        run(path, 3, resume=True, settings={"a": [1, 2], "environment": {"workers": 8}})
        assert path.read_bytes() == expected(3)

    def test_versions_may_not_differ(self, path):
        run(path, 2, finish=False, settings={"versions": {"torch": "1"}})
        with pytest.raises(OutputError, match=r"versions\.torch"):
            run(path, 3, resume=True, settings={"versions": {"torch": "2"}})

    def test_changed_input_is_refused_and_changes_nothing(self, path):
        run(path, 4, finish=False)
        before = path.read_bytes(), read_meta(path)
        with ResumableOutput(path, settings=SETTINGS, resume=True) as output:
            for consumed in ("input 0", "input 1", "input two"):
                output.skip(consumed)
            with pytest.raises(OutputError, match=r"input differs.* within its first 4 records"):
                output.skip("input 3")
        assert (path.read_bytes(), read_meta(path)) == before

    def test_changed_input_leaves_what_the_meta_does_not_count(self, path):
        run(path, 1, finish=False)
        path.write_bytes(expected(2))
        with (
            pytest.raises(OutputError, match="input differs"),
            ResumableOutput(path, settings=SETTINGS, resume=True) as output,
        ):
            output.skip("another")
        assert path.read_bytes() == expected(2)

    def test_records_are_hashed_with_their_lengths(self, path):
        with ResumableOutput(path, settings={}, resume=False) as output:
            output.write("a\n", "ab")
            output.write("b\n", "c")
        with ResumableOutput(path, settings={}, resume=True) as output:
            output.skip("a")
            with pytest.raises(OutputError, match="input differs"):
                output.skip("bc")

    def test_shorter_input_is_refused(self, path):
        run(path, 4, finish=False)
        with pytest.raises(OutputError, match="4 records already, but only 3 input records"):
            run(path, 3, resume=True)
        assert not read_meta(path)["progress"]["complete"]
        with (
            pytest.raises(OutputError, match="4 records already, but only 0"),
            ResumableOutput(path, settings=SETTINGS, resume=True) as output,
        ):
            output.write(*record(4))

    def test_skipping_too_much_is_refused(self, path):
        with (
            pytest.raises(OutputError, match="only 0 records to skip"),
            ResumableOutput(path, settings={}, resume=True) as output,
        ):
            output.skip("a")

    @pytest.mark.parametrize("complete", [False, True])
    def test_shortened_data_is_refused(self, path, complete):
        run(path, 4, finish=complete)
        path.write_bytes(expected(4)[:-1])
        with pytest.raises(OutputError, match="it was changed since"):
            run(path, 4, resume=True)
        assert path.read_bytes() == expected(4)[:-1]

    def test_lengthened_complete_data_is_refused(self, path):
        run(path, 4)
        path.write_bytes(expected(5))
        with pytest.raises(OutputError, match="it was changed since"):
            run(path, 4, resume=True)


class TestFresh:
    def test_unfinished_output_is_refused(self, path):
        run(path, 4, finish=False)
        with pytest.raises(OutputError, match=r"unfinished run \(4 records\); continue it with --resume"):
            run(path, 4)
        assert path.read_bytes() == expected(4)

    def test_deleted_output_starts_over_whatever_its_meta(self, path):
        run(path, 4, finish=False)
        path.unlink()
        run(path, 3)
        assert path.read_bytes() == expected(3)

    def test_unfinished_output_without_records_has_nothing_to_lose(self, path):
        run(path, 4, finish=False, stop_after=0)
        run(path, 3, settings={"model": "other"})
        assert path.read_bytes() == expected(3)

    def test_complete_output_is_overwritten(self, path):
        run(path, 9)
        run(path, 2, settings={"model": "other"})
        assert path.read_bytes() == expected(2)
        assert read_meta(path)["settings"] == {"model": "other"}

    @pytest.mark.parametrize("resume", [False, True])
    def test_foreign_files_are_not_touched(self, path, resume):
        path.write_bytes(b"my thesis")
        with pytest.raises(OutputError, match="may not be ours"):
            run(path, 2, resume=resume)
        assert [p.read_bytes() for p in path.parent.iterdir()] == [b"my thesis"]

    @pytest.mark.parametrize("resume", [False, True])
    def test_empty_file_may_be_written(self, path, resume):
        path.touch()
        run(path, 2, resume=resume)
        assert path.read_bytes() == expected(2)

    @pytest.mark.parametrize("resume", [False, True])
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "does not describe an output of ours"),
            (b"\xff", "does not describe"),
            (b"[1]", "does not describe"),
            (b'{"name": "another program\'s"}', "does not describe"),
            (b'{"format_version": 1, "settings": {}, "progress": {}}', "does not describe"),
            (meta_with(records="many"), "does not describe"),
            (meta_with(records=True), "does not describe"),
            (meta_with(extra=1), "does not describe"),
            (b'{"format_version": 2}', "format version 2, but this version reads 1"),
        ],
    )
    def test_foreign_meta_is_not_touched(self, path, resume, content, message):
        meta = path.parent / "out.tsv.meta.json"
        meta.write_bytes(content)
        path.write_bytes(b"data")
        with pytest.raises(OutputError, match=message):
            run(path, 2, resume=resume)
        assert (meta.read_bytes(), path.read_bytes()) == (content, b"data")


class TestRefusals:
    def test_places_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").touch()
        os.mkfifo(tmp_path / "pipe")
        for place, message in [
            (tmp_path, "not a regular file"),
            (tmp_path / "pipe", "not a regular file"),
            (tmp_path / "missing" / "out", "cannot write .*No such file"),
            (tmp_path / "file" / "out", "cannot write .*Not a directory"),
        ]:
            with pytest.raises(OutputError, match=message):
                run(place, 1)

    def test_folder_without_permission(self, tmp_path, monkeypatch):
        # Permissions do not bind root, so the refusal of the system is played back.
        def refuse(*_):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr("mlmfast.io.meta.os.replace", refuse)
        (tmp_path / "out").write_bytes(b"")
        with pytest.raises(OutputError, match="Permission denied; check the folder"):
            run(tmp_path / "out", 1)

    def test_full_disk_loses_nothing_that_was_safe(self, path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        run(path, 3, finish=False)
        with monkeypatch.context() as patch:
            patch.setattr(ResumableOutput, "_write_at", full)
            with pytest.raises(OutputError, match="No space left"):
                run(path, 6, resume=True, flush_records=2)
        run(path, 6, resume=True)
        assert path.read_bytes() == expected(6)

    def test_disk_that_is_full_between_two_records(self, path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with ResumableOutput(path, settings={}, resume=False, flush_seconds=0.01) as output:
            output.write(*record(0))
            with monkeypatch.context() as patch:
                patch.setattr(ResumableOutput, "_write_at", full)
                wait_until(lambda: not output._flusher.is_alive())
                with pytest.raises(OutputError, match="No space left"):
                    output.write(*record(1))
        assert read_meta(path)["progress"]["records"] == 2

    def test_record_that_is_not_unicode(self, path):
        with (
            ResumableOutput(path, settings={}, resume=False) as output,
            pytest.raises(OutputError, match="not valid Unicode"),
        ):
            output.write("\ud800", "a")

    @pytest.mark.parametrize("resume", [False, True])
    def test_second_writer_is_refused(self, path, resume):
        with ResumableOutput(path, settings=SETTINGS, resume=False, header=HEADER) as output:
            output.write(*record(0))
            with pytest.raises(OutputError, match="another run is writing"):
                run(path, 1, resume=resume)
            script = (
                "import sys; from mlmfast.io import ResumableOutput\n"
                f"with ResumableOutput(sys.argv[1], settings={{}}, resume={resume}): pass"
            )
            other = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=False)
            assert b"another run is writing" in other.stderr
            output.write(*record(1))
        assert path.read_bytes() == expected(2)

    @pytest.mark.parametrize("kind", ["no module", "no locks on the file system"])
    def test_systems_without_locks_can_write(self, path, monkeypatch, kind):
        def refuse(*_):
            raise OSError(errno.ENOLCK, "No locks available")

        if kind == "no module":
            monkeypatch.setattr(output_module, "fcntl", None)
        else:
            monkeypatch.setattr(output_module.fcntl, "flock", refuse)
        run(path, 3)
        assert path.read_bytes() == expected(3)


class TestTotals:
    def test_running_totals_are_those_of_the_records_on_disk(self, path):
        with open_output_at(path, resume=False) as output:
            for i in range(4):
                output.write(*record(i), {"count": i + 1})
        with open_output_at(path, resume=True) as output:
            assert output.totals == {"count": 4}
            for i in range(4):
                output.skip(record(i)[1])
            output.write(*record(4), {"count": 5})
            output.finish({})
        assert read_meta(path)["progress"]["totals"] == {"count": 5}


def open_output_at(path, *, resume):
    return ResumableOutput(path, settings=SETTINGS, resume=resume)
