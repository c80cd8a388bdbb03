"""Hidden information told in a disguise: by a simulated human, by a teacher, in what is published.

The disguises are made here by other code than the one that undoes them.
"""

from __future__ import annotations

import base64
import codecs
import html
from collections.abc import Callable
from urllib.parse import quote

import pytest

from convbench.rollout.checks import gives_answer_away, gives_away_disguised
from convbench.rollout.checks import leak as tells_the_answer
from convbench.rollout.fidelity import leak as tells_the_reference
from convbench.schema import Choice, Conversation, Example, ProtocolSpec, Turn
from tests.helpers.excerpts import Source
from tests.helpers.table import protocol_of

SECRET = "the total of both numbers is capped at ten whenever the second flag is set to true"
REFERENCE = Example(
    example_id="e", task="t", split="train", group_id="g",
    question="Write a function that adds two numbers.", hidden={"reference": SECRET},
)  # fmt: skip
CHOICE = Example(
    example_id="e", task="t", split="train", group_id="g", question="Which stone sinks?",
    choices=tuple(Choice(label=x, text=t) for x, t in
                  zip("ABCD", ("pumice", "cork", "granite", "a dry sponge"), strict=True)),
    answer="C",
)  # fmt: skip
STATEMENT = "The answer is C"
SIGNS = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- "
    "-..- -.-- --.."
)
MORSE = dict(zip("abcdefghijklmnopqrstuvwxyz", SIGNS.split(), strict=True))
CYRILLIC = str.maketrans("aeopcxyAEOPCXTHKBM", "аеорсхуАЕОРСХТНКВМ")
LEET = str.maketrans("aeiost", "431057")
MATH = {ord("a") + i: 0x1D41A + i for i in range(26)} | {
    ord("A") + i: 0x1D400 + i for i in range(26)
}
FILLER = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt"


def shifted(text: str, by: int) -> str:
    """Caesar's shift."""
    return "".join(
        chr((ord(c.lower()) - 97 + by) % 26 + 97) if c.isascii() and c.isalpha() else c
        for c in text
    )


def mixed(text: str) -> str:
    """The text's letters between those of another."""
    bare = text.replace(" ", "")
    other = (FILLER.replace(" ", "") * 9)[: len(bare)]
    return "".join(a + b for a, b in zip(bare, other, strict=True))


def acrostic(text: str, parting: str) -> str:
    """Words that begin with the text's letters."""
    words = {c: f"{c}um" for c in "abcdefghijklmnopqrstuvwxyz"}
    return parting.join(words[c] for c in text.lower() if c.isalpha())


