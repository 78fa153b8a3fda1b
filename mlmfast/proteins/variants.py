"""Scores of protein variants under one or several masked language models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError, SettingsError
from mlmfast.proteins.conventions import Convention, convention_named
from mlmfast.proteins.mutations import RESIDUES, Mutation, Variant, parse_variant
from mlmfast.proteins.protein import OVERLONG, prepare_wild_type, protein_of
from mlmfast.proteins.readings import Reading, read
from mlmfast.scorer import Scorer
from mlmfast.window_groups import WINDOW_ROW_TOKENS, consecutive

Float64Array = NDArray[np.float64]

VOCAB_SUBSETS = ("all", "residues")
CHUNK_VARIANTS = 1 << 12
"""Variants scored at a time, fewer where the rows that are theirs alone have WINDOW_ROW_TOKENS tokens."""


class VariantScorer:
    """Scores variants of one wild type; several models' scores are averaged.

    convention: `wt-marginals`, `masked-marginals`, `mutant-marginals` or `pppl`, see
    mlmfast.proteins.conventions. context: what the other mutated positions show under masked-marginals:
    `wild-type`, `mask` or `mutant`. vocab_subset: `all`, or `residues`: probabilities are renormalised over
    the twenty amino acids, which changes pppl alone, for under the marginals the constant cancels.
    overlong: for a wild type longer than a model takes, `error`, or `window`: half-overlapping windows, each
    residue scored where it is most central. offset: the first residue has number offset + 1.

    Raises SettingsError for models that read no proteins and for options that are unknown or do not fit,
    InputError for a wild type that cannot be read, TextTooLongError for one that is too long.
    """

    def __init__(
        self,
        scorers: Scorer | Sequence[Scorer],
        wild_type: str,
        *,
        convention: str = "masked-marginals",
        context: str = "wild-type",
        vocab_subset: str = "all",
        overlong: str = "error",
        offset: int = 0,
    ) -> None:
        for what, value, known in (
            ("vocab_subset", vocab_subset, VOCAB_SUBSETS),
            ("overlong", overlong, OVERLONG),
        ):
            if value not in known:
                raise SettingsError(f"unknown {what} {value!r}; expected one of {', '.join(known)}")
        self.sequence = prepare_wild_type(wild_type)
        self.offset = offset
        chosen = convention_named(convention, context)
        scorers = [scorers] if isinstance(scorers, Scorer) else list(scorers)
        if not scorers:
            raise SettingsError("no model to score the variants with; give one or more")
        others = sorted(set(self.sequence) - set(RESIDUES))
        if vocab_subset == "residues" and others:
            raise SettingsError(
                f"the wild type has {', '.join(others)}, which vocab_subset='residues' gives no probability; "
                "use 'all'"
            )
        self.models = [
            VariantModel(scorer, self.sequence, chosen, vocab_subset == "residues", overlong)
            for scorer in scorers
        ]
        shares_rows = convention == "wt-marginals" or (convention, context) == (
            "masked-marginals",
            "wild-type",
        )
        rows_per_variant = len(self.sequence) if convention == "pppl" else 0 if shares_rows else 1
        row_tokens = max(rows_per_variant * len(self.sequence), 1)
        self.num_at_once = min(max(WINDOW_ROW_TOKENS // row_tokens, 1), CHUNK_VARIANTS)

    def parse(self, text: str) -> Variant:
        """A mutation string of this wild type; as `parse_variant`."""
        return parse_variant(text, self.sequence, self.offset)

    def score(self, variants: Iterable[str]) -> Float64Array:
        """float64[S] of mutation strings, the mean of the models' scores in nats; the wild type's is 0,
        higher is more likely. Raises InputError for a string that does not fit, naming its index."""
        if isinstance(variants, str):
            raise SettingsError(
                f"variants is {variants!r:.40}; expected an iterable of strings like ['A23G']"
            )
        means = [scores.mean() for scores in self.score_iter(self._parsed(variants))]
        return np.array(means, dtype=np.float64)

    def score_iter(self, variants: Iterable[Variant]) -> Iterator[Float64Array]:
        """float64[M] for each variant, in order: the scores of the M models. Memory is that of a chunk."""
        for found in self.score_or_pass(variants):
            assert not isinstance(found, InputError)
            yield found

    def score_or_pass(self, variants: Iterable[Variant | InputError]) -> Iterator[Float64Array | InputError]:
        """The same, with an InputError in the place of a variant passed on in its place."""
        for chunk in consecutive(variants, (self.num_at_once,)):
            readable = [variant for variant in chunk if not isinstance(variant, InputError)]
            scores = iter(np.stack([model.scores(readable) for model in self.models], axis=1))
            for variant in chunk:
                yield variant if isinstance(variant, InputError) else next(scores)

    def substitutions(self, first: int = 0) -> Iterator[Variant]:
        """All exchanges of one residue, 20 at each position from `first` on, in the order of RESIDUES; the
        wild type's own letter is among them."""
        for position in range(first, len(self.sequence)):
            for mutant in RESIDUES:
                yield (Mutation(self.sequence[position], position, mutant),)

    def table(self) -> Float64Array:
        """float64[L, 20], the scores of all exchanges of one residue, columns in the order of RESIDUES."""
        means = [scores.mean() for scores in self.score_iter(self.substitutions())]
        return np.array(means, dtype=np.float64).reshape(len(self.sequence), len(RESIDUES))

    def _parsed(self, variants: Iterable[str]) -> Iterator[Variant]:
        for index, variant in enumerate(variants):
            try:
                yield self.parse(variant)
            except InputError as error:
                raise error.at(where=f"variants[{index}]") from None


