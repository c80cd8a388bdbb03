"""Task: where questions come from, how a row becomes an Example, how many are drawn."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from convbench.schema.base import FrozenModel, Label, Name, PythonRef, Text, get_field
from convbench.util.words import Split as Split

SPLITS: tuple[Split, ...] = get_args(Split)
"""From the split that is trained on to the one held out most."""


class Choice(FrozenModel):
    """One option of a multiple-choice question."""

    label: str
    """Its letter, A-E."""
    text: str
    """Its text."""


class Example(FrozenModel):
    """One question. Its answer and hidden fields never enter a prompt of a speaker that may not see
    them."""

    example_id: str
    """Key, unique within the task."""
    task: str
    """Name of the task."""
    split: Split
    """Where it belongs; all examples of a group are in one split."""
    group_id: str
    """The independent unit: question, problem, dialogue, passage."""
    question: str
    """The question's text."""
    choices: tuple[Choice, ...] = ()
    """Options in the order they are shown; empty for a free answer."""
    inputs: dict[str, Any] = Field(default_factory=dict)
    """More fields for templates."""
    answer: str | None = None
    """Gold answer: an option's letter, or text. Part of the reference: hidden."""
    hidden: dict[str, Any] = Field(default_factory=dict)
    """Other hidden fields. Part of the reference."""

    @property
    def letters(self) -> tuple[str, ...]:
        """Return the options' letters in the order they are shown; empty without options."""
        return tuple(choice.label for choice in self.choices)

    @property
    def options(self) -> dict[str, str]:
        """Return the options' texts by letter, in the order shown; empty without options."""
        return {choice.label: choice.text for choice in self.choices}


class Source(FrozenModel):
    """Where the raw rows come from: `hub`, `file` (a local copy, preferred to `hub`), `rows`."""

    hub: str | None = None
    """Dataset repository on the Hub, `owner/name`."""
    config: str | None = None
    """Configuration of the Hub dataset."""
    splits: tuple[str, ...] = ()
    """Splits that are pooled; empty pools all there are."""
    revision: str | None = None
    """Branch, tag or commit. The commit it resolves to is recorded in the run."""
    file: str | None = None
    """Local file of JSON lines, JSON, CSV or parquet, also `.gz` and `.zst`, or a folder of such
    files, each named after its split; used instead of `hub` if both are given."""
    rows: PythonRef | None = None
    """Function `fn(*, seed, **args) -> iterable of rows` that generates the rows."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of `rows`."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        origins = [name for name in ("hub", "file", "rows") if getattr(self, name)]
        if not origins or (self.rows and len(origins) > 1):
            raise ValueError(f"give hub, file (a local copy) or rows; found {origins or 'none'}")
        return self


class Rows(FrozenModel):
    """How one raw row becomes a question. Values are Jinja expressions over the row's fields."""

    where: str | None = None
    """Keep only rows for which this expression is true."""
    key: str | None = None
    """The row's own id; without it the key is a hash of the question's text and options."""
    group: str | None = None
    """The independent unit for splits and error bars; without it the key."""
    split: str | None = None
    """The row's own split (train, validation, test), for `sample.split: rows` and `official`;
    without it the split of the source that the row comes from."""
    question: str = "question"
    """The question's text."""
    choices: str | None = None
    """Options: a list of texts, or a mapping of two parallel lists `text` and `label`."""
    answer: str | None = None
    """Gold: a label, a position from 0, or an option's text."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Further fields that templates may use; not hidden."""
    hidden: dict[str, str] = Field(default_factory=dict)
    """Fields that only speakers naming them in `sees` (and judges) may use."""
    shuffle: bool = False
    """Shuffle the options by a seed of their own (for sources whose gold always comes first)."""
    maker: PythonRef | None = None
    """Function `fn(rows, *, seed) -> iterable of questions`, run on the raw rows before this
    mapping, for tasks whose options must be generated."""


