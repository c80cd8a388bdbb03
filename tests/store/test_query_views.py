"""The views of `query` over records written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.errors import QueryError, RunError
from convbench.schema import ImagePart, TextPart, Turn
from convbench.store import Run
from convbench.store.query import run_query
from tests.helpers.runs import ANSWERS, append, conversation, example, failed, verdict, write_run

CONTRACT = {
    "examples": "example_id task split group_id question",
    "conversations": "conversation_id run task protocol mode example_id group_id split policy "
    "sample temperature seed stop failure answer correct thinking n_turns words flags "
    "prompt_tokens completion_tokens cost_usd",
    "turns": "conversation_id turn_index speaker content prompt_tokens completion_tokens "
    "finish_reason",
    "verdicts": "conversation_id judge overall accuracy reasoning comprehensiveness pedagogical "
    "confidence reward failure attempts cost_usd",
}


@pytest.mark.parametrize("view", CONTRACT)
def test_view_begins_with_the_promised_columns(view: str, tmp_path: Path) -> None:
    """Name by name, in order."""
    found = run_query(f"SELECT * FROM {view}", [write_run(tmp_path / "r")])
    promised = CONTRACT[view].split()
    assert found.columns[: len(promised)] == tuple(promised)
    assert len(found) > 0


def one(sql: str, *runs: Run) -> list[tuple[object, ...]]:
    """Rows of a query."""
    return run_query(sql, runs).rows


def test_conversations_are_graded_from_their_text(tmp_path: Path) -> None:
    """Read, unparsable, and failed are three things."""
    run = write_run(
        tmp_path / "r",
        examples=[example(0), example(1)],
        conversations=[
            conversation(0, 0, ANSWERS[0]), conversation(0, 1, ANSWERS[1]), failed(1),
        ],
        verdicts=[],
    )  # fmt: skip
    columns = "answer, correct, thinking, n_turns, words, prompt_tokens, cost_usd, failure"
    assert one(f"SELECT {columns} FROM conversations ORDER BY conversation_id", run) == [
        ("B", True, True, 2, 10, 20, pytest.approx(0.003), None),
        (None, False, False, 2, 7, 20, pytest.approx(0.003), None),
        (None, None, None, 0, 0, None, None, "TransientModelError: 503"),
    ]


def test_unknown_usage_is_null_and_never_part_of_a_sum(tmp_path: Path) -> None:
    """One call without a count makes the total unknown."""
    whole = conversation(0)
    turns = (*whole.turns[:3], whole.turns[3].model_copy(update={"prompt_tokens": None}))
    run = write_run(tmp_path / "r", count=1, conversations=[whole.model_copy(
        update={"turns": turns})])  # fmt: skip
    assert one("SELECT prompt_tokens, completion_tokens FROM conversations", run) == [(None, 10)]


def test_newest_record_of_a_key_counts(tmp_path: Path) -> None:
    """A failed attempt that succeeded later is one finished conversation."""
    run = write_run(tmp_path / "r", count=1, conversations=[failed(0)], verdicts=[])
    append(run.conversations_file, [conversation(0, attempt=1)])
    append(run.verdicts_file, [verdict(conversation(0), None), verdict(conversation(0), 0.25)])
    assert one("SELECT count(*), max(attempts), count(failure) FROM conversations", run) == [
        (1, 2, 0)
    ]
    assert one("SELECT reward, failure FROM verdicts", run) == [(0.25, None)]


def test_torn_last_line_is_left_out(tmp_path: Path) -> None:
    """A process killed while writing leaves half a line, or a whole one without its end."""
    for number, torn in enumerate((b'{"key": "q9/0", "conv', conversation(4).model_dump_json())):
        run = write_run(tmp_path / str(number), count=2)
        with run.conversations_file.open("ab") as file:
            file.write(torn if isinstance(torn, bytes) else torn.encode())
        assert one("SELECT count(*) FROM conversations", run) == [(4,)]


def test_damage_in_the_middle_names_its_line(tmp_path: Path) -> None:
    """Nothing is left out in silence."""
    run = write_run(tmp_path / "r", count=1)
    with run.conversations_file.open("ab") as file:
        file.write(b'{"key": broken}\n')
    append(run.conversations_file, [conversation(0, 0)])
    with pytest.raises(RunError, match=r"conversations\.jsonl:3: damaged"):
        run_query("SELECT count(*) FROM conversations", [run])


def test_failed_verdict_is_a_row_with_null_scores(tmp_path: Path) -> None:
    """So that nobody takes it for a 0."""
    run = write_run(tmp_path / "r", count=1, conversations=[conversation(0)],
                    verdicts=[verdict(conversation(0), None)])  # fmt: skip
    assert one("SELECT overall, reward, failure FROM verdicts", run) == [
        (None, None, "JudgeError: no scores")
    ]


def test_turns_count_from_zero_and_hold_no_system(tmp_path: Path) -> None:
    """One row a message, in order."""
    run = write_run(tmp_path / "r", count=1, conversations=[conversation(0)])
    rows = one("SELECT turn_index, speaker, content FROM turns ORDER BY turn_index", run)
    assert [row[0] for row in rows] == [0, 1, 2, 3]
    assert rows[1][1:] == ("assistant", "Iron, I think.")
    assert not any("student" in str(row[2]) for row in rows)


def test_images_and_odd_text_in_turns(tmp_path: Path) -> None:
    """Parts are text with `[image]`; text that looks like parts stays as it was said."""
    odd = '[{"type": "shape"}] is what I would draw'
    shown = Turn(speaker="teacher", step="x", finish_reason="rule",
                 content=(TextPart(text="Like this:"), ImagePart(file="a.png")))  # fmt: skip
    whole = conversation(0, said=odd)
    run = write_run(tmp_path / "r", count=1, conversations=[
        whole.model_copy(update={"turns": (shown, *whole.turns[1:])})])  # fmt: skip
    rows = one("SELECT content FROM turns ORDER BY turn_index", run)
    assert rows[0] == ("Like this:\n[image]",)
    assert rows[3] == (odd,)
    assert one("SELECT prompt_tokens FROM conversations", run) == [(20,)]


def test_several_runs_and_a_path_with_wildcards(tmp_path: Path) -> None:
    """Questions that runs share are there once; conversations keep their run."""
    first = write_run(tmp_path / "a [1] *", count=2)
    second = write_run(tmp_path / "it's", count=2, id="20260102-000000-abcdef02")
    assert one("SELECT count(*) FROM examples", first, second) == [(2,)]
    assert one(
        "SELECT run, count(*), sum(correct::INT) FROM conversations GROUP BY run ORDER BY run",
        first, second,
    ) == [(first.manifest.id, 4, 2), (second.manifest.id, 4, 2)]  # fmt: skip


def test_gold_and_hidden_are_columns_of_examples(tmp_path: Path) -> None:
    """For analysis; prompts are another matter."""
    run = write_run(tmp_path / "r", examples=[example(0, hidden={"slip": "wood"})],
                    conversations=[], verdicts=[])  # fmt: skip
    assert one("SELECT gold, hidden->>'slip', choices[2].text FROM examples", run) == [
        ("B", "wood", "iron")
    ]


QUERIES = (
    "FROM conversations ORDER BY conversation_id",
    "SELECT COLUMNS('ans.*') FROM conversations ORDER BY ALL",
    "SELECT c.* EXCLUDE (seed) FROM conversations c ORDER BY ALL",
    "SELECT conversations.correct FROM conversations ORDER BY ALL",
    "SELECT conversations FROM conversations ORDER BY ALL",
    "SELECT count(*) FROM conversations a JOIN conversations b USING (answer)",
    "SELECT count(*) FROM conversations NATURAL JOIN turns",
    "WITH w AS (FROM conversations) SELECT max(words) FROM w",
    "SELECT (SELECT max(n_turns) FROM Conversations), count(*) FROM EXAMPLES",
    "SELECT count(*) FROM query('SELECT answer FROM conversations WHERE correct')",
    "SELECT #14 FROM conversations ORDER BY ALL",
    "SUMMARIZE conversations",
    "SELECT * FROM conversations POSITIONAL JOIN verdicts ORDER BY ALL",
    "PIVOT conversations ON sample IN (0, 1) USING sum(words) GROUP BY mode",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_lazy_loading_changes_no_result(sql: str, tmp_path: Path) -> None:
    """Whatever way a query names a column, it sees what a fully loaded database holds."""
    from convbench.store.tables import connect_runs

    run = write_run(tmp_path / "r", count=3)
    whole = connect_runs([run]).sql(sql).to_arrow_table()
    found = run_query(sql, [run])
    assert [tuple(map(str, row)) for row in found.rows] == [
        tuple(map(str, row)) for row in zip(*(c.to_pylist() for c in whole.columns), strict=True)
    ]
    assert len(found) > 0


def test_errors_name_what_there_is(tmp_path: Path) -> None:
    """One line, with the known tables or columns."""
    run = write_run(tmp_path / "r", count=1)
    with pytest.raises(QueryError, match=r"nope.*available tables: examples, conversations, turns"):
        run_query("SELECT * FROM nope", [run])
    with pytest.raises(QueryError, match=r"rewrd.*verdicts\(conversation_id, judge"):
        run_query("SELECT rewrd FROM verdicts", [run])
    with pytest.raises(QueryError, match=r"avg\(BOOLEAN\).*e\.g\. avg\(correct::int\)$"):
        run_query("select avg(correct) from conversations", [run])
    with pytest.raises(QueryError, match="not valid SQL: syntax error"):
        run_query("SELEC 1", [run])
