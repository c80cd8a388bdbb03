"""The tables of a section."""

from convbench.reports.tables.adaptation import (
    adaptation_table,
    choice_table,
    kind_table,
    prompt_table,
)
from convbench.reports.tables.cells import headline_measure, measures_of, paired_table
from convbench.reports.tables.details import (
    conversation_counts,
    count_table,
    rounds_of,
    rounds_table,
    run_table,
    training_table,
    variance_table,
)
from convbench.reports.tables.gold import gold_part
from convbench.reports.tables.judges import (
    control_table,
    meeting_table,
    panel_tables,
    strength_table,
    win_table,
)
from convbench.reports.tables.many_passages import (
    forgetting_sequences,
    forgetting_tables,
    pretraining_table,
    time_table,
)
from convbench.reports.tables.published_comparison import reference_table
from convbench.reports.tables.results import (
    best_of_table,
    difference_table,
    finding_table,
    flagged_table,
    main_table,
    matrix_tables,
    temperature_table,
)
from convbench.reports.tables.simulators import simulators_part
from convbench.reports.tables.verdict import verdict_part

__all__ = [
    "adaptation_table",
    "best_of_table",
    "choice_table",
    "control_table",
    "conversation_counts",
    "count_table",
    "difference_table",
    "finding_table",
    "flagged_table",
    "forgetting_sequences",
    "forgetting_tables",
    "gold_part",
    "headline_measure",
    "kind_table",
    "main_table",
    "matrix_tables",
    "measures_of",
    "meeting_table",
    "paired_table",
    "panel_tables",
    "pretraining_table",
    "prompt_table",
    "reference_table",
    "rounds_of",
    "rounds_table",
    "run_table",
    "simulators_part",
    "strength_table",
    "temperature_table",
    "time_table",
    "training_table",
    "variance_table",
    "verdict_part",
    "win_table",
]