class VariantModel:
    """The scores of variants under one model.

    num_rows: computed so far; num_unknown: residues of the wild type that are the unknown token to the model.
    """

    def __init__(
        self, scorer: Scorer, sequence: str, convention: Convention, residues_only: bool, overlong: str
    ) -> None:
        name = scorer.files.source.name
        if scorer.files.config.kind != "masked":
            raise SettingsError(f"{name} is a {scorer.files.config.kind} model; variants need a masked one")
        if not scorer.files.tokenizer.protein:
            raise SettingsError(
                f"{name} reads no proteins: its vocabulary is not single letters with the twenty amino acids "
                "among them; name an ESM-2 or antibody model (--model)"
            )
        self.scorer = scorer
        self.protein = protein_of(sequence, scorer.files.tokenizer, scorer.engine.max_length, overlong)
        unknown = scorer.files.tokenizer.special.unknown_id
        unknown_letters = {
            x for x, i in zip(self.protein.letters, self.protein.letter_ids, strict=True) if i == unknown
        }
        self.num_unknown = sum(letter in unknown_letters for letter in sequence)
        self._convention = convention
        self._residues_only = residues_only
        self._column = {letter: column for column, letter in enumerate(self.protein.letters)}
        # Readings of the wild type unmasked or with one mask, L of each at most: all variants share them.
        self._kept: dict[Reading, Float64Array] = {}
        self.num_rows = 0

    def scores(self, variants: Sequence[Variant]) -> Float64Array:
        """float64[n] of n variants; a row they share is computed once, one of the wild type once for all."""
        terms = [list(self._convention(self.protein, variant)) for variant in variants]
        found = self._read({(term.row, term.position) for of_one in terms for term in of_one})
        column = self._column
        sums = (
            math.fsum(sign * found[row, position][column[letter]] for row, position, letter, sign in of_one)
            for of_one in terms
        )
        return np.fromiter(sums, dtype=np.float64, count=len(variants))

    def _read(self, readings: Iterable[Reading]) -> dict[Reading, Float64Array]:
        """float64[A] of each reading, and of all that are kept."""
        wanted = {reading for reading in readings if reading not in self._kept}
        for row in {row for row, _ in wanted if not row.changed and not row.masked}:
            # The row that all variants share is read whole, so that it is computed once.
            wanted |= {(row, int(p)) for p in np.flatnonzero(self.protein.window_of == row.window)}
        new = sorted(wanted)
        self.num_rows += len({row for row, _ in new})
        values = read(self.scorer, self.protein, new).astype(np.float64)
        if self._residues_only:
            residues = values[:, : len(RESIDUES)]
            values = residues - np.log(np.exp(residues).sum(axis=1, keepdims=True))
        found = dict(zip(new, values, strict=True))
        self._kept |= {reading: found[reading] for reading in new if is_of_wild_type(reading)}
        return found | self._kept


def is_of_wild_type(reading: Reading) -> bool:
    """Whether it is of the wild type, with one position masked at most."""
    row, _ = reading
    return not row.changed and len(row.masked) <= 1
