"""Grades that are kept: those that the conversations themselves get, whatever changed since."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.answers.grade import grade_conversation
from convbench.errors import RunError
from convbench.reports import policies
from convbench.reports.policies import Observation, read_policy
from convbench.schema import Conversation, ProtocolSpec
from convbench.store import Run, grades
from convbench.views import sent_temperature
from tests.helpers.indexed_runs import cache, make_run, write_lines
from tests.helpers.runs import conversation, example, write_run

__all__ = ["cache"]


def observations(run: Run, split: str) -> list[Observation]:
    """What a report would observe, each record read and graded."""
    protocol, examples = run.manifest.protocol, run.examples
    own = [(t, examples[t.example_id]) for t in run.conversations()]
    return [
        Observation(
            unit=f"{talk.example_id}#{talk.sample}@{talk.temperature:g}",
            group=question.group_id,
            temperature=sent_temperature(protocol, talk),
            failed=talk.failure is not None,
            correct=graded.correct,
            unparsed=graded.correct is not None and graded.answer is None,
            thinking=graded.thinking,
            reasoned=graded.reasoned,
            flags=talk.flags,
            conversation_id=talk.conversation_id,
            words=graded.words,
        )
        for talk, question in own
        for graded in [grade_conversation(protocol, talk, question)]
        if split in ("all", question.split)
    ]


def without_verdicts(run: Run, split: str) -> list[Observation]:
    """What a report does observe, judges left out."""
    return [one._replace(verdicts={}, reviews={}) for one in read_policy(run, split).observations]


def test_kept_grades_are_those_of_the_texts(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    said = ["I cannot tell.", "The answer is A.", "<thinking>Iron.</thinking> The answer is B."]
    more = [conversation(n, 1, said[n % 3], key=f"{n}", conversation_id=f"c{n}") for n in range(30)]
    with run.conversations_file.open("r+b") as file:
        file.truncate(file.read().rindex(b"\n") + 1)
    old = run.conversations_file.read_text().splitlines()
    write_lines(run.conversations_file, old + [talk.model_dump_json() for talk in more])
    expected = {split: observations(run, split) for split in ("train", "test", "all")}
    kinds = {(one.correct, one.unparsed, one.thinking, one.failed) for one in expected["all"]}
    assert len(kinds) > 3
    for _ in range(2):
        for split, texts in expected.items():
            assert without_verdicts(run, split) == texts


def test_a_text_is_graded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run")
    before = without_verdicts(run, "train")
    graded = []

    def count(*args: object) -> object:
        graded.append(args)
        return grade_conversation(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(grades, "grade_conversation", count)
    assert without_verdicts(run, "train") == before
    assert graded == []


def test_changed_questions_and_protocols_are_graded_anew(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", examples=[example(n) for n in range(4)], conversations=[])
    talks = [conversation(n, said="The answer is B. AND SO: nothing") for n in range(4)]
    write_lines(run.conversations_file, [talk.model_dump_json() for talk in talks])
    assert [one.correct for one in without_verdicts(run, "all")] == [True] * 4
    text = "".join(example(n, answer="A").model_dump_json() + "\n" for n in range(4))
    for path in run.path.glob("examples*"):
        path.unlink()
    run.examples_file.write_text(text)
    run = Run.open(run.path)
    assert [one.correct for one in without_verdicts(run, "all")] == [False] * 4
    protocol = run.manifest.protocol.model_copy(update={"answer_after": "AND SO:"})
    other = Run(run.path, run.manifest.model_copy(update={"protocol": protocol}))
    assert without_verdicts(other, "all") == observations(other, "all")
    assert all(one.unparsed for one in without_verdicts(other, "all"))


def test_a_record_that_cannot_be_graded_is_named(tmp_path: Path) -> None:
    """By its line, as everywhere; of another split it is not looked at."""
    run = write_run(tmp_path / "run", examples=[example(n) for n in range(6)], conversations=[])
    lines = [conversation(n).model_dump_json() for n in range(6)]
    lines[4] = lines[4].replace('"speaker":"assistant"', '"speaker":7', 1)
    write_lines(run.conversations_file, lines)
    assert len(without_verdicts(run, "train")) == 5
    with pytest.raises(RunError, match=r"conversations\.jsonl:5: turns\.1\.speaker: Input should"):
        read_policy(run, "test")


def test_verdicts_are_joined_with_their_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are joined at once: the newest of each judge, reviews apart."""
    run = make_run(tmp_path / "run")
    monkeypatch.setattr(run, "reviewer_fingerprints", lambda: frozenset({"beef"}))
    newest = list(run.verdicts())
    for at_once in (7, policies.JOINED_AT_ONCE):
        monkeypatch.setattr(policies, "JOINED_AT_ONCE", at_once)
        observed = [row for *_, row in policies.observe_run(run, "all")]
        assert [row.conversation_id for row in observed] == [
            row.conversation_id for row in run.conversation_rows()
        ]
        for row in observed:
            own = [v for v in newest if v.conversation_id == row.conversation_id]
            expected = {
                v.judge: policies.VerdictScores(
                    v.fingerprint, v.scores, v.reward, not v.scored, v.details
                )
                for v in own
            }
            assert {**row.verdicts, **row.reviews} == expected
            assert set(row.reviews) == {v.judge for v in own if v.fingerprint == "beef"}
    assert {len(row.reviews) for row in observed} == {0, 1}


def test_words_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every conversation."""
    run = make_run(tmp_path / "run")
    count_words, protocol = grades.count_words, run.manifest.protocol
    expected = [(talk.conversation_id, count_words(protocol, talk)) for talk in run.conversations()]
    counted: list[str] = []

    def count(protocol: ProtocolSpec, talk: Conversation) -> int:
        counted.append(talk.key)
        return count_words(protocol, talk)

    monkeypatch.setattr(grades, "count_words", count)
    calls = []
    for _ in range(2):
        counted.clear()
        words = [(row.conversation_id, words) for row, words in grades.words_rows(run)]
        assert words == expected
        calls.append(len(counted))
    assert calls[0] >= len(expected)
    assert calls[1] == 0
