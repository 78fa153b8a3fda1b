"""The one-fell-swoop head (Kantroo, Wagner & Machta 2024, arXiv:2407.07265), a baseline of students.

    python benchmarks/student_fell_swoop.py train.txt --output FOLDER

A small network takes each final state of an unmasked pass to the distribution that the teacher gives at that
place under a mask. The encoder is frozen, and so is the teacher's head, through which the network speaks.
As in the paper: targets are the teacher's whole distributions (the tokens themselves would teach it to copy),
the loss is cross-entropy, ReLU and layer normalisation between the layers, AdamW, 1% held out. Otherwise
than there: two layers, as the head does the rest, and one network where the paper averages eight.
One thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from student_material import Part
from student_scores import Judged, Scores
from student_teacher import FrozenTeacher
from torch import Tensor, nn

from mlmfast.functional import linear_score
from mlmfast.io import read_records
from mlmfast.scorer import open_model
from mlmfast.training.distillation.corruption import corrupted_texts
from mlmfast.types import Int64Array, JsonRecord, TokenizedTexts

SETTINGS_FILE, WEIGHTS_FILE = "head.json", "head.safetensors"
HELD_OUT_SHARE = 0.01
PLACES_AT_ONCE = 4096


@dataclass(frozen=True)
class SwoopSettings:
    """num_texts: the first of the file, each with `corrupted` corrupted copies. places: drawn of each text.
    width: of the network between its layers. batch_size: in places."""

    num_texts: int = 10_000
    corrupted: int = 1
    places: int = 2
    width: int = 1536
    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    seed: int = 0


class SwoopHead(nn.Sequential):
    """Final states of an unmasked pass [n, D] to those that the teacher's head is to read [n, D]."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__(
            nn.Linear(hidden_size, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, hidden_size)
        )


def drawn_places(texts: TokenizedTexts, number: int, seed: int) -> tuple[Int64Array, Int64Array]:
    """Up to `number` scored tokens of each text: int64[k] the text of each, int64[k] its place in the
    columns of all texts."""
    choose = np.random.default_rng(seed)
    text_index, places = [], []
    for index, (start, end) in enumerate(zip(texts.offsets[:-1], texts.offsets[1:], strict=True)):
        scored = start + np.flatnonzero(texts.word_ids[start:end] >= 0)
        drawn = np.sort(choose.permutation(scored)[:number])
        text_index.append(np.full(len(drawn), index))
        places.append(drawn)
    return np.concatenate(text_index), np.concatenate(places)


def masked_rows(
    texts: TokenizedTexts, text_index: Int64Array, places: Int64Array, mask_id: int
) -> tuple[np.ndarray, Int64Array, Int64Array]:
    """A copy of a text for each place, masked there: ids int32[N], offsets int64[k+1], int64[k] the places
    in them."""
    starts, lengths = texts.offsets[:-1][text_index], texts.lengths[text_index]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    moved = offsets[:-1] - starts
    ids = texts.input_ids[np.arange(offsets[-1]) - np.repeat(moved, lengths)]
    ids[places + moved] = mask_id
    return ids, offsets, places + moved


def cross_entropy(head: SwoopHead, teacher: FrozenTeacher, states: Tensor, masked: Tensor) -> Tensor:
    """Mean over n places, in nats: of the head's distribution from the teacher's; states, masked [n, D]."""
    with torch.no_grad():
        target = torch.softmax(teacher.logits(masked, fast=True), dim=-1)
    return nn.functional.cross_entropy(teacher.logits(head(states), fast=True), target)


