"""One learner, adapted to the edits of a run's tasks; what is finished is kept in the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from convbench import catalog
from convbench.errors import DataError
from convbench.judge.adaptation.cache import Cache
from convbench.judge.adaptation.pool import Twins
from convbench.judge.adaptation.runner import Learning
from convbench.judge.few_shot.settings import Settings
from convbench.judge.few_shot.solve import Problem, Solver, Trial
from convbench.judge.few_shot.worker import MODULE, TRIAL, line_of
from convbench.judge.resolve import Judge
from convbench.schema import Example, fingerprint
from convbench.store import Run
from convbench.tasks.arc_agi.edit import NoEdit, SelfEdit, self_edit
from convbench.tasks.arc_agi.grids import Grid, grid, pair

LIMITS = {"max_seconds", "ask_at_once", "oracle"}
"""Settings that leave a trial as it is."""


def settings_of(judge: Judge) -> Settings:
    """Return the judge's settings; SpecError where they are wrong."""
    return catalog.check(Settings, dict(judge.spec.args), f"judge {judge.name}: args")


@dataclass
class Runner:
    """Tries edits on a learner; several threads may ask it at once."""

    settings: Settings
    learning: Learning
    kept: Cache[Trial]
    devices: tuple[str, ...] = ()
    """Devices of the processes that learn side by side; none: it is done here."""

    def __post_init__(self) -> None:
        self.twins = Twins(self.learning.path, self.devices, MODULE)

    def plain(self, example: Example) -> Trial:
        """Return what the policy answers as it is (in-context learning)."""
        return self.tried(example, None)

    def oracle(self, example: Example) -> Trial:
        """Return what the best known edit comes to."""
        best = self.settings.oracle
        edit = SelfEdit(
            frozenset(best.tools), best.strategy, best.learning_rate, best.num_train_epochs
        )
        return self.tried(example, edit)

    def written(self, example: Example, text: str) -> tuple[SelfEdit | None, Trial, str | None]:
        """Return the edit that a text asks for, what came of it, and why it was not trained on. One
        that asks for none is judged by the policy as it is."""
        try:
            edit = self_edit(text)
        except NoEdit as error:
            return None, self.plain(example), str(error)
        trial = self.tried(example, edit)
        return edit, trial, trial.reason

    def tried(self, example: Example, edit: SelfEdit | None) -> Trial:
        """Return what an edit comes to, or no edit; what is finished is not done again."""
        problem = problem_of(example)
        name = self._key(problem, edit)
        found = self.kept.get(name)
        if found is None:
            # An edit that the guard refuses is judged by this; it is asked once a task.
            before = None if edit is None else self.plain(example)
            with self.twins.hand() as hand:
                if hand is not None:
                    done = hand.do(line_of(problem, edit, before, self.settings))
                    found = TRIAL.validate_python(done)
                else:
                    solver = Solver(self.twins.own(), self.settings)
                    found = solver.tried(problem, edit, before)
            self.kept.put(name, found)
        return found

    def _key(self, problem: Problem, edit: SelfEdit | None) -> str:
        """Return the name of a trial: of everything that it depends on, the learner's weights too,
        so that another round's policy tries the same edit anew."""
        asked = None
        if edit is not None:
            asked = [sorted(edit.groups), edit.strategy, edit.learning_rate, edit.epochs]
        said = self.settings.model_dump(mode="json", exclude=LIMITS)
        return fingerprint(self.learning.fingerprint, asdict(problem), asked, said)


def problem_of(example: Example) -> Problem:
    """Return what is shown of an example; DataError where it is no task of grids."""
    shown, tests = example.inputs.get("demonstrations"), example.inputs.get("tests")
    try:
        return Problem(tuple(map(pair, shown or ())), tuple(map(grid, tests or ())))
    except (TypeError, ValueError) as error:
        raise _no_task(example, str(error)) from None


def outputs_of(example: Example) -> tuple[Grid, ...]:
    """Return the hidden outputs of an example's tests; DataError where there is not one for each
    test."""
    found, tests = example.hidden.get("outputs"), example.inputs.get("tests")
    try:
        outputs = tuple(map(grid, found or ()))
    except (TypeError, ValueError) as error:
        raise _no_task(example, str(error)) from None
    if not outputs or len(outputs) != len(tests or ()):
        raise _no_task(example, f"{len(outputs)} outputs for {len(tests or ())} tests")
    return outputs


def _no_task(example: Example, why: str) -> DataError:
    return DataError(
        f"example {example.example_id}: found no task of grids ({why}); expected the fields "
        "`demonstrations` and `tests`, and hidden `outputs` (a task such as arc-agi)"
    )


def open_runner(
    run: Run, settings: Settings, kept: Cache[Trial], devices: tuple[str, ...] = ()
) -> Runner:
    """Return a runner for the run; nothing is loaded yet."""
    return Runner(settings, Learning.of(run, settings.learner), kept, devices)


def cache_of(run: Run) -> Cache[Trial]:
    """Open the run's finished trials."""
    return Cache(run.path / "few-shot.jsonl", Trial)
