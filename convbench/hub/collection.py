"""Publish all sets of an experiment: one for each logged run, a card of them all, and a collection
on the Hub that lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from convbench.errors import ConvbenchError, HubError, RunError, UsageError
from convbench.hub.collection_card import ExperimentSet, collection_card, set_note
from convbench.hub.dataset import (
    refuse_foreign_folder,
    replace_folder,
    write_dataset_folder,
)
from convbench.hub.repo import (
    UploadResult,
    check_name,
    check_upload,
    own_namespaces,
    update_collection,
    upload_folder,
)
from convbench.hub.safety import refuse_secrets
from convbench.hub.send import record_upload
from convbench.options.publish import PublishOptions
from convbench.rollout.plan import plan_samples
from convbench.store import Run
from convbench.store.scratch import make_workspace
from convbench.store.steps import (
    ExperimentPlan,
    StepEnds,
    cells_in,
    is_experiment,
    read_ends,
    read_plan,
    sort_cells,
)

MARK = "collection.json"
"""File in the card's repository with the sets; its `id` is that of the experiment's oldest run."""
UNKNOWN = "unknown"
"""Licence id of a task whose licence is not stated."""
LONGEST_TITLE, LONGEST_ABOUT = 59, 150
"""Most characters of a collection's title and description on the Hub."""


@dataclass
class PublishedExperiment:
    """The sets of an experiment, and what was published of them."""

    root: Path
    title: str
    repo: str
    """The card's repository."""
    sets: list[ExperimentSet]
    left_out: dict[str, str]
    """Runs that have no licence to be published, with the reason, by name."""
    folder: Path | None = None
    """On a dry run: the folder with a folder for each repository."""
    uploaded: UploadResult | None = None
    """The card's upload."""
    collection: str | None = None
    """URL of the collection on the Hub."""
    stopped: ConvbenchError | KeyboardInterrupt | None = None
    """What stopped the uploads; what has no `uploaded` was not sent."""


def plan_sets(options: PublishOptions) -> PublishedExperiment:
    """Return the sets that an experiment's folder gives; nothing is written, the Hub is not asked.

    Raise UsageError for options of a single repository and a prefix without a namespace, HubError
    for invalid names, RunError for a folder that is no experiment, has no run that may be
    published, or has unfinished runs: the first is the message, the others are its notes.
    """
    assert options.experiment is not None
    if options.repo is not None or options.run is not None or options.checkpoint is not None:
        raise UsageError(
            "--experiment publishes several repositories; leave out REPO_ID, --run and --checkpoint"
        )
    root, prefix = options.experiment, options.prefix or ""
    namespace, slash, start = prefix.partition("/")
    if not namespace or not slash or "/" in start:
        typed = f"--prefix {prefix}".strip()
        raise UsageError(
            f"{typed}: found no namespace of the Hub; expected OWNER/ (me/), or OWNER/ and how the "
            "names begin (me/study-)"
        )
    if not is_experiment(root):
        what = "a run" if (root / "run.json").exists() else "no experiment"
        raise RunError(
            f"--experiment {root}: found {what}; expected an experiment's folder, as "
            "runs/experiments/NAME"
        )
    plan, ends = read_plan(root), read_ends(root)
    folders = {path.name: path for path in sort_cells(plan, cells_in(root))}
    title = plan.title or root.resolve().name
    result = PublishedExperiment(root, title, prefix + root.resolve().name, [], {})
    problems: list[str] = []
    for name in dict.fromkeys([*(step.partition("/")[0] for step in plan.steps), *folders]):
        run = Run.open(folders[name]) if name in folders else None
        if run is not None and run.manifest.task.licence.id == UNKNOWN:
            result.left_out[name] = f"the licence of {run.manifest.task.name} is unknown"
        elif run is None or (reason := _why_unfinished(run, plan, ends)):
            problems.append(f"{name}: {reason if run else 'it is not built yet'}")
        else:
            result.sets.append(ExperimentSet(run, prefix + name.removesuffix("-seed0")))
    _refuse(root, problems, "nothing was sent; resume the experiment")
    if not result.sets:
        raise RunError(f"{root}: found no run with a licence to be published; nothing was sent")
    repos = [result.repo, *(each.repo for each in result.sets)]
    for repo in repos:
        check_name(repo)
    twice = [f"two repositories would be {repo}" for repo in set(repos) if repos.count(repo) > 1]
    _refuse(root, sorted(twice))
    return result


def _why_unfinished(run: Run, plan: ExperimentPlan, ends: StepEnds) -> str | None:
    """Return why a run's log is not complete, or None if it is: built, and scored by a judge."""
    for kind in ("build", "judge"):
        address = f"{run.path.name}/{kind}"
        end = ends.get(address)
        if end is not None and not end.done:
            return end.why
        if end is None and address in plan.steps:
            return f"its {kind} is not done yet"
    jobs = plan_samples(run.manifest, run.examples.values(), run.attempts())
    if missing := sum(job.attempt == 0 for job in jobs):
        return f"{missing:,} of its conversations are not built yet"
    marks = {mark for _, mark in run.judge_fingerprints()} - run.reviewer_fingerprints()
    return None if marks else "no judge has scored it"


