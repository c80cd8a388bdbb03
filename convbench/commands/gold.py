"""`convbench gold`: draw conversations for people to label, and bring their labels in and out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, quoted, run_option
from convbench.commands.build import judge_line
from convbench.errors import UsageError
from convbench.options.declare import WHERE, Opt
from convbench.options.shared import MOST_EACH, SEEDS, SpecOptions
from convbench.util.words import SplitChoice

if TYPE_CHECKING:
    from convbench.judges.gold.sampling import DrawResult
    from convbench.store import Run

ACTIONS = ("export", "import")


@dataclass(frozen=True)
class GoldOptions:
    """Have people label a sample, drawn with known probabilities, to correct a judge.

    `gold RUN --draw N` fills the queue that `convbench view RUN` shows under Label; `gold export
    FILE` and `gold import FILE` have it labelled elsewhere; `gold RUN` alone says how much is done.
    `convbench report RUN` reads the labels.
    """

    EXAMPLES: ClassVar = (
        "convbench gold runs/latest --draw 100",
        "convbench gold --draw 60 --raters 2",
        "convbench gold export queue.jsonl     then fill it in:",
        "convbench gold import queue.jsonl",
    )

    words: Annotated[
        tuple[str, ...],
        Opt(
            "A run (without it the newest), or export FILE, or import FILE.",
            metavar="RUN | export FILE | import FILE",
            argument=True,
        ),
    ] = ()
    draw: Annotated[
        int | None,
        Opt(
            "Conversations to draw, spread over the run and its evaluations.",
            least=1,
            most=MOST_EACH,
        ),
    ] = None
    raters: Annotated[int, Opt("People to label each conversation.", least=1, most=20)] = 1
    judge: Annotated[str | None, Opt("Judge to correct, where there are several.")] = None
    policy: Annotated[
        tuple[str, ...],
        Opt(
            "Draw from this policy alone (base, or an evaluation's folder); repeat it for several."
        ),
    ] = ()
    split: Annotated[SplitChoice, Opt("Split whose conversations are drawn.")] = "test"
    seed: Annotated[
        int | None,
        Opt("Seed of the draw; without it each draw has its own.", least=SEEDS[0], most=SEEDS[1]),
    ] = None
    rater: Annotated[str, Opt("Person whose queue is exported.")] = ""
    run: Annotated[
        Path | None,
        Opt("Run directory; without it the newest run.", "--run", "DIR", WHERE, names="runs"),
    ] = None


class GoldAnswer(Answer):
    """`gold`: what was drawn, written or read, and the progress of the labelling queue."""

    run: str
    """The run whose folder holds the labels."""
    drawn: dict[str, int] | None = None
    """Number of conversations in this draw, by policy."""
    file: str | None = None
    """The file that was written or read."""
    labels: int | None = None
    """Number of conversations written, or of labels read."""
    queue: int
    """Number of conversations that were drawn in all."""
    done: int
    """Number of drawn conversations with enough labels."""
    skipped: int
    """Number of drawn conversations that everybody who saw them skipped."""
    raters: dict[str, int] = Field(default_factory=dict)
    """Number of scores by person."""
    agreement: dict[str, float | None] = Field(default_factory=dict)
    """Krippendorff's alpha between people, by the judge to correct."""


@dataclass
class GoldResult:
    """Result of `gold`."""

    run: Run
    """The run whose folder holds the labels."""
    drawn: DrawResult | None
    file: Path | None
    exported: int | None
    imported: int | None
    progress: dict[str, Any]


def label_sample(options: GoldOptions) -> GoldResult:
    """Draw, export or import conversations as the options say, or just read the progress, and
    return the result.

    Fields for what was not done are None; `progress` is always read, last. Labels lie in the
    parent's folder for an evaluation. Raises ConvbenchError subclasses, UsageError for
    contradicting words.
    """
    from convbench.judges.gold.labelling import LabelQueue, export_queue, import_labels
    from convbench.judges.gold.labels import home_run
    from convbench.judges.gold.sampling import DrawRequest, draw_labels
    from convbench.store import find_run

    action, path, file = _read_words(options)
    run = home_run(find_run(path))
    drawn = exported = imported = None
    if action == "export" and file is not None:
        exported = export_queue(run, file, options.rater)
    elif action == "import" and file is not None:
        imported = len(import_labels(run, file))
    elif options.draw is not None:
        order = DrawRequest(
            options.draw,
            options.judge,
            options.split,
            options.policy,
            options.raters,
            options.seed,
        )
        drawn = draw_labels(run, order)
    return GoldResult(run, drawn, file, exported, imported, LabelQueue(run).progress())


