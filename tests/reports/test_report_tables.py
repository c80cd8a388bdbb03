"""Sections, tables and their numbers on runs written by hand."""

import json

import pytest

from convbench.errors import RunError
from convbench.judges.resolve import resolve_judge
from convbench.reports import layout
from convbench.reports.document import Cell
from convbench.reports.measures import (
    ACCURACY,
    THINKING,
    metric_measure,
    paired_differences,
    temperature_tests,
)
from convbench.reports.policies import read_policy
from convbench.reports.published import paper_table, paper_tables
from convbench.reports.sections import read_sections
from convbench.reports.tables import conversation_counts, main_table
from convbench.reports.tables.judges import controls_of
from convbench.reports.tables.results import best_of_table
from convbench.schema import Verdict
from convbench.schema.conversation import TurnCredit
from convbench.store.notes import append_credit
from tests.helpers import stages
from tests.helpers.report_tables import cells, right_on, table_of
from tests.helpers.runs import make, questions


@pytest.fixture
def family(tmp_path):
    """Base is right on 1 of 4 questions, swift on 3 of them, dpo (in `direct`) on 2."""
    examples = questions(4)
    base = make(tmp_path / "run", examples, right_on(0), overall=lambda q, k: 4.0 + k)

    def child(name, *numbers, score, **more):
        folder = base.checkpoints_folder / name
        folder.mkdir(parents=True)
        protocol = more.get("protocol")
        asks = f"eval_protocol: {protocol}\n" if protocol else ""
        (folder / "recipe.yaml").write_text(f"name: {name}\n{asks}")
        (folder / "training.json").write_text(json.dumps({"conversations": 3}))
        return make(
            base.evals_folder / name, examples, right_on(*numbers), overall=lambda q, k: score + k,
            parent=base.manifest.id, checkpoint=f"checkpoints/{name}", split="test", **more,
        )  # fmt: skip

    child("swift", 0, 1, 2, score=6.0)
    child("dpo", 0, 3, score=5.0, protocol="direct")
    return base


def test_the_papers_table_by_hand(family):
    result = stages.report(family.path)
    table = table_of(result, "Results")
    assert [row[0].text for row in table.rows] == ["SWiFt", "DPO", "Base"]
    # Questions (not conversations) are independent: the means of 4 groups are 1, 1, 1, 0:
    # standard deviation 1/2, error 1/4. Naively it would be sqrt(.75 * .25 / 12) = .125.
    assert cells(table, "SWiFt", "Accuracy") == Cell("0.7500", "0.2500", 1)
    assert cells(table, "DPO", "Accuracy") == Cell("0.5000", "0.2887", 2)
    assert cells(table, "Base", "Accuracy") == Cell("0.2500", "0.2500", 0)
    # Overall is 6, 7, 8 on every question: the groups' means do not differ.
    assert cells(table, "SWiFt", "R Overall") == Cell("7.00", "0.00", 1)
    # All think on every turn, so that none is best.
    assert cells(table, "SWiFt", "Thinking (%)") == Cell("100.0", "0.0", 0)
    assert any("DPO was evaluated in protocol direct" in note for note in table.notes)
    naive = table_of(stages.report(family.path, se="naive"), "Results")
    assert cells(naive, "SWiFt", "Accuracy").error == "0.1250"
    assert [c.head for c in table.columns] == [
        "Method", "Accuracy", "Unread (%)", "Thinking (%)", "R Overall", "R Accuracy",
        "R Reasoning", "R Comprehensive", "R Pedagogic", "R Confidence",
    ]  # fmt: skip


def test_train_conversations_stay_out(family):
    assert {row.unit[:2] for row in read_policy(family, "test").observations} == {
        "q0",
        "q1",
        "q2",
        "q3",
    }
    everything = read_policy(family, "all")
    assert len(everything.observations) == 15
    assert [p.name for p in read_sections([family], "train")[0].policies] == ["Base"]


