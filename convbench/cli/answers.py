"""What each command has to tell with `--json`: one class a command, its schema in the reference.

Paths are as they would be typed here; dollars are of what has a price; nothing here is cut to a
terminal's width.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from convbench.cli.envelope import Answer


class Tokens(Answer):
    """What a command would take at most, told by a dry run."""

    conversations: int
    """Conversations, or verdicts where a judge is asked."""
    calls: int
    """Calls of models."""
    prompt_tokens: int
    """Tokens sent, about."""
    reply_tokens: int
    """Tokens written, at most."""
    usd: float | None
    """Dollars at most; null where a price is unknown."""


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


class ForeseenAnswer(Answer):
    """What work by workers would take, told by a dry run."""

    workers: int
    """Workers."""
    shards: int
    """Shards."""
    hours: float
    """Hours until all is done."""
    hours_with_losses: float
    """The same where each worker is lost once a day."""
    folder_bytes: float
    """Bytes of the run's folder, about."""
    calls_a_minute: float
    """Calls a minute that the provider must bear."""
    tokens_a_minute: float
    """Tokens a minute likewise."""
    rates_of: str
    """Where a worker's rate is from."""
    written: str | None
    """The script, manifest or command that starts them."""


class VerifiedAnswer(Answer):
    """One thing that `verify` looked at."""

    what: str
    """run, report, checkpoint, set or model, and where it lies."""
    found: str
    """What was compared."""
    problems: list[str]
    """What is not as it was written, or not as the records give it."""


class VerifyAnswer(Answer):
    """`verify`: whether everything is as it was written and every figure can be computed again."""

    target: str
    """What was verified."""
    ok: bool
    """Whether nothing is wrong; else the exit code is 1."""
    checked: list[VerifiedAnswer]
    """All that was looked at."""


class BuildAnswer(Answer):
    """`build`: a run and what it holds now."""

    run: str | None
    """Its folder; null on a dry run."""
    task: str
    """The task."""
    protocol: str
    """The protocol."""
    mode: str
    """thinking or standard."""
    policy: str
    """Reference of the policy."""
    questions: dict[str, int]
    """Questions by split."""
    conversations: int = 0
    """Conversations that the run has now."""
    before: int = 0
    """Those of them that it had before."""
    failed: int = 0
    """Conversations that ended in a recorded failure."""
    failures: dict[str, int] = Field(default_factory=dict)
    """How often each message stands behind a failure."""
    cut: int = 0
    """Policy turns that reached max_tokens."""
    turns: int = 0
    """Policy turns."""
    flags: dict[str, int] = Field(default_factory=dict)
    """Findings by flag."""
    recorded: int | None = None
    """Replies of the policy whose log-probabilities were recorded; null where they were not asked
    for. Fewer than `replies`: exit code 1."""
    replies: int | None = None
    """Replies of the policy, those that called tools too; null likewise."""
    estimate: Tokens | None = None
    """On a dry run: what it would take."""
    foreseen: ForeseenAnswer | None = None
    """On a dry run with shards or workers: what these would take."""


class JudgeScores(Answer):
    """One judge of a run."""

    judge: str
    """Its name."""
    scored: int
    """Conversations that it has scored."""
    failed: int
    """Conversations without a score."""
    means: dict[str, float]
    """Mean score by metric."""
    reward: float | None
    """Mean reward."""
    error: float | None
    """Its standard error, clustered by group."""


class Duels(Answer):
    """Two policies against each other, by one judge."""

    judge: str
    """Its name."""
    first: str
    """As it was typed."""
    second: str
    """As it was typed."""
    win_rate: float | None
    """Of the first, a tie one half; null without a duel judged in both orders."""
    low: float | None
    """Lower end of its 95% interval."""
    high: float | None
    """Upper end."""
    wins: int
    """Duels that the first won."""
    ties: int
    """Duels that nobody won."""
    losses: int
    """Duels that the second won."""
    flips: float | None
    """Share of duels whose winner the order chose."""
    decided: bool | None
    """Whether it is sure who wins; null without --until-decided."""
    spared: int
    """Orders that were not asked, for it was decided."""


