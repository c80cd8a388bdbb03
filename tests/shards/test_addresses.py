"""Several servers of one model: a conversation always meets the same one."""

from __future__ import annotations

import json
from pathlib import Path

from convbench.options.build import BuildOptions
from convbench.options.shared import CallOptions, RunSettings
from convbench.options.spread import ShardOptions
from convbench.shards.build import build_or_resume
from convbench.store import Run, shards
from tests.support.provider import Plan, Provider


def test_each_shard_meets_one_server(tmp_path: Path) -> None:
    with Provider(Plan(keep_requests=1000)) as one, Provider(Plan(keep_requests=1000)) as two:
        calls = CallOptions(api_base=f"{one.api_base},{two.api_base}", quiet=True)
        build_or_resume(BuildOptions(
            task="demo", tasks=10, model="openai/scripted", run=tmp_path / "run", calls=calls,
            shape=RunSettings(samples=1), spread=ShardOptions(shards=6),
        ))  # fmt: skip
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
