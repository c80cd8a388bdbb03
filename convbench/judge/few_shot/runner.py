"""Try edits on the tasks of a run with one learner; finished trials are cached in the run."""

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
"""Settings that do not change the result of a trial."""


def settings_of(judge: Judge) -> Settings:
    """Return the judge's settings. Raises SpecError for invalid ones."""
    return catalog.check(Settings, dict(judge.spec.args), f"judge {judge.name}: args")


@dataclass
class Runner:
    """Tries edits on a learner; safe to use from several threads."""

    settings: Settings
    learning: Learning
    kept: Cache[Trial]
    devices: tuple[str, ...] = ()
    """Devices with a learning process each; empty to learn in this process."""

    def __post_init__(self) -> None:
        self.twins = Twins(self.learning.path, self.devices, MODULE)

    def plain(self, example: Example) -> Trial:
        """Return the trial of the unadapted policy (in-context learning)."""
        return self.tried(example, None)

    def oracle(self, example: Example) -> Trial:
        """Return the trial of the best known edit."""
        best = self.settings.oracle
        edit = SelfEdit(
            frozenset(best.tools), best.strategy, best.learning_rate, best.num_train_epochs
        )
        return self.tried(example, edit)

    def written(self, example: Example, text: str) -> tuple[SelfEdit | None, Trial, str | None]:
        """Return (edit of a text, its trial, why nothing was trained). A text without an edit gets
        the trial of the unadapted policy."""
        try:
            edit = self_edit(text)
        except NoEdit as error:
            return None, self.plain(example), str(error)
        trial = self.tried(example, edit)
        return edit, trial, trial.reason

    def tried(self, example: Example, edit: SelfEdit | None) -> Trial:
        """Return the trial of an edit, from the cache if it is there; without an edit that of the
        unadapted policy."""
        problem = problem_of(example)
        name = self._key(problem, edit)
        found = self.kept.get(name)
        if found is None:
            # The result of an edit that is refused; it is the same for all edits of a task.
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
        """Return the cache key of a trial: a hash of everything that it depends on. The learner's
        weights are among it, so that the policy of another round tries the same edit anew."""
        asked = None
        if edit is not None:
            asked = [sorted(edit.groups), edit.strategy, edit.learning_rate, edit.epochs]
        said = self.settings.model_dump(mode="json", exclude=LIMITS)
        return fingerprint(self.learning.fingerprint, asdict(problem), asked, said)


def problem_of(example: Example) -> Problem:
    """Return the visible part of an example. Raises DataError if it is no task of grids."""
    shown, tests = example.inputs.get("demonstrations"), example.inputs.get("tests")
    try:
        return Problem(tuple(map(pair, shown or ())), tuple(map(grid, tests or ())))
    except (TypeError, ValueError) as error:
        raise _no_task(example, str(error)) from None


def outputs_of(example: Example) -> tuple[Grid, ...]:
    """Return the hidden outputs of an example's tests. Raises DataError unless there is one for
    each test."""
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
    """Return a runner for the run; weights are loaded at first use."""
    return Runner(settings, Learning.of(run, settings.learner), kept, devices)


def cache_of(run: Run) -> Cache[Trial]:
    """Return the cache of the run's finished trials."""
    return Cache(run.path / "few-shot.jsonl", Trial)