class JudgedRun(Answer):
    """One run that was judged."""

    run: str
    """Its folder."""
    judges: list[JudgeScores] = Field(default_factory=list)
    """All judges of the run."""
    unjudged: int = 0
    """Conversations that failed to build: there is nothing to judge."""
    failures: dict[str, dict[str, int]] = Field(default_factory=dict)
    """By judge, how often each message stands behind a missing score."""
    estimate: dict[str, Tokens] = Field(default_factory=dict)
    """On a dry run: by judge, what it would take."""
    foreseen: ForeseenAnswer | None = None
    """On a dry run with --shards or --on: what the models' verdicts take by workers."""
    duels: list[Duels] = Field(default_factory=list)
    """With --pairwise: every two policies."""


class JudgeAnswer(Answer):
    """`judge`: the runs that were judged."""

    runs: list[JudgedRun]
    """One a `--run`, in the order that was typed."""


class EstimatedValue(Answer):
    """A mean reward with its 95% interval."""

    estimator: str
    """`direct`, `snips`, `doubly robust`; `gain` is SNIPS less the log's own policy."""
    mean: float
    low: float | None
    """Null where there is no standard error."""
    high: float | None
    """Its upper end."""


class EstimateAnswer(Answer):
    """`estimate`: a policy's value from another one's log."""

    run: str
    """The log."""
    policy: str
    """Whose value it is."""
    judge: str
    """Whose verdicts are the reward."""
    conversations: int
    """Conversations that were weighed."""
    left_out: dict[str, int]
    """Conversations without a say, by reason."""
    known: bool
    """Whether the log says anything of the policy; else the exit code is 1."""
    why: list[str]
    """Why it does not."""
    effective: float | None
    """Effective sample size in conversations; null where no weight could be had."""
    effective_questions: float | None
    """The same in questions."""
    largest: float | None
    """Share of the largest weight."""
    shape: float | None
    """Pareto shape of the largest weights."""
    logged: EstimatedValue | None
    """The mean reward of the log's own policy."""
    values: list[EstimatedValue]
    """The estimates; of a policy that cannot be known the direct one at most."""


class EvaluatedRun(Answer):
    """A policy on one parent's test questions."""

    run: str
    """The child run."""
    parent: str
    """Whose questions, teacher and judges it takes."""
    policy: str
    """Reference of the policy."""
    conversations: int
    """Conversations that the run has now."""
    failed: int
    """Conversations that ended in a recorded failure."""
    judged: JudgedRun | None
    """Its scores; null where the parent has no verdicts."""


class EvalAnswer(EvaluatedRun):
    """`eval`: a policy on the parent's test questions."""

    others: list[EvaluatedRun] = Field(default_factory=list)
    """The same policy on each further run that was named."""


class RoundAnswer(Answer):
    """One round."""

    number: int
    """From 1."""
    checkpoint: str
    """What was trained."""
    evaluated: str | None
    """The run that evaluated it."""


class TrainAnswer(Answer):
    """`train`: a checkpoint, or one a round."""

    checkpoint: str | None
    """Its folder; null on a dry run, and where there are rounds."""
    recipe: str
    """The recipe's name."""
    launch: str | None
    """How it was launched."""
    processes: int | None
    """Processes that trained."""
    preview: list[str] = Field(default_factory=list)
    """What a dry run shows."""
    told: dict[str, str] = Field(default_factory=dict)
    """What the learner has to tell of the result."""
    rounds: list[RoundAnswer] = Field(default_factory=list)
    """Rounds, in order."""
    judge: str | None = None
    """The judge of the rounds."""


class CellAnswer(Answer):
    """One cell of a table."""

    text: str
    """As printed."""
    error: str | None = None
    """Its standard error, as printed."""
    rank: int = 0
    """1 for the best of its column, 2 for the second best."""


class TableAnswer(Answer):
    """One table."""

    label: str
    """Its short name."""
    caption: str
    """Its caption."""
    columns: list[str]
    """Heads."""
    rows: list[list[CellAnswer]]
    """Cells by row, in the order of the heads."""
    notes: list[str]
    """Footnotes."""


