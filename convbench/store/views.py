"""SQL that defines the views of `query` over the raw records."""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

from collections.abc import Iterable, Sequence

from convbench.schema import JudgeSpec
from convbench.store.columns import METRICS, MOST_METRICS, VERDICT_COLUMNS


def metric_columns(specs: Iterable[JudgeSpec]) -> tuple[str, ...]:
    """Return the names of the metrics that are columns of `verdicts`, at most 200.

    First come the standing ones (`METRICS`), then those of these judges in their order. Judges of
    pairs, and names of other columns, are left out.
    """
    single = (spec for spec in specs if spec.per != "pair")
    named = (name for spec in single for name in spec.score_names if name not in VERDICT_COLUMNS)
    return tuple(dict.fromkeys((*METRICS, *named)))[:MOST_METRICS]


def _score_columns(table: str, metrics: Sequence[str]) -> str:
    """Return a column for each metric. The name is a `Name`, so that it holds no quote."""
    return ", ".join(f"{table}.scores['{name}'] AS \"{name}\"" for name in metrics)


def _total_column(field: str, kind: str) -> str:
    """Return a column with the sum over the turns of models; null if one of them is unknown."""
    return (
        f"CASE WHEN len([1 FOR t IN c.turns IF t.{field} IS NULL "
        "AND t.finish_reason NOT IN ('scripted', 'rule')]) > 0 THEN NULL "
        f"ELSE list_sum([t.{field} FOR t IN c.turns])::{kind} END AS {field}"
    )


THINKS = (
    "trim(t.reasoning.text, E' \\n\\t') != '' OR t.reasoning.tokens > 0 "
    "OR t.reasoning.blocks IS NOT NULL"
)
"""Condition for a turn with reasoning; an empty block is none."""


def _reasoned_column(turns: str) -> str:
    """Return SQL for whether any of these turns has reasoning in a channel of its own; null for a
    failed conversation."""
    return (
        "CASE WHEN c.failure IS NOT NULL THEN NULL "
        f"ELSE len([1 FOR t IN {turns} IF {THINKS}]) > 0 END"
    )


TURN_SCORES_SCHEMA = (
    '[{"turn":"BIGINT","scores":"MAP(VARCHAR,DOUBLE)","reward":"DOUBLE",'
    '"justifications":"MAP(VARCHAR,VARCHAR)"}]'
)
"""JSON structure of the turn scores in a verdict's details, from a judge of turns."""
POLICY_TURNS = "[t FOR t IN c.turns IF t.speaker = r.speaker]"
UNSENT = "list_contains(coalesce(c.sent[r.speaker].left_out, []), 'temperature')"


def _failure_column(table: str) -> str:
    return f"{table}.failure.kind || ': ' || {table}.failure.message AS failure"


EXAMPLES = """
CREATE VIEW examples AS
SELECT DISTINCT example_id, task, split, group_id, question, choices, answer AS gold, inputs, hidden
FROM raw.examples
"""


OPEN = "len(coalesce(e.choices, [])) = 0"
"""Condition for a conversation about a question without options."""
READINGS = """
  SELECT v.run_no, v.conversation_id, arg_max({'judge': v.judge, 'letter': v.details->>'$.answer',
      'gives': (v.details->>'$.gives_answer')::BOOLEAN}, v.ended) AS v
  FROM raw.verdicts v JOIN raw.judges j USING (run_no, fingerprint)
  WHERE j.kind = 'answers' AND v.failure IS NULL GROUP BY ALL
"""
"""What a judge of kind `answers` read last in each conversation."""


