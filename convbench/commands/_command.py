"""The parts of a command: its work, its answer, which `--json` prints as one document, and its
context with notes, next commands and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, get_type_hints

from pydantic import ConfigDict, PrivateAttr
from rich.text import Text

from convbench.commands._output import err, print_line, print_next, shell_path
from convbench.util.described import DescribedModel
from convbench.util.printable import make_printable
from convbench.util.redact import shown_address, strip_address

if TYPE_CHECKING:
    from convbench.engine import Summary
    from convbench.engine.session import Session
    from convbench.judges.units import JudgeSummary
    from convbench.rollout.build import BuildSummary

INTERRUPTED = 130
OptionsT = TypeVar("OptionsT")
AnswerT = TypeVar("AnswerT", bound="Answer")
RefuseRuns = Callable[[Sequence[str], Sequence[Path]], None]


class Answer(DescribedModel):
    """Base class of the results of commands; each command has its own, next to its `run`. Paths are
    as a user would type them here; dollars count only what has a price; nothing is cut to the width
    of a terminal."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    """Validators are built at first use, since a command needs few of them."""
    _source: Any = PrivateAttr(default=None)
    """Result of the stage, for `show`."""

    def with_source(self, source: Any) -> Self:
        """Store what `show` needs besides the fields, and return the answer itself."""
        self._source = source
        return self


class RunAnswer(Answer):
    """`import`, `pull`, `tag`: a run that was created or changed."""

    run: str
    """Its folder."""
    conversations: int | None = None
    """Number of conversations in it."""
    questions: int | None = None
    """Number of questions that they are about."""
    rewards: int | None = None
    """Number of conversations that came with a reward."""
    repo: str | None = None
    """The repository on the Hub that it is from."""
    commit: str | None = None
    """The commit in that repository."""
    citation: str | None = None
    """File with BibTeX of what it was made from."""


class EarlyExit(Exception):
    """Ends a command early with an exit code, after everything was printed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class MessageLine(NamedTuple):
    """A line that is printed on stderr."""

    head: str
    style: str
    text: str
    is_wrapped: bool
    """Whether it is broken between words on a terminal; text to be copied is not."""


CARRIED = ("--specs", "--plugin", "--judge", "--allow-calls")
"""Options that other commands need too: where specs and functions are, whose verdicts count, and
which models a pulled set may call."""
ADDRESS = "--api-base"
AGAIN = (ADDRESS, "--set", "--cache", "--devices")
"""Options that only the same command needs again; for another one the address would be of another
model."""
ADDRESSED = ("status", "cancel")
"""Commands whose `--api-base` also applies to the commands that they print: the batches' server."""


def _no_flags(word: str) -> set[str]:
    return set()