def test_differences_by_hand(family):
    (section,) = read_sections([family])
    swift, dpo = paired_differences(section, ACCURACY)
    # By question: 0, 1, 1, 0: mean 1/2, standard deviation 1/sqrt(3), error 1/sqrt(12).
    assert swift.estimate.mean == 0.5
    assert swift.estimate.error == pytest.approx(12**-0.5)
    assert (swift.n, swift.estimate.groups, swift.estimate.df) == (12, 4, 3)
    # t = sqrt(3), 3 degrees of freedom: p = .181690; dpo: t = 1, p = .391002.
    assert swift.estimate.p == pytest.approx(0.181690, abs=1e-6)
    assert dpo.estimate.p == pytest.approx(0.391002, abs=1e-6)
    assert swift.adjusted == pytest.approx(2 * 0.181690, abs=1e-5)
    assert dpo.adjusted == pytest.approx(0.391002, abs=1e-5)
    overall = paired_differences(section, metric_measure("rules", "overall"))
    assert [(d.estimate.mean, d.estimate.error) for d in overall] == [(2, 0), (1, 0)]
    tests = temperature_tests(section)
    assert {key[1] for key in tests} == {0.3, 0.7, 1.0}
    found = tests["SWiFt", 0.7]
    assert (found.counts.n, found.counts.only_first, found.counts.only_second) == (4, 0, 2)
    assert (found.counts.p, found.adjusted) == (0.5, 1.0)
    assert not found.clustered


def test_failed_unparsed_and_unscored_are_counted_and_only_that(tmp_path):
    said = {("q0", 0): None, ("q0", 1): "?", ("q1", 0): "B"}
    scores = {("q1", 2): -1.0, ("q2", 0): None}
    run = make(
        tmp_path / "run", questions(3), lambda q, k: said.get((q, k), "A"),
        overall=lambda q, k: None if said.get((q, k), "A") is None else scores.get((q, k), 8.0),
    )  # fmt: skip
    policy = read_policy(run, "test")
    assert conversation_counts(policy, "rules") == {
        "planned": 9, "missing": 0, "failed": 1, "complete": 8, "unparsed": 1, "flagged": 0,
        "scored": 6, "judge failed": 1, "unjudged": 1,
    }  # fmt: skip
    # 8 conversations count, 6 of them right; the unparsed one is wrong and has no thinking.
    assert ACCURACY.mean_of(policy).mean == 6 / 8
    assert ACCURACY.mean_of(policy).n == 8
    assert THINKING.mean_of(policy).mean == pytest.approx(100 * 7 / 8)
    # A failed verdict is no score, never 0.
    overall = metric_measure("rules", "overall").mean_of(policy)
    assert (overall.mean, overall.n) == (8.0, 6)


def test_a_run_alone_unjudged_and_half_done(tmp_path):
    run = make(tmp_path / "run", questions(3), lambda q, k: "A")
    lines = run.conversations_file.read_bytes().splitlines(keepends=True)
    run.conversations_file.write_bytes(b"".join(lines[:4]))
    result = stages.report(run.path)
    table = table_of(result, "Results")
    assert [row[0].text for row in table.rows] == ["Base"]
    assert [c.head for c in table.columns] == ["Method", "Accuracy", "Unread (%)", "Thinking (%)"]
    assert any("Not judged" in note for note in table.notes)
    assert cells(table_of(result, "Counts"), "Base", "missing").text == "5"
    assert not any(t.caption.startswith("Differences") for t in result.document.parts[0].tables)


def test_answers_that_cannot_be_read_stand_beside_accuracy(tmp_path):
    """They count as wrong: whoever learns the answer's form alone gains accuracy by it."""
    run = make(tmp_path / "run", questions(2), lambda q, k: "A" if q == "q0" else "?")
    table = table_of(stages.report(run.path), "Results")
    assert cells(table, "Base", "Unread (%)") == Cell("50.0", "50.0", 0)