def select_conversations(also: str = "") -> str:
    """Return the SELECT behind the view `conversations`, without CREATE VIEW.

    `also` is put before its columns, with a comma of its own at the end, and may use
    raw.conversations `c` and raw.examples `e`.
    """
    return f"""
SELECT {also}c.conversation_id, r.run, r.task, r.protocol, r.mode, c.example_id, e.group_id,
  e.split, r.policy, c.sample, CASE WHEN {UNSENT} THEN NULL ELSE c.temperature END AS temperature,
  c.seed, c.stop, {_failure_column("c")},
  coalesce(c.g.answer, CASE WHEN {OPEN} THEN CASE WHEN a.v.gives THEN e.answer END
    ELSE a.v.letter END) AS answer,
  CASE WHEN {OPEN} THEN coalesce(a.v.gives, c.g.correct)
    WHEN c.g.answer IS NULL AND c.g.correct IS NOT NULL THEN coalesce(a.v.letter = e.answer, false)
    ELSE c.g.correct END AS correct, c.g.thinking AS thinking,
  len([1 FOR t IN c.turns IF t.speaker = r.speaker]) AS n_turns, c.g.words AS words, c.flags,
  {_total_column("prompt_tokens", "BIGINT")}, {_total_column("completion_tokens", "BIGINT")},
  {_total_column("cost_usd", "DOUBLE")},
  c.g.thinking_any AS thinking_any, c.g.thinking_closed AS thinking_closed,
  len([1 FOR t IN c.turns IF t.speaker = r.speaker AND t.finish_reason = 'length']) AS cut_turns,
  c.attempt + 1 AS attempts, c.ended, c.metadata,
  {_reasoned_column(f"({POLICY_TURNS})[-1:]")} AS reasoned,
  {_reasoned_column(POLICY_TURNS)} AS reasoned_any,
  list_sum([t.reasoning.tokens FOR t IN c.turns])::BIGINT AS reasoning_tokens,
  c.sent[r.speaker].left_out AS left_out,
  CASE WHEN a.v.gives IS NOT NULL OR (c.g.answer IS NULL AND a.v.letter IS NOT NULL)
    THEN a.v.judge END AS read_by
FROM (
  SELECT k.*, graded(k.run_no, k.failure IS NOT NULL,
      [said(t.content) FOR t IN k.turns IF t.speaker = s.speaker],
      [o.label FOR o IN x.choices], [o.text FOR o IN x.choices], x.answer) AS g
  FROM raw.conversations k JOIN raw.runs s USING (run_no)
    LEFT JOIN raw.examples x ON x.run_no = k.run_no AND x.example_id = k.example_id
) c JOIN raw.runs r USING (run_no)
  LEFT JOIN raw.examples e ON e.run_no = c.run_no AND e.example_id = c.example_id
  LEFT JOIN ({READINGS}) a ON a.run_no = c.run_no AND a.conversation_id = c.conversation_id
"""


TURNS = """
CREATE VIEW turns AS
SELECT conversation_id, turn_index, t.speaker AS speaker, said(t.content) AS content,
  t.prompt_tokens AS prompt_tokens, t.completion_tokens AS completion_tokens,
  t.finish_reason AS finish_reason, t.step AS step, t.instruction AS instruction,
  t.cost_usd AS cost_usd, run, t.reasoning.text AS reasoning,
  t.reasoning.tokens AS reasoning_tokens, t.reasoning.blocks AS reasoning_blocks,
  to_json(t.rounds->'$[*].calls[*]') AS tool_calls,
  to_json(t.rounds->'$[*].results[*]') AS tool_results,
  a.advantage AS advantage, a.source AS advantage_by
FROM (
  SELECT c.conversation_id, r.run, run_no, unnest(c.turns) AS t,
    unnest(range(len(c.turns))) AS turn_index
  FROM raw.conversations c JOIN raw.runs r USING (run_no)
) LEFT JOIN (
  SELECT run_no, conversation_id, turn_index, arg_max(advantage, rowid) AS advantage,
    arg_max(source, rowid) AS source
  FROM raw.advantages GROUP BY ALL
) a USING (run_no, conversation_id, turn_index)
"""

