"""Settings, policies and their bases: what may stand in one table."""

import json

import pytest

from convbench.errors import RunError
from convbench.reports.comparable import NotComparable
from convbench.reports.frame import read_settings
from convbench.reports.report import make_report
from tests.helpers.runs import make, questions


def right_on(*numbers):
    wanted = {f"q{number}" for number in numbers}
    return lambda question, sample: "A" if question in wanted else "B"


def names(setting):
    return [policy.name for policy in setting.policies]


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
        model="local:other",
        **change,
    )
    with pytest.raises(NotComparable) as refused:
        make_report([base])
    assert said in str(refused.value)
    assert "--allow-incomparable" in str(refused.value)
    table = make_report([base], allow=True).document.parts[0].tables[0]
    assert len(table.rows) == 2
    assert any("other is not comparable with Base" in note for note in table.notes)


def test_other_questions_and_judges_are_refused(tmp_path):
    base = make(tmp_path / "run", questions(3), right_on(0), overall=lambda q, k: 5.0)
    child = make(
        base.evals_folder / "swift",
        questions(2),
        right_on(1),
        parent=base.manifest.id,
        split="test",
    )
    with pytest.raises(RunError, match="1 only in run, 0 only in swift, 2 in both"):
        make_report([base])
    text = (base.path / "examples.jsonl").read_text()
    (child.path / "examples.jsonl").write_text(text.replace("birch", "beech"))
    with pytest.raises(RunError, match="questions: 3 of 3 differ in text or options"):
        make_report([base])
    (child.path / "examples.jsonl").write_text(text)
    line = json.loads(base.verdicts_file.read_text().splitlines()[0])
    talk = json.loads(child.conversations_file.read_text().splitlines()[0])
    other = {"conversation_id": talk["conversation_id"], "fingerprint": "0123456789abcdef"}
    child.verdicts_file.write_text(json.dumps(line | other) + "\n")
    with pytest.raises(RunError, match=r"judge rules: [0-9a-f]{16}.* → "):
        make_report([base])
    child.verdicts_file.write_text(
        json.dumps(line | {"conversation_id": talk["conversation_id"]}) + "\n"
    )
    assert len(make_report([base]).settings[0].policies) == 2


def test_verdicts_of_two_versions_of_a_judge_are_refused(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 5.0)
    lines = run.verdicts_file.read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | {"fingerprint": "0123456789abcdef"})
    run.verdicts_file.write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match="judge rules: verdicts of 2 versions"):
        make_report([run])


def test_settings_are_told_apart_by_task_and_mode(tmp_path):
    thinking = make(tmp_path / "a", questions(2), right_on(0))
    standard = make(tmp_path / "b", questions(2), right_on(0), mode="standard")
    found = read_settings([thinking, standard])
    assert [setting.mode for setting in found] == ["thinking", "standard"]
    assert found[0].title == "demo · thinking · reasoning, n = 3"
    other = make(tmp_path / "c", questions(2), right_on(1), model="local:other")
    (one,) = read_settings([thinking, other])
    assert names(one) == ["Base (tiny)", "Base (other)"]


def test_runs_that_differ_in_the_seed_are_pooled(tmp_path):
    first = make(tmp_path / "a", questions(2), right_on(0), seed=0)
    second = make(tmp_path / "b", questions(3), right_on(0, 1, 2), seed=1)
    (pool,) = make_report([first, second]).settings
    assert names(pool) == ["Base"]
    accuracy = pool.mean(pool.policies[0], "correct")
    assert (accuracy.n, accuracy.groups, accuracy.mean) == (15, 3, 12 / 15)
    tables = {t.name: t for t in make_report([first, second]).document.parts[0].tables}
    assert [(row.cells[1], row.cells[2].mean) for row in tables["seeds"].rows] == [(0, 0.5), (1, 1)]
    # Mean 4/5; sums of deviations by seed: 3 - 6 * 4/5 = -9/5 and 9/5.
    over = tables["over-seeds"].rows[0].cells[1]
    assert (over.mean, over.groups) == (0.8, 2)
    assert over.error == pytest.approx((2 / 1 * 2 * 1.8**2) ** 0.5 / 15)
    again = make(tmp_path / "c", questions(3), right_on(0, 1, 2), seed=0)
    with pytest.raises(RunError, match="questions"):
        read_settings([first, again])  # the same seed draws the same questions


