"""`rounds` and `filter` are fields of a recipe; files that hold them in `args` read as before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from convbench import catalog
from convbench.catalog import parse_sets
from convbench.errors import RetiredNameWarning, SpecError
from convbench.learn.job import Job
from convbench.learn.run_trainer import write_recipe
from convbench.learn.train import free_folder
from convbench.options.train import TrainOptions
from convbench.schema.recipe import Recipe
from tests.helpers import tiny
from tests.helpers.cli import convbench
from tests.support.one_line import one_line

pytestmark = pytest.mark.filterwarnings("ignore::convbench.errors.RetiredNameWarning")


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


NOTE = "args.rounds is now rounds; the next minor release does not read args.rounds"


@pytest.mark.filterwarnings("error")
def test_a_users_file_with_an_old_name_warns_and_names_the_new_one(old: Path) -> None:
    with pytest.warns(RetiredNameWarning) as caught:
        recipe(old)
    assert [str(warning.message) for warning in caught] == [
        f"{old}: {NOTE}",
        f"{old}: {NOTE.replace('rounds', 'filter')}",
    ]
    with pytest.warns(RetiredNameWarning, match=f"^--set: {NOTE}$"):
        recipe(Path("seal"), "args.rounds=2")
    recipe(Path("seal"), "rounds=2")


@pytest.mark.filterwarnings("error")
def test_a_record_with_an_old_name_is_read_without_a_warning() -> None:
    shipped = catalog.load_spec(Recipe, "recipes", "seal").model_dump(mode="json")
    shipped["args"] |= {"rounds": shipped.pop("rounds")}
    assert catalog.check_spec(Recipe, shipped, "recipe.yaml").rounds


def test_a_command_notes_each_old_name_once(old: Path) -> None:
    folder = old.parent / "specs" / "recipes"
    folder.mkdir(parents=True)
    old.rename(folder / old.name)
    done = convbench(old.parent, "show", "mine")
    notes = [line for line in done.err.splitlines() if line.startswith("note: ")]
    assert [done.code, *notes] == [
        0,
        f"note: specs/recipes/mine.yaml: {NOTE}",
        f"note: specs/recipes/mine.yaml: {NOTE.replace('rounds', 'filter')}",
    ]
    printed = json.loads(convbench(old.parent, "show", "mine", "--json").out)
    assert [f"note: {text}" for text in printed["notes"]] == notes
