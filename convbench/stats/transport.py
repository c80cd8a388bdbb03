"""Whether what labels of one policy say of the judge holds of another policy too.

The judge's bias (its score less people's) may differ between policies: then labels of one cannot
correct the other (Landesberg, arXiv 2512.11150, "mean transport"). What is tested is equivalence:
the interval of the difference of the two biases, clustered by group over both policies, within a
margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from convbench.stats.estimate import Estimate
from convbench.stats.ppi import FEW, Unit, difference

Passed = Literal["PASS", "FAIL", "UNKNOWN"]
MARGIN = 0.05
"""Largest difference of biases that is none, as a share of the judge's scale."""
PROBE = 10
"""Fewest labels by which a policy is tested at all."""
BEYOND = 0.05
"""Largest share of scores outside those that were labelled."""


@dataclass(frozen=True, slots=True)
class Transport:
    """What came of the check."""

    passed: Passed
    why: str
    apart: Estimate | None = None
    """The second policy's bias less the first's; None where it was not measured."""


def transport(
    labelled: Sequence[Unit], other: Sequence[Unit], scale: float, margin: float = MARGIN
) -> Transport:
    """Return whether the labels of the first policy say what the judge's bias is on the other.

    `scale` is the width of the judge's scale. FAIL where the biases differ, or where nothing
    was labelled of the other and its scores lie beyond those labelled; UNKNOWN where too few of the
    other's are labelled to tell.
    """
    gold, probe = [u for u in labelled if u.labelled], [u for u in other if u.labelled]
    apart = difference(_bias(gold), _bias(probe), tuned=False)
    if len(gold) < PROBE:
        why = f"{len(gold)} labels of the first policy, fewer than {PROBE}"
        return Transport("UNKNOWN", why, apart)
    if apart is None or len(probe) < PROBE:
        return _untested(gold, probe, other, apart)
    span = apart.interval
    if span is None:
        return Transport("UNKNOWN", "all labels are of one group", apart)
    if max(abs(span[0]), abs(span[1])) <= margin * scale:
        return Transport("PASS", "the bias is the same within the margin", apart)
    if span[0] > 0 or span[1] < 0:
        return Transport("FAIL", "the judge's bias differs between the policies", apart)
    return Transport("UNKNOWN", "too few labels to tell whether the bias is the same", apart)


def _untested(
    gold: Sequence[Unit], probe: Sequence[Unit], other: Sequence[Unit], apart: Estimate | None
) -> Transport:
    """Return what the other's scores alone tell: that they were never seen, or nothing."""
    low, high = min(u.judge for u in gold), max(u.judge for u in gold)
    beyond = sum(not low <= u.judge <= high for u in other) / max(1, len(other))
    if beyond > BEYOND:
        why = f"{beyond:.0%} of the other's scores lie beyond those that were labelled"
        return Transport("FAIL", why, apart)
    why = f"{len(probe)} labels of the other policy; its bias is tested from {PROBE}"
    return Transport("UNKNOWN", why, apart)


def enough(first: Sequence[Unit], second: Sequence[Unit]) -> bool:
    """Whether both policies have labels enough to be corrected each by its own."""
    return min(sum(u.labelled for u in units) for units in (first, second)) >= FEW


def _bias(units: Sequence[Unit]) -> list[Unit]:
    return [Unit(u.group, 0.0, u.judge - u.gold, u.weight) for u in units if u.gold is not None]
