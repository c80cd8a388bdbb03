"""`convbench pull`: restore a published run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from convbench.commands._command import Command, RunAnswer, RunContext
from convbench.commands._output import COUNT, path_text, print_fact, quoted, run_option
from convbench.options.declare import Opt
from convbench.options.publish import Repo
from convbench.options.shared import NewRun

if TYPE_CHECKING:
    from convbench.hub.pull import PulledRun


@dataclass(frozen=True)
class PullOptions:
    """Restore a published run, which every command then accepts."""

    EXAMPLES: ClassVar = ("convbench pull me/arc-thinking",)

    repo: Repo
    run: NewRun = None
    revision: Annotated[str | None, Opt("Branch, tag or commit; without it main.")] = None


def restore_run(options: PullOptions) -> PulledRun:
    """Restore the run in a dataset, make it the newest run, and return it.

    Raises HubError (unreachable, refused, damaged run) or RunError (directory taken).
    """
    from convbench.hub.pull import pull_dataset as pull_run
    from convbench.store.run import set_latest

    pulled = pull_run(options.repo, options.run, options.revision)
    set_latest(pulled.run)
    return pulled


def run(options: PullOptions, context: RunContext) -> RunAnswer:
    """Restore a published run, make it the newest run, and return its folder, repository, commit
    and file of citations.

    The answer has no counts. Raises HubError or RunError as `restore_run` does.
    """
    from convbench.hub.pull import CITATION
    from convbench.models.weights_path import weights_of

    pulled = restore_run(options)
    run_flag = run_option(pulled.run.path)
    manifest = pulled.run.manifest
    policy = manifest.cast[manifest.protocol.policy]
    needs_model = weights_of(policy.model, policy.weights) is None
    context.add_next(
        f"{COUNT}{run_flag}", *([] if needs_model else [f"convbench train swift{run_flag}"])
    )
    path = path_text(pulled.run.path)
    cited = path_text(pulled.run.path / CITATION)
    answer = RunAnswer(run=path, repo=pulled.repo, commit=pulled.commit, citation=cited)
    return answer.with_source(run_flag if needs_model else None)


def show(answer: RunAnswer) -> None:
    """Print the run, its source, what to cite, and what training on it needs."""
    print_fact("run", quoted(answer.run))
    print_fact("from", f"{answer.repo} at {(answer.commit or '')[:12]}")
    print_fact("cite", quoted(answer.citation or ""))
    if answer._source is not None:
        text = f"name the base model: convbench train swift --model MODEL{answer._source}"
        print_fact("to train", text)


pull_command = Command(run, show)
