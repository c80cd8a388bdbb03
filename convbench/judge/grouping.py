"""A judge of groups at work: which groups have something to score, asked, kept and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convbench.engine import Summary
from convbench.engine.caller import Caller
from convbench.engine.recorded import Recording, run_recorded
from convbench.judge.group import Group, in_prompt, key_of, score_group
from convbench.judge.pending import Pending
from convbench.judge.resolve import Judge
from convbench.judge.verdicts import failed_verdict
from convbench.judge.work import Tools
from convbench.schema import Conversation, Verdict
from convbench.store import Run


def groups_of(run: Run, judge: Judge, pending: Pending) -> list[Group]:
    """Return the questions of which a conversation has no score yet, each with all its
    conversations: what is said of one is said beside the others."""
    talks: dict[str, list[Conversation]] = {}
    for one in run.conversations():
        if one.failure is None and one.branch is None:
            talks.setdefault(one.example_id, []).append(one)
    found = []
    for name, members in talks.items():
        before = [pending[one.conversation_id] for one in members if one.conversation_id in pending]
        if before:
            asked = max((one.attempts for one in before if one is not None), default=0)
            shown = in_prompt(members, judge.fingerprint)
            found.append(Group(shown, run.examples[name], asked))
    return found


async def score_groups(
    run: Run,
    judge: Judge,
    pending: Pending,
    caller: Caller,
    tools: Tools,
    count: Callable[[Verdict], None],
) -> Summary:
    """Score the groups; return how many conversations got a score, and how many did not. All of a
    group are one job, one line of the journal and one write."""
    groups = groups_of(run, judge, pending)
    keys = {key_of(judge, group) for group in groups}
    ended = [0, 0]

    def told(group: Group, found: Sequence[Verdict]) -> None:
        for verdict in found:
            ended[verdict.failure is not None] += 1
            count(verdict)

    async def work(group: Group) -> tuple[Verdict, ...]:
        return await score_group(judge, group, run.manifest.protocol, tools)

    recording = Recording[Group, tuple[Verdict, ...]](
        run.verdicts_file,
        lambda group, found: b"\n".join(one.model_dump_json().encode() for one in found),
        lambda group, error: tuple(
            failed_verdict(judge, one.conversation_id, error) for one in group.talks
        ),
        lambda key: key.rpartition("#")[0] in keys,
        lambda group: f"{key_of(judge, group)}#",
        lambda found: any(one.failure is not None for one in found),
        told,
    )
    jobs = await run_recorded(groups, len(groups), work, recording, caller, tools.concurrency)
    return Summary(ended[0], ended[1], jobs.interrupted, jobs.stopped)
