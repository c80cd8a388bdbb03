"""What the list and the overview say, against counts made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from multidict import MultiDict

from convbench.errors import QueryError, RunError
from convbench.schema import ImagePart, TextPart
from convbench.store import Run
from convbench.viewer.figures import overview_figures
from convbench.viewer.filters import facet_counts, list_page, search_terms
from convbench.viewer.follow import GrowingIndex
from convbench.viewer.index import ViewIndex
from convbench.viewer.library import index_runs
from convbench.viewer.talk import talk_json, turn_prompts
from tests.helpers.viewer_runs import RIGHT, WRONG, make, question, world


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> ViewIndex:
    path = tmp_path_factory.mktemp("index") / "world"
    world(path)
    return index_runs([path], lambda text: None)


def total(index: ViewIndex, *pairs: tuple[str, str]) -> int:
    """How many conversations a query string finds."""
    return int(list_page(index, MultiDict(pairs))["total"])


OVER = "conversation_id IN (SELECT conversation_id FROM verdicts WHERE overall > 8.5)"


@pytest.mark.parametrize(
    ("pairs", "count"),
    [
        ([], 20),
        ([("result", "correct")], 11),
        ([("result", "wrong")], 7),
        ([("result", "unparsed")], 1),
        ([("result", "failed")], 1),
        ([("result", "failed"), ("result", "unparsed")], 2),
        ([("split", "test")], 5),
        ([("temperature", "0.3")], 12),
        ([("temperature", "1.0"), ("split", "test")], 2),
        ([("policy", "local:checkpoints/tuned")], 4),
        ([("flag", "any")], 1),
        ([("flag", "teacher:words")], 1),
        ([("flag", "none such")], 0),
        ([("judge", "strict")], 15),
        ([("judge", "strict"), ("min", "0.2")], 14),
        ([("min", "0.81")], 4),
        ([("max", "0.3")], 7),
        ([("q", "NUMBER 3")], 3),
        ([("q", '"a guess"')], 6),
        ([("q", '"guess a"')], 0),
        ([("where", "correct AND temperature < 0.5 -- a comment")], 11),
        ([("where", OVER)], 4),
    ],
)  # fmt: skip
def test_filters_count(index: ViewIndex, pairs: list[tuple[str, str]], count: int) -> None:
    assert total(index, *pairs) == count


@pytest.mark.parametrize(
    ("result", "ends"),
    [
        ("wrong", {"q2s1", "q3s1", "q4s1", "q5s1", "q6s1", "q7s0", "q7s1"}),
        ("unparsed", {"q0s1"}),
        ("failed", {"q1s1"}),
    ],
)
def test_each_result_finds_its_own(index: ViewIndex, result: str, ends: set[str]) -> None:
    """What says nothing but an option's text (q7s0) is read as that option."""
    found = list_page(index, MultiDict(result=result))["rows"]
    assert {row["conversation_id"][-4:] for row in found} == ends


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("true) UNION SELECT n FROM conversations WHERE (true", "expected one condition"),
        ("true) ORDER BY (n", "expected one condition"),
        ("true; DROP TABLE conversations", "not valid SQL"),
        ("n IN (SELECT 1 FROM read_csv('/etc/passwd'))", "file system operations are disabled"),
        ("getenv('HOME') = 'x'", "getenv"),
        ("nonsense > 3", '"nonsense" not found.*available columns: .*temperature.*question$'),
        (
            "(WITH x AS (DELETE FROM conversations RETURNING n) SELECT count(*) FROM x) > 0",
            "a nested statement that writes",
        ),
    ],
)
def test_free_conditions_only_read(index: ViewIndex, clause: str, said: str) -> None:
    with pytest.raises(QueryError, match=said.replace("(", r"\(")):
        total(index, ("where", clause))
    assert total(index) == 20