def _read_words(options: GoldOptions) -> tuple[str | None, Path | None, Path | None]:
    """Return (action, run, file) from the arguments. Raises UsageError for other words."""
    words = options.words
    if words and words[0] in ACTIONS:
        if len(words) != 2:
            raise UsageError(f"gold {words[0]}: found {len(words) - 1} files; expected one")
        if options.draw is not None:
            raise UsageError(f"gold {words[0]}: found --draw too; expected one at a time")
        return words[0], options.run, Path(words[1])
    if len(words) > 1:
        raise UsageError(f"gold: found {' '.join(words)!r}; expected one run, or export or import")
    if words and options.run is not None and Path(words[0]).resolve() != options.run.resolve():
        raise UsageError(
            f"gold: found {options.run} and {words[0]}, one behind --run and one without; expected "
            "each run named once"
        )
    return None, Path(words[0]) if words else options.run, None


def run(options: GoldOptions, context: RunContext) -> GoldAnswer:
    """Draw, export or import, and return what was done and the progress; add the next command."""
    result = label_sample(options)
    drawn, progress, run_argument = result.drawn, result.progress, run_option(result.run.path, "")
    split = "" if options.split == "test" else f" --split {options.split}"
    report = f"convbench report{run_argument}{split}"
    if result.exported is not None and result.file is not None:
        file, run = quoted(path_text(result.file)), run_option(result.run.path)
        context.add_next(f"convbench gold import {file}{run}   once filled in")
    elif progress["drawn"] > progress["done"]:
        context.add_next(f"convbench view{run_argument}   then Label", report)
    elif progress["drawn"]:
        context.add_next(report)
    elif result.run.judge_specs():
        context.add_next(f"convbench gold{run_argument} --draw 100")
    else:  # labels are drawn by and compared with a judge's scores
        option = run_option(result.run.path)
        context.add_next(judge_line(result.run.manifest, SpecOptions(), option))
    return GoldAnswer(
        run=path_text(result.run.path),
        drawn=drawn and drawn.policies,
        file=None if result.file is None else path_text(result.file),
        labels=result.imported if result.exported is None else result.exported,
        queue=progress["drawn"],
        done=progress["done"],
        skipped=progress["skipped"],
        raters={rater["rater"]: rater["scored"] for rater in progress["raters"]},
        agreement={row["judge"]: row["alpha"] for row in progress["agreement"]},
    ).with_source(result)


def show(answer: GoldAnswer) -> None:
    """Print what was done, and the progress of the queue."""
    result: GoldResult = answer._source
    if result.drawn is not None:
        draw = result.drawn.draw
        by = ", ".join(f"{n} of {name}" for name, n in result.drawn.policies.items())
        chance = draw.drawn[0].chance
        text = f"{len(draw.drawn)} conversations ({by}), each with probability {chance:.3g}"
        print_fact("drawn", text)
        if result.drawn.known:
            print_fact("labelled", f"{result.drawn.known} of them before")
    if result.exported is not None and answer.file is not None:
        print_fact("written", f"{result.exported} conversations to {quoted(answer.file)}")
    if result.imported is not None:
        print_fact("read", f"{result.imported} labels")
    skipped = f", {answer.skipped} skipped" if answer.skipped else ""
    print_fact("queue", f"{answer.done} of {answer.queue} labelled{skipped}")
    for rater in result.progress["raters"]:
        more = f", {rater['skipped']} skipped" if rater["skipped"] else ""
        print_fact("rater", f"{rater['rater']}: {rater['scored']} scored{more}")
    for row in result.progress["agreement"]:
        if row["both"]:
            value = "undefined" if row["alpha"] is None else f"alpha {row['alpha']:.2f}"
            text = f"{value} on {row['metric']}, {row['both']} labelled by several"
            print_fact("agreement", text)


gold_command = Command(run, show)
