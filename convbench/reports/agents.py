"""Tables of policies that called tools: success, pass@k and pass^k, calls, errors, cost a success.

    Policy     success  pass@4  pass^4  calls  errors  $ a success  success, to base
    SWiFt        .41      .72     .18    6.1     4 %        .031       +.09 (.03)
    Base         .32      .60     .16    6.2    10 %        .044

A conversation succeeded if its reward is 1 or more. For a question with n tries of which c
succeeded, pass@k = 1 - C(n-c, k) / C(n, k) (Chen et al. 2021) is the chance that one of k tries
succeeds, and pass^k = C(c, k) / C(n, k) (Yao et al. 2024) that all of k do. Both are means over
questions that have at least k tries, with errors clustered over the questions' values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING

from convbench.reports.document import Cell, Column, Difference, Row, Table
from convbench.reports.frame import Setting, ask
from convbench.reports.policies import Policy
from convbench.reports.tables import POLICY
from convbench.stats.estimates import Estimate, estimate

if TYPE_CHECKING:
    from pandas import DataFrame

CALLS = """
WITH made AS (
  SELECT run, conversation_id, unnest(from_json(tool_calls, '["json"]')) AS call FROM turns
  WHERE tool_calls IS NOT NULL
), came AS (
  SELECT run, conversation_id, unnest(from_json(tool_results, '["json"]')) AS result FROM turns
  WHERE tool_results IS NOT NULL
)
SELECT run, conversation_id, call->>'name' AS tool, count(*) AS calls, 0 AS errors
FROM made GROUP BY ALL
UNION ALL
SELECT run, conversation_id, result->>'name', 0, count(*) FROM came
WHERE coalesce(result->>'error', 'false') = 'true' OR starts_with(result->>'content', 'Error')
GROUP BY ALL
"""
COSTS = "SELECT run, conversation_id, cost_usd FROM conversations WHERE cost_usd IS NOT NULL"
TRIES = (2, 4, 8)
"""The k that are shown beside 1, as far as questions have as many tries."""
SUCCESS = "success"


def pass_at(n: int, c: int, k: int) -> float:
    """Return the chance that one of k of n tries, of which c succeeded, succeeds; n is at least
    k."""
    return 1 - comb(n - c, k) / comb(n, k)


def pass_all(n: int, c: int, k: int) -> float:
    """Return the chance that all of k of n tries succeed, of which c did; n is at least k."""
    return comb(c, k) / comb(n, k)


def agent_tables(setting: Setting) -> Iterator[Table]:
    """Yield the table of policies and the table of tools; nothing if no tool was called."""
    calls, costs = ask(setting.runs, ("conversations", "turns"), CALLS, COSTS)
    column = next((f"{judge}/reward" for judge in setting.judges), "correct")
    if not len(calls) or column not in setting.rows:
        return
    rows = setting.rows.assign(success=(setting.rows[column] >= 1).astype(float))
    rows.loc[setting.rows[column].isna(), SUCCESS] = float("nan")
    per_talk = calls.groupby(["run", "conversation_id"])[["calls", "errors"]].sum().reset_index()
    keys = ["run", "conversation_id"]
    rows = rows.merge(per_talk, how="left", on=keys).merge(costs, how="left", on=keys)
    yield _policies(replace(setting, rows=rows))
    yield _tools(setting, calls)


def _policies(setting: Setting) -> Table:
    most = int(setting.rows.groupby(["policy", "example_id"])[SUCCESS].count().max())
    shown = [k for k in TRIES if k <= most]
    columns = [POLICY, Column(SUCCESS, "Success", digits=3, best=True)]
    for k in shown:
        columns.append(Column(f"pass@{k}", f"pass@{k}", digits=3, best=True))
        columns.append(Column(f"pass^{k}", f"pass^{k}", digits=3, best=True))
    columns += [
        Column("calls", "Calls", digits=1),
        Column("errors", "Errors (%)", digits=1),
        Column("cost", "$ a success", digits=4),
        Column("difference", "Success, to base", digits=3),
    ]
    rows = tuple(Row((policy.name, *_cells(setting, policy, shown))) for policy in setting.policies)
    notes = (
        "Success: a reward of 1 or more. pass@k: one of k tries succeeds; pass^k: all of k do; "
        "over questions with at least k tries. Differences are paired by question and try.",
    )
    return Table("agents", "Tool use", tuple(columns), rows, notes)


def _cells(setting: Setting, policy: Policy, tries: list[int]) -> Iterator[Cell]:
    own = setting.rows_of(policy)
    yield setting.mean(policy, SUCCESS)
    for k in tries:
        yield _over_questions(own, k, all_of_them=False)
        yield _over_questions(own, k, all_of_them=True)
    calls, errors = own["calls"].sum(), own["errors"].sum()
    yield float(calls / len(own)) if len(own) else None
    yield float(100 * errors / calls) if calls else None
    good, cost = own[SUCCESS].sum(), own["cost_usd"].sum()
    yield float(cost / good) if good and cost else None
    base = setting.base_of(policy)
    change = base and setting.difference(policy, base, SUCCESS)
    yield Difference(change) if change else None


def _over_questions(rows: DataFrame, k: int, *, all_of_them: bool) -> Estimate | None:
    tried = rows[rows[SUCCESS].notna()].groupby("example_id")
    per = tried.agg(n=(SUCCESS, "count"), c=(SUCCESS, "sum"), group=("group", "first"))
    per = per[per["n"] >= k]
    chance = pass_all if all_of_them else pass_at
    values = [chance(int(n), int(c), k) for n, c in zip(per["n"], per["c"], strict=True)]
    return estimate(per["group"], values) if values else None


def _tools(setting: Setting, calls: DataFrame) -> Table:
    names = setting.rows[["run", "conversation_id", "policy"]]
    per = calls.merge(names, on=["run", "conversation_id"])
    found = per.groupby(["policy", "tool"])[["calls", "errors"]].sum().reset_index()
    found = found.sort_values(["policy", "calls", "tool"], ascending=[True, False, True])
    columns = (
        POLICY,
        Column("tool", "Tool", text=True),
        Column("calls", "Calls"),
        Column("errors", "Errors"),
    )
    rows = tuple(Row((r.policy, r.tool, int(r.calls), int(r.errors))) for r in found.itertuples())
    notes = ("An error is a result marked as one, or one that begins with the word Error.",)
    return Table("tools", "Calls by tool", columns, rows, notes)
