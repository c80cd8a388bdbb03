"""`rounds` and `filter` are fields of a recipe; files that hold them in `args` read as before."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from convbench import catalog
from convbench.catalog import parse_sets
from convbench.errors import SpecError
from convbench.learn.job import Job
from convbench.learn.run_trainer import write_recipe
from convbench.learn.train import free_folder
from convbench.options.train import TrainOptions
from convbench.schema.recipe import Recipe
from tests.learn import tiny
from tests.support.one_line import one_line


def recipe(file: Path, *sets: str) -> Recipe:
    return catalog.load_spec(Recipe, "recipes", str(file), sets=parse_sets(sets))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A recipe of a user's, as it was written when both lay in `args`."""
    file = tmp_path / "mine.yaml"
    file.write_text("title: mine\nextends: seal\nargs: {rounds: 3, filter: improves, length: 4}\n")
    return file


def test_an_older_file_is_read_over_what_it_extends(old: Path) -> None:
    found = recipe(old)
    assert (found.rounds, found.filter) == (3, "improves")
    assert (found.args["length"], "rounds" in found.args) == (4, False)


@pytest.mark.parametrize("name", ["rounds", "args.rounds", "recipe.rounds"])
def test_what_is_set_counts_by_either_name(old: Path, name: str) -> None:
    from convbench.learn.train import split_sets

    sets, _ = split_sets([f"{name}=5"])
    assert catalog.load_spec(Recipe, "recipes", str(old), sets=sets).rounds == 5
    assert catalog.load_spec(Recipe, "recipes", "seal", sets=sets).rounds == 5


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("args.rounds=0", r"rounds: found 0; Input should be greater than or equal to 1"),
        ("args.filter=most", r"filter: found 'most'; Input should be 'best-of-k', 'improves' or"),
        ("args={rounds: 3}", r"args.rounds: found beside rounds; expected rounds alone"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(old: Path, said: str, line: str) -> None:
    with pytest.raises(SpecError, match=line) as caught:
        recipe(old, said)
    one_line(caught.value)


def test_a_checkpoint_begun_with_an_older_record_is_taken_up_again(tmp_path: Path) -> None:
    """Its `recipe.yaml` holds the two in `args`, and knows no field that came later."""
    said = tiny.conversation("one", 0, ["yes"])
    run = tiny.make_run(tmp_path / "run", [(said, [])], [tiny.example("one")])
    now = catalog.load_spec(Recipe, "recipes", "seal").model_copy(
        update={"run": str(run.path.resolve()), "model": "local:pocket"}
    )
    begun = run.checkpoints_folder / "seal"
    (begun / "checkpoint-1").mkdir(parents=True)
    file = write_recipe(Job(now, begun))
    record = yaml.safe_load(file.read_text())
    record["args"] |= {name: record.pop(name) for name in ("rounds", "filter")}
    file.write_text(yaml.safe_dump(record))
    found = Job.from_file(file).recipe
    assert (found.rounds, found.filter, found.args) == (now.rounds, now.filter, now.args)
    assert free_folder(TrainOptions("seal"), run, now) == begun
    other = now.model_copy(update={"filter": "improves"})
    assert free_folder(TrainOptions("seal"), run, other) == run.checkpoints_folder / "seal-2"
