"""Which format an input has, by what is in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.lines import READ_ERRORS, Source, is_stream, open_file
from mlmfast.rescoring.formats.base import NUMBER, files_of
from mlmfast.rescoring.formats.espnet import job_folders
from mlmfast.rescoring.formats.kaldi import archives
from mlmfast.rescoring.formats.moses import BARS
from mlmfast.rescoring.formats.scores import TOTALS

HEAD_BYTES = 1 << 16
FAIRSEQ_LINE = re.compile(r"[SHTDP]-\d+\t.*")
LATTICE_LINE = re.compile(r"VERSION=\S+|N(ODES)?=\d+\s+L(INKS)?=\d+")
SRILM_LINE = re.compile(rf"NBestList[12]\.0|(?:{NUMBER.pattern}) +(?:{NUMBER.pattern}) +\d+(?: .*)?")


def detect_format(source: Source) -> str:
    """The name of the format of a file or folder.

    Raises SettingsError for a stream, which looking would consume, InputError if the source cannot be read or
    no format or more than one fits.
    """
    if not isinstance(source, (str, Path)) or is_stream(source):
        raise SettingsError("the format of a stream or pipe is not guessed; name it with --format")
    path = Path(source)
    found = folder_formats(path) if path.is_dir() else file_formats(path)
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"{path} could be {' or '.join(found)}; say which with --format")
    raise InputError(f"{path} has no n-best format that is recognised; name it with --format")


def folder_formats(folder: Path) -> list[str]:
    found = [name for name, parts in (("espnet", job_folders), ("kaldi", archives)) if parts(folder)]
    files = files_of(folder, "lists")
    if not found and files:
        found = [name for name in file_formats(files[0]) if name in ("srilm", "htk")]
    return found


def file_formats(path: Path) -> list[str]:
    """All formats that fit the name and the first lines, the last of which may be cut."""
    with open_file(path) as stream:
        try:
            head = stream.read(HEAD_BYTES).decode("utf-8-sig", "replace")
        except READ_ERRORS as error:
            raise InputError(f"cannot read {path}: {error}; check that the file is whole") from error
    lines = [line.removesuffix("\r") for line in head.split("\n") if line.strip()]
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix == ".nobpe":
        return ["nobpe"]
    return [name for name, fits in FITS.items() if lines and fits(lines, suffix)]


def is_mlm_scoring(lines: list[str], suffix: str) -> bool:
    return lines[0].lstrip().startswith("{") and any('"hyp_' in line for line in lines)


def is_jsonl(lines: list[str], suffix: str) -> bool:
    return lines[0].lstrip().startswith("{") and '"hypotheses"' in lines[0]


def is_moses(lines: list[str], suffix: str) -> bool:
    return len(BARS.findall(lines[0])) >= 2


def is_fairseq(lines: list[str], suffix: str) -> bool:
    return any(FAIRSEQ_LINE.fullmatch(line) for line in lines)


def is_srilm(lines: list[str], suffix: str) -> bool:
    return SRILM_LINE.fullmatch(lines[0].strip()) is not None


def is_htk(lines: list[str], suffix: str) -> bool:
    return any(LATTICE_LINE.fullmatch(line.strip()) for line in lines)


def is_csv(lines: list[str], suffix: str) -> bool:
    names = {name.strip('"') for name in re.split(r"[,\t]", lines[0])}
    return suffix in (".csv", ".tsv") and {"id", "text"} <= names and bool(names & set(TOTALS))


def is_nemo(lines: list[str], suffix: str) -> bool:
    _, tab, last = lines[0].rpartition("\t")
    return bool(tab) and NUMBER.fullmatch(last.strip()) is not None


FITS: dict[str, Callable[[list[str], str], bool]] = {
    "mlm-scoring": is_mlm_scoring,
    "jsonl": is_jsonl,
    "moses": is_moses,
    "fairseq": is_fairseq,
    "srilm": is_srilm,
    "htk": is_htk,
    "csv": is_csv,
    "nemo": is_nemo,
}
