"""Find everything that an experiment lacks before its first call."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, get_args
from urllib.parse import urlsplit

from convbench.engine.session import Session
from convbench.errors import ConvbenchError, DataError, FatalModelError, SpecError
from convbench.experiments.cells import (
    PlannedStep,
    Step,
    build_options,
    forget_questions,
    model_reference,
    read_questions,
    rounds_options,
    train_options,
    without_address,
)
from convbench.experiments.evaluate import evaluation_manifest
from convbench.experiments.step import OutcomeRecord, has_result, step_fingerprint
from convbench.experiments.training import check_trainable
from convbench.judges.ready import check_ready, try_model
from convbench.judges.resolve import Judge
from convbench.judges.run import judge_with_model
from convbench.models.devices import check_apart, placement_of
from convbench.models.open import OPENAI, base_of, policy_or_default
from convbench.models.weights_path import check_model, weights_of
from convbench.options.evaluate import EvalOptions
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, parse_devices
from convbench.options.specs import load_plugins
from convbench.rollout.build import new_run_manifest
from convbench.rollout.calls import check_cast, device_placement, is_engine
from convbench.rollout.manifest import make_model_config
from convbench.schema import ModelConfig, RunManifest, TaskSpec
from convbench.schema.experiment import ExperimentSpec
from convbench.schema.recipe import Recipe
from convbench.schema.run import Role
from convbench.store import Run
from convbench.tasks.draw import count_splits, refuse_untested
from convbench.tasks.load import LoadResult
from convbench.util.redact import strip_address

WAIT_S = 10.0
"""Seconds to wait for a connection."""


def check_server(ref: str, api_base: str | None) -> None:
    """Raise FatalModelError if a model's server has a known address and refuses connections.

    A provider's own address is not tried, nor one behind a proxy.
    """
    provider, slash, _ = ref.partition("/")
    base = api_base or (base_of(provider) if slash else None)
    if base is None or base == OPENAI:
        return
    parts = urlsplit(base)
    if parts.hostname is None or _is_proxied(parts.scheme, parts.hostname):
        return
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        socket.create_connection((parts.hostname, port), WAIT_S).close()
    except OSError as error:
        raise FatalModelError(
            f"{ref}: found no server at {strip_address(base)} ({error.strerror or error}); start "
            "the "
            f"server, or name where it is: export {provider.upper()}_API_BASE=http://HOST:PORT/v1"
        ) from None


def _is_proxied(scheme: str, host: str) -> bool:
    return scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)


T = TypeVar("T")
SHOWN = 3
"""Most cells that a line on something missing names."""


@dataclass(frozen=True)
class CellInputs:
    """A cell's manifest and questions."""

    manifest: RunManifest
    loaded: LoadResult


@dataclass
class PreflightFindings:
    """What a preflight resolved, and what is missing."""

    cells: dict[str, CellInputs] = field(default_factory=dict)
    """By folder name: the inputs of each cell that could be resolved, built or not."""
    judges: dict[tuple[str, str], Judge] = field(default_factory=dict)
    """By (task, judge's name)."""
    policies: dict[str, RunManifest] = field(default_factory=dict)
    """By address: the run in which a model that is not trained is evaluated."""
    recipes: dict[tuple[str, str], Recipe] = field(default_factory=dict)
    """By (address, experiment) of a training."""
    notes: dict[str, None] = field(default_factory=dict)
    """Notes on what differs from the settings and does not stop the experiment."""
    lacking: dict[str, list[str]] = field(default_factory=dict)
    """By text on what is missing, with the fix: the cells or judges that need it."""

    @property
    def missing_lines(self) -> list[str]:
        """`NAMES: WHAT` for each thing that is missing: who needs it (at most three names), and
        what it is with the fix."""
        return [f"{_name_some(who)}: {what}" for what, who in self.lacking.items()]

    def add_missing(self, what: str, who: str) -> None:
        """Add something that is missing, its blanks collapsed, and who needs it, each once."""
        known = self.lacking.setdefault(" ".join(what.removeprefix(f"{who}: ").split()), [])
        if who not in known:
            known.append(who)

    def run_check(self, who: str, check: Callable[[], T], task: str | None = None) -> T | None:
        """Return the check's result; if it raises ConvbenchError, add that as missing and return
        None."""
        try:
            return check()
        except ConvbenchError as error:
            self.add_missing(as_typed(str(error), task), who)
            return None


