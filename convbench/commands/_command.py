"""What a command is: its work, its answer, which `--json` prints in one document, and its context,
which holds what else there is to tell: notes, what to type next, the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, PrivateAttr
from rich.text import Text

from convbench.blot import address, shown_address
from convbench.commands._output import err, print_line, print_next, shell_path
from convbench.described import Described
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.engine import Summary
    from convbench.engine.budget import Budget
    from convbench.judge.units import Judged
    from convbench.rollout.build import Built

INTERRUPTED = 130
OptionsT = TypeVar("OptionsT")
AnswerT = TypeVar("AnswerT", bound="Answer")
RefuseRuns = Callable[[Sequence[str], Sequence[Path]], None]


class Answer(Described):
    """What one command has to tell; each has a class of its own, beside its `run`. Paths are as
    they would be typed here; dollars are of what has a price; nothing is cut to a terminal's
    width."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    """Built when one is made: a command needs few."""
    _source: Any = PrivateAttr(default=None)
    """What the stage returned, for `show`."""

    def of(self, source: Any) -> Self:
        """Keep what `show` needs beside the fields. Return the answer itself."""
        self._source = source
        return self


class RunAnswer(Answer):
    """`import`, `pull`, `tag`: a run that was made or named."""

    run: str
    """Its folder."""
    conversations: int | None = None
    """Conversations in it."""
    questions: int | None = None
    """Questions they are about."""
    rewards: int | None = None
    """Conversations that came with a reward."""
    repo: str | None = None
    """Where on the Hub it is from."""
    commit: str | None = None
    """The commit there."""
    tags: list[str] = Field(default_factory=list)
    """Its tags."""
    note: str | None = None
    """Its note."""


class Ended(Exception):
    """Ends a command early with an exit code, once all is told."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Line(NamedTuple):
    """A line for stderr."""

    head: str
    style: str
    text: str
    is_wrapped: bool
    """Whether a terminal breaks it between words; what is to be copied is not broken."""


CARRIED = ("--specs", "--plugin", "--judge", "--allow-calls")
"""Where specs and functions are found, whose verdicts count, and whom a pulled set may call."""
ADDRESS = "--api-base"
AGAIN = (ADDRESS, "--set", "--cache", "--vllm-python", "--devices")
"""What the same command needs again; to another one an address is another model's."""
ADDRESSED = ("status", "cancel")
"""Commands whose address is also that of what they print: the server that works on the batches."""


def _no_flags(word: str) -> set[str]:
    return set()


