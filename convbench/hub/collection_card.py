"""README.md of all sets of an experiment: which conversations they hold, and a query over all."""

# ruff: noqa: S608 - the SQL here is an example for readers

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from convbench import __version__
from convbench.catalog.citations import collect_citations
from convbench.hub.card import markdown_grid, mean_text
from convbench.hub.dataset import DatasetFolder
from convbench.hub.repo import UploadResult
from convbench.schema import RunManifest
from convbench.store import Run
from convbench.util.markdown import fence_code, inline_code, inline_text, markdown_citations

SPLIT = "test"
"""Split whose mean reward stands in the card."""
HEADS = (
    *("set", "task", "mode", "protocol", "policy turns", "seed", "questions", "samples each"),
    *("conversations", "judge", f"reward ({SPLIT})", "licence"),
)


SAMPLES = """## Which conversations

A set holds every conversation of its run: "samples each" about each question. The column `sample`
numbers the conversations about a question from 0, and `temperature` is what each was sampled at.
One conversation a question is `WHERE sample = 0`: as many conversations as questions, all at the
first temperature. `split` says which questions train and which test."""


@dataclass
class ExperimentSet:
    """One logged run of an experiment, and the repository of its set."""

    run: Run
    repo: str
    dataset: DatasetFolder | None = None
    """None before its folder is written."""
    uploaded: UploadResult | None = None
    """None before it is uploaded."""

    @property
    def written(self) -> DatasetFolder:
        """Return its folder, which is written."""
        assert self.dataset is not None
        return self.dataset


def collection_card(title: str, sets: Sequence[ExperimentSet], left_out: Mapping[str, str]) -> str:
    """Return the README of an experiment's sets: front matter and body. Their folders are written;
    equal sets give equal text. `left_out` has the reason by run."""
    tasks = [each.run.manifest.task for each in sets]
    front = {
        "license": sorted({task.licence.id for task in tasks}),
        "language": sorted({task.language for task in tasks}),
        "pretty_name": title,
        "tags": ["convbench", "conversations", "multi-turn", "rewards", "offline-rl"],
        "viewer": False,
    }
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=100)}---",
        f"""# {inline_text(title)}

{len(sets)} sets of logged conversations with the rewards that judges gave them, one for each run of
an experiment. Made with convbench {__version__}.""",
        _table_section(sets),
        SAMPLES,
        _query_section([each.repo for each in sets]),
    ]
    cited = collect_citations(
        (each.run.manifest for each in sets),
        (spec for each in sets for spec in each.run.judge_specs().values()),
    )
    if left_out:
        lines = "\n".join(f"- {inline_text(name)}: {left_out[name]}" for name in left_out)
        parts.append(f"## Runs that are not published\n\n{lines}")
    return "\n\n".join([*parts, markdown_citations(cited.sources, cited.bibtex)]) + "\n"


def _table_section(sets: Sequence[ExperimentSet]) -> str:
    return f"""## Sets

{markdown_grid(HEADS, map(_table_cells, sets))}

The reward is a mean ± standard error, clustered by group (conversations of one question are not
independent). The card of a set has its prompts, models, terms, cost, limits and citation."""


def _table_cells(each: ExperimentSet) -> list[object]:
    """Return what the table says of a set, in the order of HEADS."""
    manifest, rows, judge = each.run.manifest, each.written.rows, each.written.judge or ""
    rewards = {(row.judge, row.split): row.reward for row in each.written.figures.rewards}
    return [
        f"[{each.repo}](https://huggingface.co/datasets/{each.repo})",
        inline_text(manifest.task.name),
        manifest.mode,
        inline_text(manifest.protocol.name),
        *(manifest.turns, manifest.seed, f"{sum(rows['examples'].values()):,}", manifest.samples),
        f"{sum(rows['conversations'].values()):,}",
        inline_code(judge),
        mean_text(rewards.get((judge, SPLIT))),
        inline_code(manifest.task.licence.id),
    ]


def _query_section(repos: Sequence[str]) -> str:
    return f"""## Load

{fence_code(collection_query(repos), "sql")}

A private set needs your token: `CREATE SECRET (TYPE huggingface, TOKEN 'hf_…');`.

```bash
convbench pull {repos[0]}      # then: convbench query, judge, train, report
```"""


def collection_query(repos: Sequence[str]) -> str:
    """Return a DuckDB query over the conversations of all sets: number, mean reward and accuracy of
    each task, protocol, mode and split."""
    files = ",\n".join(f"  'hf://datasets/{repo}/conversations/*.parquet'" for repo in repos)
    return f"""-- DuckDB, all sets
SELECT task, protocol, mode, split, count(*) AS conversations, avg(reward) AS reward,
  avg(correct::INT) AS accuracy
FROM read_parquet([
{files}
], union_by_name = true)
WHERE failure IS NULL  -- AND sample = 0: one conversation a question
GROUP BY ALL ORDER BY ALL;"""


def set_note(manifest: RunManifest) -> str:
    """Return what stands beside a set in the Hub's collection."""
    return (
        f"{manifest.task.name}, {manifest.protocol.name}, {manifest.mode}, {manifest.turns} policy "
        f"turns, {manifest.samples} conversations a question, seed {manifest.seed}"
    )
