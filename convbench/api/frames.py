"""Convert Arrow tables to data frames: pandas by default, or polars."""

from __future__ import annotations

from typing import Any, Literal

from convbench.errors import MissingDependency, SpecError

Frame = Literal["pandas", "arrow", "polars"]


def to_frame(arrow: Any, kind: Frame = "pandas") -> Any:
    """Return an Arrow table as a data frame of this kind: pandas, polars, or for `arrow` the table
    itself.

    Raises SpecError for an unknown kind, MissingDependency if polars is not installed.
    """
    if kind == "arrow":
        return arrow
    if kind == "pandas":
        return arrow.to_pandas()
    if kind != "polars":
        raise SpecError(f"frame: found {kind!r}; expected pandas, arrow or polars")
    try:
        import polars
    except ImportError:
        raise MissingDependency(
            "polars", needed_for="data frames of polars", install="pip install polars"
        ) from None
    return polars.from_arrow(arrow)
