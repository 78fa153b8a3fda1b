"""Model folders: which file is read, and what a damaged one gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from models_at_hand import MODELS, load_from, tokenizer_of

from mlmfast.errors import ModelError

SENTENCES = ["We the People of the United States", "", "naïve Congress, don't 日本"]


def folder_of(name: str, target: Path, *files: str) -> Path:
    for file in ("config.json", *files):
        shutil.copy(MODELS / name / file, target)
    return target


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"null", b'"text"', b"\xff\xfe{}", b'{"model": {}}', b"\0" * 100],
)
def test_a_damaged_tokenizer_file_is_named(tmp_path: Path, content: bytes) -> None:
    folder = folder_of("bert", tmp_path)
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a readable tokenizer"):
        load_from(folder)


def test_a_cut_off_tokenizer_file_is_named(tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path)
    whole = (MODELS / "bert" / "tokenizer.json").read_bytes()
    for size in (1, len(whole) // 2, len(whole) - 1):
        (folder / "tokenizer.json").write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"tokenizer\.json: not a readable tokenizer"):
            load_from(folder)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe"])
def test_a_damaged_configuration_is_named(tmp_path: Path, file: str, content: bytes) -> None:
    folder = folder_of("bert", tmp_path, "tokenizer.json", "tokenizer_config.json")
    (folder / file).write_bytes(content)
    with pytest.raises(ModelError, match=file):
        load_from(folder)


def test_a_folder_without_a_tokenizer_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer here; expected tokenizer\.json"):
        load_from(folder_of("bert", tmp_path))


def test_an_unreadable_sentencepiece_file_says_what_to_install(tmp_path: Path) -> None:
    folder = folder_of("albert", tmp_path, "tokenizer_config.json")
    (folder / "spiece.model").write_bytes(b"not a SentencePiece model")
    with pytest.raises(ModelError, match=r"could not be converted .*mlmfast\[sentencepiece\]"):
        load_from(folder)


def test_a_word_piece_vocabulary_alone_is_converted(tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path, "tokenizer_config.json")
    vocabulary = tokenizer_of("bert").vocabulary
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    converted = load_from(folder)
    assert converted.special == tokenizer_of("bert").special
    found, expected = converted.encode(SENTENCES), tokenizer_of("bert").encode(SENTENCES)
    for column in ("input_ids", "offsets", "word_ids", "char_spans"):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist()


def test_a_tokenizer_file_without_roles_takes_the_customary_names(tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path, "tokenizer.json")
    assert load_from(folder).special == tokenizer_of("bert").special


def test_tokenizer_config_wins_over_the_special_tokens_map(tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path, "tokenizer.json")
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "[PAD]", "unk_token": "[UNK]"}))
    assert load_from(folder).special.mask_id == 0
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "[MASK]"}}))
    special = load_from(folder).special
    assert (special.mask_id, special.unknown_id) == (4, 1)


def test_an_esm_vocabulary_without_its_special_tokens_is_refused(tmp_path: Path) -> None:
    folder = folder_of("esm2", tmp_path)
    (folder / "vocab.txt").write_text("<cls>\n<pad>\n<eos>\nL\nA\n")
    with pytest.raises(ModelError, match=r"vocab\.txt: .*<mask>, <unk>"):
        load_from(folder)


def test_an_esm_vocabulary_that_is_not_text_is_refused(tmp_path: Path) -> None:
    folder = folder_of("esm2", tmp_path)
    (folder / "vocab.txt").write_bytes(b"<cls>\n\xff\n")
    with pytest.raises(ModelError, match=r"vocab\.txt: .*not valid UTF-8"):
        load_from(folder)
