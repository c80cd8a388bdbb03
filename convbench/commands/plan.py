"""`convbench plan`: what a training takes of memory and time, and where it is placed to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import out, print_fact, print_table, quoted
from convbench.options.plan import PlanOptions

if TYPE_CHECKING:
    from convbench.learn.plan import TrainingPlan

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "reference", "adapters")
"""Parts of a training's memory, in the order of the table."""


class PlanAnswer(Answer):
    """`plan`: a training on given cards."""

    recipe: str
    """The recipe's name."""
    model: str
    """The model that it starts from, as named."""
    parameters: int
    """Number of the model's weights, without norms."""
    cards: int
    """Number of cards; 0 without any."""
    card_gb: float
    """GB of each card."""
    host_gb: float
    """GB of the machine's own memory."""
    tokens: int
    """Tokens of the longest row."""
    rows: int
    """Rows that the hours are of."""
    lengths: str
    """Where both come from."""
    fits: bool
    """Whether it fits; else the exit code is 1."""
    placed: str
    """Where it is placed, or what is missing."""
    launch: str
    """The launch that is chosen, or that lacks least."""
    processes: int
    """Its processes."""
    offloaded: list[str]
    """What lies in host memory."""
    batch_size: int
    """Rows of a process at once."""
    accumulation: int
    """Batches of one step."""
    gradient_checkpointing: bool
    """Whether activations are computed again in the backward pass."""
    reasons: list[str]
    """Ways that do not fit, in the order in which they were looked at."""
    trainings: dict[str, dict[str, float]]
    """GB of a card at the peak of each training (SWEET: `critic`, `sweet`, `ranking`), by part:
    `weights`, `gradients`, `optimizer`, `activations`, `logits`, `reference`, `adapters`, `margin`
    (what the allocator keeps), `context` (what CUDA takes, on a CPU the process), their sum `card`,
    and `host`, the host memory of one process."""
    card_needed_gb: float
    """GB that each card needs."""
    host_needed_gb: float
    """GB of host memory that all processes need."""
    hours: float
    """Hours of the training."""
    throughput: str
    """Where the hours come from: `measured: …` or `stated: …`."""
    usd: float | None
    """Dollars of all cards for these hours; null without a price."""


def run(options: PlanOptions, context: RunContext) -> PlanAnswer:
    """Plan a training, and return the plan; the exit code is 1 if nothing fits."""
    from convbench.learn.memory import shard_plan
    from convbench.learn.place_recipe import student_lines
    from convbench.learn.plan import plan_training

    plan = plan_training(options)
    best, machine, fit = plan.placement.best, plan.machine, plan.placement.best.recipe.fit
    for line in student_lines(plan.recipe, plan.shape):
        context.add_note(line)
    left = machine.cards - best.process_count
    if left > 0:
        context.add_note(
            f"{left} of {machine.cards} cards are left to other work; --launch {best.launch.name} "
            f"--set launch.num_processes={machine.cards} takes all"
        )
    if not plan.placement.does_fit:
        context.exit_code = 1
    return PlanAnswer(
        recipe=plan.recipe.name,
        model=plan.model,
        parameters=plan.shape.weight_count,
        cards=machine.cards,
        card_gb=_in_gb(machine.card_bytes),
        host_gb=_in_gb(machine.host_bytes),
        tokens=plan.lengths.longest,
        rows=plan.lengths.rows,
        lengths=plan.lengths.source,
        fits=plan.placement.does_fit,
        placed=plan.placement.summary_line(),
        launch=best.launch.name,
        processes=best.process_count,
        offloaded=sorted(shard_plan(best.launch).host),
        batch_size=fit.batch_size,
        accumulation=fit.accumulation,
        gradient_checkpointing=fit.gradient_checkpointing,
        reasons=plan.placement.reason_lines(),
        trainings=_memory_of(plan),
        card_needed_gb=_in_gb(best.card_bytes),
        host_needed_gb=_in_gb(best.host_bytes),
        hours=plan.hours,
        throughput=plan.throughput,
        usd=None if options.price is None else options.price * plan.hours * max(1, machine.cards),
    ).with_source(plan)


def _memory_of(plan: TrainingPlan) -> dict[str, dict[str, float]]:
    """Return the memory of each training of the chosen placement, in GB."""
    best = plan.placement.best
    return {
        name: {part: _in_gb(getattr(parts, part)) for part in (*PARTS, "margin", "host")}
        | {"context": _in_gb(best.context_bytes), "card": _in_gb(parts.total + best.context_bytes)}
        for name, parts in best.parts.items()
    }


def _in_gb(size: float) -> float:
    return round(size / 1e9, 3)


def show(answer: PlanAnswer) -> None:
    """Print the table of memory, what was chosen and why, hours and dollars."""
    plan: TrainingPlan = answer._source
    print_fact("recipe", f"{answer.recipe}: {plan.recipe.title}")
    print_fact("model", f"{quoted(answer.model)}, {answer.parameters / 1e6:,.1f} million weights")
    print_fact("machine", plan.machine.in_words())
    print_fact("rows", f"at most {answer.tokens:,} tokens ({answer.lengths})")
    out.print()
    _print_memory(answer)
    out.print()
    print_fact("placed" if answer.fits else "missing", answer.placed)
    for reason in answer.reasons:
        print_fact("", reason)
    rows = f"{answer.rows:,} rows"
    print_fact("hours", f"about {_format_hours(answer.hours)} for {rows} ({answer.throughput})")
    if answer.usd is not None:
        print_fact("dollars", f"about {answer.usd:,.2f}, of all cards for these hours")


def _print_memory(answer: PlanAnswer) -> None:
    """Print a row for each part of the memory and a column for each training."""
    table = Table(box=None, pad_edge=False)
    table.add_column("GB at the peak")
    for name in answer.trainings:
        table.add_column(name, justify="right")
    words = {"optimizer": "optimiser", "margin": "allocator's margin", "context": "CUDA, libraries"}
    words |= {"card": "a card" if answer.cards else "a process", "host": "host, a process"}
    for part in (*PARTS, "margin", "context", "card", "host"):
        cells = (_table_cell(column.get(part)) for column in answer.trainings.values())
        table.add_row(words.get(part, part), *cells)
    print_table(table)


def _table_cell(value: float | None) -> str:
    return f"{value:,.1f}" if value else "-"


def _format_hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.95 else f"{hours:.2g}"


plan_command = Command(run, show)