def run_preflight(
    plan: Sequence[PlannedStep], root: Path, options: ExperimentOptions
) -> PreflightFindings:
    """Return the findings of checks of all that the steps need; nothing is sent or written.

    A ConvbenchError of a check is a finding; one of loading the specs' plugins is raised. Finished
    steps are not checked; the devices of `options` are, even without steps. Questions are read from
    their source, also from the Hub.
    """
    findings = PreflightFindings()
    load_plugins(options.specs)
    options = _check_devices(findings, options)
    record = OutcomeRecord(root)
    forget_questions()
    undone = [planned for planned in plan if not is_complete(planned, root, record)]
    for planned in _first_of_each(undone):
        _check_cell(findings, planned, root, options)
    for planned in undone:
        if planned.step.kind == "build":
            _check_same_settings(findings, planned, root, record)
        elif planned.step.kind == "eval" and not planned.step.policy:
            check = _checkpoint_check(findings, planned, without_address(options))
            findings.run_check(planned.step.address, check)
    _check_judges(findings, undone, root, options)
    for planned in undone:
        if planned.step.policy:
            check = _policy_check(findings, planned, root, without_address(options))
            findings.run_check(f"policy {planned.step.policy}", check, planned.step.cell.task)
    for planned in undone:
        if planned.step.kind == "train" and not has_result(planned.step, root):
            check = _training_check(findings, planned, root, without_address(options))
            findings.run_check(planned.step.address, check)
    return findings


def is_complete(planned: PlannedStep, root: Path, record: OutcomeRecord) -> bool:
    """Return True if a step is done with these settings and nothing in it failed."""
    known = record.is_complete(planned.step.address, step_fingerprint(planned.step, planned.spec))
    return known and has_result(planned.step, root)


def _check_devices(findings: PreflightFindings, options: ExperimentOptions) -> ExperimentOptions:
    """Check the named devices; return the options without those that do not exist, for the other
    checks."""
    devices = options.calls.devices
    named = parse_devices(devices)
    for role in get_args(Role):
        try:
            placement_of(named, role)
        except SpecError as error:
            fix = f"--devices {role}=[NUMBER], or the CPU with --devices {role}=[]"
            findings.add_missing(f"{error}; name an existing one with {fix}", "the experiment")
            devices = (*devices, f"{role}=null")
    return replace(options, calls=replace(options.calls, devices=devices))


def _first_of_each(plan: Sequence[PlannedStep]) -> Iterator[PlannedStep]:
    """Yield the first step of each cell."""
    seen: set[str] = set()
    for planned in plan:
        if planned.step.cell.name not in seen:
            seen.add(planned.step.cell.name)
            yield planned


def _check_cell(
    findings: PreflightFindings, planned: PlannedStep, root: Path, options: ExperimentOptions
) -> None:
    """Check a cell's questions and speakers, or open its run; add its inputs to the findings."""
    cell, path = planned.step.cell, root / planned.step.cell.name
    built = has_result(Step(cell, "build"), root)
    policy = (
        None
        if built
        else findings.run_check(cell.name, lambda: _policy_member(planned.spec, options))
    )
    if (path / "run.json").exists():
        inputs = findings.run_check(cell.name, lambda: _open_inputs(path))
    else:
        dry_options = replace(build_options(cell, planned.spec, None, options), dry_run=True)
        inputs = findings.run_check(
            cell.name, lambda: CellInputs(*new_run_manifest(dry_options, read_questions)), cell.task
        )
    if inputs is None:
        return
    findings.cells[cell.name] = inputs
    splits = count_splits(example.split for example in inputs.loaded.examples)
    findings.run_check(cell.name, lambda: refuse_untested(cell.task, splits), cell.task)
    if policy is not None:
        run = Run(path, inputs.manifest)
        findings.run_check(cell.name, lambda: _check_cast(run, options.calls))


