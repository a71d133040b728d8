"""Short strings as numbers: two strings have the same code only if they are the same."""

import gc
import random
import weakref

import pyarrow as pa
import pytest

from checkers.kernels.words import (
    KINDS,
    NO_CODE,
    OUTCOMES,
    code_of,
    codes,
    numbers,
    operation_words,
)

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


LOOK_ALIKES = (
    ["ok"] * 5,
    ["", "okok"],
    ["o", "kok"],
    ["ok", "ok", "", "okok"],
    ["okokokoko"],
    ["", ""],
    ["\0k", "\0k"],
)


def test_columns_of_one_word_and_columns_that_only_look_so() -> None:
    for words in LOOK_ALIKES:
        assert codes(pa.array(words)).tolist() == expected(list(words))
        assert numbers(pa.array(words), ("ok",)).tolist() == [
            0 if word == "ok" else -1 for word in words
        ]


@pytest.mark.parametrize("known", [KINDS, OUTCOMES, ("ok",), ("appendix", "a", "oké")])
def test_numbers_of_columns_in_any_form_are_those_of_their_words(known: tuple[str, ...]) -> None:
    rng = random.Random(1)
    near = [f"{word}s" for word in known] + [word[:-1] for word in known] + [*known] * 3
    position = {word: at for at, word in enumerate(known)}
    for size in (3, 9, 40):
        for _ in range(200):
            words = [rng.choice([*near, *WORDS]) for _ in range(rng.randrange(size))]
            array = pa.array(words, pa.string())
            cut = rng.randrange(len(words) + 1)
            forms = (
                array,
                pa.chunked_array([array.slice(0, cut), array.slice(cut)]),
                array.dictionary_encode(),
                array.dictionary_encode().slice(0),
            )
            for form in forms:
                wanted = [position.get(word or "", -1) for word in words]
                assert numbers(form, known).tolist() == wanted, words
            assert numbers(array.slice(cut), known).tolist() == wanted[cut:]


def test_words_of_operations_are_read_once_for_each_table() -> None:
    table = pa.table({"kind": ["append", "poll", "latest"], "outcome": ["ok", "fail", "info"]})
    words = operation_words(table)
    assert (words.kind.tolist(), words.outcome.tolist()) == ([0, 1, 2], [0, 1, 2])
    assert operation_words(table) is words
    turned = table.take(pa.array([2, 0, 1]))
    assert operation_words(turned).kind.tolist() == [2, 0, 1]


def test_words_of_a_table_that_is_gone_are_forgotten() -> None:
    table = pa.table({"kind": ["append"], "outcome": ["ok"]})
    words = weakref.ref(operation_words(table))
    del table
    gc.collect()
    assert words() is None


def test_a_word_without_a_code_is_refused() -> None:
    for word in ("ninechars", "a\0"):
        with pytest.raises(ValueError, match="has no code"):
            code_of(word)
