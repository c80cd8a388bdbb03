"""Credit the policy's turns of a run, by a critic's checkpoint.

By a critic: equation (3) of Zhou et al. 2025 (SWEET-RL) on every turn; torch is imported only when
it scores. The credit is stored with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench.errors import TrainError
from convbench.learn.job import Job
from convbench.learn.log import LoggedConversation
from convbench.learn.rows import replies_by_turn
from convbench.learn.sweet.pairs import CRITIC, CriticRow, SweetArgs, check_base, critic_rows
from convbench.schema import Conversation
from convbench.schema.conversation import TurnCredit
from convbench.store.checkpoint import RECIPE
from convbench.store.notes import append_credit
from convbench.store.run import Run
from convbench.views import own_turns


@dataclass(frozen=True)
class CriticCredit:
    """A critic's credit of a run's turns."""

    credit: tuple[TurnCredit, ...]
    left_out: dict[str, int]
    """Counts of conversations without credit, by reason."""


def critic_job(checkpoint: Path) -> Job:
    """Return the job of a SWEET checkpoint. Raises TrainError for any other folder."""
    file = checkpoint / RECIPE
    if not file.exists() or not (checkpoint / CRITIC).is_dir():
        raise TrainError(
            f"{checkpoint}: found no critic; expected the checkpoint folder of `convbench train "
            "sweet`, with its `critic` folder"
        )
    job = Job.from_file(file)
    check_base(job)
    return job


def critic_credit(job: Job, run: Run, source: str, *, raw: bool = False) -> CriticCredit:
    """Return the critic's advantage of every policy turn of a run, of any split and policy.

    It is the mean log-ratio to the base over the turn's tokens, with the reference shown, less the
    average that the base's own tokens would get there; with `raw` nothing is subtracted (equation
    (3)). Raises TrainError if no conversation can be credited."""
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    protocol = run.manifest.protocol
    left_out: dict[str, int] = {}
    readable: list[tuple[Conversation, list[CriticRow]]] = []
    for conversation in run.conversations():
        example = run.examples[conversation.example_id]
        reason = None
        if conversation.failure is not None:
            reason = "failed"
        elif any(name not in example.hidden for name in settings.hidden):
            reason = f"without hidden {', '.join(settings.hidden)}"
        else:
            rows = critic_rows(
                protocol,
                LoggedConversation.from_conversation(conversation, example, 0.0),
                job.chat,
                settings,
            )
            if not rows:
                reason = "without a token of the policy"
            elif job.max_length is not None and max(len(row.ids) for row in rows) > job.max_length:
                reason = f"longer than {job.max_length} tokens"
        if reason is None:
            readable.append((conversation, rows))
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
    if not readable:
        reasons = ", ".join(f"{n} {reason}" for reason, n in left_out.items()) or "none there"
        raise TrainError(f"{run.path}: found no conversation for the critic to credit ({reasons})")
    credit = []
    gains = _turn_advantages(job, [rows for _, rows in readable], settings, raw)
    from convbench.learn.sweet.ranking import free_memory

    free_memory()  # of both models, to an engine that may start next
    for (conversation, _), values in zip(readable, gains, strict=True):
        turn_credits = list(_turn_credits(run, conversation, values, source))
        credit += turn_credits
        if not turn_credits:
            reason = "whose turns the chat template merges"
            left_out[reason] = left_out.get(reason, 0) + 1
    return CriticCredit(tuple(credit), left_out)


def _turn_advantages(
    job: Job, rows: Sequence[Sequence[CriticRow]], settings: SweetArgs, raw: bool
) -> list[list[float]]:
    """Return the advantage of every stretch of policy tokens of every conversation."""
    from convbench.learn import fitting
    from convbench.learn.sweet import critic as advantage

    pad, mean = job.chat.tokenizer.pad_token_id or 0, bool(settings.normalize)

    def load_model(path: str | None) -> Any:
        return fitting.load_model(job, path, trained=False).to(advantage.torch_device())

    critic = str(job.folder / CRITIC)
    if not raw:
        critic_model, base_model = load_model(critic).eval(), load_model(None).eval()
        return [
            a.tolist()
            for a in advantage.centred_advantages(critic_model, base_model, rows, pad, mean=mean)
        ]
    scores = [
        advantage.score_turns(load_model(path), rows, pad, mean=mean) for path in (critic, None)
    ]
    return [(a.double() - b.double()).tolist() for a, b in zip(*scores, strict=True)]


def _turn_credits(
    run: Run, conversation: Conversation, values: Sequence[float], source: str
) -> Iterator[TurnCredit]:
    """Yield the credit of each turn; a turn that called tools has several stretches and gets their
    mean. Yield nothing if stretches and replies do not match."""
    protocol = run.manifest.protocol
    parts = replies_by_turn(protocol, conversation)
    if sum(map(len, parts)) != len(values):
        return
    rest = iter(values)
    for turn, part in zip(own_turns(protocol, conversation), parts, strict=True):
        yield TurnCredit(
            conversation_id=conversation.conversation_id,
            turn_index=turn,
            source=source,
            advantage=fmean(next(rest) for _ in part),
        )


@dataclass
class CreditResult:
    """Counts and range of the credit that `convbench credit` gave."""

    run: Run
    source: str
    turns: int
    conversations: int
    spread: tuple[float, float, float]
    """Least, mean and largest advantage."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of conversations without credit, by reason."""


def credit_turns(run: Run, source: str, *, raw: bool = False) -> CreditResult:
    """Credit the policy turns of a run by a critic's checkpoint, and append the credit to its
    `advantages.jsonl`.

    `raw` gives the plain log-ratios. Raise ConvbenchError if no turn can be credited.
    """
    folder = Path(source).expanduser()
    name = f"critic{'-raw' if raw else ''}:{folder.resolve().name}"
    scored = critic_credit(critic_job(folder), run, name, raw=raw)
    return _store_credit(run, name, scored.credit, scored.left_out)


def _store_credit(
    run: Run, source: str, turn_credits: Iterable[TurnCredit], left_out: dict[str, int]
) -> CreditResult:
    credit = list(turn_credits)
    append_credit(run, credit)
    values = [turn.advantage for turn in credit]
    return CreditResult(
        run,
        source,
        len(credit),
        len({turn.conversation_id for turn in credit}),
        (min(values), fmean(values), max(values)),
        left_out,
    )