ADVANTAGES = """
CREATE VIEW advantages AS
SELECT a.conversation_id, a.turn_index, a.source, a.advantage, r.run
FROM raw.advantages a JOIN raw.runs r USING (run_no)
"""


def _verdicts_view(metrics: Sequence[str]) -> str:
    return f"""
CREATE VIEW verdicts AS
SELECT v.conversation_id, v.judge, {_score_columns("v", metrics)},
  v.reward, {_failure_column("v")}, v.attempts, v.cost_usd, v.prompt_tokens, v.completion_tokens,
  v.scores, v.justifications, v.details, v.ended, j.fence, r.run
FROM raw.verdicts v JOIN raw.runs r USING (run_no)
LEFT JOIN raw.judges j USING (run_no, fingerprint)
"""


def _turn_verdicts_view(metrics: Sequence[str]) -> str:
    return f"""
CREATE VIEW turn_verdicts AS
SELECT conversation_id, judge, (t.turn)::BIGINT AS turn_index, {_score_columns("t", metrics)},
  t.reward AS reward, t.scores AS scores, t.justifications AS justifications, run
FROM (
  SELECT v.conversation_id, v.judge, r.run,
    unnest(from_json(v.details->'$.turns', '{TURN_SCORES_SCHEMA}')) AS t
  FROM raw.verdicts v JOIN raw.runs r USING (run_no)
  WHERE v.failure IS NULL AND json_type(v.details, '$.turns') = 'ARRAY'
)
"""


COMPARISONS = f"""
CREATE VIEW comparisons AS
SELECT c."first" AS shown_first, c."second" AS shown_second, c.judge, c.preferred, c.group_id,
  {_failure_column("c")}, c.attempts, c.cost_usd, c.prompt_tokens, c.completion_tokens, c.scores,
  c.justifications, c.details, c.ended, r.run
FROM raw.comparisons c JOIN raw.runs r USING (run_no)
"""


def _gold_labels_view(metrics: Sequence[str]) -> str:
    return f"""
CREATE VIEW gold_labels AS
SELECT l.conversation_id, l.rater, {_score_columns("l", metrics)}, l.scores, l.note, l.skipped,
  coalesce(l.blind, true) AS blind, l.given, r.run
FROM raw.gold_labels l JOIN raw.runs r USING (run_no)
"""


RUNS = """
CREATE VIEW runs AS
SELECT run, kind, created, version, task, protocol, mode, policy, parent, checkpoint,
  path
FROM raw.runs
"""

SAID_MACRO = """
CREATE MACRO said(content) AS
CASE WHEN content LIKE '[{"type":%' THEN parts(content) ELSE content END
"""

VIEW_NAMES = (
    "examples",
    "conversations",
    "turns",
    "verdicts",
    "turn_verdicts",
    "advantages",
    "comparisons",
    "gold_labels",
    "runs",
)
"""Names of the views."""


def view_statements(metrics: Sequence[str] = METRICS) -> tuple[str, ...]:
    """Return the SQL statements that create the views, in the order in which they must run.

    `verdicts`, `turn_verdicts` and `gold_labels` get a column for each metric.
    """
    verdicts = (_verdicts_view(metrics), _turn_verdicts_view(metrics), _gold_labels_view(metrics))
    conversations = f"CREATE VIEW conversations AS {select_conversations()}"
    of_turns = (SAID_MACRO, EXAMPLES, conversations, TURNS)
    return (*of_turns, *verdicts, ADVANTAGES, COMPARISONS, RUNS)


RAW_TABLES = {
    "examples": ("examples",),
    "conversations": ("conversations", "examples", "verdicts"),
    "turns": ("conversations", "advantages"),
    "verdicts": ("verdicts",),
    "turn_verdicts": ("verdicts",),
    "comparisons": ("comparisons",),
    "advantages": ("advantages",),
    "gold_labels": ("gold_labels",),
    "runs": (),
}
"""Raw tables that each view reads, besides `runs`."""
