"""What is asked of the runs: a name and the words that are typed, `convbench` left out."""

from __future__ import annotations

import shlex
from pathlib import Path

from convbench import catalog
from convbench.schema import JudgeSpec

FORMATS = ("table", "markdown", "latex", "html", "json", "csv")
TABLES = ("conversations", "turns", "verdicts", "examples")
TARGETS = ("trl", "openai", "sharegpt", "ms-swift")
KINDS = ("tasks", "protocols", "judges", "recipes", "models", "experiments", "launch", "runs")
NEED_ACCURACY = ("seal-few-shot",)
"""Recipes that need a score the imported rewards do not have."""

ASKED = {
    "report-judge": "report log --judge answer",
    "report-naive": "report log --se naive",
    "report-train": "report log --split train",
    "report-against": "report log --against swift",
    "report-verdict": "report log --verdict --judge rules",
    "report-kept": "report kept/run",
    "report-sharded": "report kept/sharded",
    "report-plots": "report kept/run --plots",
    "report-gold": "report log --gold --judge rules",
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
    "query-wrong": "query 'select nosuch from conversations' --run log",
    "show-conversation": "show fence-log-000123 --run log",
    "show-failed": "show fence-log-000158-failed --run log",
    "show-tools": "show fence-tools-000003 --run tools",
    "show-unknown": "show fence-log-nosuch --run log",
    "show-kept": "show 34b92093 --run kept/run",
    "publish": "publish me/log --run log --judge rules --dry-run",
    "publish-unnamed": "publish me/log --run log --dry-run",
    "publish-tools": "publish me/tools --run tools --dry-run",
    "publish-kept": "publish me/kept --run kept/run --dry-run",
    "publish-sharded": "publish me/sharded --run kept/sharded --dry-run",
    "publish-checkpoint": "publish me/swift --checkpoint log/checkpoints/swift --judge rules "
    "--dry-run",
    "estimate": "estimate local:pocket --run weighed --judge imported --split all",
    "estimate-unnamed": "estimate local:pocket --run log",
    "estimate-kept": "estimate local:pocket --run kept/run",
    "patterns": "patterns log log/evals/swift",
    "verify": "verify log",
    "verify-kept": "verify kept/run",
    "verify-sharded": "verify kept/sharded",
    "gold-draw": "gold log --draw 50 --judge rules --seed 3",
    "gold-queue": "gold log",
    "judge-nothing-left": "judge --run log --judge rules",
    "judge-some-left": "judge --run part --judge rules",
    "judge-preview": "judge --run log --judge rubric@scripted:policy --dry-run",
    "judge-pairwise": "judge --pairwise log log/evals/swift --judge pairwise-rules --dry-run",
    "credit": "credit branches --run branched --judge answer",
    "credit-refused": "credit log/checkpoints/swift --run log",
    "train-kept": "train swift --run kept/run --model local:pocket --dry-run",
    "status": "status kept/sharded",
    "merge": "merge kept/sharded",
    "resume": "build --run kept/run",
    "view-static": "view kept/run --static page",
    "tag": "tag kept/run --tag first --note 'as it was'",
    "experiment": "experiment pocket --dry-run",
}


def commands() -> dict[str, list[list[str]]]:
    """Return, by name, the words of a command, and the same for a document (`--json`)."""
    asked = {name: shlex.split(words) for name, words in _shell().items()}
    for words in asked.values():
        if words[0] == "query":  # of the 10,000, on a busy machine
            words += ["--timeout", "600"]
    return {name: [words, [*words, "--json"]] for name, words in asked.items()}


