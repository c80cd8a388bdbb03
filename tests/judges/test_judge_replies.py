"""Judge replies that hold no verdict, and verdicts in every usual form.

Half of the forms in replies.yaml were never looked at while the reader was mended. The texts of
stored judgments (real models' answers and a real judge's scores where they are, else ours alone)
are put together to replies here, for no set with a judge's own words and its scores was at hand.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convbench.catalog import load_spec
from convbench.engine.caller import Caller, RetryPolicy
from convbench.judges.dispatch import judge_conversation
from convbench.judges.replies import Complaint, Scores
from convbench.judges.replies import read_reply as read_reply
from convbench.judges.resolve import resolve_judge
from convbench.models import open_model
from convbench.schema import JudgeSpec
from tests.helpers.excerpts import Source
from tests.helpers.table import QUESTION, asked, protocol_of
from tests.support.cases import load_cases
from tests.support.chat.replies import Call
from tests.support.exhaustive import every_nth
from tests.support.provider import Provider

FORMS = load_cases(Path(__file__).parent / "hostile_replies.yaml")
RUBRIC = load_spec(JudgeSpec, "judges", "rubric")
NAMES = [metric.name for metric in RUBRIC.metrics]
LABELS = [metric.label for metric in RUBRIC.metrics]
GOOD = "\n".join(f"{label}: 8" for label in LABELS)


def read(reply: str) -> list[float] | None:
    """The six scores, None where the judge would be asked again."""
    got = read_reply(reply, RUBRIC)
    return [got.scores[name] for name in NAMES] if isinstance(got, Scores) else None


@pytest.mark.parametrize("form", FORMS["tuned"], ids=lambda form: form["name"])
def test_a_form_that_was_mended_for(form: dict[str, Any]) -> None:
    assert read(form["reply"]) == form["scores"]


@pytest.mark.parametrize("form", FORMS["heldout"], ids=lambda form: form["name"])
def test_a_form_held_out(form: dict[str, Any]) -> None:
    assert read(form["reply"]) == form["scores"]


@pytest.mark.parametrize("form", FORMS["later"], ids=lambda form: form["name"])
def test_a_form_that_was_thought_of_later(form: dict[str, Any]) -> None:
    assert read(form["reply"]) == form["scores"]


@pytest.mark.parametrize("form", FORMS["elsewhere"], ids=lambda form: form["name"])
def test_what_is_said_of_scores_elsewhere(form: dict[str, Any]) -> None:
    assert read(form["reply"]) == form["scores"]


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=6, max_size=6), st.randoms())
def test_an_echo_in_front_never_changes_a_verdict(halves: list[int], rng: random.Random) -> None:
    """Whatever the talk scores itself with, the judge's own numbers count."""
    scores = [half / 2 for half in halves]
    echoed = "\n".join(f"{label}: {rng.randrange(11)}" for label in LABELS)
    own = "\n".join(f"{label}: {score}" for label, score in zip(LABELS, scores, strict=True))
    quoted = "\n".join(f"> {line}" for line in echoed.splitlines())
    fenced = f"```\nAssistant: {echoed}\n```"
    tagged = f"<transcript>\n{echoed}\n</transcript>"
    for echo in (quoted, fenced, tagged):
        assert read(echo) is None
        assert read(f"{echo}\n\n{own}") == scores
        assert read(f"{own}\n\n{echo}") == scores


