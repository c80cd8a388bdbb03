"""Settings, policies and their bases: what may stand in one table, and with what it is compared."""

import json
import math
import re

import pytest

import convbench
from convbench.errors import RunError
from convbench.reports.comparable import NotComparable
from convbench.reports.frame import read_settings
from convbench.reports.report import make_report
from tests.helpers.cli import convbench as typed
from tests.helpers.reported import beside, learner, right_on, tables_of
from tests.helpers.runs import make, questions


def names(setting):
    return [policy.name for policy in setting.policies]


def first(count):
    """Right on so many questions."""
    return right_on(*range(count))


def test_report_with_two_models_compares_each_learner_with_its_own_base(tmp_path):
    """llama is right on 2 of 10 questions and 4 once trained, qwen on 7 and then on 8."""
    runs = []
    for name, before, after in (("llama", 2, 4), ("qwen", 7, 8)):
        model = {"model": f"local:/models/{name}"}
        runs.append(make(tmp_path / name, questions(10), first(before), **model))
        learner(runs[-1], "swift", first(after), "SWiFt", **model)
    frame = convbench.report(*(run.path for run in runs))["differences"].set_index("policy")
    assert frame.loc["SWiFt (llama)", "base"] == "Base (llama)"
    assert frame.loc["SWiFt (llama)", "correct"] == pytest.approx(0.2)
    assert frame.loc["SWiFt (qwen)", "base"] == "Base (qwen)"
    assert frame.loc["SWiFt (qwen)", "correct"] == pytest.approx(0.1)
    assert len(frame) == 2  # no base is compared with the other


def test_frames_of_a_report_are_unrounded_with_intervals_and_p(tmp_path):
    run = make(tmp_path / "run", questions(3), right_on(0, 1))
    learner(run, "swift", first(3), "SWiFt")
    report = convbench.report(run.path)
    row = report["results"].set_index("policy").loc["Base"]
    assert row["correct"] == 2 / 3
    assert row["correct_error"] == pytest.approx(math.sqrt(3 / 2 * (1 + 1 + 4)) / 9, abs=1e-12)
    assert (row["correct_n"], row["correct_groups"]) == (9, 3)
    gain = report["differences"].iloc[0]
    assert gain["correct"] == pytest.approx(1 / 3, abs=1e-15)
    assert gain["correct_low"] < 1 / 3 < gain["correct_high"]
    assert gain["correct_p"] == gain["correct_holm"]  # one policy: Holm changes nothing


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
def test_incomparable_policies_are_refused_with_the_difference(tmp_path, change, said):
    run = make(tmp_path / "run", questions(2), right_on(0))
    beside(run, "other", right_on(1), model="local:other", **change)
    with pytest.raises(NotComparable) as refused:
        make_report([run])
    assert said in str(refused.value)
    assert "--allow-incomparable" in str(refused.value)
    table = tables_of(run, allow=True)["results"]
    assert len(table.rows) == 2
    assert any("other is not comparable with Base" in note for note in table.notes)


def test_other_questions_and_judges_are_refused(tmp_path):
    run = make(tmp_path / "run", questions(3), right_on(0), overall=lambda q, k: 5.0)
    child = make(run.evals_folder / "swift", questions(2), right_on(1), parent=run.manifest.id,
                 split="test")  # fmt: skip
    with pytest.raises(RunError, match="1 only in run, 0 only in swift, 2 in both"):
        make_report([run])
    text = (run.path / "examples.jsonl").read_text()
    (child.path / "examples.jsonl").write_text(text.replace("birch", "beech"))
    with pytest.raises(RunError, match="questions: 3 of 3 differ in text or options"):
        make_report([run])
    (child.path / "examples.jsonl").write_text(text)
    line = json.loads(run.verdicts_file.read_text().splitlines()[0])
    talk = json.loads(child.conversations_file.read_text().splitlines()[0])
    line["conversation_id"] = talk["conversation_id"]
    child.verdicts_file.write_text(json.dumps(line | {"fingerprint": "0123456789abcdef"}) + "\n")
    with pytest.raises(RunError, match="judge rules: verdicts of 2 versions of it"):
        make_report([run])
    child.verdicts_file.write_text(json.dumps(line) + "\n")
    assert len(make_report([run]).settings[0].policies) == 2


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


def test_two_simulated_humans_are_two_settings(tmp_path):
    runs = [
        make(tmp_path / name, questions(2), right_on(0), protocol="clarifying",
             teacher=f"openai/{name}")
        for name in ("one", "two")
    ]  # fmt: skip
    found = read_settings(runs)
    assert [setting.more for setting in found] == ["simulator openai/one", "simulator openai/two"]