def test_groups_of_several_questions_are_one_unit(tmp_path):
    base = make(tmp_path / "run", questions(4, group=2), right_on(0, 1), temperatures=(0.7,))
    found = ACCURACY.mean_of(read_policy(base, "test"))
    # Groups (q0, q1) and (q2, q3): means 1 and 0, standard deviation 1/sqrt(2), error 1/2.
    assert (found.groups, found.error) == (2, pytest.approx(0.5))
    make(
        base.evals_folder / "swift", questions(4, group=2), right_on(0, 1, 2), temperatures=(0.7,),
        parent=base.manifest.id, split="test",
    )  # fmt: skip
    tests = temperature_tests(read_sections([base])[0])
    assert tests["SWiFt", 0.7].clustered  # several samples at one temperature


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"teacher": "openai/other"}, "cast.teacher.model: 'script' → 'openai/other'"),
        ({"protocol": "direct"}, "protocol.name: 'reasoning' → 'direct'"),
        ({"temperatures": (0.5,)}, "temperatures: [0.3, 0.7, 1.0] → [0.5]"),
        ({"turns": 4}, "turns: 3 → 4"),
        ({"mode": "standard"}, "mode: 'thinking' → 'standard'"),
    ],
)
def test_incomparable_children_are_refused_with_the_difference(tmp_path, change, said):
    base = make(tmp_path / "run", questions(2), right_on(0))
    make(
        base.evals_folder / "other",
        questions(2),
        right_on(1),
        parent=base.manifest.id,
        split="test",
        **change,
    )
    with pytest.raises(RunError) as refused:
        stages.report(base.path)
    assert said in str(refused.value)
    assert "--allow-incomparable" in str(refused.value)
    allowed = table_of(stages.report(base.path, allow_incomparable=True), "Results")
    assert len(allowed.rows) == 2
    assert any("other is not comparable with Base" in note for note in allowed.notes)


def test_other_questions_and_judges_are_refused(tmp_path):
    base = make(tmp_path / "run", questions(3), right_on(0), overall=lambda q, k: 5.0)
    child = make(
        base.evals_folder / "swift",
        questions(2),
        right_on(1),
        parent=base.manifest.id,
        split="test",
    )
    with pytest.raises(RunError, match="1 only in Base, 0 only in SWiFt, 2 in both"):
        stages.report(base.path)
    (child.path / "examples.jsonl").write_text(
        (base.path / "examples.jsonl").read_text().replace("birch", "beech")
    )
    with pytest.raises(RunError, match="questions: 3 of 3 differ in text or options"):
        stages.report(base.path)
    (child.path / "examples.jsonl").write_bytes((base.path / "examples.jsonl").read_bytes())
    line = json.loads(base.verdicts_file.read_text().splitlines()[0])
    talk = json.loads(child.conversations_file.read_text().splitlines()[0])
    line |= {"conversation_id": talk["conversation_id"], "fingerprint": "0123456789abcdef"}
    child.verdicts_file.write_text(json.dumps(line) + "\n")
    with pytest.raises(RunError, match=r"judge rules: [0-9a-f]{16}.* → "):
        stages.report(base.path)
    line["fingerprint"] = json.loads(base.verdicts_file.read_text().splitlines()[0])["fingerprint"]
    child.verdicts_file.write_text(json.dumps(line) + "\n")
    assert len(stages.report(base.path).sections[0].policies) == 2


def test_verdicts_of_two_versions_of_a_judge_are_refused(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0)
    lines = run.verdicts_file.read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | {"fingerprint": "0123456789abcdef"})
    run.verdicts_file.write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match="judge rules: verdicts of 2 versions"):
        stages.report(run.path)


def test_several_judges_give_a_table_each(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0)
    again = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    with run.verdicts_file.open("a") as file:
        for verdict in again:
            file.write(json.dumps(verdict | {"judge": "strict", "fingerprint": "ab" * 8}) + "\n")
    both = stages.report(run.path)
    assert [part.title.rpartition(" ")[2] for part in both.document.parts] == ["rules", "strict"]
    one = stages.report(run.path, judge="strict")
    assert len(one.document.parts) == 1
    with pytest.raises(RunError, match="found verdicts of rules, strict"):
        stages.report(run.path, judge="nobody")