DISGUISES: dict[str, Callable[[str], str]] = {
    "as it is": lambda t: t,
    "upper case": str.upper,
    "bold": lambda t: f"**{t}**",
    "line breaks": lambda t: t.replace(" ", "\n"),
    "base64": lambda t: base64.b64encode(t.encode()).decode(),
    "base64 in a sentence": lambda t: f"Try {base64.b64encode(t.encode()).decode()} please.",
    "base64 without padding": lambda t: base64.b64encode(t.encode()).decode().rstrip("="),
    "base64 in lines": lambda t: base64.encodebytes(t.encode()).decode(),
    "base64 urlsafe": lambda t: base64.urlsafe_b64encode(t.encode()).decode(),
    "base64 twice": lambda t: base64.b64encode(base64.b64encode(t.encode())).decode(),
    "base32": lambda t: base64.b32encode(t.encode()).decode(),
    "rot13": lambda t: codecs.encode(t, "rot13"),
    "caesar 3": lambda t: shifted(t, 3),
    "caesar 20": lambda t: shifted(t, 20),
    "atbash": lambda t: "".join(chr(219 - ord(c)) if c.isalpha() else c for c in t.lower()),
    "reversed": lambda t: t[::-1],
    "words reversed": lambda t: " ".join(w[::-1] for w in t.split()),
    "word order reversed": lambda t: " ".join(reversed(t.split())),
    "reversed rot13": lambda t: codecs.encode(t, "rot13")[::-1],
    "fullwidth": lambda t: "".join(chr(ord(c) + 0xFEE0) if c != " " else c for c in t),
    "mathematical letters": lambda t: t.translate(MATH),
    "accents": lambda t: "".join(c + "\u0301" for c in t),
    "zero width": lambda t: "\u200b".join(t),
    "zero width joiner": lambda t: "\u200d".join(t),
    "soft hyphens": lambda t: "\u00ad".join(t),
    "cyrillic look-alikes": lambda t: t.translate(CYRILLIC),
    "hyphens between letters": lambda t: " ".join("-".join(w) for w in t.split()),
    "spaces between letters": lambda t: "   ".join(" ".join(w) for w in t.split()),
    "spaces between all letters": lambda t: " ".join(t.replace(" ", "")),
    "dots between letters": lambda t: " ".join(".".join(w) for w in t.split()),
    "every other letter": mixed,
    "leet": lambda t: t.translate(LEET),
    "hex": lambda t: t.encode().hex(),
    "hex apart": lambda t: t.encode().hex(" "),
    "hex escapes": lambda t: "".join(f"\\x{b:02x}" for b in t.encode()),
    "unicode escapes": lambda t: "".join(f"\\u{ord(c):04x}" for c in t),
    "percent": lambda t: "".join(f"%{b:02X}" for b in t.encode()),
    "percent as needed": lambda t: quote(t),
    "html entities": lambda t: "".join(f"&#{ord(c)};" for c in t),
    "html hex entities": lambda t: "".join(f"&#x{ord(c):x};" for c in t),
    "binary": lambda t: " ".join(f"{b:08b}" for b in t.encode()),
    "character codes": lambda t: " ".join(str(b) for b in t.encode()),
    "places in the alphabet": lambda t: "-".join(
        str(ord(c) - 96) for c in t.lower() if c.isalpha()
    ),
    "morse": lambda t: " / ".join(" ".join(MORSE[c] for c in w) for w in t.lower().split()),
    "first letters": lambda t: acrostic(t, " "),
    "first letters of lines": lambda t: acrostic(t, " is here\n"),
    "html entity of markup": lambda t: html.escape(f"<b>{t}</b>"),
}  # fmt: skip


def talk(protocol: ProtocolSpec, speaker: str, *said: str) -> Conversation:
    """A talk in which the policy asks and the speaker says these turns."""
    turns: list[Turn] = []
    for text in said:
        turns.append(Turn(speaker=protocol.policy, step="a", content="And?", finish_reason="stop"))
        turns.append(Turn(speaker=speaker, step="respond", content=text, finish_reason="stop"))
    return Conversation(
        key="k", conversation_id="c", example_id="e", turns=tuple(turns), stop="complete"
    )


COLLABORATION = protocol_of("collaboration").model_copy(
    update={"speakers": {name: speaker.model_copy(update={"cut": None}) for name, speaker in
                         protocol_of("collaboration").speakers.items()}}
)  # fmt: skip
CLARIFYING = protocol_of("clarifying")


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_hidden_reference_in_disguise_is_flagged(disguise: str) -> None:
    said = DISGUISES[disguise](SECRET)
    found = tells_the_reference(talk(COLLABORATION, "human", said), REFERENCE, COLLABORATION)
    assert "human:leak" in found


@pytest.mark.parametrize("disguise", DISGUISES)
def test_an_answer_in_disguise_is_flagged(disguise: str) -> None:
    said = f"Stones differ in weight.\n{DISGUISES[disguise](STATEMENT)}\n"
    if disguise.startswith(("first letters", "every other")):
        said = DISGUISES[disguise](STATEMENT)
    found = tells_the_answer(talk(CLARIFYING, "teacher", said), CHOICE, CLARIFYING)
    assert found == ["teacher:leak"]


