"""What is asked of the runs: a name and the words that are typed, `convbench` left out."""

from __future__ import annotations

import shlex
from pathlib import Path

from convbench import catalog

FORMATS = ("table", "markdown", "latex", "html", "json", "csv")
TABLES = ("conversations", "turns", "verdicts", "examples")
TARGETS = ("trl", "openai", "sharegpt", "ms-swift")

ASKED = {
    "list-runs": "list runs",
    "list-tasks": "list tasks",
    "list-judges": "list judges",
    "list-recipes": "list recipes",
    "list-models": "list models",
    "report-judge": "report log --judge answer",
    "report-naive": "report log --se naive",
    "report-train": "report log --split train",
    "report-against": "report log --against swift",
    "report-verdict": "report log --verdict --judge rules",
    "report-kept": "report kept/run",
    "report-sharded": "report kept/sharded",
    "query-accuracy": "query 'select policy, temperature, avg(correct::int), count(*) from "
    "conversations group by all order by all' --run log",
    "query-judges": "query 'select judge, count(*), sum(reward), count(failure) from verdicts "
    "group by all order by all' --run log",
    "query-csv": "query 'select * exclude (run) from conversations order by conversation_id limit "
    "40' --run log --format csv",
    "query-kept": "query 'select conversation_id, answer, correct, words from conversations order "
    "by all' --run kept/run",
    "query-sharded": "query 'select conversation_id, answer, correct, words from conversations "
    "order by all' --run kept/sharded",
    "show-conversation": "show fence-log-000123 --run log",
    "show-failed": "show fence-log-000158-failed --run log",
    "show-tools": "show fence-tools-000003 --run tools",
    "show-unknown": "show fence-log-nosuch --run log",
    "show-kept": "show kept/run",
    "publish": "publish me/log --run log --dry-run",
    "publish-kept": "publish me/kept --run kept/run --dry-run",
    "publish-sharded": "publish me/sharded --run kept/sharded --dry-run",
    "estimate": "estimate local:pocket --run log",
    "estimate-kept": "estimate local:pocket --run kept/run",
    "patterns": "patterns log log/evals/swift",
    "verify": "verify log",
    "verify-kept": "verify kept/run",
    "verify-sharded": "verify kept/sharded",
    "gold-draw": "gold log --draw 50 --judge rules",
    "judge-nothing-left": "judge --run log --judge rules",
    "judge-some-left": "judge --run part --judge rules",
    "judge-preview": "judge --run log --judge rubric@scripted:policy --dry-run",
    "judge-pairwise": "judge --pairwise log log/evals/swift --judge pairwise-rules --dry-run",
    "credit-refused": "credit log/checkpoints/swift --run log",
    "status": "status kept/sharded",
    "merge": "merge kept/sharded",
    "resume": "build --run kept/run",
    "view-static": "view kept/run --static page",
    "tag": "tag kept/run first --note 'as it was'",
    "experiment": "experiment pocket --dry-run",
}


def _shell() -> dict[str, str]:
    asked = dict(ASKED)
    for kind in FORMATS:
        asked[f"report-{kind}"] = f"report log --format {kind}"
    for table in TABLES:
        asked[f"columns-{table}"] = f"query 'describe {table}' --run log"
    for target in TARGETS:
        asked[f"export-{target}"] = f"export --run log --to {target} --judge imported"
        asked[f"export-{target}-tools"] = f"export --run tools --to {target} --judge imported"
    for recipe in ("swift", "refit", "dpo", "kto"):
        asked[f"export-trl-{recipe}"] = (
            f"export --run log --to trl --recipe {recipe} --judge imported"
        )
    for recipe in _names("recipes"):
        asked[f"train-{recipe}"] = (
            f"train {recipe} --run log --model local:pocket --judge imported --dry-run"
        )
    return asked


NO_JSON = frozenset({"view-static", "experiment"})
"""Commands that are asked without `--json`."""


def commands() -> dict[str, list[list[str]]]:
    """Return, by name, the words of a command, and the same for a document (`--json`)."""
    asked = {name: [shlex.split(words)] for name, words in _shell().items()}
    return {
        name: words if name in NO_JSON else [*words, [*words[0], "--json"]]
        for name, words in asked.items()
    }


def specs() -> dict[str, list[list[str]]]:
    """Return, by kind, the words that show every spec of it."""
    return {
        f"specs-{kind}": [["show", f"{kind.removesuffix('s')}/{name}"] for name in _names(kind)]
        for kind in ("judges", "recipes", "experiments")
    }


def prompts(task: str, excerpts: Path) -> list[list[str]]:
    """Return the words that show what a task sends under every protocol. Pairs that do not go
    together are refused, which is kept too."""
    rows = _rows(task, excerpts)
    return [["show", task, "--protocol", one, *rows] for one in _names("protocols")]


EXCERPTS = {
    "arc": "allenai__ai2_arc/ARC-Challenge/validation",
    "arc-easy": "allenai__ai2_arc/ARC-Easy/validation",
    "colbench-backend": "facebook__collaborative_agent_bench/backend_tasks/test",
    "colbench-frontend": "facebook__collaborative_agent_bench/frontend_tasks/test",
    "cosql": "cosql/cosql/validation",
    "mathdial": "eth-nlped__mathdial/default/test",
    "mmlu": "cais__mmlu/all/test",
    "openbookqa": "allenai__openbookqa/main/validation",
    "sciqa": "derek-thomas__ScienceQA/default/validation",
    "squad": "rajpurkar__squad/plain_text/validation",
}
"""Rows that stand for a set on the Hub, by task."""


def built(task: str, excerpts: Path) -> list[str]:
    """Return the words that build a run of one question of a task with scripted speakers."""
    rows = _rows(task, excerpts)
    shape = ["--tasks", "1", "--samples", "1", "--split", "all", "--quiet"]
    return ["build", task, "--model", "scripted:policy", *rows, *shape, "--run", f"talks/{task}"]


def judged(task: str) -> list[list[str]]:
    """Return the words that show what each judge is sent of such a run."""
    run = ["judge", "--run", f"talks/{task}", "--dry-run"]
    return [[*run, "--judge", f"{one}@scripted:policy"] for one in _names("judges")]


def _names(kind: str) -> list[str]:
    return sorted(catalog.names(kind))


def _rows(task: str, excerpts: Path) -> list[str]:
    if task not in EXCERPTS:
        return []
    file = (excerpts / EXCERPTS[task]).with_suffix(".parquet")
    sets = ("source.hub=null", f"source.file={file}", "source.config=null", "source.splits=[]",
            "sample.count=all")  # fmt: skip
    return [word for one in sets for word in ("--set", f"task.{one}")]