class PartAnswer(Answer):
    """One section of a report."""

    title: str
    """Its title."""
    facts: list[str]
    """What is compared."""
    tables: list[TableAnswer]
    """Its tables."""
    notes: list[str]
    """What is to be known of them."""


class ReportAnswer(Answer):
    """`report`, `patterns`, `demo`: tables, and the files that were written."""

    title: str
    """The report's title."""
    runs: list[str]
    """Runs it is about."""
    parts: list[PartAnswer]
    """Its sections."""
    files: list[str] = Field(default_factory=list)
    """Files that were written."""


class ExperimentStep(Answer):
    """One step of an experiment."""

    address: str
    """Its cell and what is done."""
    state: Literal["planned", "done", "failed", "waits"]
    """How it ended."""
    said: list[str] = Field(default_factory=list)
    """What was lost, or why it failed."""


class ExperimentAnswer(Answer):
    """`experiment`: its steps, and where its report lies."""

    experiment: str
    """Its name."""
    root: str
    """Folder of its runs."""
    steps: list[ExperimentStep]
    """What was done, or is left to do on a dry run."""
    left_out: list[str]
    """Steps that were not asked for and are not done."""
    missing: list[str]
    """What stands in the way, with the fix."""
    estimate: dict[str, float | int]
    """On a dry run: conversations, calls, verdicts, tokens, usd, steps, disk in bytes, hours."""
    files: list[str]
    """Files of the report."""


class QueryAnswer(Answer):
    """`query`: the rows."""

    columns: list[str]
    """Names of the columns."""
    rows: list[dict[str, Any]]
    """Rows, by column."""


class ExportAnswer(Answer):
    """`export`: files in another trainer's format."""

    files: dict[str, str]
    """File by split."""
    rows: dict[str, int]
    """Rows by split."""
    failed: int
    """Failed conversations, left out."""
    flagged: int
    """Flagged conversations, left out."""
    left_out: int
    """Conversations of weight 0 or less, or without a verdict, left out."""


class PublishAnswer(Answer):
    """`publish`: a set or a model on the Hub, or the folder that would be sent."""

    repo: str
    """USER/NAME."""
    url: str | None
    """Its address; null on a dry run."""
    commit: str | None
    """The commit; null on a dry run."""
    changed: bool
    """Whether anything was new there."""
    folder: str | None
    """What would be sent, on a dry run."""
    rows: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Rows by config and split, of a set."""
    files: dict[str, int] = Field(default_factory=dict)
    """Sizes in bytes by path, of a model."""


class RunRow(Answer):
    """One run."""

    run: str
    """Its folder."""
    kind: str
    """How it came to be."""
    task: str
    """The task."""
    mode: str
    """thinking or standard."""
    policy: str
    """Reference of the policy."""
    conversations: int
    """Conversations it holds."""
    failed: int
    """Conversations that ended in a recorded failure."""
    judges: list[str]
    """Who has judged it."""
    evals: int
    """Child runs."""
    usd: float | None
    """What its calls cost, judges' too; null where a price is unknown."""
    created: str
    """UTC time."""
    latest: bool
    """Whether it is what `runs/latest` points to."""
    tags: list[str]
    """Its tags."""
    note: str | None
    """Its note."""


class SpecRow(Answer):
    """One spec or model."""

    name: str
    """Its name."""
    about: str
    """Its title."""
    file: str
    """Where it lies; empty for a model."""


class ListAnswer(Answer):
    """`list`: what there is."""

    specs: dict[str, list[SpecRow]]
    """Specs and models by kind."""
    runs: list[RunRow]
    """Runs, the newest first."""


class ShowAnswer(Answer):
    """`show`: a spec with its prompts, or a conversation with its verdicts."""

    kind: str
    """What it is: task, protocol, judge, recipe, experiment, launch, model or conversation."""
    name: str
    """Its name, or its id."""
    value: dict[str, Any]
    """The spec as resolved, or the record."""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    """Prompts on a sample, in order."""
    verdicts: list[dict[str, Any]] = Field(default_factory=list)
    """Verdicts on a conversation."""


class FindingAnswer(Answer):
    """One line of `doctor`."""

    what: str
    """What was looked at."""
    state: str
    """ok, missing or note."""
    found: str
    """What was found."""
    fix: str
    """What to do."""
    needed: bool
    """Whether nothing works without it."""