def train(teacher: FrozenTeacher, states: Tensor, masked: Tensor, settings: SwoopSettings) -> SwoopHead:
    """states, masked [k, D]: final states at k places, of the unmasked and of the masked pass. Prints the
    divergence from the teacher on held-out places after each epoch."""
    torch.manual_seed(settings.seed)
    head = SwoopHead(states.shape[1], settings.width)
    order = torch.randperm(len(states))
    num_held_out = max(1, round(HELD_OUT_SHARE * len(states)))
    held_out, rest = order[:num_held_out], order[num_held_out:]
    floor = cross_entropy_floor(teacher, masked[held_out])
    steps = settings.epochs * -(-len(rest) // settings.batch_size)
    optimiser = torch.optim.AdamW(
        head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(settings.epochs):
        started = time.perf_counter()
        for batch in torch.split(rest[torch.randperm(len(rest))], settings.batch_size):
            loss = cross_entropy(head, teacher, states[batch], masked[batch])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            divergence = float(cross_entropy(head, teacher, states[held_out], masked[held_out])) - floor
        seconds = time.perf_counter() - started
        print(f"epoch {epoch + 1}: divergence from the teacher {divergence:.3f} nats, {seconds:.0f} s")
    return head.eval().requires_grad_(False)


def cross_entropy_floor(teacher: FrozenTeacher, masked: Tensor) -> float:
    """The mean entropy of the teacher's distributions, in nats: no head has a smaller cross-entropy."""
    with torch.no_grad():
        log_probs = torch.log_softmax(teacher.logits(masked, fast=True), dim=-1)
    return float(-(log_probs.exp() * log_probs).sum(-1).mean())


def fell_swoop(folder: Path, model: str | None) -> Judged:
    """The head in `folder` on the model it was trained for. Raises SystemExit if that is another."""
    files = open_model(model)
    stored: JsonRecord = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    if stored["teacher_sha256"] != files.checkpoint.checksum():
        raise SystemExit(
            f"{folder}: its head was trained for other weights than those of {files.source.name}"
        )
    teacher = FrozenTeacher(files)
    head = SwoopHead(teacher.hidden_size, stored["settings"]["width"])
    head.load_state_dict(load_file(folder / WEIGHTS_FILE))
    head.eval().requires_grad_(False)

    def score(part: Part) -> Scores:
        texts = files.tokenizer.encode(part.texts)
        scored = texts.word_ids >= 0
        states = teacher.states(texts.input_ids, texts.offsets, np.flatnonzero(scored))
        ids = torch.from_numpy(texts.input_ids[scored].astype(np.int64))
        log_probs = [
            linear_score(teacher.features(head(s)), teacher.weight, i, linear_bias=teacher.bias).scores[0]
            for s, i in zip(
                torch.split(states, PLACES_AT_ONCE), torch.split(ids, PLACES_AT_ONCE), strict=True
            )
        ]
        num_tokens = np.diff(np.concatenate([[0], np.cumsum(scored)])[texts.offsets])
        return Scores.of_tokens(torch.cat(log_probs).numpy(), num_tokens)

    checksum = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
    return Judged("one fell swoop", {"head_sha256": checksum, **stored}, score)


def read_texts(path: Path, number: int) -> Iterator[str]:
    return islice((record.text for record in read_records(path) if record.text), number)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path, help="one a line")
    parser.add_argument("--output", type=Path, required=True, help="folder of the head")
    parser.add_argument("--model", help="the teacher: folder or hub id; by default the embedded model")
    for name, default in asdict(SwoopSettings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = parser.parse_args()
    settings = SwoopSettings(**{name: getattr(options, name) for name in asdict(SwoopSettings())})

    torch.set_num_threads(1)
    files = open_model(options.model)
    teacher = FrozenTeacher(files)
    clean = list(read_texts(options.texts, settings.num_texts))
    texts = files.tokenizer.encode(clean + corrupted_texts(clean, settings.corrupted, settings.seed))
    text_index, places = drawn_places(texts, settings.places, settings.seed)
    mask_id = files.tokenizer.special.mask_id
    assert mask_id is not None
    started = time.perf_counter()
    states = teacher.states(texts.input_ids, texts.offsets, places)
    masked = teacher.states(*masked_rows(texts, text_index, places, mask_id))
    print(
        f"{len(places):,} places of {texts.num_texts:,} texts: {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    head = train(teacher, states, masked, settings)
    options.output.mkdir(parents=True, exist_ok=True)
    save_file(head.state_dict(), options.output / WEIGHTS_FILE)
    stored = {"teacher_sha256": files.checkpoint.checksum(), "settings": asdict(settings)}
    (options.output / SETTINGS_FILE).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