def _refuse(root: Path, problems: Sequence[str], tail: str = "nothing was sent") -> None:
    """Raise RunError with the first of the problems, and the others as its notes, if there are
    any."""
    if problems:
        error = RunError(f"{root}: {problems[0]}; {tail}")
        for line in problems[1:]:
            error.add_note(line)
        raise error


def publish_experiment(
    options: PublishOptions, tell: Callable[[str], None] = lambda line: None
) -> PublishedExperiment:
    """Publish a set for each logged run of an experiment, then a card and a collection of all.

    Every folder is written and checked, and the Hub is asked about every name, before the first
    upload. An error of an upload, or an interruption, is the result's `stopped`; the same call then
    uploads what is missing, and makes no commit where nothing changed. A dry run writes the folders
    (EXPERIMENT/publish) and sends nothing. `tell` is called as a set is written or uploaded.

    Raise what `plan_sets` does; RunError for secrets or a choice of judges in any set, and a
    folder that no dry run made; HubError for names that are taken.
    """
    result, private = plan_sets(options), bool(options.private)
    target = options.folder or result.root / "publish"
    if options.dry_run:
        refuse_foreign_folder(target, f"{_repo_name(result.repo)}/{MARK}")
    else:
        _refuse_foreign_namespace(result.repo)
    with make_workspace(target.parent if options.dry_run else result.root, ".publish-") as space:
        staging = space / "sets"
        _write_folders(result, staging, options, tell)
        if options.dry_run:
            replace_folder(staging, target)
            result.folder = target
            for each in result.sets:
                each.written.folder = target / _repo_name(each.repo)
            return result
        for each in result.sets:
            check_upload(each.repo, staging / _repo_name(each.repo), private=private)
        check_upload(result.repo, staging / _repo_name(result.repo), private=private, mark=MARK)
        try:
            _upload_folders(result, staging, private, tell)
        except (ConvbenchError, KeyboardInterrupt) as error:
            result.stopped = error
    return result


def _repo_name(repo: str) -> str:
    return repo.partition("/")[2]


def _write_folders(
    result: PublishedExperiment, staging: Path, options: PublishOptions, tell: Callable[[str], None]
) -> None:
    """Write the folder of every set, then that of the card. Raises RunError for what is wrong in
    any of them."""
    problems: list[str] = []
    for number, each in enumerate(result.sets, 1):
        tell(f"[{number}/{len(result.sets)}] checks {each.repo}")
        try:
            with each.run.lock():
                each.dataset = write_dataset_folder(
                    each.run,
                    each.repo,
                    staging / _repo_name(each.repo),
                    judge=options.judge,
                )
        except RunError as error:
            problems.append(f"{each.run.path.name}: {error}")
    _refuse(result.root, problems)
    folder = staging / _repo_name(result.repo)
    folder.mkdir()
    oldest = min(Run.open(path).manifest.id for path in cells_in(result.root))
    record = {"id": oldest, "sets": {each.repo: each.run.manifest.id for each in result.sets}}
    (folder / MARK).write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
    text = collection_card(result.title, result.sets, result.left_out)
    (folder / "README.md").write_text(text, encoding="utf-8")
    refuse_secrets(folder)


def _refuse_foreign_namespace(repo: str) -> None:
    """Raise HubError unless the repository's namespace is one of this token's user."""
    namespace, own = repo.partition("/")[0], own_namespaces()
    if namespace not in own:
        raise HubError(
            f"--prefix {namespace}/: found no namespace of this token's user; expected one of: "
            f"{', '.join(own)}"
        )


def _upload_folders(
    result: PublishedExperiment, staging: Path, private: bool, tell: Callable[[str], None]
) -> None:
    """Upload the sets, the card, and the collection that lists them, and record each in the result.
    Raises HubError."""
    for number, each in enumerate(result.sets, 1):
        tell(f"[{number}/{len(result.sets)}] uploads {each.repo}")
        folder = staging / _repo_name(each.repo)
        each.uploaded = upload_folder(each.repo, folder, private=private)
        record_upload(each.run, each.uploaded, private)
    folder = staging / _repo_name(result.repo)
    result.uploaded = upload_folder(result.repo, folder, private=private, mark=MARK)
    result.collection = update_collection(
        result.repo.partition("/")[0],
        _repo_name(result.repo)[:LONGEST_TITLE],
        result.title[:LONGEST_ABOUT],
        {result.repo: "the card of all sets"}
        | {each.repo: set_note(each.run.manifest) for each in result.sets},
        private=private,
    )
