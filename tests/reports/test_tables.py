"""Tables on runs written by hand: who was right on which question, and what a judge said."""

import itertools
import json

import pytest

from convbench.errors import RunError
from convbench.judges.resolve import resolve_judge
from convbench.reports.document import mean_of
from convbench.reports.over import best_of
from convbench.reports.report import make_report
from convbench.schema import Verdict
from convbench.schema.conversation import TurnCredit
from convbench.store.notes import append_credit
from tests.helpers.runs import make, questions


def table_of(result, name, part=0):
    found = [t for t in result.document.parts[part].tables if t.name == name]
    return found[0] if found else None


def cell(table, row, key):
    place = [column.key for column in table.columns].index(key)
    return next(line for line in table.rows if line.cells[0] == row).cells[place]


def rank(table, row, key):
    place = [column.key for column in table.columns].index(key)
    number = next(i for i, line in enumerate(table.rows) if line.cells[0] == row)
    return table.ranks()[number][place]


def right_on(*numbers):
    """Right on these questions at every temperature, wrong on all others."""
    wanted = {f"q{number}" for number in numbers}
    return lambda question, sample: "A" if question in wanted else "B"


@pytest.fixture
def family(tmp_path):
    """Base is right on 1 of 4 questions, swift on 3 of them, dpo (in `direct`) on 2."""
    examples = questions(4)
    base = make(tmp_path / "run", examples, right_on(0), overall=lambda q, k: 4.0 + k)

    def child(name, label, *numbers, score, **more):
        folder = base.checkpoints_folder / name
        folder.mkdir(parents=True)
        protocol = more.get("protocol")
        asks = f"eval_protocol: {protocol}\n" if protocol else ""
        (folder / "recipe.yaml").write_text(f"name: {name}\nlabel: {label}\n{asks}")
        (folder / "training.json").write_text(json.dumps({"conversations": 3}))
        make(
            base.evals_folder / name,
            examples,
            right_on(*numbers),
            overall=lambda q, k: score + k,
            parent=base.manifest.id,
            checkpoint=f"checkpoints/{name}",
            split="test",
            **more,
        )

    child("swift", "SWiFt", 0, 1, 2, score=6.0)
    child("dpo", "DPO", 0, 3, score=5.0, protocol="direct")
    return base


def test_the_papers_table_by_hand(family):
    table = table_of(make_report([family]), "results")
    assert [row.cells[0] for row in table.rows] == ["SWiFt", "DPO", "Base"]
    # Questions (not conversations) are independent: the means of 4 groups are 1, 1, 1, 0:
    # standard deviation 1/2, error 1/4. Naively it would be sqrt(.75 * .25 / 12) = .125.
    swift, dpo, base = (cell(table, name, "correct") for name in ("SWiFt", "DPO", "Base"))
    assert (swift.mean, swift.error) == (0.75, pytest.approx(0.25))
    assert (dpo.mean, round(dpo.error, 4)) == (0.5, 0.2887)
    assert (base.mean, base.error) == (0.25, pytest.approx(0.25))
    assert [rank(table, name, "correct") for name in ("SWiFt", "DPO", "Base")] == [1, 2, 0]
    # Overall is 6, 7, 8 on every question: the groups' means do not differ.
    overall = cell(table, "SWiFt", "rules/overall")
    assert (overall.mean, overall.error) == (7, 0)
    # All think on every turn, so that none is best.
    assert cell(table, "SWiFt", "thinking").mean == 100
    assert rank(table, "SWiFt", "thinking") == 0
    assert any("DPO was evaluated in protocol direct" in note for note in table.notes)
    naive = table_of(make_report([family], kind="naive"), "results")
    assert cell(naive, "SWiFt", "correct").error == pytest.approx(0.125)
    assert [column.head for column in table.columns] == [
        "Policy",
        "Accuracy",
        "Unread (%)",
        "Thinking (%)",
        "R Overall",
        "R Accuracy",
        "R Reasoning ability",
        "R Comprehensiveness",
        "R Pedagogical value",
        "R Confidence calibration",
        "Words",
    ]


