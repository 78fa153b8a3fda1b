"""Text made ready for a language model, and the recipes that make texts alike."""

from __future__ import annotations

import io
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.whisper.english_normalizer import BasicTextNormalizer

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.recipes import RECIPES, recipe_named
from mlmfast.rescoring.text_preparation import TextPreparation, read_word_map


@pytest.mark.parametrize(
    ("options", "text", "prepared"),
    [
        ({}, "  as  it\tis ", "as it is"),
        ({"lowercase": True}, "The BBC", "the bbc"),
        ({"join_bpe": True}, "un@@ believ@@ able @@ a@@b it@@", "unbelievable a@@b it"),
        ({"join_bpe": True, "word_map": {"gonna": "going to"}}, "gon@@ na  go", "going to go"),
        ({"capitalize": "first"}, '"éa BBC', '"Éa BBC'),
        ({"capitalize": "python"}, "the BBC", "The bbc"),
        ({"append_period": True}, "is it", "is it."),
        ({"append_period": True}, "is it ?", "is it ?"),
        ({"strip_punct": True}, "“well-known,” it's 3.5 -- (really)!", "well-known it's 3.5 really"),
        ({"detok": "en"}, "it &apos;s a dog , isn &apos;t it ?", "it's a dog, isn't it?"),
        ({"word_map": {"<unk>": "", "gonna": "going to"}}, "i 'm gonna <unk> go", "i 'm going to go"),
        (
            {"detok": "en", "capitalize": "first", "append_period": True, "lowercase": True},
            "HE SAID : ( NO )",
            "He said: (no).",
        ),
    ],
)
def test_preparation(options: dict[str, object], text: str, prepared: str) -> None:
    assert TextPreparation(**options)(text) == prepared  # type: ignore[arg-type]


def test_an_empty_text_stays_empty() -> None:
    prepare = TextPreparation(
        word_map={"<sil>": ""},
        detok="en",
        strip_punct=True,
        lowercase=True,
        capitalize="first",
        append_period=True,
    )
    assert [prepare(text) for text in ("", " ", "<sil>", "...")] == [""] * 4


def test_settings_tell_preparations_apart() -> None:
    plain, mapped = TextPreparation(), TextPreparation(word_map={"a": "b"})
    assert plain.settings() == TextPreparation().settings()
    assert plain.settings() != mapped.settings() != TextPreparation(word_map={"a": "c"}).settings()


def test_unknown_capitalize_is_refused() -> None:
    with pytest.raises(SettingsError, match="unknown capitalize='all'"):
        TextPreparation(capitalize="all")  # type: ignore[arg-type]


def test_word_map_file() -> None:
    content = b"<unk>\t\r\n\ngonna\tgoing  to\n"
    assert read_word_map(io.BytesIO(content)) == {"<unk>": "", "gonna": "going to"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\na b\n", "line 2: expected WORD<TAB>REPLACEMENT, got 'a b'"),
        (b"two words\tone\n", "line 1: expected WORD<TAB>REPLACEMENT"),
        (b"a\tb\na\tc\n", "line 2: the word 'a' is mapped twice"),
        (b"a\t\xff\n", "line 1: invalid UTF-8"),
    ],
)
def test_a_bad_word_map_names_the_line(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_word_map(io.BytesIO(content))


@pytest.mark.parametrize("language", ["xx", "english", ""])
def test_a_language_that_moses_does_not_know(language: str) -> None:
    with pytest.raises(
        SettingsError, match=f"no detokenisation for language '{language}'; expected one of as,"
    ):
        TextPreparation(detok=language)


def test_detokenisation_without_its_package_names_the_extra() -> None:
    code = """
import sys
sys.modules["sacremoses"] = None
from mlmfast import MissingExtraError
from mlmfast.rescoring.text_preparation import TextPreparation
try:
    TextPreparation(detok="en")
except MissingExtraError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'mlmfast[nbest]'" in run.stdout


@pytest.mark.parametrize(
    ("recipe", "text", "normal"),
    [
        ("none", " The  dog, ", "The dog,"),
        ("lowercase", "The  DOG,", "the dog,"),
        ("strip-punctuation", "The 'dog', isn't - it?", "The dog isn't it"),
        ("lowercase-strip-punctuation", "«The» DOG.", "the dog"),
        ("whisper-basic", "The dog's [noise] ½ (um) re-run – ok!", "the dog s 1 2 re run ok"),
    ],
)
def test_recipes(recipe: str, text: str, normal: str) -> None:
    assert recipe_named(recipe)(text) == normal


@given(st.text())
def test_recipes_leave_single_spaces_and_do_not_change_their_own_result(text: str) -> None:
    for name in ("none", "strip-punctuation"):
        normal = RECIPES[name](text)
        assert normal == " ".join(normal.split())
        assert RECIPES[name](normal) == normal


@given(st.lists(st.sampled_from(["a", "É", "'", "...", " ", "(", ")", "[", "]", "½", "$", "-", "ﬁ", "1"])))
def test_whisper_basic_is_whispers(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert recipe_named("whisper-basic")(text) == " ".join(BasicTextNormalizer()(text).split())


@given(st.text(st.characters(codec="utf-8")))
def test_stripping_punctuation_against_character_by_character(text: str) -> None:
    def is_punctuation(character: str) -> bool:
        return unicodedata.category(character).startswith("P")

    plain = []
    for word in text.split():
        while word and is_punctuation(word[0]):
            word = word[1:]
        while word and is_punctuation(word[-1]):
            word = word[:-1]
        if word:
            plain.append(word)
    assert recipe_named("strip-punctuation")(text) == " ".join(plain)


def test_unknown_recipe_is_refused() -> None:
    with pytest.raises(SettingsError, match="unknown recipe 'whisper'; expected one of none, lowercase"):
        recipe_named("whisper")