def test_pairs_are_of_one_seed(tmp_path):
    """Each learner's gain is over the base of its own seed: 1/2 and 0."""
    runs = []
    for seed, before, after in ((0, (0,), (0, 1)), (1, (0, 1), (0, 1))):
        run = make(tmp_path / f"seed{seed}", questions(2), right_on(*before), seed=seed)
        make(
            run.evals_folder / "swift",
            questions(2),
            right_on(*after),
            parent=run.manifest.id,
            split="test",
            seed=seed,
            extra={"recipe": {"name": "swift", "label": "SWiFt"}},
        )
        runs.append(run)
    (setting,) = read_settings(runs)
    swift, base = setting.policies
    gain = setting.difference(swift, base, "correct")
    assert (gain.mean, gain.n) == (0.25, 12)


def test_two_simulated_humans_are_two_settings(tmp_path):
    runs = [
        make(
            tmp_path / name,
            questions(2),
            right_on(0),
            protocol="clarifying",
            teacher=f"openai/{name}",
        )
        for name in ("one", "two")
    ]
    found = read_settings(runs)
    assert [setting.more for setting in found] == ["simulator openai/one", "simulator openai/two"]


def logged(folder, model, start, **more):
    """A log by one model, and a policy trained on it from another."""
    run = make(folder, questions(4), right_on(0), model=model)
    checkpoint = run.checkpoints_folder / "swift"
    checkpoint.mkdir(parents=True)
    (checkpoint / "recipe.yaml").write_text("name: swift\nlabel: SWiFt\n")
    (checkpoint / "training.json").write_text(json.dumps({"base": start, **more}))
    make(
        run.evals_folder / "swift",
        questions(4),
        right_on(0, 1, 2),
        parent=run.manifest.id,
        split="test",
        checkpoint="checkpoints/swift",
        model="local:swift",
    )
    return run


def test_a_learner_that_started_elsewhere_is_said_to(tmp_path):
    (setting,) = read_settings([logged(tmp_path, "openai/agent", "local:tiny")])
    assert names(setting) == ["SWiFt", "Base"]
    (said,) = setting.notes
    assert said.startswith("SWiFt started from local:tiny, which was not evaluated here")


def test_the_start_of_a_learner_is_its_base_where_it_was_evaluated(tmp_path):
    run = logged(tmp_path, "openai/agent", "local:tiny")
    make(
        run.evals_folder / "local-tiny",
        questions(4),
        right_on(0, 1),
        parent=run.manifest.id,
        model="local:tiny",
        checkpoint="local:tiny",
        split="test",
    )
    (setting,) = read_settings([run])
    assert sorted(names(setting)) == ["Base", "SWiFt", "agent"]
    swift = next(policy for policy in setting.policies if policy.name == "SWiFt")
    base = setting.base_of(swift)
    assert (base.name, base.model) == ("Base", "local:tiny")
    assert setting.difference(swift, base, "correct").mean == 0.25
    assert not setting.notes


def test_the_start_of_several_trainings_is_the_first_ones(tmp_path):
    earlier = [{"base": "local:refit"}, {"base": "local:tiny"}]
    run = logged(tmp_path, "local:tiny", "local:other", earlier=earlier)
    (setting,) = read_settings([run])
    assert not setting.notes
    assert setting.base_of(setting.policies[0]).name == "Base"


def test_children_of_one_recipe_keep_their_folders_names(tmp_path):
    base = make(tmp_path / "run", questions(2), right_on(0))
    for name in ("one", "two"):
        make(
            base.evals_folder / name,
            questions(2),
            right_on(1),
            parent=base.manifest.id,
            split="test",
            extra={"recipe": {"name": "swift", "label": "SWiFt"}},
        )
    (setting,) = read_settings([base])
    assert names(setting) == ["SWiFt (one)", "SWiFt (two)", "Base"]


def test_rounds_stand_in_order_with_the_base_as_round_0(tmp_path):
    base = make(tmp_path / "run", questions(4), right_on(0))
    for number in (2, 10, 1):
        make(
            base.evals_folder / f"swift-round-{number}",
            questions(4),
            right_on(*range(4)),
            parent=base.manifest.id,
            split="test",
            extra={"recipe": {"name": "swift", "label": "SWiFt"}},
        )
    tables = {t.name: t for t in make_report([base]).document.parts[0].tables}
    assert [row.cells[:2] for row in tables["rounds"].rows] == [
        ("SWiFt", 0),
        ("SWiFt", 1),
        ("SWiFt", 2),
        ("SWiFt", 10),
    ]


def test_nothing_to_report(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0), split="train")
    with pytest.raises(RunError, match=r"found no conversations of split test.*--split train"):
        make_report([run])