def test_a_discounted_reward_has_its_own_column(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0 + k)
    heads = [c.head for c in table_of(stages.report(run.path), "Results").columns]
    assert "Reward" not in heads
    lines = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
    lines[0]["reward"] = 0.4
    run.verdicts_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    heads = [c.head for c in table_of(stages.report(run.path), "Results").columns]
    assert heads[-1] == "Reward"


def test_sections_names_and_pooling(tmp_path):
    thinking = make(tmp_path / "a", questions(2), right_on(0))
    standard = make(tmp_path / "b", questions(2), right_on(0), mode="standard")
    found = read_sections([thinking, standard])
    assert [section.mode for section in found] == ["thinking", "standard"]
    other = make(tmp_path / "c", questions(2), right_on(1), model="local:other")
    (one,) = read_sections([thinking, other])
    assert [p.name for p in one.policies] == ["Base (local:tiny)", "Base (local:other)"]
    again = make(tmp_path / "d", questions(3), right_on(0, 1, 2))
    with pytest.raises(RunError, match="questions"):
        read_sections([thinking, again])
    (pool,) = read_sections([thinking, again], pool=True)
    accuracy = ACCURACY.mean_of(pool.policies[0])
    assert (accuracy.n, accuracy.groups, accuracy.mean) == (15, 3, 12 / 15)
    (table,) = [
        t for t in layout.report_document([pool]).parts[0].tables if t.caption.startswith("By run")
    ]
    # Runs 1/2 and 1: mean 3/4, standard deviation 1/(2 sqrt 2), error 1/4.
    assert [(c.text, c.error) for c in table.rows[0][1:]] == [
        ("0.5000", None), ("1.0000", None), ("0.7500", "0.2500")
    ]  # fmt: skip
    with pytest.raises(RunError, match="base model"):
        read_sections([thinking, other], pool=True)


def test_pooled_runs_all_count_in_controls_and_credit(tmp_path):
    runs = [
        make(tmp_path / "a", questions(2), right_on(0), overall=lambda q, k: 4.0),
        make(tmp_path / "b", questions(3), right_on(0), overall=lambda q, k: 6.0),
    ]
    judge = resolve_judge("rules")
    for run, scores in zip(runs, ([2.0], [8.0, 8.0]), strict=True):
        path = run.path / "controls" / f"{judge.fingerprint}.jsonl"
        path.parent.mkdir()
        for number, score in enumerate(scores):
            verdict = Verdict(
                conversation_id=f"control:empty:q{number}", judge="rules",
                fingerprint=judge.fingerprint, scores={"overall": score}, reward=score / 10,
            )  # fmt: skip
            with path.open("a") as file:
                file.write(verdict.model_dump_json() + "\n")
        append_credit(run, (
            TurnCredit(conversation_id=talk.conversation_id, turn_index=1, source="by-hand",
                       advantage=1.0) for talk in run.conversations()
        ))  # fmt: skip
    (pool,) = read_sections(runs, pool=True)
    (result,) = controls_of(pool, "rules")["Base"]
    assert (result.score, result.own, result.examples) == (6.0, 16 / 3, 3)
    table = best_of_table(pool, "rules", "clustered")
    assert table.rows[0][2].text == "5", "questions of both runs"
    for name in ("gold", "verdict"):
        with pytest.raises(RunError, match="--pool: expected neither"):
            stages.report(*(r.path for r in runs), pool=True, **{name: True})


def test_a_section_of_other_judges_says_so(tmp_path):
    first = make(tmp_path / "a", questions(2), right_on(0), overall=lambda q, k: 4.0)
    other = make(tmp_path / "b", questions(2, "arc"), right_on(0), task="arc", judge="render",
                 overall=lambda q, k: 4.0)  # fmt: skip
    made = stages.report(first.path, other.path, judge="rules")
    notes = [part.tables[0].notes for part in made.document.parts[:2]]
    assert [[note for note in own if "udge" in note][-1:] for own in notes] == [
        [], ["No scores of the selected judge."]
    ]  # fmt: skip


