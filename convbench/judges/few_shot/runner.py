"""Try edits on the tasks of a run with one learner; finished trials are cached in the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from convbench import catalog
from convbench.errors import DataError
from convbench.judges.adaptation.cache import WorkCache
from convbench.judges.adaptation.pool import LearnerPool
from convbench.judges.adaptation.runner import LearnerRef
from convbench.judges.few_shot.settings import FewShotSettings
from convbench.judges.few_shot.solve import Problem, Solver, Trial
from convbench.judges.few_shot.worker import MODULE, TRIAL, line_of
from convbench.judges.resolve import Judge
from convbench.schema import Example, fingerprint
from convbench.store import Run
from convbench.tasks.arc_agi.edit import InvalidEdit, SelfEdit, parse_edit
from convbench.tasks.arc_agi.grids import Grid, parse_grid, parse_pair

LIMITS = {"max_seconds", "ask_at_once", "oracle"}
"""Settings that do not change the result of a trial."""


def settings_of(judge: Judge) -> FewShotSettings:
    """Return the judge's settings. Raises SpecError for invalid ones."""
    return catalog.check_spec(FewShotSettings, dict(judge.spec.args), f"judge {judge.name}: args")


@dataclass
class FewShotRunner:
    """Tries edits on a learner; safe to use from several threads."""

    settings: FewShotSettings
    learning: LearnerRef
    trial_cache: WorkCache[Trial]
    devices: tuple[str, ...] = ()
    """Devices with a learning process each; empty to learn in this process."""

    def __post_init__(self) -> None:
        self.learner_pool = LearnerPool(self.learning.path, self.devices, MODULE)

    def try_unadapted(self, example: Example) -> Trial:
        """Return the trial of the unadapted policy (in-context learning), from the cache if it is
        there. Raise DataError for an example that is no task of grids."""
        return self.try_edit(example, None)

    def try_oracle(self, example: Example) -> Trial:
        """Return the trial of the best known edit, which the settings' `oracle` holds, from the
        cache if it is there."""
        best = self.settings.oracle
        edit = SelfEdit(
            frozenset(best.tools), best.strategy, best.learning_rate, best.num_train_epochs
        )
        return self.try_edit(example, edit)

    def try_written(self, example: Example, text: str) -> tuple[SelfEdit | None, Trial, str | None]:
        """Return (edit of a text, its trial, why nothing was trained or None).

        A text without a valid edit gives None, the trial of the unadapted policy, and the reason.
        """
        try:
            edit = parse_edit(text)
        except InvalidEdit as error:
            return None, self.try_unadapted(example), str(error)
        trial = self.try_edit(example, edit)
        return edit, trial, trial.reason

    def try_edit(self, example: Example, edit: SelfEdit | None) -> Trial:
        """Return the trial of an edit, from the cache if it is there, else run and added to the
        cache; without an edit that of the unadapted policy.

        An edit that is refused, or whose training fails, gives the unadapted policy's attempts with
        a `reason`.
        """
        problem = problem_of(example)
        name = self._trial_key(problem, edit)
        trial = self.trial_cache.get(name)
        if trial is None:
            # The result of an edit that is refused; it is the same for all edits of a task.
            before = None if edit is None else self.try_unadapted(example)
            with self.learner_pool.lend_worker() as worker:
                if worker is not None:
                    done = worker.do_line(line_of(problem, edit, before, self.settings))
                    trial = TRIAL.validate_python(done)
                else:
                    solver = Solver(self.learner_pool.own_learner(), self.settings)
                    trial = solver.try_edit(problem, edit, before)
            self.trial_cache.put(name, trial)
        return trial

    def _trial_key(self, problem: Problem, edit: SelfEdit | None) -> str:
        """Return the cache key of a trial: a hash of everything that it depends on. The learner's
        weights are among it, so that the policy of another round tries the same edit anew."""
        edit_values = None
        if edit is not None:
            edit_values = [sorted(edit.groups), edit.strategy, edit.learning_rate, edit.epochs]
        settings_values = self.settings.model_dump(mode="json", exclude=LIMITS)
        return fingerprint(self.learning.fingerprint, asdict(problem), edit_values, settings_values)


def problem_of(example: Example) -> Problem:
    """Return the demonstrations and test inputs of an example, without the hidden outputs; they are
    empty where the example lacks the fields.

    Raise DataError if they are no grids.
    """
    shown, tests = example.inputs.get("demonstrations"), example.inputs.get("tests")
    try:
        return Problem(tuple(map(parse_pair, shown or ())), tuple(map(parse_grid, tests or ())))
    except (TypeError, ValueError) as error:
        raise _no_task(example, str(error)) from None


def outputs_of(example: Example) -> tuple[Grid, ...]:
    """Return the hidden outputs of an example's tests. Raises DataError unless there is one for
    each test."""
    hidden, tests = example.hidden.get("outputs"), example.inputs.get("tests")
    try:
        outputs = tuple(map(parse_grid, hidden or ()))
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
    run: Run, settings: FewShotSettings, cache: WorkCache[Trial], devices: tuple[str, ...] = ()
) -> FewShotRunner:
    """Return a runner for the run; weights are loaded at first use.

    Raise TrainError if the learner's weights are not available.
    """
    return FewShotRunner(settings, LearnerRef.of_run(run, settings.learner), cache, devices)


def cache_of(run: Run) -> WorkCache[Trial]:
    """Return the cache of the run's finished trials, read from its `few-shot.jsonl`.

    Raise RunError for a record of another shape.
    """
    return WorkCache(run.path / "few-shot.jsonl", Trial)