class Sample(FrozenModel):
    """How many questions are drawn, and how they are split."""

    count: int | Literal["all"] = Field(default=500)
    """Questions drawn with the run's seed; `all`, the default for a file of your own, takes every
    question."""
    split: Literal["fraction", "official", "rows"] = "fraction"
    """`fraction`: split the drawn questions by group; `rows`: each row names its split; `official`:
    the source's own splits, with the shares below saying how many are drawn of each, and no
    question of one asked in another; by fraction if all rows are of one (a copy of one file)."""
    train: float = Field(default=0.8, ge=0, le=1)
    """Share of the drawn questions that goes to train."""
    validation: float = Field(default=0.0, ge=0, le=1)
    """Share that goes to validation; the rest is test."""

    each: dict[Split, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, exclude_if=lambda each: not each
    )
    """Most conversations of a question in a split; a split that is not named has the run's
    samples."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.train + self.validation > 1:
            raise ValueError(
                f"train and validation are shares: found {self.train:g} + {self.validation:g}; "
                "expected at most 1 together"
            )
        return self


class Answer(FrozenModel):
    """What a final answer looks like."""

    kind: Literal["choice", "text", "code", "html", "none"] = "choice"
    """`choice`: the letter of an option; other kinds are graded by their own judge. The default is
    `none` for a task whose rows have no options."""


class Overrides(FrozenModel):
    """Texts of a task that replace a protocol's own."""

    systems: dict[str, Text] = Field(default_factory=dict)
    """System prompt by speaker."""
    steps: dict[str, Text] = Field(default_factory=dict)
    """Text of a step: what is said (scripted) or asked of its speaker (spoken), by step id."""


class Licence(FrozenModel):
    """Licence and origin of the source set; carried into every card."""

    id: Label = "unknown"
    """Licence id as the Hub writes it, e.g. `cc-by-sa-4.0`."""
    note: str | None = None
    """Further facts, e.g. a difference between upstream and the card."""
    source: str | None = None
    """Where the set comes from: address or Hub repository."""
    citation: str | None = None
    """BibTeX of the source set."""


class TaskSpec(FrozenModel):
    """A question set and how it is asked."""

    name: Name
    """Name on the command line."""
    title: Label
    """One line for lists and cards."""
    source: Source
    """Where the rows come from."""
    rows: Rows = Rows()
    """How a row becomes an Example."""
    sample: Sample = Sample()
    """How many questions, and their splits."""
    answer: Answer = Answer()
    """What a final answer looks like."""
    instruction: Text = ""
    """Dataset-specific instruction that follows the question."""
    overrides: dict[str, Overrides] = Field(default_factory=dict)
    """Texts that replace a protocol's own, by protocol name."""
    protocol: Name = "reasoning"
    """Default protocol; `chat` for a task whose rows have no options and that sets nothing."""
    speakers: dict[str, str] = Field(default_factory=dict)
    """Model of a speaker other than the policy, e.g. `teacher: rule:FILE.py:fn`."""
    judge: str | None = None
    """Default judge."""
    licence: Licence = Licence()
    """Licence and origin of the source set."""
    language: str = "en"
    """Language code for the card."""

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, value: Any) -> Any:
        """Fill in the defaults of a user's own task: a file is drawn completely, and questions
        without options are asked as they are."""
        if not isinstance(value, dict):
            return value
        source, rows = (value.get(key) for key in ("source", "rows"))
        usual: dict[str, Any] = {}
        if isinstance(source, dict) and source.get("file") and "hub" not in source:
            usual["sample"] = {"count": "all"}
        if not any(get_field(rows, key) for key in ("choices", "maker")):
            usual |= {"answer": {"kind": "none"}, "protocol": "chat"}
        for key, default in usual.items():
            own = value.get(key)
            if own is None:
                value = {**value, key: default}
            elif isinstance(own, dict) and isinstance(default, dict):
                value = {**value, key: {**default, **own}}
        return value
