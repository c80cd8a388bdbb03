"""Find everything that an experiment lacks before its first call."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from convbench.blot import address
from convbench.errors import ConvbenchError, DataError, FatalModelError
from convbench.experiment.cells import (
    Part,
    Step,
    build_options,
    elsewhere,
    forget,
    read,
    rounds_options,
    train_options,
)
from convbench.experiment.step import Record, mark, there
from convbench.judge.all import judge_with_model
from convbench.judge.ready import ready
from convbench.judge.resolve import Judge
from convbench.learn.launch import accelerators
from convbench.learn.start import choose_launch, sort_sets, trainable
from convbench.models.devices import lacking
from convbench.models.open import OPENAI, base_of, policy_or_default
from convbench.models.where import check_model, named
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, devices_of
from convbench.options.specs import load_plugins
from convbench.rollout.build import begun
from convbench.rollout.calls import ready_cast
from convbench.rollout.manifest import make_member
from convbench.schema import Member, RunManifest, TaskSpec
from convbench.schema.experiment import ExperimentSpec
from convbench.schema.recipe import Recipe
from convbench.schema.run import reply_limit
from convbench.store import Run
from convbench.tasks.draw import counted, refuse_untested
from convbench.tasks.load import Loaded

WAIT_S = 10.0
"""Seconds to wait for a connection."""


def listening(ref: str, api_base: str | None) -> None:
    """Raise FatalModelError if a model's server has a known address and refuses connections.

    A provider's own address is not tried, nor one behind a proxy.
    """
    provider, slash, _ = ref.partition("/")
    base = api_base or (base_of(provider) if slash else None)
    if base is None or base == OPENAI:
        return
    parts = urlsplit(base)
    if parts.hostname is None or _proxied(parts.scheme, parts.hostname):
        return
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        socket.create_connection((parts.hostname, port), WAIT_S).close()
    except OSError as error:
        raise FatalModelError(
            f"{ref}: found no server at {address(base)} ({error.strerror or error}); start the "
            f"server, or name where it is: export {provider.upper()}_API_BASE=http://HOST:PORT/v1"
        ) from None


def _proxied(scheme: str, host: str) -> bool:
    return scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)


T = TypeVar("T")
SHOWN = 3
"""Most cells that a line on something missing names."""


@dataclass(frozen=True)
class Ready:
    """A cell's manifest and questions."""

    manifest: RunManifest
    loaded: Loaded


@dataclass
class Preflight:
    """What a preflight resolved, and what is missing."""

    cells: dict[str, Ready] = field(default_factory=dict)
    """By folder name: the inputs of each cell that could be resolved, built or not."""
    judges: dict[tuple[str, str], Judge] = field(default_factory=dict)
    """By (task, judge's name)."""
    recipes: dict[tuple[str, str], Recipe] = field(default_factory=dict)
    """By (address, experiment) of a training."""
    processes: dict[str, int] = field(default_factory=dict)
    """By launch: the number of processes of a training here."""
    notes: dict[str, None] = field(default_factory=dict)
    """Notes on what differs from the settings and does not stop the experiment."""
    lacking: dict[str, list[str]] = field(default_factory=dict)
    """By text on what is missing, with the fix: the cells or judges that need it."""

    @property
    def missing(self) -> list[str]:
        """What is missing, one line each."""
        return [f"{_some(who)}: {what}" for what, who in self.lacking.items()]

    def lacks(self, what: str, who: str) -> None:
        """Add something that is missing, and who needs it."""
        known = self.lacking.setdefault(" ".join(what.split()), [])
        if who not in known:
            known.append(who)

    def tried(self, who: str, look: Callable[[], T], task: str | None = None) -> T | None:
        """Return the check's result; if it raises ConvbenchError, add that as missing and return
        None."""
        try:
            return look()
        except ConvbenchError as error:
            self.lacks(as_typed(str(error), task), who)
            return None


def preflight(parts: Sequence[Part], root: Path, options: ExperimentOptions) -> Preflight:
    """Return the findings of checks of all that the steps need; nothing is sent or written.

    Finished steps are not checked. Questions are read from their source, also from the Hub.
    """
    found = Preflight()
    load_plugins(options.specs)
    options = _devices(found, options)
    record = Record(root)
    forget()
    undone = [one for one in parts if not whole(one, root, record)]
    for one in _first_of_each(undone):
        _cell(found, one, root, options)
    for one in undone:
        if one.step.kind == "build":
            _same(found, one, root, record)
    _judges(found, undone, root, options)
    for one in undone:
        if one.step.kind == "train" and not there(one.step, root):
            look = _training(found, one, root, elsewhere(options))
            found.tried(one.step.address, look)
    return found