def test_runs_that_differ_in_the_seed_are_pooled(tmp_path):
    runs = [
        make(tmp_path / "a", questions(2), right_on(0), seed=0),
        make(tmp_path / "b", questions(3), right_on(0, 1, 2), seed=1),
    ]
    (pool,) = read_settings(runs)
    assert names(pool) == ["Base"]
    accuracy = pool.mean(pool.policies[0], "correct")
    assert (accuracy.n, accuracy.groups, accuracy.mean) == (15, 3, 12 / 15)
    seeds = tables_of(*runs)["seeds"].rows
    assert [(row.cells[1], row.cells[2].mean) for row in seeds] == [(0, 0.5), (1, 1)]
    again = make(tmp_path / "c", questions(3), right_on(0, 1, 2), seed=0)
    with pytest.raises(RunError, match="questions"):
        read_settings([runs[0], again])  # the same seed draws the same questions


def test_pairs_are_of_one_seed(tmp_path):
    """Each learner's gain is over the base of its own seed: 1/2 and 0."""
    runs = []
    for seed, before, after in ((0, 1, 2), (1, 2, 2)):
        runs.append(make(tmp_path / f"seed{seed}", questions(2), first(before), seed=seed))
        learner(runs[-1], "swift", first(after), seed=seed)
    (setting,) = read_settings(runs)
    gain = setting.difference(*sorted(setting.policies, key=lambda p: p.is_own), "correct")
    assert (gain.mean, gain.n) == (0.25, 12)


def test_the_base_of_a_learner_is_what_its_training_started_from(tmp_path):
    """A log by one model, and a policy trained on it from another."""
    run = make(tmp_path / "run", questions(4), right_on(0), model="openai/agent")
    learner(run, "swift", first(3), "SWiFt", log={"base": "local:tiny"}, model="local:swift")
    (setting,) = read_settings([run])
    assert names(setting) == ["SWiFt", "Base"]
    (said,) = setting.notes
    assert said.startswith("SWiFt started from local:tiny, which was not evaluated here")
    beside(run, "local-tiny", first(2), model="local:tiny", checkpoint="local:tiny")
    (setting,) = read_settings([run])
    assert sorted(names(setting)) == ["Base", "SWiFt", "agent"]
    swift = next(policy for policy in setting.policies if policy.name == "SWiFt")
    base = setting.base_of(swift)
    assert (base.name, base.model) == ("Base", "local:tiny")
    assert setting.difference(swift, base, "correct").mean == 0.25
    assert not setting.notes


def test_the_base_of_several_trainings_is_the_start_of_the_first(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(0))
    log = {"base": "local:other", "earlier": [{"base": "local:refit"}, {"base": "local:tiny"}]}
    learner(run, "swift", first(3), log=log, model="local:swift")
    (setting,) = read_settings([run])
    assert not setting.notes
    assert setting.base_of(next(p for p in setting.policies if not p.is_own)).name == "Base"


def test_a_checkpoint_is_found_where_its_run_was_moved(tmp_path):
    run = make(tmp_path / "old", questions(2), right_on(0))
    learner(run, "swift", first(2), "SWiFt")
    moved = run.path.rename(tmp_path / "new")
    assert list(convbench.report(moved)["training"]["row"]) == ["conversation"]


def test_learners_of_one_name_are_told_apart(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(1))
    for name in ("refit-a", "refit-b"):
        learner(run, name, right_on(2), "ReFit")
    (setting,) = read_settings([run])
    assert set(names(setting)) == {"Base", "ReFit (refit-a)", "ReFit (refit-b)"}


@pytest.mark.parametrize("recipe", ["swift", ["x"], {"label": 3, "data": "all", "args": [1]}])
def test_what_a_run_of_others_says_of_its_recipe_breaks_nothing(tmp_path, recipe):
    run = make(tmp_path / "run", questions(2), right_on(0))
    beside(run, "other", right_on(1), extra={"recipe": recipe})
    assert len(tables_of(run, paper=True)["results"].rows) == 2


def test_report_of_a_split_without_conversations_offers_what_helps(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": "That"}],
         "reward": 1, "split": split}
        for asked, split in (("a", "train"), ("b", "train"), ("c", "validation"))
    ]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert typed(tmp_path, "import", "log.jsonl", "--run", "runs/log").code == 0
    make(tmp_path / "runs" / "a run", questions(2), right_on(0), split="train")
    for run, splits, builds in (
        ("runs/log", ["train", "validation"], False),
        ("runs/a run", ["train"], True),
    ):
        error = typed(tmp_path, "report", run).error
        assert ("convbench build" in error) is builds
        assert re.findall(r"--split (\w+)", error) == splits
        for split in splits:
            assert typed(tmp_path, "report", run, "--split", split).code == 0
