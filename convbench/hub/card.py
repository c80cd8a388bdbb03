"""README.md of a published dataset: front matter for the Hub, what a reader needs, and the run's
prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from convbench.catalog.citations import collect_citations
from convbench.hub.figures import CardFigures
from convbench.hub.tables import CONFIGS
from convbench.schema import JudgeSpec, ModelConfig, RunManifest, canonical_json, pick_template
from convbench.schema.task import SPLITS
from convbench.stats.estimates import Estimate
from convbench.util.markdown import fence_code, inline_code, inline_text, markdown_citations
from convbench.util.printable import make_printable
from convbench.util.redact import redact_text


def prompts_section(manifest: RunManifest, judges: Mapping[str, JudgeSpec]) -> str:
    """Return the Markdown section with every prompt template of speakers, steps and judges, each as
    a folded block.

    "" if there are none, as for imported conversations that no judge scored.
    """
    blocks = [*_speaker_blocks(manifest), *_step_blocks(manifest), *_judge_blocks(judges)]
    if not blocks:
        return ""
    return "## Prompts\n\nTemplates as given to the models (`{{ … }}` is filled in).\n\n" + (
        "\n\n".join(blocks)
    )


def _speaker_blocks(manifest: RunManifest) -> Iterator[str]:
    override = manifest.task.overrides.get(manifest.protocol.name)
    for name, speaker in manifest.protocol.speakers.items():
        own = override.systems.get(name) if override else None
        text = pick_template(speaker.system if own is None else own, manifest.mode)
        if text:
            yield _details_block(f"System prompt of {name}", text)


def _step_blocks(manifest: RunManifest) -> Iterator[str]:
    override = manifest.task.overrides.get(manifest.protocol.name)
    for step in manifest.protocol.all_steps():
        own = override.steps.get(step.id) if override else None
        template = step.say if step.say is not None else step.ask
        text = pick_template(template if own is None else own, manifest.mode)
        if text:
            verb = "says" if step.say is not None else "is asked"
            yield _details_block(f"Step {step.id}: {step.speaker} {verb}", text)
    instruction = pick_template(manifest.task.instruction, manifest.mode)
    if instruction:
        yield _details_block("Instruction of the task", instruction)


def _judge_blocks(judges: Mapping[str, JudgeSpec]) -> Iterator[str]:
    for spec in judges.values():
        if spec.system:
            yield _details_block(f"System prompt of judge {spec.name}", spec.system)
        if spec.prompt:
            yield _details_block(f"Prompt of judge {spec.name}", spec.prompt)
        if spec.metrics:
            yield _details_block(
                f"Criteria of judge {spec.name}", "\n".join(_criterion_lines(spec))
            )


def _criterion_lines(spec: JudgeSpec) -> Iterator[str]:
    """Yield a line for each metric of a judge, and one for the reward."""
    for metric in spec.metrics:
        low, high = spec.score_limits(metric.name)
        weight = f", weight {metric.weight:g}" if metric.weight is not None else ""
        about = f": {metric.about}" if metric.about else ""
        yield f"{metric.label} ({metric.name}, {low:g} to {high:g}{weight}){about}"
    if spec.has_weights:
        yield f"Overall (overall, {spec.lowest:g} to {spec.highest:g}): the weighted mean"
    yield f"reward = {spec.reward.metric} / {spec.reward.scale:g}"


def _details_block(title: str, text: str) -> str:
    summary = escape(make_printable(title).replace("\n", " "))
    block = fence_code(make_printable(text).strip(), "text")
    return f"<details><summary>{summary}</summary>\n\n{block}\n\n</details>"


# ruff: noqa: S608 - the SQL here is an example for readers


SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
TERMS = {
    "openai": "https://openai.com/policies/",
    "anthropic": "https://www.anthropic.com/legal/",
    "claude": "https://www.anthropic.com/legal/",
    "gpt": "https://openai.com/policies/",
    "gemini": "https://ai.google.dev/gemini-api/terms",
    "mistral": "https://mistral.ai/terms",
    "llama": "https://www.llama.com/llama-downloads/",
}
"""Address of a provider's terms, by a word in the model's reference."""


def dataset_card(
    repo: str,
    manifest: RunManifest,
    judges: Mapping[str, JudgeSpec],
    numbers: CardFigures,
    rows: Mapping[str, Mapping[str, int]],
    judge: str | None,
) -> str:
    """Return the README: YAML front matter and body. Equal runs give equal text. `rows` are the
    tables' rows by config and split; `judge` is the one whose reward is published."""
    front = yaml.safe_dump(
        front_matter(manifest, rows), sort_keys=False, allow_unicode=True, width=100
    )
    cited = collect_citations([manifest], judges.values())
    parts = [
        f"---\n{front}---",
        _opening_text(manifest, numbers),
        _tables_section(rows, judge),
        _load_section(repo),
        _rewards_section(numbers),
        _provenance_section(manifest, numbers),
        _models_section(manifest, judges, numbers),
        prompts_section(manifest, judges),
        _limits_section(manifest, numbers),
        _licence_section(manifest),
        markdown_citations(cited.sources, cited.bibtex),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def front_matter(manifest: RunManifest, rows: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return the metadata that the Hub reads: license, language, pretty_name, size_categories,
    task_categories, tags and configs.

    `source_datasets` is added if the questions come from the Hub. A config without rows is left
    out.
    """
    task = manifest.task
    total = sum(rows.get("conversations", {}).values())
    size = next((name for limit, name in SIZES if total < limit), "1M<n<10M")
    categories = ["text-generation", "question-answering"]
    if task.answer.kind == "choice":
        categories.append("multiple-choice")
    tags = [
        "convbench",
        "conversations",
        "multi-turn",
        "rewards",
        "offline-rl",
        "llm-as-a-judge",
        task.name,
        manifest.protocol.name,
    ]
    front: dict[str, Any] = {
        "license": task.licence.id,
        "language": [task.language],
        "pretty_name": _pretty_name(manifest),
        "size_categories": [size],
        "task_categories": categories,
        "tags": list(dict.fromkeys(tags)),
        "configs": _config_entries(rows),
    }
    if task.source.hub:
        front["source_datasets"] = [task.source.hub]
    return front


def _config_entries(rows: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = []
    for name in CONFIGS:
        files = [
            {"split": split, "path": f"{name}/{split}-*.parquet"}
            for split in SPLITS
            if rows.get(name, {}).get(split)
        ]
        if files:
            default = {"default": True} if name == CONFIGS[0] else {}
            configs.append({"config_name": name, **default, "data_files": files})
    return configs


def _pretty_name(manifest: RunManifest) -> str:
    return f"{manifest.task.name} conversations ({manifest.protocol.name}, {manifest.mode})"


def _opening_text(manifest: RunManifest, numbers: CardFigures) -> str:
    policy = manifest.policy_member.model
    splits = ", ".join(f"{count:,} {split}" for split, count in numbers.splits.items())
    kind = "imported" if manifest.kind == "import" else "complete"
    protocol = inline_text(manifest.protocol.title)
    author = inline_code(policy)
    return f"""# {_pretty_name(manifest)}

{numbers.total:,} {kind} multi-turn conversations of {author} ({splits}), with the rewards
that judges gave them. Questions: {inline_text(manifest.task.title)}. Protocol: {protocol}.
Made with convbench {inline_text(manifest.version)}."""


def _tables_section(rows: Mapping[str, Mapping[str, int]], judge: str | None) -> str:
    about = {
        "conversations": "one row a conversation: `messages` as the policy saw them "
        "(`[{role, content}]`, ready for TRL), `reward`, `rewards` of every judge, answer, "
        "correctness, usage",
        "turns": "one row a message, all speakers",
        "verdicts": "one row a (conversation, judge): scores, reward, justifications",
        "examples": "the questions with their gold answers",
    }
    table = markdown_grid(
        ("config", *SPLITS, "what"),
        [
            (f"`{c}`", *(f"{rows[c].get(s, 0):,}" for s in SPLITS), about[c])
            for c in CONFIGS
            if rows.get(c)
        ],
    )
    named = (
        f"`reward` is that of judge {inline_code(judge)}."
        if judge
        else "No judge has scored it yet."
    )
    return f"""## What is in it

{table}

{named} Failed conversations are rows with a `failure`; leave them out of training with
`filter(lambda row: row["failure"] is None)`. The records themselves are in `run/`:
`convbench pull` turns them into a run that every command accepts."""


def _load_section(repo: str) -> str:
    return f"""## Load

```python
from datasets import load_dataset

conversations = load_dataset("{repo}", split="train")          # messages, reward, …
verdicts = load_dataset("{repo}", "verdicts", split="train")
```

```sql
-- DuckDB
SELECT temperature, avg(reward) FROM 'hf://datasets/{repo}/conversations/*.parquet' GROUP BY 1;
```

```bash
convbench pull {repo}      # then: convbench query, judge, train, report
```

`traces/` holds conversations as session traces, which the Hub shows turn by turn; `eval.yaml` names
the tasks that results of models refer to."""


def _rewards_section(numbers: CardFigures) -> str:
    rewards: list[tuple[object, ...]] = [
        (
            inline_code(row.judge),
            row.split,
            mean_text(row.reward),
            _estimate_count(row.reward),
            row.failed,
        )
        for row in numbers.rewards
    ]
    thought = any(row.reasoned and row.reasoned.mean for row in numbers.policy)
    policy: list[tuple[object, ...]] = [
        (
            row.split,
            "not sent" if row.temperature is None else f"{row.temperature:g}",
            mean_text(row.accuracy),
            mean_text(row.thinking),
            *((mean_text(row.reasoned),) if thought else ()),
            "-" if row.unparsed is None else row.unparsed,
            row.n,
        )
        for row in numbers.policy
    ]
    out = ["## Rewards and answers", ""]
    if rewards:
        heads = ("judge", "split", "reward", "conversations", "failed verdicts")
        out += [markdown_grid(heads, rewards), ""]
    columns = (
        "split",
        "temperature",
        "accuracy",
        "thinking",
        *(("reasoned",) if thought else ()),
        "unparsed",
        "conversations",
    )
    out += [markdown_grid(columns, policy), ""]
    out.append(
        "Mean ± standard error, clustered by group (conversations of one question are not "
        "independent). An answer that cannot be read counts as wrong."
    )
    return "\n".join(out)


def _estimate_count(mean: Estimate | None) -> int:
    return mean.n if mean else 0


def mean_text(mean: Estimate | None, digits: int = 4) -> str:
    """Return a mean ± its standard error as text, both with `digits` decimals. `-` for None; the
    mean alone if its error is None."""
    if mean is None:
        return "-"
    error = "" if mean.error is None else f" ± {mean.error:.{digits}f}"
    return f"{mean.mean:.{digits}f}{error}"


def _provenance_section(manifest: RunManifest, numbers: CardFigures) -> str:
    task, protocol = manifest.task, manifest.protocol
    source = task.licence.source or task.source.hub or "local rows"
    temperatures = ", ".join(f"{t:g}" for t in manifest.temperatures)
    if "temperature" in numbers.left_out.get(manifest.protocol.policy, ()):
        temperatures += " (requested; the policy's model does not support one, so none was sent)"
    revision = inline_code(manifest.source_revision or "")
    facts = [
        ("questions", f"{task.name}: {inline_text(source)}, revision {revision}"),
        (
            "protocol",
            f"{protocol.name}, mode {manifest.mode}, {manifest.turns} policy turns"
            + (f" ({inline_text(protocol.reference)})" if protocol.reference else ""),
        ),
        ("samples a question", f"{manifest.samples}, temperatures {temperatures}"),
        ("seed", str(manifest.seed)),
        (
            "specs",
            f"{inline_code(manifest.fingerprints.get('specs', ''))} (resolved in `specs/`, `run/`)",
        ),
        (
            "versions",
            inline_text(", ".join(f"{k} {v}" for k, v in sorted(manifest.packages.items()))) or "-",
        ),
    ]
    return f"## How it was made\n\n{markdown_grid(('', ''), facts)}"


def _models_section(
    manifest: RunManifest, judges: Mapping[str, JudgeSpec], numbers: CardFigures
) -> str:
    rows = [
        (
            inline_text(speaker),
            inline_code(member.model),
            _sampling_text(member, numbers.left_out.get(speaker, ())),
            model_terms(member.model),
        )
        for speaker, member in manifest.cast.items()
    ]
    rows += [
        (
            f"judge {spec.name}",
            inline_code(spec.model or spec.function or spec.kind),
            _judge_sampling(spec, mark in numbers.untempered),
            model_terms(spec.model or ""),
        )
        for mark, spec in judges.items()
    ]
    prompt, completion = numbers.tokens
    total_usd = _add_costs(numbers.cost_usd, numbers.judge_usd)
    return f"""## Models, terms and cost

{markdown_grid(("who", "model", "sampling", "terms"), rows)}

What a model wrote is subject to that model's terms. Conversations: {_usd_text(numbers.cost_usd)},
{_tokens_text(prompt)} prompt and {_tokens_text(completion)} completion tokens. Judging:
{_usd_text(numbers.judge_usd)}. Together: {_usd_text(total_usd)}."""


def _sampling_text(member: ModelConfig, left_out: Iterable[str]) -> str:
    """Return a speaker's sampling parameters as they were sent."""
    parts = [f"max_tokens {member.sampling.max_tokens}"]
    if member.sampling.top_p is not None and "top_p" not in left_out:
        parts.append(f"top_p {member.sampling.top_p:g}")
    if member.sampling.reasoning_effort and "reasoning_effort" not in left_out:
        parts.append(f"reasoning_effort {member.sampling.reasoning_effort}")
    if member.extra_body:
        parts.append(f"extra_body {inline_code(redact_text(canonical_json(member.extra_body)))}")
    if member.replay != "never":
        parts.append(f"its reasoning sent back: {member.replay}")
    if left_out:
        parts.append(f"not sent: {inline_text(', '.join(left_out))}")
    return "; ".join(parts)


def _judge_sampling(spec: JudgeSpec, untempered: bool) -> str:
    if spec.model is None:
        return "-"
    return "its own (no temperature sent)" if untempered else f"temperature {spec.temperature:g}"


def _add_costs(conversations: float | None, judging: float | None) -> float | None:
    return None if conversations is None or judging is None else conversations + judging


def model_terms(model: str) -> str:
    """Return the address of a model's terms, by a provider's word anywhere in its reference.

    Without such a word it is `-` for no model, an imported one, a script or a rule, else "see the
    model's own card". The word goes first: `script:llama.yaml` gives Llama's terms.
    """
    for word, address in TERMS.items():
        if word in model.lower():
            return address
    if model in ("", "script", "imported") or model.startswith(("rule:", "script")):
        return "-"
    return "see the model's own card"


def _usd_text(value: float | None) -> str:
    return "cost unknown" if value is None else f"{value:.2f} USD"


def _tokens_text(value: int | None) -> str:
    return "an unknown number of" if value is None else f"{value:,}"


def _limits_section(manifest: RunManifest, numbers: CardFigures) -> str:
    kinds = inline_text(", ".join(f"{kind} {count}" for kind, count in numbers.failures)) or "none"
    lines = [
        f"- Failed conversations: {numbers.failed} of {numbers.total} ({kinds}).",
        f"- Conversations with a turn cut at max_tokens: {numbers.cut}.",
        f"- Conversations with findings of the fidelity checks (`flags`): {numbers.flagged}.",
        "- The conversations are a model's words: they may be wrong, and rewards are a judge's "
        "opinion, which prefers some styles and lengths.",
        "- Conversations of one group are dependent; split and compute errors by `group_id`.",
    ]
    if manifest.pulled_from:
        lines.append(f"- Restored from {inline_text(manifest.pulled_from)}.")
    return "## Failures and limits\n\n" + "\n".join(lines)


def _licence_section(manifest: RunManifest) -> str:
    licence = manifest.task.licence
    note = f" {inline_text(licence.note)}" if licence.note else ""
    source = f" of {inline_text(licence.source)}" if licence.source else ""
    return (
        f"## Licence\n\nThe questions keep the licence{source}: {inline_code(licence.id)}.{note} "
        "The conversations are released under the same licence."
    )


def markdown_grid(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table without a newline at its end.

    In cells, white space becomes one blank and bars are escaped; other markup is kept.
    """
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        cells = (re.sub(r"(?<!\\)\|", r"\|", re.sub(r"\s+", " ", str(cell))) for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