def test_children_of_one_recipe_keep_their_folders_names(tmp_path):
    base = make(tmp_path / "run", questions(2), right_on(0))
    for name in ("one", "two"):
        make(
            base.evals_folder / name,
            questions(2),
            right_on(1),
            parent=base.manifest.id,
            split="test",
            extra={"recipe": "swift"},
        )
    names = [policy.name for policy in read_sections([base])[0].policies]
    assert names == ["SWiFt (one)", "SWiFt (two)", "Base"]
    child = make(
        tmp_path / "away", questions(2), right_on(1), parent=base.manifest.id, split="test"
    )
    assert [p.name for p in read_sections([child])[0].policies] == ["away"]
    assert "away" in [p.name for p in read_sections([base, child])[0].policies]


def test_nothing_to_report(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), split="test")
    with pytest.raises(RunError, match="no conversations of split validation"):
        stages.report(run.path, split="validation")


def test_the_papers_numbers_are_all_there():
    tables = paper_tables()
    assert [table.number for table in tables] == list(range(1, 22))
    assert sum(len(numbers) for t in tables for numbers in t.methods.values()) == 920
    arc = paper_table("arc", "thinking", "reasoning", 3)
    assert (arc.number, arc.methods["SWiFt"]["accuracy"].mean) == (1, 0.7993)
    assert arc.methods["StepDPO"]["r_confidence"].error == 0.21
    assert paper_table("arc", "thinking", "reasoning", 3, "claude-opus").number == 19
    assert paper_table("arc", "standard", "reasoning", 3, "claude-opus").number == 7
    assert paper_table("openbookqa", "thinking", "clarifying", 3).number == 13
    assert paper_table("openbookqa", "thinking", "reasoning", 8).number == 17
    assert paper_table("arc", "thinking", "reasoning", 4) is None
    assert paper_table("demo", "thinking", "reasoning", 3) is None


def test_the_papers_errors_of_accuracy_are_naive():
    # Every learner of tables 1-4 has sqrt(p(1-p)/n) for one n a dataset; Base has not.
    for number, n in ((1, 289), (2, 155), (3, 226), (4, 226)):
        for name, metrics in paper_tables()[number - 1].methods.items():
            p, error = metrics["accuracy"].mean, metrics["accuracy"].error
            naive = (p * (1 - p) / n) ** 0.5
            assert (abs(naive - error) < 1e-4) == (name != "Base"), (number, name)


def test_paper_stands_beside_ours(tmp_path):
    run = make(tmp_path / "run", questions(2, "arc"), right_on(0), task="arc",
               overall=lambda q, k: 5.0)  # fmt: skip
    (section,) = read_sections([run])
    table = main_table(section, "rules", "clustered", paper=True)
    ours, theirs, *others = table.rows
    assert [ours[0].text, theirs[0].text] == ["Base", "  paper"]
    assert [row[0].text for row in others] == [
        f"{name}, paper"
        for name in ("SWiFt", "ReFit", "DPO", "STaR-GATE", "STaR-GATE-D", "StepDPO")
    ]  # what we have not run
    assert others[0][1] == Cell("0.7993", "0.0236", quiet=True)
    assert theirs[1] == Cell("0.3772", "0.0146", quiet=True)
    assert theirs[6 + 1] == Cell("5.80", "0.09", quiet=True)  # comprehensive
    assert theirs[7 + 1] == Cell("6.40", "0.11", quiet=True)  # pedagogic
    assert any(".7993*.2007/289" in note for note in table.notes)
    sized = make(
        run.evals_folder / "refit-1000", questions(2, "arc"), right_on(0), task="arc", split="test",
        parent=run.manifest.id, extra={"recipe": {"name": "refit", "data": {"rows": 1000}}},
    )  # fmt: skip
    assert sized.path.exists()
    table = main_table(read_sections([run])[0], "rules", "clustered", paper=True)
    assert [row[0].text for row in table.rows[:4]] == ["ReFit", "  paper", "Base", "  paper"]
    assert table.rows[1][1] == Cell("0.7301", "0.0261", quiet=True)
    demo = make(tmp_path / "demo", questions(2), right_on(0))
    notes = main_table(read_sections([demo])[0], None, "clustered", paper=True).notes
    assert any("no table for demo" in note for note in notes)
