"""Each policy is compared with its own base, and what a report returns is unrounded."""

import json
import math

import pytest

import convbench
from tests.helpers.runs import make, questions


def trained(run, name, answer, label="", **more):
    """An evaluation beside a run, of a checkpoint by a recipe of this name."""
    folder = run.checkpoints_folder / name
    folder.mkdir(parents=True)
    recipe = {"name": name.partition("-")[0], "label": label, **more.pop("recipe", {})}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    (folder / "training.json").write_text(
        json.dumps({"unit": "conversation", **more.pop("log", {})})
    )
    examples = list(run.examples.values())
    return make(
        run.evals_folder / name,
        examples,
        answer,
        parent=run.manifest.id,
        checkpoint=f"checkpoints/{name}",
        split="test",
        **more,
    )


def right_on(count):
    """Right on the first so many questions, at every temperature."""
    return lambda question, sample: "A" if int(question[1:]) < count else "B"


@pytest.fixture
def two_models(tmp_path):
    """llama is right on 2 of 10 questions and 4 once trained, qwen on 7 and then on 8."""
    runs = []
    for name, before, after in (("llama", 2, 4), ("qwen", 7, 8)):
        model = f"local:/models/{name}"
        run = make(tmp_path / name, questions(10), right_on(before), model=model)
        trained(run, "swift", right_on(after), "SWiFt", model=model)
        runs.append(run.path)
    return runs


def test_report_with_two_models_compares_each_learner_with_its_own_base(two_models):
    frame = convbench.report(*two_models)["differences"].set_index("policy")
    assert frame.loc["SWiFt (llama)", "base"] == "Base (llama)"
    assert frame.loc["SWiFt (llama)", "correct"] == pytest.approx(0.2)
    assert frame.loc["SWiFt (qwen)", "base"] == "Base (qwen)"
    assert frame.loc["SWiFt (qwen)", "correct"] == pytest.approx(0.1)
    assert len(frame) == 2  # no base is compared with the other


def test_report_results_have_every_digit(tmp_path):
    run = make(tmp_path / "run", questions(3), right_on(2))
    row = convbench.report(run.path)["results"].iloc[0]
    assert row["correct"] == 2 / 3
    assert row["correct_error"] == pytest.approx(math.sqrt(3 / 2 * (1 + 1 + 4)) / 9, abs=1e-12)
    assert (row["correct_n"], row["correct_groups"]) == (9, 3)
    assert row["correct_low"] < row["correct"] < row["correct_high"]


def test_report_differences_have_intervals_and_p_as_numbers(tmp_path):
    run = make(tmp_path / "run", questions(10), right_on(2))
    trained(run, "swift", right_on(5), "SWiFt")
    row = convbench.report(run.path)["differences"].iloc[0]
    assert row["correct"] == pytest.approx(0.3)
    assert row["correct_low"] < 0.3 < row["correct_high"]
    assert 0 < row["correct_p"] == row["correct_holm"] < 0.1  # one policy: Holm changes nothing


def test_report_by_rows_keeps_learners_apart(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(1))
    for name, rows in (("awr-a", 600), ("ppo-b", 1100)):
        sized = {"trainer": "weighted", "data": {"rows": rows}}
        trained(run, name, right_on(2), recipe=sized)
    assert "rows" not in convbench.report(run.path).tables  # no learner has two sizes
    sized = {"trainer": "weighted", "data": {"rows": 1100}}
    trained(run, "awr-c", right_on(3), recipe=sized)
    rows = convbench.report(run.path)["rows"]
    assert list(rows["rows"]) == [600, 1100]
    assert list(rows["correct"]) == [0.5, 0.75]


def test_names_of_learners_tell_rows_from_conversations(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(1))
    for name, unit in (("refit-a", "turn"), ("refit-b", "conversation")):
        data = {"data": {"rows": 1000, "unit": unit}}
        trained(run, name, right_on(2), "ReFit", recipe=data)
    names = set(convbench.report(run.path)["results"]["policy"])
    assert names == {"Base", "ReFit (1000 turns)", "ReFit (1000 conversations)"}