def _check_cast(run: Run, calls: CallOptions) -> None:
    """Check what the speakers need, their servers included. Raises ConvbenchError."""
    check_cast(run, calls, Session())
    for member in run.manifest.cast.values():
        check_server(member.model, member.api_base)


def _checkpoint_check(
    findings: PreflightFindings, planned: PlannedStep, options: ExperimentOptions
) -> Callable[[], None]:
    """Return a check of the devices of a checkpoint, which this machine runs, and the other
    speakers."""

    def check() -> None:
        inputs = findings.cells.get(planned.step.cell.name)
        if inputs is None:
            return
        cast, policy = inputs.manifest.cast, inputs.manifest.protocol.policy
        others = {
            member.model
            for name, member in cast.items()
            if name != policy and is_engine(member.model, member.api_base)
        }
        placements = [device_placement(options.calls, role) for role in ("policy", "teacher")]
        for other in others:
            check_apart([("the checkpoint", placements[0]), (other, placements[1])])

    return check


def _open_inputs(path: Path) -> CellInputs:
    """Return the inputs of a run on disk."""
    run = Run.open(path)
    manifest = run.manifest
    return CellInputs(
        manifest, LoadResult(list(run.examples.values()), manifest.source_revision or "", 0)
    )


def _policy_member(spec: ExperimentSpec, options: ExperimentOptions) -> ModelConfig:
    """Return the policy that speaks in the conversations."""
    calls = options.calls
    name = policy_or_default(
        spec.model,
        api_base=calls.api_base,
        specs=options.specs.folders,
    )
    return make_model_config(name, spec.max_tokens, calls.api_base, options.specs)


def _check_same_settings(
    findings: PreflightFindings, planned: PlannedStep, root: Path, record: OutcomeRecord
) -> None:
    """Check that a run on disk was built with the present settings."""
    address = planned.step.address
    others = {name for where, name in record.outcomes if where == address}
    if (
        others
        and step_fingerprint(planned.step, planned.spec) not in others
        and has_result(planned.step, root)
    ):
        findings.add_missing(
            "its run was built with other settings (count, samples, model or sets), and a run "
            "cannot change its settings; set them as before, or use another folder: --run DIR",
            planned.step.cell.name,
        )


def _check_judges(
    findings: PreflightFindings, plan: Sequence[PlannedStep], root: Path, options: ExperimentOptions
) -> None:
    """Check what each judge needs, and add the judges to the findings."""
    calls = without_address(options).calls
    for planned in plan:
        for name in planned.spec.judges if planned.step.kind in ("judge", "eval") else ():
            key = (planned.step.cell.task, name)
            if key in findings.judges:
                continue
            owner = f"judge {name}"
            inputs = findings.cells.get(planned.step.cell.name)
            task = inputs.manifest.task if inputs is not None else None

            def open_judge(name: str = name, task: TaskSpec | None = task) -> Judge:
                return judge_with_model(name, replace(options.specs, sets=()), calls, task=task)

            judge = findings.run_check(owner, open_judge)
            if judge is not None:
                findings.judges[key] = judge
                findings.run_check(owner, lambda judge=judge: _check_judge(judge, calls))  # type: ignore[misc]


def _check_judge(judge: Judge, calls: CallOptions) -> None:
    """Check what a judge needs, its server included. Raises ConvbenchError."""
    check_ready([judge], calls, Session())
    if judge.model is not None:
        check_server(judge.model, judge.spec.api_base)


