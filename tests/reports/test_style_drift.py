"""The phrase that rose most, and a judge's gain at equal style, by hand."""

from __future__ import annotations

from convbench.reports.style_drift import risen_phrase, style_control

LONG = "aa bb cc dd ee ff gg hh"


def test_of_phrases_that_rose_alike_it_is_always_the_same() -> None:
    phrase = risen_phrase({"a": "zz"}, {str(i): LONG for i in range(5)}, {})
    assert phrase is not None
    assert phrase.text == "cc dd ee ff gg hh"  # all of six words are as long
    assert (phrase.before, phrase.after) == (0.0, 1.0)


def test_a_longer_phrase_goes_before_one_that_rose_a_little_more() -> None:
    texts = {str(i): "ab cd ef" if i < 99 else "ab cd" for i in range(100)}
    phrase = risen_phrase({"a": "zz"}, texts, {})
    assert phrase is not None
    assert (phrase.text, phrase.after) == ("ab cd ef", 0.99)


def test_the_least_rise_is_a_tenth() -> None:
    def rise(count: int) -> str | None:
        texts = {str(i): "so it is" if i < count else f"w{i}" for i in range(100)}
        phrase = risen_phrase({"a": "zz"}, texts, {})
        return phrase and phrase.text

    assert (rise(9), rise(10), rise(11)) == (None, "so it is", "so it is")


def test_scores_without_texts_have_no_gain_at_equal_style() -> None:
    assert style_control([("g", "u", 1.0, 2.0)], {}).gain is None
