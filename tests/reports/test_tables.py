"""Tables on runs written by hand: who was right on which question, and what a judge said."""

import itertools
import json

import pytest

from convbench.errors import RunError
from convbench.judges.resolve import resolve_judge
from convbench.options.report import ReportOptions
from convbench.reports.document import mean_of
from convbench.reports.report import make_report
from convbench.reports.tables import best_of
from convbench.schema import JudgeSpec, Verdict
from convbench.schema.conversation import TurnCredit
from convbench.store.notes import append_credit
from tests.helpers.reported import by_name, column, learner, names, right_on, tables_of
from tests.helpers.runs import make, questions


def ranks(table, key):
    place = [each.key for each in table.columns].index(key)
    return [line[place] for line in table.ranks()]


@pytest.fixture
def family(tmp_path):
    """Base is right on 1 of 4 questions, swift on 3 of them, dpo (in `direct`) on 2."""
    run = make(tmp_path / "run", questions(4), right_on(0), overall=lambda q, k: 4.0 + k)
    learner(run, "swift", right_on(0, 1, 2), "SWiFt", overall=lambda q, k: 6.0 + k)
    direct = {"recipe": {"eval_protocol": "direct"}, "protocol": "direct"}
    learner(run, "dpo", right_on(0, 3), "DPO", overall=lambda q, k: 5.0 + k, **direct)
    return run


def test_the_papers_table_by_hand(family):
    table = tables_of(family)["results"]
    assert names(table) == ["SWiFt", "DPO", "Base"]
    # Questions (not conversations) are independent: the means of 4 groups are 1, 1, 1, 0:
    # standard deviation 1/2, error 1/4. Naively it would be sqrt(.75 * .25 / 12) = .125.
    swift, dpo, base = column(table, "correct").values()
    assert (swift.mean, swift.error) == (0.75, pytest.approx(0.25))
    assert (dpo.mean, round(dpo.error, 4)) == (0.5, 0.2887)
    assert (base.mean, base.error) == (0.25, pytest.approx(0.25))
    assert ranks(table, "correct") == [1, 2, 0]
    # Overall is 6, 7, 8 on every question: the groups' means do not differ.
    overall = column(table, "rules/overall")["SWiFt"]
    assert (overall.mean, overall.error) == (7, 0)
    # All think on every turn, so that none is best.
    assert column(table, "thinking")["SWiFt"].mean == 100
    assert ranks(table, "thinking") == [0, 0, 0]
    assert any("DPO was evaluated in protocol direct" in note for note in table.notes)
    naive = tables_of(family, kind="naive")["results"]
    assert column(naive, "correct")["SWiFt"].error == pytest.approx(0.125)
    assert [each.head for each in table.columns] == [
        "Policy", "Accuracy", "Unread (%)", "Thinking (%)", "R Overall", "R Accuracy",
        "R Reasoning ability", "R Comprehensiveness", "R Pedagogical value",
        "R Confidence calibration", "Words",
    ]  # fmt: skip


def test_differences_by_hand(family):
    table = tables_of(family)["differences"]
    assert table.caption == "Differences to Base"
    swift, dpo = column(table, "correct").values()
    # By question: 0, 1, 1, 0: mean 1/2, standard deviation 1/sqrt(3), error 1/sqrt(12).
    assert swift.estimate.mean == 0.5
    assert swift.estimate.error == pytest.approx(12**-0.5)
    assert (swift.estimate.n, swift.estimate.groups, swift.estimate.df) == (12, 4, 3)
    # t = sqrt(3), 3 degrees of freedom: p = .181690; dpo: t = 1, p = .391002.
    assert swift.estimate.p == pytest.approx(0.181690, abs=1e-6)
    assert dpo.estimate.p == pytest.approx(0.391002, abs=1e-6)
    assert swift.adjusted == pytest.approx(2 * 0.181690, abs=1e-5)
    assert dpo.adjusted == pytest.approx(0.391002, abs=1e-5)
    overall = [cell.estimate for cell in column(table, "rules/overall").values()]
    assert [(d.mean, d.error) for d in overall] == [(2, 0), (1, 0)]
    for key in ("unread", "words"):
        assert mean_of(column(table, key)["SWiFt"]) == 0
    assert column(table, "pairs")["SWiFt"] == 12


def test_differences_to_a_named_policy(family):
    for name in ("SWiFt", "swift", "SWIFT"):
        table = tables_of(family, baseline=(name,))["differences"]
        assert table.caption == "Differences to SWiFt"
        assert names(table) == ["DPO", "Base"]
        assert mean_of(column(table, "correct")["Base"]) == -0.5
    with pytest.raises(RunError, match=r"--baseline kto: found no such policy.*SWiFt, DPO, Base"):
        make_report([family], ReportOptions(baseline=("kto",)))