def _policy_check(
    findings: PreflightFindings, planned: PlannedStep, root: Path, options: ExperimentOptions
) -> Callable[[], None]:
    """Return a check of a model that is evaluated untrained: that it is one, another one than the
    policy and the models named before it, and what it needs. Adds its run to the findings."""

    def check_policy() -> None:
        step, name, calls = planned.step, planned.step.policy, options.calls
        member = make_model_config(name, None, None, options.specs)
        own = _cell_policy(findings, planned, options)
        if own is not None and (own.model, own.api_base) == (member.model, None):
            raise SpecError(f"policies: found {name}, which is the policy itself; expected others")
        for other in planned.spec.policies[: planned.spec.policies.index(name)]:
            if model_reference(other, options.specs.folders) == member.model:
                raise SpecError(f"policies: found {name}, which is the same model as {other}")
        inputs = findings.cells.get(step.cell.name)
        if inputs is not None:
            parent = Run(root / step.cell.name, inputs.manifest)
            evaluation = EvalOptions(name, specs=replace(options.specs, sets=()), calls=calls)
            protocol, examples = parent.manifest.protocol, inputs.loaded.examples
            manifest = evaluation_manifest(parent, protocol, examples, evaluation)
            findings.policies[step.address] = manifest
        try_model(member.model, None, member.short, calls, Session(), None)
        check_server(member.model, None)

    return check_policy


def _training_check(
    findings: PreflightFindings, planned: PlannedStep, root: Path, options: ExperimentOptions
) -> Callable[[], None]:
    """Return a check of the recipe, trainer, packages and weights of a training."""

    def check_training() -> None:
        path = root / planned.step.cell.name
        rounds_options(
            planned.step, planned.spec, path, options
        )  # raises for what rounds cannot do
        policy = _cell_policy(findings, planned, options)
        training = train_options(planned.step, planned.spec, path, options)
        recipe, name = check_trainable(training, policy), (planned.step.address, planned.spec.name)
        findings.recipes[name] = recipe
        _check_enough_rows(findings, planned, recipe)
        if policy is not None:
            start = recipe.model or policy.weights or policy.model
            check_model(weights_of(start) or start)

    return check_training


def _check_enough_rows(findings: PreflightFindings, planned: PlannedStep, recipe: Recipe) -> None:
    """Raise DataError if `rows` asks for more than the cell's train conversations make."""
    inputs, needed = findings.cells.get(planned.step.cell.name), planned.step.rows
    if inputs is None or needed is None:
        return
    available = count_rows(inputs, recipe)
    if needed > available:
        raise DataError(
            f"rows: found at most {available} rows (one per {recipe.data.unit}) in its train "
            f"conversations; expected {needed}; take other sizes with --set "
            f"{planned.spec.name}.rows="
            "[SIZE, null], or more questions with --set count=N"
        )


def count_rows(inputs: CellInputs, recipe: Recipe) -> int:
    """Return the number of rows that all train conversations of a cell make.

    It is train questions times samples, and times the turns if a row is one turn.
    """
    manifest = inputs.manifest
    train = sum(example.split == "train" for example in inputs.loaded.examples)
    rows_per_conversation = max(1, manifest.turns) if recipe.data.unit == "turn" else 1
    return manifest.samples_of("train") * train * rows_per_conversation


def _cell_policy(
    findings: PreflightFindings, planned: PlannedStep, options: ExperimentOptions
) -> ModelConfig | None:
    """Return the policy of a cell, even if its questions are missing; None if it cannot be
    resolved, which the cell's own check reports."""
    inputs = findings.cells.get(planned.step.cell.name)
    if inputs is not None:
        return inputs.manifest.cast[inputs.manifest.protocol.policy]
    try:
        return _policy_member(planned.spec, options)
    except ConvbenchError:
        return None


def _name_some(who: Sequence[str]) -> str:
    """Return a list of names as text, shortened to the first few."""
    shown = ", ".join(who[:SHOWN])
    return shown if len(who) <= SHOWN else f"{shown} and {len(who) - SHOWN} more"


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
    r"--set (?=lora\.r=)": "--set recipe_sets.all.",
}


def as_typed(text: str, task: str | None) -> str:
    """Return an error's text with options of `build` replaced by what is typed for `experiment`.

    `--model` and `--judge` are always replaced, the options of one task (`--set task.`, `--tasks`,
    `--samples`, `--temperatures`, `--teacher`) only with a task.
    """
    table = {**(FLAGS if task else {}), **GENERAL}
    for flag, ours in table.items():
        text = re.sub(flag, ours.replace("{task}", task or ""), text)
    return text