def test_differences_by_hand(family):
    table = table_of(make_report([family]), "differences")
    assert table.caption == "Differences to Base"
    swift, dpo = cell(table, "SWiFt", "correct"), cell(table, "DPO", "correct")
    # By question: 0, 1, 1, 0: mean 1/2, standard deviation 1/sqrt(3), error 1/sqrt(12).
    assert swift.estimate.mean == 0.5
    assert swift.estimate.error == pytest.approx(12**-0.5)
    assert (swift.estimate.n, swift.estimate.groups, swift.estimate.df) == (12, 4, 3)
    # t = sqrt(3), 3 degrees of freedom: p = .181690; dpo: t = 1, p = .391002.
    assert swift.estimate.p == pytest.approx(0.181690, abs=1e-6)
    assert dpo.estimate.p == pytest.approx(0.391002, abs=1e-6)
    assert swift.adjusted == pytest.approx(2 * 0.181690, abs=1e-5)
    assert dpo.adjusted == pytest.approx(0.391002, abs=1e-5)
    overall = [cell(table, name, "rules/overall").estimate for name in ("SWiFt", "DPO")]
    assert [(d.mean, d.error) for d in overall] == [(2, 0), (1, 0)]
    assert cell(table, "SWiFt", "unread").estimate.mean == 0
    assert cell(table, "SWiFt", "words").estimate.mean == 0
    assert cell(table, "SWiFt", "pairs") == 12


def test_differences_to_a_named_policy(family):
    for name in ("SWiFt", "swift", "SWIFT"):
        table = table_of(make_report([family], baselines=[name]), "differences")
        assert table.caption == "Differences to SWiFt"
        assert [row.cells[0] for row in table.rows] == ["DPO", "Base"]
        assert mean_of(cell(table, "Base", "correct")) == -0.5
    with pytest.raises(RunError, match=r"--baseline kto: found no such policy.*SWiFt, DPO, Base"):
        make_report([family], baselines=["kto"])


def test_the_answer_stands_above_the_tables(family):
    swift, dpo = make_report([family]).document.parts[0].answers
    assert swift == (
        "SWiFt: accuracy +.500 [-.419, +1.419] over its base local:tiny, 12 pairs; "
        "unread 0.0 % → 0.0 %"
    )
    assert dpo.startswith("DPO: accuracy +.250 [")


def test_temperatures_stand_apart(family):
    table = table_of(make_report([family]), "temperature")
    rows = [row for row in table.rows if row.cells[0] == "SWiFt"]
    assert [(row.cells[1], row.cells[2].n) for row in rows] == [(0.3, 4), (0.7, 4), (1.0, 4)]
    place = [column.key for column in table.columns].index("correct_difference")
    change = rows[1].cells[place].estimate
    assert (change.mean, change.n) == (0.5, 4)


def test_train_conversations_stay_out(family):
    def asked(split):
        settings = make_report([family], split).settings
        return {row for setting in settings for row in setting.rows["example_id"]}

    assert asked("test") == {"q0", "q1", "q2", "q3"}
    (train,) = make_report([family], "train").settings
    assert [policy.name for policy in train.policies] == ["Base"]
    (every,) = make_report([family], "all", allow=True).settings
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
    result = make_report([run])
    counts = table_of(result, "counts")
    assert counts.records()[0] == {
        "policy": "Base",
        "planned": 9,
        "missing": 0,
        "failed": 1,
        "complete": 8,
        "unread": 1,
        "flagged": 0,
        "rules/scored": 6,
        "rules/failed": 1,
        "rules/unjudged": 1,
    }
    table = table_of(result, "results")
    # 8 conversations count, 6 of them right; the unread one is wrong and has no thinking.
    assert cell(table, "Base", "correct").mean == 6 / 8
    assert cell(table, "Base", "correct").n == 8
    assert cell(table, "Base", "unread").mean == pytest.approx(100 / 8)
    assert cell(table, "Base", "thinking").mean == pytest.approx(100 * 7 / 8)
    # A failed verdict is no score, never 0.
    assert (cell(table, "Base", "rules/overall").mean, cell(table, "Base", "rules/overall").n) == (
        8.0,
        6,
    )


def test_a_run_alone_unjudged_and_half_done(tmp_path):
    run = make(tmp_path / "run", questions(3), lambda q, k: "A")
    lines = run.conversations_file.read_bytes().splitlines(keepends=True)
    run.conversations_file.write_bytes(b"".join(lines[:4]))
    result = make_report([run])
    table = table_of(result, "results")
    assert [row.cells[0] for row in table.rows] == ["Base"]
    assert [c.key for c in table.columns] == ["policy", "correct", "unread", "thinking", "words"]
    assert any("Not judged" in note for note in table.notes)
    assert cell(table_of(result, "counts"), "Base", "missing") == 5
    assert table_of(result, "differences") is None


