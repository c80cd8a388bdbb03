"""Convert the previews of commands into DryRun objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from convbench.api.handles import DryRun
from convbench.judges.run import JudgePreview
from convbench.rollout.preview import Preview
from convbench.util.usage_estimate import Tokens

_TOKENS = re.compile(r"tokens: ([\d,]++)")


def dry_run(shown: Preview | None, judges: Sequence[JudgePreview] = ()) -> DryRun:
    """Return one DryRun, the sum of a build or an evaluation (None: neither) and of judges.

    Messages are those of the build's first conversation, then of each judge's first call; `lines`
    are empty.
    """
    dry_runs = [_judge_dry_run(entry) for entry in judges]
    if shown is not None:
        messages = [dict(entry) for call in shown.calls for entry in call.messages]
        dry_runs.insert(0, _dry_run(messages, shown.estimate))
    return sum_dry_runs(dry_runs)


def dry_training(lines: Sequence[str]) -> DryRun:
    """Return a DryRun with the lines that a dry run of `train` prints, and the sum of their
    `tokens: N`.

    It has no messages, 0 calls and 0.0 dollars.
    """
    matches = (match for line in lines if (match := _TOKENS.fullmatch(line)))
    tokens = sum(int(match[1].replace(",", "")) for match in matches)
    return DryRun([], 0, tokens, 0.0, list(lines))


def sum_dry_runs(dry_runs: Iterable[DryRun]) -> DryRun:
    """Return the sum of several dry runs: messages joined; calls, tokens and dollars added. Dollars
    are None if one of them is; `lines` are dropped."""
    parts = list(dry_runs)
    dollars = [part.dollars for part in parts]
    return DryRun(
        [message for part in parts for message in part.messages],
        sum(part.calls for part in parts),
        sum(part.tokens for part in parts),
        None if None in dollars else sum(usd or 0.0 for usd in dollars),
    )


def _judge_dry_run(preview: JudgePreview) -> DryRun:
    return _dry_run([dict(message) for message in preview.messages], preview.estimate)


def _dry_run(messages: list[dict[str, Any]], estimate: Tokens) -> DryRun:
    return DryRun(messages, estimate.calls, estimate.tokens, estimate.usd)