def test_the_answer_stands_above_the_tables(family):
    swift, dpo = make_report([family]).document.parts[0].answers
    assert swift == (
        "SWiFt: accuracy +.500 [-.419, +1.419] over its base local:tiny, 12 pairs; "
        "unread 0.0 % → 0.0 %"
    )
    assert dpo.startswith("DPO: accuracy +.250 [")


def test_temperatures_stand_apart(family):
    table = tables_of(family)["temperature"]
    rows = [table.records()[i] for i, row in enumerate(table.rows) if row.cells[0] == "SWiFt"]
    assert [(row["temperature"], row["correct_n"]) for row in rows] == [(0.3, 4), (0.7, 4), (1, 4)]
    assert (rows[1]["correct_difference"], rows[1]["correct_difference_n"]) == (0.5, 4)


def test_rows_stand_apart_for_learners_of_one_recipe(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(1))
    for name, rows, right in (("awr-a", 600, (2,)), ("ppo-b", 1100, (2,))):
        learner(run, name, right_on(*right), recipe={"data": {"rows": rows}})
    assert "rows" not in tables_of(run)  # no learner has two sizes
    learner(run, "awr-c", right_on(2, 3), recipe={"data": {"rows": 1100}})
    rows = tables_of(run)["rows"].records()
    assert [(row["rows"], row["correct"]) for row in rows] == [(600, 0.25), (1100, 0.5)]


def test_rounds_stand_in_order_with_the_base_as_round_0(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(0))
    for number in (2, 10, 1):
        learner(run, f"swift-round-{number}", right_on(0, 1), "SWiFt")
    found = [row.cells[:2] for row in tables_of(run)["rounds"].rows]
    assert found == [("SWiFt", number) for number in (0, 1, 2, 10)]


def test_turns_stand_apart(tmp_path):
    runs = [
        make(tmp_path / f"n{turns}", questions(4), right_on(*range(turns)), turns=turns)
        for turns in (4, 3)
    ]
    rows = tables_of(*runs, part=-1)["turns"].records()
    assert [(row["turns"], row["correct"]) for row in rows] == [(3, 0.75), (4, 1)]


def test_train_conversations_stay_out(family):
    def asked(split):
        settings = make_report([family], ReportOptions(split=split)).settings
        return {row for setting in settings for row in setting.rows["example_id"]}

    assert asked("test") == {"q0", "q1", "q2", "q3"}
    (train,) = make_report([family], ReportOptions(split="train")).settings
    assert [policy.name for policy in train.policies] == ["Base"]
    (every,) = make_report([family], ReportOptions(split="all", allow=True)).settings
    assert len(every.rows_of(every.policies[-1])) == 15


def test_failed_unread_and_unscored_are_counted_and_only_that(tmp_path):
    said = {("q0", 0): None, ("q0", 1): "?", ("q1", 0): "B"}
    scores = {("q1", 2): -1.0, ("q2", 0): None}
    run = make(
        tmp_path / "run",
        questions(3),
        lambda q, k: said.get((q, k), "A"),
        overall=lambda q, k: None if said.get((q, k), "A") is None else scores.get((q, k), 8.0),
    )
    tables = tables_of(run)
    assert list(tables["counts"].records()[0].items()) == [
        ("policy", "Base"), ("planned", 9), ("missing", 0), ("failed", 1), ("complete", 8),
        ("unread", 1), ("flagged", 0), ("rules/scored", 6), ("rules/failed", 1),
        ("rules/unjudged", 1),
    ]  # fmt: skip
    # 8 conversations count, 6 of them right; the unread one is wrong and has no thinking.
    found = tables["results"].records()[0]
    assert (found["correct"], found["correct_n"]) == (6 / 8, 8)
    assert found["unread"] == pytest.approx(100 / 8)
    assert found["thinking"] == pytest.approx(100 * 7 / 8)
    # A failed verdict is no score, never 0.
    assert (found["rules/overall"], found["rules/overall_n"]) == (8.0, 6)


def test_a_run_alone_unjudged_and_half_done(tmp_path):
    run = make(tmp_path / "run", questions(3), lambda q, k: "A")
    lines = run.conversations_file.read_bytes().splitlines(keepends=True)
    run.conversations_file.write_bytes(b"".join(lines[:4]))
    tables = tables_of(run)
    keys = [each.key for each in tables["results"].columns]
    assert keys == ["policy", "correct", "unread", "thinking", "words"]
    assert any("Not judged" in note for note in tables["results"].notes)
    assert column(tables["counts"], "missing") == {"Base": 5}
    assert "differences" not in tables