def test_groups_of_several_questions_are_one_unit(tmp_path):
    run = make(tmp_path / "run", questions(4, group=2), right_on(0, 1), temperatures=(0.7,))
    found = cell(table_of(make_report([run]), "results"), "Base", "correct")
    # Groups (q0, q1) and (q2, q3): means 1 and 0, standard deviation 1/sqrt(2), error 1/2.
    assert (found.groups, found.error) == (2, pytest.approx(0.5))


def test_judges_stand_side_by_side(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0)
    again = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    with run.verdicts_file.open("a") as file:
        for verdict in again:
            other = {"judge": "strict", "scores": {"overall": 7.0 + len(verdict["judge"]) % 2}}
            file.write(json.dumps(verdict | other) + "\n")
    table = table_of(make_report([run]), "results")
    assert cell(table, "Base", "rules/overall").mean == 5
    assert cell(table, "Base", "strict/overall").mean == 8
    found = table_of(make_report([run]), "agreement")
    assert (cell(found, "rules / strict", "common"), cell(found, "rules / strict", "equal")) == (
        6,
        0,
    )
    assert mean_of(cell(found, "rules / strict", "difference")) == pytest.approx(-0.3)
    one = table_of(make_report([run], judge="strict"), "results")
    assert not any(column.key.startswith("rules/") for column in one.columns)
    with pytest.raises(RunError, match="found verdicts of rules, strict"):
        make_report([run], judge="nobody")


def test_a_discounted_reward_has_its_own_column(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0 + k)

    def keys():
        return [c.key for c in table_of(make_report([run]), "results").columns]

    assert "rules/reward" not in keys()
    lines = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    lines[0]["reward"] = 0.4
    run.verdicts_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "rules/reward" in keys()


def test_a_judge_that_scores_nothing_high_is_unfit(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 6.0)
    judge = resolve_judge("rules")
    path = run.path / "controls" / f"{judge.fingerprint}.jsonl"
    path.parent.mkdir()
    verdict = Verdict(
        conversation_id="control:empty:q0",
        judge="rules",
        fingerprint=judge.fingerprint,
        scores={"overall": 8.0},
        reward=0.8,
    )
    path.write_text(verdict.model_dump_json() + "\n")
    (said,) = make_report([run]).document.parts[0].answers
    assert said.startswith("Judge rules is unfit: empty answers have a mean score of 8.00")
    path.write_text(verdict.model_copy(update={"scores": {"overall": 2.0}}).model_dump_json())
    assert make_report([run]).document.parts[0].answers == ()


def test_policies_by_settings_count_where_each_is_first(tmp_path):
    runs = []
    for task, swift, dpo in (("demo", (0, 1, 2), (0, 1)), ("arc", (0, 1), (0, 1))):
        run = make(tmp_path / task, questions(4, task), right_on(0), task=task)
        for name, numbers in (("swift", swift), ("dpo", dpo)):
            folder = run.checkpoints_folder / name
            folder.mkdir(parents=True)
            (folder / "recipe.yaml").write_text(f"name: {name}\n")
            make(
                run.evals_folder / name,
                questions(4, task),
                right_on(*numbers),
                task=task,
                parent=run.manifest.id,
                checkpoint=f"checkpoints/{name}",
                split="test",
            )
        runs.append(run)
    table = table_of(make_report(runs), "matrix", -1)
    found = {row.cells[0]: row.cells for row in table.rows}
    assert [mean_of(value) for value in found["swift"][1:4]] == [0.75, 0.5, 0.625]
    assert found["swift"][4:] == (2, 2)
    assert found["dpo"][4:] == (1, 2)  # they share the first place on arc
    assert found["Base"][4:] == (0, 1)


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
    talks = {talk.conversation_id: talk.sample for talk in run.conversations()}
    append_credit(
        run,
        (
            TurnCredit(
                conversation_id=name, turn_index=1, source="by-hand", advantage=float(-sample)
            )
            for name, sample in talks.items()
        ),
    )
    table = table_of(make_report([run]), "best-of-n")
    credit, oracle = table.rows
    assert (credit.cells[1], oracle.cells[1]) == ("by-hand", "the best one (oracle)")
    assert credit.cells[2] == 2
    # Rewards .4, .5, .6: the worst of two by this credit, the best by the oracle.
    assert mean_of(credit.cells[4]) == pytest.approx((0.4 + 0.4 + 0.5) / 3)
    assert mean_of(oracle.cells[4]) == pytest.approx((0.5 + 0.6 + 0.6) / 3)
