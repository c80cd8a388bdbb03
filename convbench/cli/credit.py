"""`convbench credit`."""

from __future__ import annotations

from convbench.cli.answers.measured import CreditAnswer
from convbench.cli.command import command
from convbench.cli.console import out
from convbench.cli.envelope import give
from convbench.cli.say import fact, next_command, note, of_run, path_of, shown, told
from convbench.options.credit import CreditOptions


@command("credit", CreditOptions, CreditAnswer)
def credit(options: CreditOptions) -> None:
    """Credit the turns of a run."""
    from convbench.commands.credit import credit as command

    done = command(options)
    least, mean, most = done.spread
    give(
        CreditAnswer(
            run=path_of(done.run.path), source=done.source, turns=done.turns,
            conversations=done.conversations, least=least, mean=mean, most=most,
            left_out=done.left_out,
        )
    )  # fmt: skip
    fact("run", shown(done.run.path))
    fact("credit", f"{done.turns} turns of {done.conversations} conversations, by {done.source}")
    told(out, "advantage: ", "dim", f"{least:+.4f} to {most:+.4f}, mean {mean:+.4f}")
    for why, count in done.left_out.items():
        note(f"left out: {count} {why}")
    asked = '"select conversation_id, turn_index, advantage, content from turns where advantage '
    next_command(
        f'convbench query {asked}is not null order by advantage"{of_run(done.run.path)}',
        f"convbench view {shown(done.run.path)}",
    )
