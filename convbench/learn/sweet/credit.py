"""Credit turns by a trained critic: equation (3) on every turn of logged conversations.

Zhou et al. 2025 (SWEET-RL). Imports torch only when it scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench.errors import TrainError
from convbench.learn.job import Job
from convbench.learn.logged import Logged
from convbench.learn.rows import asked_by_turn
from convbench.learn.sweet.pairs import CRITIC, CriticRow, Sweet, check_base, critic_rows
from convbench.schema import Conversation
from convbench.schema.conversation import TurnCredit
from convbench.store.checkpoint import RECIPE
from convbench.store.run import Run
from convbench.views import own_turns


@dataclass(frozen=True)
class Told:
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
    job = Job.read(file)
    check_base(job)
    return job


def by_critic(job: Job, run: Run, source: str, *, raw: bool = False) -> Told:
    """Return the critic's advantage of every policy turn of a run, of any split and policy.

    It is the mean log-ratio to the base over the turn's tokens, with the reference shown, less the
    average that the base's own tokens would get there; with `raw` nothing is subtracted (equation
    (3)). Raises TrainError if no conversation can be credited."""
    settings = Sweet.of(job.recipe.args, job.recipe.name)
    protocol = run.manifest.protocol
    left_out: dict[str, int] = {}
    found: list[tuple[Conversation, list[CriticRow]]] = []
    for conversation in run.conversations():
        example = run.examples[conversation.example_id]
        why = None
        if conversation.failure is not None:
            why = "failed"
        elif any(name not in example.hidden for name in settings.hidden):
            why = f"without hidden {', '.join(settings.hidden)}"
        else:
            rows = critic_rows(protocol, Logged.of(conversation, example, 0.0), job.chat, settings)
            if not rows:
                why = "in which the policy says nothing"
            elif job.longest is not None and max(len(row.ids) for row in rows) > job.longest:
                why = f"longer than {job.longest} tokens"
        if why is None:
            found.append((conversation, rows))
        else:
            left_out[why] = left_out.get(why, 0) + 1
    if not found:
        said = ", ".join(f"{n} {why}" for why, n in left_out.items()) or "none there"
        raise TrainError(f"{run.path}: found no conversation for the critic to credit ({said})")
    credit = []
    gains = _gains(job, [rows for _, rows in found], settings, raw)
    for (conversation, _), values in zip(found, gains, strict=True):
        told = list(_of_turns(run, conversation, values, source))
        credit += told
        if not told:
            why = "whose turns the chat template runs together"
            left_out[why] = left_out.get(why, 0) + 1
    return Told(tuple(credit), left_out)


def _gains(
    job: Job, rows: Sequence[Sequence[CriticRow]], settings: Sweet, raw: bool
) -> list[list[float]]:
    """Return the advantage of every stretch of policy tokens of every conversation."""
    from convbench.learn import fitting
    from convbench.learn.sweet import critic as advantage

    pad, mean = job.chat.tokenizer.pad_token_id or 0, bool(settings.normalize)

    def loaded(path: str | None) -> Any:
        return fitting.load_model(job, path, trained=False).to(advantage.device())

    critic = str(job.folder / CRITIC)
    if not raw:
        now, then = loaded(critic).eval(), loaded(None).eval()
        return [a.tolist() for a in advantage.centred(now, then, rows, pad, mean=mean)]
    said = [advantage.scores(loaded(path), rows, pad, mean=mean) for path in (critic, None)]
    return [(a.double() - b.double()).tolist() for a, b in zip(*said, strict=True)]


def _of_turns(
    run: Run, conversation: Conversation, values: Sequence[float], source: str
) -> Iterator[TurnCredit]:
    """Yield the credit of each turn; a turn that called tools has several stretches and gets their
    mean. Yield nothing if stretches and replies do not match."""
    protocol = run.manifest.protocol
    parts = asked_by_turn(protocol, conversation)
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
