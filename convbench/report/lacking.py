"""What would decide a verdict that is not sure: more labels, how many, or more questions.

A mean whose 95% interval, of half width m, holds 0 is told from 0 by about (m / mean)^2 as many
labels, where it stays as it is: a margin falls with the root of their number.
"""

from __future__ import annotations

from collections.abc import Iterator

from convbench.report.deciding import PART, Decided, Evidence, above
from convbench.stats.estimate import Estimate

MOST = 10
"""Times the labels that there are, beyond which no number is named."""


def lacking(found: Evidence, decided: Decided) -> Iterator[str]:
    """Yield what would tell more of a policy that people labelled; nothing where it is gaming, or
    real without more paid than the rule lets pass."""
    people = next((one for one in found.truths if one.people), None)
    if people is None or decided.word == "gaming":
        return
    over, whole = people.over, people.whole
    more = None
    if over is not None and over.mean > max(0.0, PART * whole):
        if not above(over):
            share = f"{min(1.0, over.mean / whole):.0%} of the judge's gain" if whole > 0 else "it"
            more = f"whether {share} is overpaid", labels(over)
        elif not above(found.gain):
            yield (
                "The judge overpays it, and its own score has not risen for sure: more questions, "
                "not labels, would tell whether that is gaming."
            )
    if more is None and decided.word == "undecided":
        more = "people's gain from none", labels(people.gain)
    if more is not None:
        what, count = more
        yield (
            f"More labels than {MOST} times those there are would be needed to tell {what}."
            if count is None
            else f"About {count} more labels, beside {people.gain.n}, would tell {what} if the "
            f"means stay as they are: convbench gold RUN --draw {count}."
        )


def labels(found: Estimate) -> int | None:
    """Return how many more labels would tell a mean from 0, in tens; None for very many."""
    margin = found.margin
    if margin is None or abs(found.mean) * MOST**0.5 <= margin:
        return None
    more = found.n * ((margin / found.mean) ** 2 - 1)
    return max(10, -(-int(more) // 10) * 10)