def test_long_questions_are_given_up(index: ViewIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition that never ends does not keep the viewer busy for ever."""
    with monkeypatch.context() as patch:
        patch.setattr("convbench.viewer.index.LONGEST_S", 0.3)
        with pytest.raises(QueryError, match="took longer"):
            total(index, ("where", "(SELECT sum(a.range * b.range) FROM range(1000000000) a, "
                                   "range(1000000) b) > n"))  # fmt: skip
    assert total(index) == 20


@pytest.mark.parametrize(
    "pair", [("sort", "text"), ("result", "fine"), ("min", "nan"), ("offset", "-1"), ("judge", "x")]
)
def test_what_cannot_be_understood_is_named(index: ViewIndex, pair: tuple[str, str]) -> None:
    with pytest.raises(QueryError, match=f"{pair[0]}: found '{pair[1]}'"):
        total(index, pair)


def test_order_and_pages_cover_everything_once(index: ViewIndex) -> None:
    """Pages of three by reward: every row once, none out of order, the unjudged last."""
    seen: list[dict[str, object]] = []
    for offset in range(0, 21, 3):
        asked = MultiDict(sort="reward", desc="1", offset=str(offset), limit="3")
        seen += list_page(index, asked)["rows"]
    assert len({row["n"] for row in seen}) == 20
    rewards = [row["rewards"][0] for row in seen]  # type: ignore[index]
    assert rewards == [0.9] * 4 + [0.8] * 8 + [0.3] * 7 + [None]


def test_answers_that_are_kept_are_few_and_small(
    index: ViewIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million rows each takes 4 MB."""
    index._orders.clear()
    monkeypatch.setattr("convbench.viewer.index.ORDERED", 200)  # 80 bytes are 20 numbers
    for sort in ("words", "reward", "sample", "run"):
        assert total(index, ("sort", sort)) == 20
        assert sum(one.nbytes for one in index._orders.values()) in (80, 160)
    monkeypatch.setattr("convbench.viewer.index.ORDERED", 79)
    assert total(index, ("sort", "task")) == 20
    assert not index._orders


def test_figures_are_means_over_conversations_with_clustered_errors(index: ViewIndex) -> None:
    """Train of the base policy: g0 (q0, q1) 2 of 3, g1 (q2) 1 of 2, g2 (q4, q5) 2 of 4, g3 (q6)
    1 of 2; failed ones do not count."""
    found = {(row["policy"], row["split"]): row for row in overview_figures(index)["methods"]}
    base = found["local:base", "train"]
    assert (base["conversations"], base["failed"], base["unparsed"], base["flagged"]) == (
        12,
        1,
        1,
        1,
    )
    mean = 6 / 11
    apart = [right - n * mean for right, n in ((2, 3), (1, 2), (2, 4), (1, 2))]
    error = (4 / 3 * sum(e * e for e in apart)) ** 0.5 / 11
    assert base["accuracy"] == {
        "mean": pytest.approx(mean), "error": pytest.approx(error), "groups": 4, "n": 11,
    }  # fmt: skip
    tuned = found["local:checkpoints/tuned", "test"]
    assert tuned["accuracy"] == {"mean": 1.0, "error": None, "groups": 1, "n": 1}


def test_groups_are_counted_once(index: ViewIndex) -> None:
    found = index.query_row("SELECT count(DISTINCT group_id) AS n FROM conversations")
    assert overview_figures(index)["totals"]["groups"] == found["n"] == 4


def test_histogram_counts_every_score(index: ViewIndex) -> None:
    rules, strict = overview_figures(index)["rewards"]
    assert (rules["scored"], rules["failed"], rules["counts"][6], rules["counts"][16]) == (
        19, 0, 7, 8,
    )  # fmt: skip
    assert (strict["scored"], strict["failed"]) == (14, 1)


def test_newest_record_is_read_at_its_place(tmp_path: Path) -> None:
    """A second attempt, an empty line and a torn one: the page shows the second attempt."""
    run = make(tmp_path / "r", [question(0)], [(0, 0, None, {}), (0, 0, RIGHT, {"attempt": 1})], {})
    first, second = run.conversations_file.read_bytes().splitlines()
    run.conversations_file.write_bytes(first + b"\n\n\n" + second + b"\n" + second[:50])
    index = index_runs([run.path], lambda text: None)
    name = list_page(index, MultiDict())["rows"][0]["conversation_id"]
    assert total(index) == 1
    assert talk_json(index, name)["turns"][-1]["parts"][0] == {"think": "Magnets pull iron."}
    with pytest.raises(RunError, match="no such conversation"):
        talk_json(index, "nope")


def test_scores_of_a_judge_whose_rubric_is_lost_are_shown_on_ten(tmp_path: Path) -> None:
    run = make(tmp_path / "r", [question(0)], [(0, 0, RIGHT, {})], {"rules": lambda place: 9.5})
    for file in (run.path / "judges").iterdir():
        file.unlink()
    index = index_runs([run.path], lambda text: None)
    name = list_page(index, MultiDict())["rows"][0]["conversation_id"]
    (verdict,) = talk_json(index, name)["verdicts"]
    assert {score["limits"] for score in verdict["scores"]} == {(0, 10)}


def test_run_named_twice_counts_once_and_growth_is_noticed(tmp_path: Path) -> None:
    run = make(tmp_path / "r", [question(0)], [(0, 0, WRONG, {})], {})
    assert total(index_runs([run.path, tmp_path / "." / "r"], lambda text: None)) == 1
    growing = GrowingIndex(lambda: [run, Run.open(tmp_path / "." / "r")])
    assert (total(growing.index), growing.take_in()) == (1, 1)
    with run.conversations_file.open("ab") as file:
        file.write(b"\n")
    growing._rest_until = 0.0
    assert (growing.take_in(), total(growing.index)) == (2, 1)
    growing.close()


def test_empty_run_has_an_overview(tmp_path: Path) -> None:
    run = make(tmp_path / "r", [question(0)], [], {})
    index = index_runs([run.path], lambda text: None)
    assert overview_figures(index)["totals"]["conversations"] == 0
    assert total(index) == 0


def test_prompts_never_hold_the_reference(index: ViewIndex) -> None:
    name = list_page(index, MultiDict(q="number 3"))["rows"][0]["conversation_id"]
    seen = turn_prompts(index, name)
    assert sorted(seen) == ["1", "3"]
    assert "hidden hint" not in str(seen)
    assert talk_json(index, name)["reference"] == {"answer": "B", "secret": "the hidden hint"}


def test_images_of_a_conversation_are_files_of_its_run(tmp_path: Path) -> None:
    """In the turn and in the prompt that the next speaker saw; words around them stay."""
    shown = (TextPart(text="Look: <b>"), ImagePart(file="ab12.png"))
    first = make(tmp_path / "r", [question(0)], [(0, 0, RIGHT, {})], {})
    record = next(first.conversations())
    turns = (record.turns[0].model_copy(update={"content": shown}), *record.turns[1:])
    line = record.model_copy(update={"turns": turns}).model_dump_json().encode() + b"\n"
    first.conversations_file.write_bytes(line)
    index = index_runs([first.path], lambda text: None)
    said = [{"text": "Look: <b>"}, {"image": "media/0/ab12.png"}]
    assert talk_json(index, record.conversation_id)["turns"][0]["parts"] == said
    assert turn_prompts(index, record.conversation_id)["1"][1]["parts"] == said


def test_terms() -> None:
    assert search_terms('one "two three"  fo"ur "five') == ["one", "two three", "four", "five"]


def test_a_search_is_asked_of_texts_and_ids_once(
    index: ViewIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by each page of it, and each count beside it."""
    asked: list[str] = []
    ask = index.query_rows

    def told(sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        asked.append(sql)
        return ask(sql, values)

    monkeypatch.setattr(index, "query_rows", told)
    for page in ("0", "5"):
        list_page(index, MultiDict(q="nowhere", offset=page))
        facet_counts(index, MultiDict(q="nowhere", split="train"))
    assert len(asked) > 4
    assert sum("starts_with" in sql for sql in asked) == 1
