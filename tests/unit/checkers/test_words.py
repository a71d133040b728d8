"""Short strings as numbers: two strings have the same code only if they are the same."""

import random

import pyarrow as pa
import pytest

from checkers.kernels.words import NO_CODE, code_of, codes

WORDS = [None, "", "ok", "oké", "fail", "poll", "appendix", "ninechars", "a\0", "\0", "a"]


def expected(words: list[str | None]) -> list[int]:
    return [
        int(NO_CODE)
        if word is None or len(word.encode()) > 8 or "\0" in word
        else int(code_of(word))
        for word in words
    ]


def test_codes_of_columns_in_any_form_are_those_of_their_words() -> None:
    rng = random.Random(1)
    for _ in range(400):
        words = [rng.choice(WORDS) for _ in range(rng.randrange(9))]
        array = pa.array(words, pa.string())
        cut = rng.randrange(len(words) + 1)
        forms = (
            array,
            pa.chunked_array([array]),
            pa.chunked_array([array.slice(0, cut), array.slice(cut)]),
            array.dictionary_encode(),
        )
        for form in forms:
            assert codes(form).tolist() == expected(words), words
        assert codes(array.slice(cut)).tolist() == expected(words[cut:])


def test_columns_of_one_word_and_columns_that_only_look_so() -> None:
    for words in (["ok"] * 5, ["", "okok"], ["o", "kok"], ["ok", "ok", "", "okok"], ["okokokoko"]):
        assert codes(pa.array(words)).tolist() == expected(list(words))


def test_a_word_without_a_code_is_refused() -> None:
    for word in ("ninechars", "a\0"):
        with pytest.raises(ValueError, match="has no code"):
            code_of(word)