@dataclass
class RunContext:
    """A command under way: how it was typed, and what it has to tell beside its answer."""

    word: str = ""
    typed: Sequence[str] = ()
    """The words behind `convbench`."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of CARRIED and AGAIN, by flag, what was typed or set by a file."""
    flags_of: Callable[[str], set[str]] = _no_flags
    """The flags that a command takes, by its word."""
    file_values: Mapping[str, Any] = field(default_factory=dict)
    """Options that a file of defaults gave, by field."""
    json: bool = False
    """Whether stdout holds one JSON document and nothing else."""
    each: Sequence[Any] = ()
    """The options once for each value of the one that may be repeated so (`Opt.each`)."""
    ledger: Budget | None = None
    """What the calls of a command that calls models take."""
    answer: Answer | None = None
    """So far: it is shown where the command fails later on."""
    show: Callable[[Any], None] = print
    """Prints an answer."""
    exit_code: int = 0
    notes: list[str] = field(default_factory=list)
    next_commands: list[tuple[str, str]] = field(default_factory=list)
    """Commands that go on from here, each with a remark."""
    _lines: list[Line] = field(default_factory=list)
    """For stderr, not printed yet."""
    _next: list[tuple[str, str]] | None = None
    """Of `next_commands` those not printed yet."""
    _is_shown: bool = False

    def note(self, text: str) -> None:
        """Add a warning."""
        self.notes.append(printable(text))
        self.line("note: ", "yellow", text)

    def note_failures(self, built: Built) -> None:
        """Say why conversations failed."""
        for message, count in built.failures.most_common(3):
            self.note(f"{count} failed: {message}")

    def note_unscored(self, judged: Judged) -> None:
        """Say of how many conversations a judge has no score, and why."""
        name = judged.name
        for message, count in judged.failures.most_common(2):
            self.note(f"{name}: {count} without a score: {message}")
        if judged.unsupported:
            self.note(f"{name}: {judged.unsupported} without a score: their task is unsupported")

    def tell_judged(self, judged: Judged, path: Path, again: str) -> None:
        """Say what a judge gave no score, and how to go on or to try it again; raises the exit code
        where it stopped early."""
        self.note_unscored(judged)
        again = self.carry(again)
        self.stop_if_ended(judged.jobs, path, again)
        if judged.failed:
            self.line("", "", f"try the failed ones again: {again}", wrap=False)

    def line(self, head: str, style: str, text: str, *, wrap: bool = True) -> None:
        """Add a line for stderr. With `wrap` a terminal breaks it between words; what is to be
        copied stays in one piece."""
        self._lines.append(Line(head, style, text, wrap))

    def next(self, *commands: str) -> None:
        """Add what to type next, with what this command was typed with and the next one needs too
        (`carry`). A remark may stand after three spaces."""
        self._next = self._next or []
        for text in commands:
            command, _, remark = printable(text).partition("   ")
            self._next.append((self.carry(command), remark.strip()))

    def as_typed(self, *without: str, **instead: str) -> str:
        """Return the command that was typed, without these flags and with these values of options
        instead of its own: what a user types to go on."""
        flags = {f"--{name}": value for name, value in instead.items()}
        words = ["convbench"]
        for before, word in zip(["", *self.typed], self.typed, strict=False):
            if word not in without and before not in flags and word.partition("=")[0] not in flags:
                words.append(word)
        words += [part for option in flags.items() for part in option]
        return shlex.join(words)

    def carry(self, command: str) -> str:
        """Return a command with the options of CARRIED that it takes, that were typed, and that it
        does not say itself; with those of AGAIN too where it is the one under way. A key in an
        address is not printed."""
        command = self._with_typed(command)
        for value in self.options.get(ADDRESS, ()):
            for url in value.split(","):
                if address(url) != url:
                    command = command.replace(url, shown_address(url))
        return command

    def _with_typed(self, command: str) -> str:
        words = shlex.split(command)
        if words[:1] != ["convbench"] or not any(self.options.values()):
            return command
        taken = self.flags_of(words[1])
        present = {word.partition("=")[0] for word in words}
        same = words[1] == self.word or self.word in ADDRESSED
        missing = [
            flag for flag in self.options if flag in taken - present and (same or flag not in AGAIN)
        ]
        return command + "".join(
            f" {flag} {shlex.quote(value)}" for flag in missing for value in self.options[flag]
        )

    def stop_if_ended(self, summary: Summary, path: Path, command: str) -> None:
        """Say that a run stopped early and how to resume; raises the exit code."""
        if not summary.interrupted and summary.stopped is None:
            return
        self._note_batches(path)
        command = self.carry(command)
        if summary.interrupted:
            text = f"interrupted; finished work is kept. Resume: {command}"
            self.line("", "", text, wrap=False)
            raise Ended(INTERRUPTED)
        self.line("stopped: ", "red", str(summary.stopped))
        self.line("", "", f"finished work is kept. Resume: {command}", wrap=False)
        raise Ended(1)

    def _note_batches(self, path: Path) -> None:
        """Say which batches go on without us."""
        from convbench.engine.batch_record import open_batches

        if batches := open_batches(path):
            calls, name = sum(len(sent.calls) for sent in batches), shell_path(path)
            self.note(
                f"{len(batches)} batch{'' if len(batches) == 1 else 'es'} of {calls:,} calls "
                f"{'is' if len(batches) == 1 else 'are'} still at the provider: convbench status "
                f"{name} shows their progress, convbench cancel {name} ends them; a resume picks "
                "them up"
            )

    def show_part(self, answer: Any) -> None:
        """Show what is done so far, while the command goes on: the whole answer is not shown at its
        end."""
        self._is_shown = True
        if not self.json:
            self.show(answer)
        self.print_notes()

    def print_notes(self) -> None:
        """Print what was added for stderr, and what to type next, since the last time."""
        for line in self._lines:
            if line.is_wrapped:
                print_line(err, *line[:3])
            else:
                err.print(Text.assemble((line.head, line.style), line.text), soft_wrap=True)
        self._lines.clear()
        if self._next is not None and not self.json:
            print_next(self._next)
        self.next_commands += self._next or ()
        self._next = None

    def close(self) -> None:
        """Print the answer and all that is told beside it, but an error."""
        if self.answer is not None and not self._is_shown and not self.json:
            self.show(self.answer)
        self.print_notes()
        if self.ledger is not None:
            from convbench.engine.budget import spending

            if text := spending(self.ledger):
                print_line(err, "spent: ", "bold", text)


@dataclass(frozen=True)
class Command(Generic[OptionsT, AnswerT]):
    """A command: `run` does the work and prints nothing, `show` prints its answer."""

    run: Callable[[OptionsT, RunContext], AnswerT]
    show: Callable[[AnswerT], None]
    refuse_runs: RefuseRuns | None = None
    """Gets the names that stand in the place of a run, and the folders of specs, where two of them
    contradict each other: it raises UsageError for what is no run's name."""

    @cached_property
    def options(self) -> type[Any]:
        """The options class, which `run` names in its signature."""
        options: type[Any] = get_type_hints(self.run)["options"]
        return options

    @property
    def answer(self) -> type[Answer]:
        """The class of its answer, which `run` names too."""
        answer: type[Answer] = get_type_hints(self.run)["return"]
        return answer