def whole(part: Part, root: Path, record: Record) -> bool:
    """Return True if a step is done with these settings and nothing in it failed."""
    known = record.whole(part.step.address, mark(part.step, part.spec))
    return known and there(part.step, root)


def _devices(found: Preflight, options: ExperimentOptions) -> ExperimentOptions:
    """Check the named devices; return the options without those that do not exist, for the other
    checks."""
    said = options.calls.devices
    for role, why in lacking(devices_of(said)).items():
        fix = f"--devices {role}=[NUMBER], or the CPU with --devices {role}=[]"
        found.lacks(f"{why}; name one that is there with {fix}", "the experiment")
        said = (*said, f"{role}=null")
    return replace(options, calls=replace(options.calls, devices=said))


def _first_of_each(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the first step of each cell."""
    seen: set[str] = set()
    for one in parts:
        if one.step.cell.name not in seen:
            seen.add(one.step.cell.name)
            yield one


def _cell(found: Preflight, one: Part, root: Path, options: ExperimentOptions) -> None:
    """Check a cell's questions and speakers, or open its run; add its inputs to the findings."""
    cell, path = one.step.cell, root / one.step.cell.name
    built = there(Step(cell, "build"), root)
    policy = None if built else found.tried(cell.name, lambda: _policy(one.spec, options))
    if (path / "run.json").exists():
        opened = found.tried(cell.name, lambda: _opened(path))
    else:
        asked = replace(build_options(cell, one.spec, None, options), dry_run=True)
        opened = found.tried(cell.name, lambda: Ready(*begun(asked, read)), cell.task)
    if opened is None:
        return
    found.cells[cell.name] = opened
    splits = counted(example.split for example in opened.loaded.examples)
    found.tried(cell.name, lambda: refuse_untested(cell.task, splits), cell.task)
    if policy is not None:
        run = Run(path, opened.manifest)
        found.tried(cell.name, lambda: _castable(run, options.calls))


def _castable(run: Run, calls: CallOptions) -> None:
    """Check what the speakers need, their servers included. Raises ConvbenchError."""
    ready_cast(run, calls)
    for member in run.manifest.cast.values():
        listening(member.model, member.api_base)


def _opened(path: Path) -> Ready:
    """Return the inputs of a run on disk."""
    run = Run.open(path)
    old = run.manifest
    return Ready(old, Loaded(list(run.examples.values()), old.source_revision or "", 0))


def _policy(spec: ExperimentSpec, options: ExperimentOptions) -> Member:
    """Return the policy that speaks in the conversations."""
    calls = options.calls
    name = policy_or_default(
        spec.model,
        api_base=calls.api_base,
        vllm_python=calls.vllm_python,
        specs=options.specs.folders,
    )
    return make_member(
        name, reply_limit(spec.max_tokens, spec.regime), calls.api_base, options.specs
    )


def _same(found: Preflight, one: Part, root: Path, record: Record) -> None:
    """Check that a run on disk was built with the present settings."""
    address = one.step.address
    others = {name for where, name in record.found if where == address}
    if others and mark(one.step, one.spec) not in others and there(one.step, root):
        found.lacks(
            "its run was built with other settings (count, samples, model or sets), and a run "
            "never changes; say them as before, or take another folder: --run DIR",
            one.step.cell.name,
        )


def _judges(
    found: Preflight, parts: Sequence[Part], root: Path, options: ExperimentOptions
) -> None:
    """Check what each judge needs, and add the judges to the findings."""
    calls = elsewhere(options).calls
    for one in parts:
        for name in one.spec.judges if one.step.kind in ("judge", "eval") else ():
            key = (one.step.cell.task, name)
            if key in found.judges:
                continue
            who = f"judge {name}"
            opened = found.cells.get(one.step.cell.name)
            task = opened.manifest.task if opened is not None else None

            def look(name: str = name, task: TaskSpec | None = task) -> Judge:
                return judge_with_model(name, replace(options.specs, sets=()), calls, task=task)

            judge = found.tried(who, look)
            if judge is not None:
                found.judges[key] = judge
                found.tried(who, lambda judge=judge: _asked(judge, calls))  # type: ignore[misc]


def _asked(judge: Judge, calls: CallOptions) -> None:
    """Check what a judge needs, its server included. Raises ConvbenchError."""
    ready([judge], calls)
    if judge.model is not None:
        listening(judge.model, judge.spec.api_base)


def _training(
    found: Preflight, one: Part, root: Path, options: ExperimentOptions
) -> Callable[[], None]:
    """Return a check of the recipe, trainer, packages and weights of a training."""

    def look() -> None:
        path = root / one.step.cell.name
        rounds_options(one.step, one.spec, path, options)  # raises for what rounds cannot do
        policy = _learner(found, one, options)
        asked = train_options(one.step, one.spec, path, options)
        recipe = trainable(asked, policy)
        found.recipes[one.step.address, one.spec.name] = recipe
        sets = sort_sets(asked.specs.sets)[1]
        launch, notes = choose_launch(asked, recipe, sets, accelerators(asked.calls))
        found.processes[recipe.launch] = launch.processes
        found.notes.update(dict.fromkeys(INSISTS.sub("", note) for note in notes))
        _enough_rows(found, one, recipe)
        if policy is not None:
            start = recipe.model or policy.weights or policy.model
            check_model(named(start) or start)

    return look


def _enough_rows(found: Preflight, one: Part, recipe: Recipe) -> None:
    """Raise DataError if `rows` asks for more than the cell's train conversations make."""
    ready_here, wanted = found.cells.get(one.step.cell.name), one.step.rows
    if ready_here is None or wanted is None:
        return
    there = rows_of(ready_here, recipe)
    if wanted > there:
        raise DataError(
            f"rows: found at most {there} rows (one per {recipe.data.unit}) in its train "
            f"conversations; expected {wanted}; take other sizes with --set {one.spec.name}.rows="
            "[SIZE, null], or more questions with --set count=N"
        )


def rows_of(ready_here: Ready, recipe: Recipe) -> int:
    """Return the number of rows that all train conversations of a cell make."""
    manifest = ready_here.manifest
    train = sum(example.split == "train" for example in ready_here.loaded.examples)
    each = max(1, manifest.turns) if recipe.data.unit == "turn" else 1
    return manifest.samples_of("train") * train * each


def _learner(found: Preflight, one: Part, options: ExperimentOptions) -> Member | None:
    """Return the policy of a cell, even if its questions are missing; None if it cannot be
    resolved, which the cell's own check reports."""
    ready_here = found.cells.get(one.step.cell.name)
    if ready_here is not None:
        return ready_here.manifest.cast[ready_here.manifest.protocol.policy]
    try:
        return _policy(one.spec, options)
    except ConvbenchError:
        return None


def _some(who: Sequence[str]) -> str:
    """Return a list of names as text, shortened to the first few."""
    shown = ", ".join(who[:SHOWN])
    return shown if len(who) <= SHOWN else f"{shown} and {len(who) - SHOWN} more"


INSISTS = re.compile(r" \(for [^\s()]++ [^()]*--launch [^()]*+\)")
"""Part of a note of `train` on options that `experiment` does not have."""
FLAGS: Mapping[str, str] = {
    r"--set (task|protocol)\.(?=\S)": r"--set per_task.{task}.sets.\1.",
    r"--tasks (?=\S)": "--set per_task.{task}.count=",
    r"--samples (?=\S)": "--set per_task.{task}.samples=",
    r"--temperatures (?=\S)": "--set per_task.{task}.temperatures=",
    r"--teacher(?: (?=[A-Z/]))?": "--set per_task.{task}.teacher=MODEL",
}
"""Options of `build`, and what an experiment takes in their place for one task."""
GENERAL: Mapping[str, str] = {
    r"--model (?=[\w:/]+)": "--set model=",
    r"--judge (?=\S+: )": "judge ",
}


def as_typed(text: str, task: str | None) -> str:
    """Return an error's text with options of `build` replaced by what is typed for `experiment`."""
    table = {**(FLAGS if task else {}), **GENERAL}
    for flag, ours in table.items():
        text = re.sub(flag, ours.replace("{task}", task or ""), text)
    return text