def _shell() -> dict[str, str]:
    asked = dict(ASKED)
    for kind in KINDS:
        asked[f"list-{kind}"] = f"list {kind}"
    for form in FORMATS:
        asked[f"report-{form}"] = f"report log --format {form}"
    for table in TABLES:
        asked[f"columns-{table}"] = f"query 'describe {table}' --run log"
    for target in TARGETS:
        asked[f"export-{target}"] = f"export --run kept/run --to {target}"
        asked[f"export-{target}-log"] = f"export --run log --to {target}"
        asked[f"export-{target}-tools"] = f"export --run tools --to {target}"
    for recipe in ("swift", "refit", "dpo", "kto"):
        asked[f"export-trl-{recipe}"] = (
            f"export --run log --to trl --recipe {recipe} --judge imported"
        )
    for recipe in names("recipes"):
        judge = "rules" if recipe in NEED_ACCURACY else "imported"
        asked[f"train-{recipe}"] = (
            f"train {recipe} --run log --model local:pocket --judge {judge} --dry-run"
        )
    return asked


def specs() -> dict[str, list[list[str]]]:
    """Return, by kind, the words that show every spec of it."""
    return {
        f"specs-{kind}": [["show", f"{kind.removesuffix('s')}/{name}"] for name in names(kind)]
        for kind in ("judges", "recipes", "experiments")
    } | {
        f"specs-{kind}": [["show", f"{kind}/{name}"] for name in names(kind)]
        for kind in ("protocols", "launch")
    }


def prompts(task: str, protocol: str, excerpts: Path) -> list[list[str]]:
    """Return the words that show what a task sends under a protocol, in either mode. Pairs that do
    not go together are refused, which is kept too."""
    words = ["show", task, "--protocol", protocol, *rows_of(task, excerpts)]
    return [[*words, "--mode", mode] for mode in ("thinking", "standard")]


EXCERPTS = {
    "arc": "allenai__ai2_arc/ARC-Challenge/validation",
    "arc-easy": "allenai__ai2_arc/ARC-Easy/validation",
    "colbench-backend": "facebook__collaborative_agent_bench/backend_tasks/test",
    "colbench-frontend": "facebook__collaborative_agent_bench/frontend_tasks/test",
    "cosql": "cosql/cosql/validation",
    "mathdial": "eth-nlped__mathdial/default/test",
    "mmlu": "cais__mmlu/all/test",
    "openbookqa": "allenai__openbookqa/main/validation",
    "sciq": "allenai__sciq/default/validation",
    "sciqa": "derek-thomas__ScienceQA/default/validation",
    "squad": "rajpurkar__squad/plain_text/validation",
    "websight": "HuggingFaceM4__WebSight/v0.2/train",
}
"""Rows that stand for a set on the Hub, by task."""
GRIDS = Path(__file__).parents[1] / "excerpts" / "arc_agi"
"""Files that stand for those of ARC-AGI."""


def built(task: str, protocol: str, excerpts: Path, run: str) -> list[str]:
    """Return the words that build a run of one question of a task with scripted speakers."""
    shape = ["--protocol", protocol, "--tasks", "1", "--samples", "1", "--split", "all", "--quiet"]
    rows = rows_of(task, excerpts)
    return ["build", task, "--model", "scripted:policy", *rows, *shape, "--run", run]


def judged(run: str, other: str) -> list[list[str]]:
    """Return the words that show what each judge that asks a model is sent of such a run; those
    that compare see the other run too."""
    asked = []
    for name in names("judges"):
        judge = catalog.load_spec(JudgeSpec, "judges", name)
        if judge.kind in ("rubric", "review"):
            runs = ["--pairwise", run, other] if judge.per == "pair" else ["--run", run]
            asked.append(["judge", *runs, "--judge", f"{name}@scripted:policy", "--dry-run"])
    return asked


def names(kind: str) -> list[str]:
    """Return the names of the specs of a kind, in order."""
    return sorted(catalog.spec_files(kind))


def rows_of(task: str, excerpts: Path) -> list[str]:
    """Return the words that take a task's rows from an excerpt, where there is one."""
    if task == "arc-agi":
        return ["--set", f"task.source.args.folder={GRIDS}", "--set", "task.sample.split=fraction"]
    if task not in EXCERPTS:
        return []
    file = (excerpts / EXCERPTS[task]).with_suffix(".parquet")
    sets = (
        "source.hub=null",
        f"source.file={file}",
        "source.config=null",
        "source.splits=[]",
        "sample.count=all",
    )
    return [word for one in sets for word in ("--set", f"task.{one}")]
