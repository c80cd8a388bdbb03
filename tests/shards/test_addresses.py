"""Several servers of one model: a conversation always meets the same one."""

from __future__ import annotations

import json
from pathlib import Path

from convbench.store import Run, shards
from tests.helpers import stages
from tests.support.provider import Plan, Provider


def test_each_shard_meets_one_server(tmp_path: Path) -> None:
    with Provider(Plan(keep_requests=1000)) as one, Provider(Plan(keep_requests=1000)) as two:
        stages.build(
            "demo",
            tasks=10,
            model="openai/scripted",
            run=tmp_path / "run",
            api_base=f"{one.api_base},{two.api_base}",
            samples=1,
            shards=6,
        )
        run = Run.open(tmp_path / "run")
        assert min(one.stats.calls, two.stats.calls) > 0
        said = {server: json.dumps(list(server.requests)) for server in (one, two)}
        for conversation in run.conversations():
            question = json.dumps(run.examples[conversation.example_id].question)[1:-1]
            group = run.examples[conversation.example_id].group_id
            mine = (one, two)[shards.shard_of(group, 6) % 2]
            assert said[mine].count(question) >= 3, "all of its turns"
            assert question not in said[two if mine is one else one]
    assert "," not in (run.manifest.cast[run.manifest.protocol.policy].api_base or "")
