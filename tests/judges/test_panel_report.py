"""Judges over HTTP and people's labels on the same conversations: the report's part on judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from convbench.reports.document import Table
from convbench.store.run import Run
from tests.helpers import stages
from tests.helpers.runs import METRICS, make, questions
from tests.support.provider import Plan, Provider


def words(call: Any) -> int:
    return str(call.messages[1][1]).count("because")


def long_ones(call: Any) -> str:
    """The longer, the better."""
    score = min(10, 2 + words(call))
    return json.dumps({m: {"score": score, "justification": "So."} for m in METRICS})


def runs(folder: Path) -> tuple[Run, Run]:
    """A GPT's run and a Llama's of the same questions, one to five reasons long."""
    out = []
    for name, model in (("gpt", "openai/gpt-4o-mini"), ("llama", "hosted_vllm/meta-llama/Llama-3")):
        out.append(make(
            folder / name, questions(12), lambda q, k: "A" if int(q[1:]) % 2 else "B", samples=2,
            temperatures=(1.0,), model=model, overall=lambda q, k: 4.0 + int(q[1:]) % 5,
            text=lambda q, k, said: "because " * (1 + (int(q[1:]) + k) % 5) + f"it is {said}",
        ))  # fmt: skip
    return out[0], out[1]


def tables(*paths: Path, **more: Any) -> dict[str, Table]:
    page = stages.report(*paths, allow_incomparable=True, **more).document
    return {table.label: table for part in page.parts for table in part.tables}


def test_a_report_says_how_judges_agree_what_they_are_worth_and_what_moves_them(
    tmp_path: Path,
) -> None:
    one, other = runs(tmp_path)
    assert not {"agreement", "votes", "moved"} & tables(one.path).keys(), "one judge, no labels"
    with Provider(Plan(), reply=long_ones) as provider:
        stages.judge(other.path, "openai/gpt-4o", api_base=provider.api_base)
        printed = stages.judge_result(one.path, "openai/gpt-4o", api_base=provider.api_base).panel
    assert printed is not None
    (pair,) = printed.pairs
    (row,) = (tables(one.path, split="all")["agreement"]).rows
    assert [cell.text for cell in row[1:5]] == [
        str(pair.common), f"{pair.equal:.2f}", f"{pair.kappa:.2f}", f"{pair.correlation:.2f}",
    ], "the figures that judge printed"  # fmt: skip
    found = tables(one.path, other.path)
    assert found["agreement"].rows[0][0].text == "rules / openai/gpt-4o"
    assert found["agreement"].rows[0][1].text == "48"
    assert found["votes"].rows[0][2].text.startswith("at least ")
    moved = {row[0].text: [cell.text for cell in row] for row in found["moved"].rows}
    assert moved["openai/gpt-4o"][1] == "other judges"
    low, high = json.loads(moved["openai/gpt-4o"][4].replace("+", ""))
    assert 0 < low < high, "it likes long answers"

    for run in (one, other):
        file = tmp_path / f"{run.path.name}.csv"
        lines = [
            f"{talk.conversation_id},{3 + i % 4}" for i, talk in enumerate(run.conversations())
        ]
        file.write_text("conversation_id,overall\n" + "\n".join(lines) + "\n")
        stages.judge(run.path, f"human:{file}")
    found = tables(one.path, other.path)
    assert not found["votes"].rows[0][2].text.startswith("at least")
    assert any("people's scores of" in note for note in found["votes"].notes)
    assert {row[1].text for row in found["moved"].rows} == {"people"}
