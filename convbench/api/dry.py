"""Convert the previews of commands into DryRun objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from convbench.api.handles import DryRun
from convbench.judge.all import JudgePreview
from convbench.rollout.preview import Preview
from convbench.tokens import Tokens

_TOKENS = re.compile(r"tokens: ([\d,]++)")


def dry_run(shown: Preview | None, judges: Sequence[JudgePreview] = ()) -> DryRun:
    """Return one DryRun of a build or an evaluation (None: neither) and of judges."""
    found = [_of_judge(one) for one in judges]
    if shown is not None:
        messages = [dict(one) for call in shown.calls for one in call.messages]
        found.insert(0, _dry_run(messages, shown.estimate))
    return together(found)


def dry_training(lines: Sequence[str]) -> DryRun:
    """Return a DryRun with the lines that a dry run of `train` prints, and the tokens in them."""
    found = (match for line in lines if (match := _TOKENS.fullmatch(line)))
    tokens = sum(int(match[1].replace(",", "")) for match in found)
    return DryRun([], 0, tokens, 0.0, list(lines))


def together(found: Iterable[DryRun]) -> DryRun:
    """Return the sum of several dry runs; dollars are None if one of them is."""
    parts = list(found)
    dollars = [one.dollars for one in parts]
    return DryRun(
        [message for one in parts for message in one.messages],
        sum(one.calls for one in parts),
        sum(one.tokens for one in parts),
        None if None in dollars else sum(usd or 0.0 for usd in dollars),
    )


def _of_judge(one: JudgePreview) -> DryRun:
    return _dry_run([dict(message) for message in one.messages], one.estimate)


def _dry_run(messages: list[dict[str, Any]], estimate: Tokens) -> DryRun:
    return DryRun(messages, estimate.calls, estimate.tokens, estimate.usd)