class DoctorAnswer(Answer):
    """`doctor`: what is installed, reachable and missing."""

    findings: list[FindingAnswer]
    """All that was looked at."""


class ModelsAnswer(Answer):
    """`models`: a model that was fetched."""

    model: str
    """Its reference."""
    source: str
    """Where it is from."""
    folder: str
    """Where it lies."""


class BatchAnswer(Answer):
    """One batch at a provider."""

    batch: str | None
    """The provider's name of it."""
    wave: int
    """Which turn it is of."""
    model: str
    """Whose calls."""
    state: str
    """What the provider says, or how it ended."""
    calls: int
    """Calls in it."""
    done: int
    """Those answered."""
    failed: int
    """Those that failed or are missing."""
    problem: str | None
    """Why the provider was not heard."""


class BatchesAnswer(Answer):
    """`status`, `cancel`: a run's batches."""

    run: str
    """Its folder."""
    batches: list[BatchAnswer]
    """In the order they were sent."""


class ViewAnswer(Answer):
    """`view`: pages that were written, or the address where they are served."""

    address: str | None
    """Where the pages are served."""
    folder: str | None
    """Where they were written."""
    conversations: int | None
    """Conversations in them; None where runs are chosen in the page."""


class GoldAnswer(Answer):
    """`gold`: what was drawn, written or read, and how far the labelling queue is."""

    run: str
    """The run whose folder holds the labels."""
    drawn: dict[str, int] | None = None
    """Conversations of this draw, by policy."""
    by: str | None = None
    """How they were drawn."""
    file: str | None = None
    """What was written or read."""
    labels: int | None = None
    """Conversations written, or labels read."""
    queue: int
    """Conversations that were drawn in all."""
    done: int
    """Those of them with labels enough."""
    skipped: int
    """Those that all who saw them skipped."""
    raters: dict[str, int] = Field(default_factory=dict)
    """Scores by person."""
    agreement: dict[str, float | None] = Field(default_factory=dict)
    """Krippendorff's alpha between people, by judge that was drawn for."""


class MadeAnswer(Answer):
    """`init`: a file that was made."""

    kind: str
    """task, protocol, judge or recipe."""
    name: str
    """Its name."""
    file: str
    """Where it lies."""


class CreditAnswer(Answer):
    """`credit`: what policy turns were worth."""

    run: str
    """The run that keeps it."""
    source: str
    """Who said it: `critic:NAME`, `critic-raw:NAME`, `branches:JUDGE`."""
    turns: int
    """Policy turns with credit."""
    conversations: int
    """Conversations they belong to."""
    least: float
    """Least advantage."""
    mean: float
    """Mean advantage."""
    most: float
    """Largest advantage."""
    left_out: dict[str, int]
    """Conversations, or branches, without credit, by reason."""


class WorkerAnswer(Answer):
    """One worker, as it says itself."""

    name: str
    """Its name."""
    host: str
    """Its machine."""
    doing: str
    """What it does."""
    shard: int | None
    """The shard it holds."""
    done: int
    """Conversations and verdicts that ended well."""
    failed: int
    """Those that failed."""
    calls: int
    """Calls answered."""
    rate: float
    """Conversations and verdicts a second."""
    usd: float
    """Dollars."""


class WorkAnswer(Answer):
    """`work`: how far the shards of a run are."""

    run: str
    """Its folder."""
    shards: int
    """Shards in all."""
    done: int
    """Those with nothing left to do."""
    waiting: int
    """Those that nobody holds."""
    held: list[int]
    """Those in work."""
    stopped: dict[int, str]
    """Those given back undone, with the reason."""
    given_up: list[int]
    """Those that lost too many workers."""
    usd: float
    """Dollars of what was given back."""
    cap_usd: float | None
    """Most dollars; null without a limit."""
    workers: list[WorkerAnswer]
    """All workers there were."""


class MergeAnswer(Answer):
    """`merge`: shards that were joined."""

    run: str
    """The run's folder."""
    shards: int
    """Shards there were."""
    records: dict[str, int]
    """Records by file."""
