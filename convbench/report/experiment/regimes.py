"""Under which regime runs were made."""

from __future__ import annotations

from convbench.report.sections import Section
from convbench.stats.estimate import ErrorKind

CLEAN = "clean"
"""The regime of a run that names none: this project's defaults."""
AS_PRINTED = "as-printed"
"""The regime of the paper's own settings, errors included."""


def errors_of(section: Section) -> ErrorKind:
    """Return the rule of errors of a section's regime: naive, as printed, or clustered."""
    return "naive" if regime_of(section) == AS_PRINTED else "clustered"


def regime_of(section: Section) -> str:
    """Return the regime of a section's runs, as their manifests name it; several where they
    differ."""
    runs = (m.run.manifest for p in section.policies for m in (p.members or (p,)))
    names = dict.fromkeys(str(run.extra.get("regime") or CLEAN) for run in runs)
    return " and ".join(names)