def test_a_judge_that_echoes_is_asked_again_over_http() -> None:
    """The first reply quotes scores, the second disowns them, the third is a verdict in JSON."""
    talk, sent = asked(1), []
    replies = [
        "\n".join(f"> {label}: 10" for label in LABELS),
        f"{GOOD.replace('8', '9')}\nThese scores are only an example.",
        "{" + ", ".join(f'"{name}": 4' for name in NAMES) + "}",
    ]

    def judge_says(call: Call) -> str:
        sent.append(call)
        return replies[len(sent) - 1]

    protocol = protocol_of("clarifying-adaptive")
    with Provider(reply=judge_says) as provider:
        model = open_model("openai/judge", api_base=provider.api_base)
        caller = Caller(retry=RetryPolicy(tries=1))
        judge = resolve_judge("openai/judge")
        verdict = asyncio.run(judge_conversation(caller, model, judge, talk, QUESTION, protocol))
    assert (verdict.attempts, set(verdict.scores.values())) == (3, {4.0})
    assert verdict.reward == pytest.approx(0.4 * 0.95)
    assert "could not be read" in sent[1].asked
    assert "disowned" in sent[2].asked


FILLERS = [
    "score" + " " * 60_000, "> " * 30_000, "{" * 60_000, '{"a":' * 20_000, "|" * 60_000,
    "[" * 60_000,
    "```\n" * 20_000, "<transcript>" * 10_000, "Assistant: " * 10_000, "Overall: 8 " * 3_000,
    "- " * 30_000, "these scores " * 10_000, "\n" * 60_000, "Wait, " * 10_000, "<think>" * 10_000,
    "\n" * 200_000, " " * 200_000, "Overall: 7" + " " * 200_000, "Overall: 7\n" + "8 " * 40_000,
    "Overall: 7\n" + "scores from 1 " * 10_000, "Overall: 7\n" + "accuracy 3 " * 10_000,
    "Overall: 7\n" + "lower" + " " * 100_000, "*" * 100_000, "Assistant" + " " * 100_000,
    "| --" + "-" * 100_000, "Overall\n" * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("filler", every_nth(4, FILLERS), ids=lambda filler: ascii(filler[:12]))
def test_a_long_reply_is_read_in_linear_time(filler: str) -> None:
    """Nothing is timed here, but a quadratic reading of these hangs for minutes."""
    assert isinstance(read_reply(f"{filler}\nAccuracy: x", RUBRIC), Complaint)


Stored = tuple[list[str], list[float]]


@pytest.fixture(scope="module")
def stored(judgments: Source) -> Stored:
    """What models answered, and a judge's scores on 0 to 10."""
    import pyarrow.parquet as pq

    grades = pq.read_table(judgments.place / "seal_grades.parquet").to_pylist()
    said = [row[name] for row in grades for name in ("answer", "base_answer")]
    arena = pq.read_table(judgments.place / "arena_sample.parquet").column("judge").to_pylist()
    scores = [round(10 * score, 2) for score in arena if score is not None]
    return [text for text in said if text.strip()], scores


def test_no_answer_is_a_verdict(stored: Stored, judgments: Source) -> None:
    texts = stored[0][:: judgments.pick(1, 4)]
    assert len(texts) == judgments.pick(31, len(texts))
    assert [text for text in texts if read(text) is not None] == []


@pytest.mark.parametrize(
    ("style", "ours", "real"),
    [("{l}: {s:g}\n{w}\n", 1, 0.98), ("**{l}:** {s:g}/10\n{w}\n", 1, 0.98),
     ("### {l}\nScore: {s:g}\n{w}\n", 1, 0.98), ("- {l}: {s:g} - {w}", 0.15, 0.7)],
)  # fmt: skip
def test_scores_beside_a_model_s_words(
    stored: Stored, judgments: Source, style: str, ours: float, real: float
) -> None:
    """Never another score than the one written; refused only where the words begin with a number
    that could be a second score (7 of the excerpt's 31 do), or hold a line of label and number."""
    rng, (texts, scores), right = random.Random(8), stored, 0
    for _ in range(200):
        given = [rng.choice(scores) for _ in LABELS]
        lines = [
            style.format(l=x, s=s, w=rng.choice(texts)) for x, s in zip(LABELS, given, strict=True)
        ]
        got = read("\n".join(lines))
        assert got in (None, given)
        right += got is not None
    assert right >= 200 * judgments.pick(ours, real)