@dataclass
class RunContext:
    """A running command: how it was typed, and what it prints besides its answer."""

    word: str = ""
    typed: Sequence[str] = ()
    """The words after `convbench`."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values of the options in CARRIED and AGAIN by flag, typed or from a file."""
    flags_of: Callable[[str], set[str]] = _no_flags
    """Returns the flags that a command takes, by its word."""
    file_values: Mapping[str, Any] = field(default_factory=dict)
    """Options from files of defaults, by field."""
    json: bool = False
    """Whether stdout gets one JSON document and nothing else."""
    each: Sequence[Any] = ()
    """The options for each value of the option that may be repeated (`Opt.each`)."""
    session: Session | None = None
    """What all calls of a command that calls models share."""
    answer: Answer | None = None
    """The answer so far, which is shown even if the command fails later."""
    show: Callable[[Any], None] = print
    """Prints an answer."""
    exit_code: int = 0
    notes: list[str] = field(default_factory=list)
    next_commands: list[tuple[str, str]] = field(default_factory=list)
    """(command, remark) of what to type next."""
    _lines: list[MessageLine] = field(default_factory=list)
    """Lines for stderr that are not printed yet."""
    _next: list[tuple[str, str]] | None = None
    """Next commands that are not printed yet."""
    _is_shown: bool = False

    def add_note(self, text: str) -> None:
        """Add a warning: a line `note: …` for stderr, and an entry of `notes` with `--json`."""
        self.notes.append(make_printable(text))
        self.add_line("note: ", "yellow", text)

    def note_failures(self, built: BuildSummary) -> None:
        """Add a note for each of the three most frequent reasons why conversations failed, with
        their number."""
        for message, count in built.failures.most_common(3):
            self.add_note(f"{count} failed: {message}")

    def note_unscored(self, judged: JudgeSummary) -> None:
        """Add notes on how many conversations have no score of a judge, for the two most frequent
        reasons.

        One more counts those whose task is unsupported.
        """
        name = judged.name
        for message, count in judged.failures.most_common(2):
            self.add_note(f"{name}: {count} without a score: {message}")
        if judged.unsupported:
            self.add_note(
                f"{name}: {judged.unsupported} without a score: their task is unsupported"
            )

    def note_judged(self, judged: JudgeSummary, path: Path, again: str) -> None:
        """Add notes on missing scores of a judge, and how to resume or to try again.

        Raises EarlyExit, as `stop_if_ended` does, if the judge stopped early.
        """
        self.note_unscored(judged)
        again = self.carry_options(again)
        self.stop_if_ended(judged.jobs, path, again)
        if judged.failed_count:
            self.add_line("", "", f"try the failed ones again: {again}", wrap=False)

    def add_line(self, head: str, style: str, text: str, *, wrap: bool = True) -> None:
        """Add a line for stderr: `head` in a style, then the text; it is printed by `print_notes`.

        With `wrap` it is broken between words on a terminal; text to be copied must not be.
        `--json` leaves it out of its document.
        """
        self._lines.append(MessageLine(head, style, text, wrap))

    def add_next(self, *commands: str) -> None:
        """Add commands to type next, with the options of this command that they need too
        (`carry_options`).

        A remark may follow a command after three spaces. They are printed by `print_notes`; in
        `--json` they have no remark.
        """
        self._next = self._next or []
        for text in commands:
            command, _, remark = make_printable(text).partition("   ")
            self._next.append((self.carry_options(command), remark.strip()))

    def as_typed(self, *without: str, **instead: str | None) -> str:
        """Return the command as typed, quoted for a shell, as `convbench …`.

        Words equal to one of `without` are left out. Options named in `instead`, without dashes,
        are removed with their values, and added at the end with the new ones unless these are None.
        """
        flags = {f"--{name}": value for name, value in instead.items()}
        words = ["convbench"]
        for before, word in zip(["", *self.typed], self.typed, strict=False):
            if word not in without and before not in flags and word.partition("=")[0] not in flags:
                words.append(word)
        words += [part for flag, value in flags.items() if value for part in (flag, value)]
        return shlex.join(words)

    def carry_options(self, command: str) -> str:
        """Return a command with the typed options of CARRIED that it takes and does not have; if it
        is this command, with those of AGAIN too. Keys in addresses are redacted."""
        command = self._with_typed(command)
        for value in self.options.get(ADDRESS, ()):
            for url in value.split(","):
                if strip_address(url) != url:
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
        """Raise EarlyExit if the jobs stopped early, after adding how to resume; else do nothing.

        Its exit code is 130 after an interruption, 1 for an error that stopped them.
        """
        if not summary.interrupted and summary.stopped is None:
            return
        self._note_batches(path)
        command = self.carry_options(command)
        if summary.interrupted:
            text = f"interrupted; finished work is kept. Resume: {command}"
            self.add_line("", "", text, wrap=False)
            raise EarlyExit(INTERRUPTED)
        self.add_line("stopped: ", "red", str(summary.stopped))
        self.add_line("", "", f"finished work is kept. Resume: {command}", wrap=False)
        raise EarlyExit(1)

    def _note_batches(self, path: Path) -> None:
        """Add a note on batches that the provider still works on."""
        from convbench.engine.batches import open_batches

        if batches := open_batches(path):
            calls, name = sum(len(sent.calls) for sent in batches), shell_path(path)
            self.add_note(
                f"{len(batches)} batch{'' if len(batches) == 1 else 'es'} of {calls:,} calls "
                f"{'is' if len(batches) == 1 else 'are'} still at the provider: convbench status "
                f"{name} shows their progress, convbench cancel {name} ends them; a resume picks "
                "them up"
            )

    def show_part(self, answer: Any) -> None:
        """Show an answer to what is done so far, except with `--json`, then the notes.

        The final answer is not shown again.
        """
        self._is_shown = True
        if not self.json:
            self.show(answer)
        self.print_notes()

    def print_notes(self) -> None:
        """Print the lines for stderr and the next commands that were added since the last time.

        Next commands go to stdout, and with `--json` are not printed.
        """
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
        """Print the answer, notes, next commands and spending, but no error.

        The answer is left out if it was shown in parts (`show_part`), and with `--json`.
        """
        if self.answer is not None and not self._is_shown and not self.json:
            self.show(self.answer)
        self.print_notes()
        if self.session is not None:
            from convbench.engine.progress import format_spend

            if text := format_spend(self.session.ledger):
                print_line(err, "spent: ", "bold", text)


@dataclass(frozen=True)
class Command(Generic[OptionsT, AnswerT]):
    """A command: `run` does the work and prints nothing, `show` prints its answer."""

    run: Callable[[OptionsT, RunContext], AnswerT]
    show: Callable[[AnswerT], None]
    refuse_runs: RefuseRuns | None = None
    """Called with the names given as runs, if two of them contradict each other, and the folders of
    specs; raises UsageError for a name of something else."""

    @cached_property
    def options_class(self) -> type[Any]:
        """Return the options class, from the signature of `run`."""
        options: type[Any] = get_type_hints(self.run)["options"]
        return options

    @property
    def answer_class(self) -> type[Answer]:
        """Return the answer class, from the signature of `run`."""
        answer: type[Answer] = get_type_hints(self.run)["return"]
        return answer
