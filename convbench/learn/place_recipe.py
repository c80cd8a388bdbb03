"""Place a recipe's training on this machine: how long its rows are, from what a run recorded, and
what that takes; no tokenizer, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from convbench import views
from convbench.engine.budget import usual_prompt
from convbench.learn.placement import (
    Machine,
    Pinned,
    RowLengths,
    TrainingPlacement,
    format_gb,
    place_training,
)
from convbench.learn.shapes import ModelShape, shape_of
from convbench.learn.steps import row_limit
from convbench.schema import Conversation, ProtocolSpec
from convbench.schema.recipe import LaunchSpec, Recipe
from convbench.store.run import Run

TRAINED_BYTES = 16
"""Bytes a weight of training all weights in one process with AdamW: with gradients, two moments and
what computes, whichever parts of these are in half precision."""
ASSUMED_TOKENS, ASSUMED_ROWS = 2_048, 1_000
"""Tokens of a row, and rows, where nothing says them."""


def assumed_lengths(tokens: int | None, limit: int | None = None) -> RowLengths:
    """Return rows of so many tokens, all with a loss; None assumes 2,048."""
    source = "as given" if tokens is not None else "assumed: neither --run nor --tokens"
    length = min(tokens or ASSUMED_TOKENS, limit or 1 << 40)
    return RowLengths(length, length, float(length), ASSUMED_ROWS, source)


def measure_rows(runs: Sequence[Run], recipe: Recipe, limit: int | None = None) -> RowLengths:
    """Return the rows that the train conversations of runs make, none longer than `limit`; assumed
    ones for runs without any.

    A row's tokens are those that the policy read and wrote in its last turn, as recorded, else an
    estimate from the text. Pairs count as conversations.
    """
    longest = labelled = total = rows = 0
    for run in runs:
        train = {name for name, question in run.questions.items() if question.split == "train"}
        protocol = run.manifest.protocol
        for conversation in run.conversations():
            if conversation.example_id not in train or conversation.failure is not None:
                continue
            turns = _turn_tokens(protocol, conversation)
            if not turns:
                continue
            if recipe.data.unit == "turn":
                own, lengths = max(reply for _, reply in turns), [sum(turn) for turn in turns]
            else:
                own, lengths = sum(reply for _, reply in turns), [max(map(sum, turns))]
            lengths = [min(length, limit or length) for length in lengths]
            longest, labelled = max(longest, *lengths), max(labelled, own)
            total, rows = total + sum(lengths), rows + len(lengths)
    if not rows:
        return assumed_lengths(None, limit)
    names = ", ".join(run.path.name for run in runs)
    return RowLengths(longest, min(labelled, longest), total / rows, rows, f"recorded in {names}")


def _turn_tokens(protocol: ProtocolSpec, conversation: Conversation) -> list[tuple[int, int]]:
    """Return (tokens read, tokens written) of each of the policy's own turns."""
    tokens = []
    for index in views.own_turns(protocol, conversation):
        turn = conversation.turns[index]
        read, written = turn.prompt_tokens, turn.completion_tokens
        if not read:
            read = usual_prompt(
                views.messages_before(protocol, conversation, protocol.policy, index)
            )
        if not written:
            written = usual_prompt([{"role": "assistant", "content": turn.content}])
        tokens.append((read, written))
    return tokens


def place_recipe(
    recipe: Recipe,
    launch: LaunchSpec,
    machine: Machine,
    *,
    pinned: Pinned,
    specs: Sequence[Path] = (),
    lengths: RowLengths | None = None,
) -> TrainingPlacement | None:
    """Return the placement of a training on a machine, where `launch` is what the recipe or the
    user says; None for a model of unknown shape or cards of unknown size. `lengths` None assumes
    rows.

    Raise TrainError if `fit.batch` is no multiple of `fit.batch_size`.
    """
    shape = shape_of(recipe.model or "")
    if shape is None or (machine.cards and not machine.card_bytes):
        return None
    lengths = lengths or assumed_lengths(None, row_limit(recipe))
    return place_training(recipe, launch, shape, lengths, machine, pinned=pinned, specs=specs)


def placement_note(placement: TrainingPlacement) -> str:
    """Return one line on a placement that differs from what the recipe or the user says."""
    return f"placed to fit: {placement.summary_line()}; as it stands: {placement.first.in_words()}"


def placement_lines(placement: TrainingPlacement | None, recipe: Recipe) -> Iterator[str]:
    """Yield the lines of a dry run on memory."""
    if placement is None:
        yield f"memory: unknown, as the shape of {recipe.model} or the machine is"
        return
    yield f"memory: {'fits, ' if placement.does_fit else ''}{placement.summary_line()}"
    yield from placement.reason_lines()
    yield from student_lines(recipe, shape_of(recipe.model or ""))


def student_lines(recipe: Recipe, shape: ModelShape | None) -> Iterator[str]:
    """Yield a line on what the readings of a distillation's student take, for one."""
    if recipe.distil is None or shape is None:
        return
    layers = recipe.distil.student_layers
    chosen = f"its first {layers} layers" if layers else "the complete base"
    complete, few = (replace(shape, layers=n).weight_count for n in (shape.layers, 8))
    yield (
        f"student: {chosen} (distil.student_layers); the complete base takes at least "
        f"{format_gb(TRAINED_BYTES * complete)} GB in training, its first 8 layers "
        f"{format_gb(TRAINED_BYTES * few)}, and the teacher {format_gb(2 * complete)} beside them"
    )
