"""DuckDB columns and types of the JSON lines files of a run."""

from __future__ import annotations

REASONING = "STRUCT(text VARCHAR, tokens BIGINT, via VARCHAR, frame VARCHAR[], blocks JSON)"
TURNS = (
    f"STRUCT(speaker VARCHAR, step VARCHAR, content VARCHAR, reasoning {REASONING}, "
    "rounds JSON, instruction VARCHAR, "
    "finish_reason VARCHAR, prompt_tokens BIGINT, completion_tokens BIGINT, cost_usd DOUBLE)[]"
)
FAILURE = "STRUCT(kind VARCHAR, message VARCHAR)"

CONVERSATIONS = {
    "key": "VARCHAR",
    "conversation_id": "VARCHAR",
    "attempt": "BIGINT",
    "example_id": "VARCHAR",
    "sample": "BIGINT",
    "temperature": "DOUBLE",
    "seed": "BIGINT",
    "stop": "VARCHAR",
    "failure": FAILURE,
    "flags": "VARCHAR[]",
    "metadata": "JSON",
    "ended": "VARCHAR",
    "sent": "MAP(VARCHAR, STRUCT(left_out VARCHAR[], replay VARCHAR))",
    "turns": TURNS,
}
VERDICTS = {
    "conversation_id": "VARCHAR",
    "judge": "VARCHAR",
    "fingerprint": "VARCHAR",
    "scores": "MAP(VARCHAR, DOUBLE)",
    "reward": "DOUBLE",
    "justifications": "MAP(VARCHAR, VARCHAR)",
    "details": "JSON",
    "reply": "VARCHAR",
    "failure": FAILURE,
    "attempts": "BIGINT",
    "prompt_tokens": "BIGINT",
    "completion_tokens": "BIGINT",
    "cost_usd": "DOUBLE",
    "ended": "VARCHAR",
}
ADVANTAGES = {
    "conversation_id": "VARCHAR",
    "turn_index": "BIGINT",
    "source": "VARCHAR",
    "advantage": "DOUBLE",
}
COMPARISONS = {
    "first": "VARCHAR",
    "second": "VARCHAR",
    "judge": "VARCHAR",
    "fingerprint": "VARCHAR",
    "group_id": "VARCHAR",
    "preferred": "DOUBLE",
    "scores": "MAP(VARCHAR, DOUBLE)",
    "justifications": "MAP(VARCHAR, VARCHAR)",
    "reply": "VARCHAR",
    "failure": FAILURE,
    "attempts": "BIGINT",
    "details": "JSON",
    "prompt_tokens": "BIGINT",
    "completion_tokens": "BIGINT",
    "cost_usd": "DOUBLE",
    "ended": "VARCHAR",
}
GOLD_LABELS = {
    "conversation_id": "VARCHAR",
    "rater": "VARCHAR",
    "scores": "MAP(VARCHAR, DOUBLE)",
    "note": "VARCHAR",
    "skipped": "VARCHAR",
    "blind": "BOOLEAN",
    "given": "VARCHAR",
}
EXAMPLES = {
    "example_id": "VARCHAR",
    "task": "VARCHAR",
    "split": "VARCHAR",
    "group_id": "VARCHAR",
    "question": "VARCHAR",
    "choices": "STRUCT(label VARCHAR, text VARCHAR)[]",
    "inputs": "JSON",
    "answer": "VARCHAR",
    "hidden": "JSON",
}
RUNS = {
    "run_no": "INTEGER",
    "run": "VARCHAR",
    "kind": "VARCHAR",
    "created": "VARCHAR",
    "version": "VARCHAR",
    "task": "VARCHAR",
    "protocol": "VARCHAR",
    "mode": "VARCHAR",
    "policy": "VARCHAR",
    "speaker": "VARCHAR",
    "parent": "VARCHAR",
    "checkpoint": "VARCHAR",
    "path": "VARCHAR",
}
METRICS = (
    "overall",
    "accuracy",
    "reasoning",
    "comprehensiveness",
    "pedagogical",
    "confidence",
)
"""Metrics that have columns of their own whoever judged; the judges of a run may add more."""
VERDICT_COLUMNS = frozenset(
    {
        "conversation_id",
        "judge",
        "reward",
        "failure",
        "attempts",
        "cost_usd",
        "prompt_tokens",
        "completion_tokens",
        "scores",
        "justifications",
        "details",
        "ended",
        "run",
        "turn_index",
        "split",
        "fence",
    }
)
"""Columns of the verdict tables that are no metric. A metric with such a name is only in
`scores`."""
MOST_METRICS = 200
"""Largest number of metrics with columns of their own."""

HEAVY = frozenset(
    {
        "conversations",
        "answer",
        "correct",
        "thinking",
        "thinking_any",
        "thinking_closed",
        "n_turns",
        "words",
        "reasoning_tokens",
        "reasoned",
        "reasoned_any",
        "prompt_tokens",
        "completion_tokens",
        "cost_usd",
        "cut_turns",
    }
)
"""Names that need the text of the conversations; `conversations` selects a whole row."""
