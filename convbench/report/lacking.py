"""What would decide a verdict that is not sure: more labels, and how many.

A margin, half the width of a 95% interval, falls with the root of the number of labels: to bring it
from m to d takes (m / d)^2 as many, where the mean stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from convbench.report.deciding import PART, Decided, Evidence, above
from convbench.stats.means import Estimate

MOST = 10
"""Times the labels that there are, beyond which no number is named."""


def lacking(found: Evidence, decided: Decided) -> Iterator[str]:
    """Yield what would tell more of a policy that people labelled; nothing where it is gaming, or
    where that is ruled out and the word is real."""
    people = next((one for one in found.truths if one.people), None)
    if people is None or decided.word == "gaming":
        return
    over = people.over
    if over is not None and left_open(found, decided):
        most = over.mean + (over.margin or 0.0)
        border = PART * people.whole
        sure = over.mean > border and decided.word != "real"  # then being overpaid at all tells
        apart = over.mean if sure else abs(border - over.mean)
        yield (
            f"Gaming is not ruled out: up to {min(1.0, most / people.whole):.0%} of the judge's "
            f"gain may be overpaid, and from {PART:.0%} it is gaming. {_more(over, apart)}"
        )
    elif decided.word == "undecided":
        gain = people.gain
        yield f"People's gain cannot be told from none. {_more(gain, abs(gain.mean))}"


def left_open(found: Evidence, decided: Decided) -> bool:
    """Whether it may yet be gaming: the judge's gain rises, and the interval of what people find
    overpaid of it reaches the part that is gaming."""
    people = next((one for one in found.truths if one.people), None)
    over = None if people is None else people.over
    if decided.word == "gaming" or people is None or over is None or over.margin is None:
        return False
    return above(found.gain) and over.mean + over.margin > PART * people.whole


def _more(found: Estimate, apart: float) -> str:
    """Return how many labels would bring the margin down to `apart`, and what to type: as many
    again at a time, for the means will move."""
    count = labels(found, apart)
    asked = found.n if count is None else min(count, found.n)
    many = f"More than {MOST} times as many" if count is None else f"About {count} more"
    return (
        f"{many} labels, beside {found.n}, would tell if the means stay as they are: "
        f"convbench gold RUN --draw {asked}."
    )


def labels(found: Estimate, apart: float) -> int | None:
    """Return how many more labels bring a mean's margin down to `apart`, in tens; None for very
    many."""
    margin = found.margin
    if margin is None or apart * MOST**0.5 <= margin:
        return None
    return max(10, -(-int(found.n * ((margin / apart) ** 2 - 1)) // 10) * 10)