def test_judges_stand_side_by_side(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0)
    again = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    with run.verdicts_file.open("a") as file:
        for verdict in again:
            other = {"judge": "strict", "scores": {"overall": 8.0}}
            file.write(json.dumps(verdict | other) + "\n")
    tables = tables_of(run)
    (row,) = tables["results"].records()
    assert (row["rules/overall"], row["strict/overall"]) == (5, 8)
    (row,) = tables["agreement"].records()
    assert (row["judges"], row["common"], row["equal"]) == ("rules / strict", 6, 0)
    assert row["difference"] == pytest.approx(-0.3)
    one = tables_of(run, judge="strict")["results"]
    assert not any(each.key.startswith("rules/") for each in one.columns)
    with pytest.raises(RunError, match="found verdicts of rules, strict"):
        make_report([run], ReportOptions(judge="nobody"))


def test_judges_of_other_scales_are_compared_on_one(tmp_path):
    """Of 0 to 10 and of 1 to 5, by a metric of another name: the same is the same."""
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 2.5 * k)
    spec = JudgeSpec(
        name="five", title="t", kind="rubric", system="s", prompt="p", lowest=1, highest=5,
        metrics=({"name": "fairness", "label": "Fairness"},),
        reward={"metric": "fairness", "scale": 5},
    )  # fmt: skip
    run.store_judge("ab" * 8, spec)
    again = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    with run.verdicts_file.open("a") as file:
        for verdict in again:
            other = {"judge": "five", "fingerprint": "ab" * 8}
            other["scores"] = {"fairness": 1 + verdict["scores"]["overall"] / 2.5}
            file.write(json.dumps(verdict | other) + "\n")
    (row,) = tables_of(run)["agreement"].records()
    assert (row["equal"], row["kappa"], row["difference"]) == (1, 1, 0)


def test_a_discounted_reward_has_its_own_column(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0 + k)
    assert "rules/reward" not in tables_of(run)["results"].records()[0]
    lines = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    lines[0]["reward"] = 0.4
    run.verdicts_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "rules/reward" in tables_of(run)["results"].records()[0]


def test_a_judge_that_scores_nothing_high_is_unfit(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 6.0)
    mark = resolve_judge("rules").fingerprint
    path = run.path / "controls" / f"{mark}.jsonl"
    path.parent.mkdir()
    for score, said in ((8.0, 1), (2.0, 0)):
        verdict = Verdict(conversation_id="control:empty:q0", judge="rules", fingerprint=mark,
                          scores={"overall": score}, reward=score / 10)  # fmt: skip
        path.write_text(verdict.model_dump_json() + "\n")
        found = make_report([run]).document.parts[0].answers
        start = "Judge rules is unfit: empty answers have a mean score of 8.00"
        assert [line.startswith(start) for line in found] == [True] * said


def test_policies_by_settings_count_where_each_is_first(tmp_path):
    runs = []
    for task, swift in (("demo", (0, 1, 2)), ("arc", (0, 1))):
        runs.append(make(tmp_path / task, questions(4, task), right_on(0), task=task))
        learner(runs[-1], "swift", right_on(*swift))
        learner(runs[-1], "dpo", right_on(0, 1))
    table = by_name(make_report(runs), -1)["matrix"]
    found = {row.cells[0]: row.cells for row in table.rows}
    assert [mean_of(value) for value in found["swift"][1:4]] == [0.75, 0.5, 0.625]
    assert found["swift"][4:] == (2, 2)
    assert found["dpo"][4:] == (1, 2)  # they share the first place on arc
    assert found["Base"][4:] == (0, 1)
    printed = by_name(make_report(runs, ReportOptions(paper=True)), -1)["matrix"]
    rows = {row.cells[0]: row for row in printed.rows}
    assert rows["Swift, printed"].printed
    assert mean_of(rows["Swift, printed"].cells[2]) == 0.7993
    assert rows["swift"].cells == found["swift"]


def test_best_of_is_the_expectation_over_all_subsets():
    scored = [(1.0, 0.2), (3.0, 0.9), (3.0, 0.1), (0.0, 0.5)]
    for n in (1, 2, 3, 4):
        values = []
        for some in itertools.combinations(scored, n):
            top = max(credit for credit, _ in some)
            best = [reward for credit, reward in some if credit == top]
            values.append(sum(best) / len(best))
        assert best_of(scored, n) == pytest.approx(sum(values) / len(values))


def test_best_of_n_reads_the_runs_credit(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 4.0 + k)
    credit = (
        TurnCredit(conversation_id=talk.conversation_id, turn_index=1, source="by-hand",
                   advantage=float(-talk.sample))
        for talk in run.conversations()
    )  # fmt: skip
    append_credit(run, credit)
    credit, oracle = tables_of(run)["best-of-n"].rows
    assert (credit.cells[1], oracle.cells[1]) == ("by-hand", "the best one (oracle)")
    assert credit.cells[2] == 2
    # Rewards .4, .5, .6: the worst of two by this credit, the best by the oracle.
    assert mean_of(credit.cells[4]) == pytest.approx((0.4 + 0.4 + 0.5) / 3)
    assert mean_of(oracle.cells[4]) == pytest.approx((0.5 + 0.6 + 0.6) / 3)
