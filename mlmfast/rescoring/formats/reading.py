"""N-best lists from any input, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.lines import Source
from mlmfast.rescoring.formats.base import Format, Item, ReadOptions, gap_flags, is_count
from mlmfast.rescoring.formats.detection import detect_format
from mlmfast.rescoring.formats.references import References, ReferenceStyle, read_references
from mlmfast.rescoring.formats.registry import FORMATS, format_named
from mlmfast.rescoring.lists import NBestList

OnError = Literal["raise", "skip"]

# Totals are printed with 6 digits or 4 decimals by some decoders.
RELATIVE_ROUNDING = 1e-5
ABSOLUTE_ROUNDING = 1e-3


def read_lists(
    source: Source,
    format: str | None = None,
    *,
    on_error: OnError = "raise",
    references: Sequence[str | Path] = (),
    reference_style: ReferenceStyle | None = None,
    nbest: int | None = None,
    lm_scale: float | None = None,
    length_power: float | None = None,
    manifest: str | Path | None = None,
) -> Iterator[NBestList | InputError]:
    """The lists of a file, folder or stream of bytes, in order; the format is detected if not named.

    on_error: "raise" raises at the first bad part; "skip" leaves it out and yields its InputError in its
    place. A list whose hypotheses are all left out is still given, empty. What breaks the whole input
    (a file that ends in the middle, a missing file of a folder) is raised either way.
    references: files that take the place of the lists' own references, a line per id for formats with
    counted ids, else "id reference", unless reference_style says. An id with a reference and no list is
    given last, empty, with the flag `missing`. By line, the last id has to be that of the last line: an
    InputError after the last list says that it is not.
    nbest, lm_scale, length_power, manifest: as in ReadOptions, each for the formats that know it.

    Memory is that of one list and all ids; of Kaldi also the costs of an archive, of fairseq the log.
    Raises SettingsError for an unknown format or an option that it does not know.
    """
    if on_error not in ("raise", "skip"):
        raise SettingsError(f"on_error is {on_error!r}; choose raise or skip")
    known = format_named(detect_format(source) if format is None else format)
    options = checked_options(known, nbest, lm_scale, length_power, manifest)
    style = reference_style or default_style(known)
    given = read_references(references, style)
    items = known.read(source, options)
    if references and style == "lines":
        items = aligned_by_line(items, len(given))
    items = checked(items, known, given)
    return items if on_error == "skip" else raising(items)


def default_style(known: Format) -> ReferenceStyle:
    """How a format's references are found in a file if nothing is said."""
    return "lines" if known.counted_ids else "keyed"


def checked_options(
    known: Format,
    nbest: int | None,
    lm_scale: float | None,
    length_power: float | None,
    manifest: str | Path | None,
) -> ReadOptions:
    """Raises SettingsError."""
    given = {"nbest": nbest, "lm_scale": lm_scale, "length_power": length_power, "manifest": manifest}
    for name, value in given.items():
        if value is not None and name not in known.options:
            takers = [other.name for other in FORMATS.values() if name in other.options]
            raise SettingsError(f"{name} is for {', '.join(takers)}, not for {known.name}; leave it out")
    if nbest is not None and nbest < 1:
        raise SettingsError(f"nbest is {nbest}; give 1 or more")
    for name, number in (("lm_scale", lm_scale), ("length_power", length_power)):
        if number is not None and not math.isfinite(number):
            raise SettingsError(f"{name} is {number}; give a finite number")
    return ReadOptions(nbest, lm_scale, length_power, None if manifest is None else Path(manifest))


def aligned_by_line(items: Iterator[Item], num_references: int) -> Iterator[Item]:
    """The items, whose ids are the numbers of the reference files' lines, from 0.

    Raises InputError for another id, and after the last item if there are more ids than lines, or fewer
    although no part was left out.
    """
    num_ids, is_whole = 0, True
    for item in items:
        if isinstance(item, InputError):
            is_whole = False
        elif is_count(item.id) and item.id == str(int(item.id)):
            num_ids = max(num_ids, int(item.id) + 1)
        else:
            raise InputError(
                f"id {item.id!r} is not the number of a line of references; name their style keyed, and give "
                "'id reference' lines",
                line=item.line,
            )
        yield item
    if num_ids > num_references or (is_whole and num_ids < num_references):
        raise InputError(
            f"the lists' ids, counted from 0, are for {num_ids} reference lines, but {num_references} came; "
            "correct the numbering or the references, or name their style keyed and give 'id reference' lines"
        )


def raising(items: Iterator[Item]) -> Iterator[Item]:
    for item in items:
        if isinstance(item, InputError):
            raise item
        yield item


def checked(items: Iterator[Item], known: Format, references: References) -> Iterator[Item]:
    """The items with references and flags; a list whose id came before is an error in its place."""
    seen: dict[str, int | None] = {}
    last = -1
    for item in items:
        if isinstance(item, InputError):
            yield item
            continue
        if item.id in seen:
            at = "" if seen[item.id] is None else f" at line {seen[item.id]}"
            yield InputError(
                f"id {item.id!r} had its list{at} already; ids are unique, and a list's lines stand together",
                line=item.line,
            )
            continue
        seen[item.id] = item.line
        flags = item.flags
        if known.counted_ids and is_count(item.id):
            flags += gap_flags("gap", max(0, int(item.id) - last - 1))
            last = int(item.id)
        flags += () if is_ordered(item) else ("unordered",)
        yield replace(item, references=references.get(item.id, item.references), flags=flags)
    for id, texts in references.items():
        if id not in seen:
            yield NBestList(id, (), texts, flags=("missing",))


def is_ordered(nbest: NBestList) -> bool:
    """Whether the total the lists were ranked by falls from one hypothesis to the next, but for rounding."""
    ranked_by = ("score", "first_pass_normalized", "first_pass")
    totals = [
        next(hypothesis.features[name] for name in ranked_by if name in hypothesis.features)
        for hypothesis in nbest.hypotheses
    ]
    totals = [total for total in totals if not math.isnan(total)]
    return all(
        later <= earlier or math.isclose(earlier, later, rel_tol=RELATIVE_ROUNDING, abs_tol=ABSOLUTE_ROUNDING)
        for earlier, later in pairwise(totals)
    )