def test_a_reference_told_in_pieces_is_flagged() -> None:
    """Neither half is a leak of its own that a decoder of one turn would see."""
    code = base64.b64encode(SECRET.encode()).decode()
    halves = code[:14], code[14:28], code[28:]
    said = talk(COLLABORATION, "human", *halves)
    assert "human:leak" in tells_the_reference(said, REFERENCE, COLLABORATION)


@pytest.mark.parametrize("hidden", [[SECRET], {"rule": SECRET}, [{"rule": [SECRET]}]])
def test_a_text_inside_a_hidden_list_or_object_is_hidden(hidden: object) -> None:
    asked = REFERENCE.model_copy(update={"hidden": {"reference": hidden}})
    for said in (SECRET, SECRET[::-1]):
        found = tells_the_reference(talk(COLLABORATION, "human", said), asked, COLLABORATION)
        assert "human:leak" in found


@pytest.mark.parametrize("disguise", ["base64", "rot13", "reversed", "hex", "morse"])
def test_the_gold_text_alone_in_a_disguise_is_flagged(disguise: str) -> None:
    said = f"Think of this: {DISGUISES[disguise]('granite')}"
    assert tells_the_answer(talk(CLARIFYING, "teacher", said), CHOICE, CLARIFYING)


@pytest.mark.parametrize(
    "said",
    [
        "Granite is a dense rock; etinarg is not a word. Which one floats?",
        "Look at A, B, C and D: 1 2 3 4 5 6 7 8 9 10 grams each.",
        "It is 3.5 times as heavy as water, 2,700 kg in a cubic metre.",
        "See https://example.org/aGVsbG8gd29ybGQ for a picture of pumice.",
        "The id is 3f2a9c0b17de44a1 and the hash is YWJjZGVmZ2hpamtsbW5vcA==.",
        "P-U-M-I-C-E is how it is spelt.",
        "... --- ... is the only Morse I know.",
        "Cork floats on water. Pumice does too. A dry sponge does, until it is wet.",
        "Nprbcynfz is rot13 of nothing here; the flag 🇫🇷 is French.",
        "Ж и т ь — a Russian word; ελληνικά are letters.",
    ],
)
def test_what_hides_nothing_is_not_flagged(said: str) -> None:
    assert tells_the_answer(talk(CLARIFYING, "teacher", said), CHOICE, CLARIFYING) == []
    assert tells_the_reference(talk(COLLABORATION, "human", said), REFERENCE, COLLABORATION) == []


def test_lectures_and_hints_hide_nothing(hub_rows: Source) -> None:
    """Teachers' own texts of ScienceQA: what is not said openly is not found in a disguise."""
    import pyarrow.parquet as pq

    place = hub_rows.place / "derek-thomas__ScienceQA/default"
    rows = pq.read_table(place / "validation.parquet").to_pylist()
    if not hub_rows.real:  # the few rows of the excerpt all, of the real ones a part
        rows += pq.read_table(place / "train.parquet").to_pylist()
    for row in rows:
        asked = CHOICE.model_copy(
            update={
                "question": row["question"], "answer": "ABCDE"[row["answer"]],
                "choices": tuple(Choice(label=x, text=t) for x, t in
                                 zip("ABCDE", row["choices"], strict=False)),
            }
        )  # fmt: skip
        for text in filter(None, (row["lecture"], row["hint"], row["solution"])):
            assert gives_answer_away(text, asked) or not gives_away_disguised(text, asked), text


@pytest.mark.parametrize(
    "filler",
    ["a " * 20_000, "ab1" * 20_000, ". " * 20_000, "%41" * 10_000, "0" * 60_000, "-" * 60_000,
     "QUJD" * 10_000, "\u200b" * 60_000, "&#65;" * 8_000, "1 " * 20_000, "\\x41" * 10_000],
    ids=lambda filler: ascii(filler[:6]),
)  # fmt: skip
def test_long_texts_are_read_in_linear_time(filler: str) -> None:
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    assert not gives_away_disguised(filler, CHOICE)
