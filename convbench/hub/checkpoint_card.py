"""README.md of a published checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from convbench.catalog.citations import collect_citations
from convbench.hub.card import markdown_grid, model_terms
from convbench.models.weights_path import SHIPPED_REFS
from convbench.schema import JudgeSpec, RunManifest
from convbench.util.markdown import inline_code, inline_text, markdown_citations

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
LOGGED = {
    "loss": "loss",
    "log_pi_positive": "log π of positively weighted conversations (nats per token)",
    "log_pi_negative": "log π of negatively weighted conversations (nats per token)",
    "rewards/accuracies": "pairs ranked correctly (share)",
}
"""Labels of the training log's figures in a card, by key."""
USED = {"weighted_sft": ("weighting", "loss"), "preference": ("pairing",), "sweet": ("pairing",)}
"""Sections of a recipe that only some trainers use, by trainer."""


@dataclass(frozen=True)
class MeasureRow:
    """One measure as text: mean ± standard error of Base and of this model."""

    measure: str
    base: str | None
    this_model: str
    difference: str | None
    """Paired difference to Base with its 95% interval."""


@dataclass(frozen=True)
class EvaluationResults:
    """The results of a checkpoint's evaluation, compared with Base."""

    split: str
    protocol: str
    conversations: int
    groups: int
    judge: str | None
    rows: tuple[MeasureRow, ...]
    notes: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    """Means of this policy by measure: `accuracy` (a share), `reward`."""


def is_hub_id(model: object) -> bool:
    """Return True if this is a text of the form OWNER/NAME, as models have on the Hub; nothing is
    looked up."""
    return isinstance(model, str) and HUB_ID.fullmatch(model) is not None


def model_card(
    repo: str,
    manifest: RunManifest,
    judges: Mapping[str, JudgeSpec],
    recipe: Mapping[str, Any],
    training: Mapping[str, Any],
    *,
    results: EvaluationResults | None,
    datasets: Sequence[str],
    adapter: bool,
) -> str:
    """Return the README: YAML front matter and body. Equal checkpoints give equal text.

    `recipe` and `training` are the resolved recipe and `training.json`, without local paths.
    """
    base = str(recipe.get("model"))
    front = front_matter(manifest, recipe, base, datasets, adapter=adapter)
    text = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=100)
    cited = collect_citations([manifest], judges.values(), [recipe])
    parts = [
        f"---\n{text}---",
        _opening_text(repo, manifest, recipe, training, base),
        _data_section(manifest, judges, recipe, training, datasets),
        _recipe_section(recipe, training),
        _training_section(training),
        _results_section(results),
        _load_section(repo, adapter=adapter),
        _limits_section(manifest, results),
        _licence_section(manifest, judges, base),
        markdown_citations(cited.sources, cited.bibtex),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def front_matter(
    manifest: RunManifest,
    recipe: Mapping[str, Any],
    base: str,
    datasets: Sequence[str],
    *,
    adapter: bool,
) -> dict[str, Any]:
    """Return the model card's metadata that the Hub reads.

    `library_name` is always transformers; an adapter has the tag `peft`. Without a Hub id as `base`
    `base_model` and `base_model_relation` (`adapter` or `finetune`) are left out, without datasets
    `datasets`.
    """
    front: dict[str, Any] = {"license": "apache-2.0"}
    if base not in SHIPPED_REFS:
        front = {"license": "other", "license_name": "of-the-base-model"}
    if is_hub_id(base):
        front["license_link"] = f"https://huggingface.co/{base}"
        front["base_model"] = base
        front["base_model_relation"] = "adapter" if adapter else "finetune"
    front["language"] = [manifest.task.language]
    front["library_name"] = "transformers"
    front["pipeline_tag"] = "text-generation"
    if datasets:
        front["datasets"] = list(datasets)
    tags = [
        "convbench",
        "conversations",
        "multi-turn",
        "offline-rl",
        str(recipe.get("name")),
        manifest.task.name,
        manifest.protocol.name,
    ]
    front["tags"] = list(dict.fromkeys([*tags, "peft"] if adapter else tags))
    return front


def _opening_text(
    repo: str,
    manifest: RunManifest,
    recipe: Mapping[str, Any],
    training: Mapping[str, Any],
    base: str,
) -> str:
    count = inline_text(training.get("conversations", "an unknown number of"))
    version = inline_text(manifest.version)
    return f"""# {repo.rpartition("/")[2]}

{_base_text(base)} after {inline_text(recipe.get("title"))}, trained on
{count} logged multi-turn conversations of
task {manifest.task.name} and their rewards. Trained with convbench {version}."""


def _base_text(base: str) -> str:
    if base in SHIPPED_REFS:
        return f"The small policy that ships with convbench (`{base}`)"
    return (
        f"[{base}](https://huggingface.co/{base})"
        if is_hub_id(base)
        else f"{inline_code(base)} (local)"
    )


def _data_section(
    manifest: RunManifest,
    judges: Mapping[str, JudgeSpec],
    recipe: Mapping[str, Any],
    training: Mapping[str, Any],
    datasets: Sequence[str],
) -> str:
    task, protocol = manifest.task, manifest.protocol
    judge = training.get("judge")
    models = [
        spec.model or spec.function or spec.kind for spec in judges.values() if spec.name == judge
    ]
    skipped = ", ".join(f"{n} {why}" for why, n in (training.get("skipped") or {}).items())
    where = ", ".join(f"[{d}](https://huggingface.co/datasets/{d})" for d in datasets)
    rows = [
        ("run", inline_code(manifest.id) + (f", published as {where}" if where else "")),
        ("task", f"{task.name}: {inline_text(task.title)}"),
        ("questions", inline_text(task.licence.source or task.source.hub or "local rows")),
        (
            "licence of the questions",
            f"{inline_code(task.licence.id)} {inline_text(task.licence.note or '')}".strip(),
        ),
        ("protocol", f"{protocol.name}, mode {manifest.mode}, {manifest.turns} policy turns"),
        (
            "conversations",
            inline_text(
                f"{training.get('conversations', '-')} logged, "
                f"{training.get('items', '-')} trained on"
            ),
        ),
        ("left out", inline_text(skipped) or "none"),
        (
            "judge",
            inline_text(judge or "-")
            + (f" ({', '.join(map(inline_code, dict.fromkeys(models)))})" if models else ""),
        ),
        (
            "reward",
            inline_text((recipe.get("data") or {}).get("metric", training.get("metric", "-"))),
        ),
    ]
    rows += [_log_row(part) for part in training.get("runs") or ()]
    return f"## Data\n\n{markdown_grid(('', ''), rows)}"


def _log_row(part: Mapping[str, Any]) -> tuple[str, str]:
    """Return the table row of one of several runs that were trained on as one log."""
    bare = part.get("unrewarded") or 0
    facts = [
        f"task {part.get('task')}, protocol {part.get('protocol')}, policy {part.get('policy')}",
        f"judge {part.get('judge')}" if part.get("judge") else "no judge",
        f"{part.get('conversations')} conversations"
        + (f" and {bare} without a reward" if bare else ""),
        f"share {part.get('share'):g}",
    ]
    return (f"log {inline_code(part.get('run'))}", inline_text("; ".join(facts)))


def _recipe_section(recipe: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    fit = recipe.get("fit") or {}
    processes = training.get("processes", 1)
    length = (
        f"{fit['max_steps']} steps" if fit.get("max_steps") else f"{fit.get('epochs', 0):g} epochs"
    )
    rows: list[tuple[str, object]] = [
        ("recipe", f"{recipe.get('name')}: {recipe.get('title')}"),
        ("specified in", recipe.get("reference") or "-"),
        ("learning rate", fit.get("learning_rate")),
        ("length", length),
        (
            "batch",
            f"{fit.get('batch')} rows a step, on {processes} processes"
            if fit.get("batch")
            else f"{fit.get('batch_size')} x {fit.get('accumulation')} accumulated x "
            f"{processes} processes",
        ),
        ("options of TRL", _short_values(fit.get("arguments") or {}) or "-"),
        ("precision", fit.get("precision")),
        ("seed", fit.get("seed")),
    ]
    rows += [(key, recipe[key]) for key in ("rounds", "filter") if recipe.get(key)]
    keys = ("lora", *USED.get(str(recipe.get("trainer")), ()), "distil", "args")
    rows += [(key, _short_values(recipe[key])) for key in keys if recipe.get(key)]
    shown = [(key, inline_text(value)) for key, value in rows]
    return f"## Recipe\n\n{markdown_grid(('', ''), shown)}\n\nAll of it, resolved: `recipe.yaml`."


def _short_values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)


def _training_section(training: Mapping[str, Any]) -> str:
    log = [entry for entry in training.get("log") or () if isinstance(entry, dict)]
    rows: list[tuple[object, ...]] = []
    for key, label in LOGGED.items():
        points = [(e.get("step"), e[key]) for e in log if isinstance(e.get(key), int | float)]
        if points:
            (first, first_value), (last, last_value) = points[0], points[-1]
            rows.append(
                (label, f"{first_value:.4g} (step {first})", f"{last_value:.4g} (step {last})")
            )
    more = [
        inline_text(f"{name}: {count}") for name, count in (training.get("counts") or {}).items()
    ]
    seconds = next((e["train_runtime"] for e in log if "train_runtime" in e), None)
    if seconds is not None:
        more.append(f"time: {seconds:.0f} s")
    if not rows and not more:
        return ""
    shown = f"{markdown_grid(('', 'first', 'last'), rows)}\n\n" if rows else ""
    closing = f"{'; '.join(more)}. " if more else ""
    return f"## Training\n\n{shown}{closing}The whole log: `training.json`."


def _results_section(results: EvaluationResults | None) -> str:
    if results is None:
        return "## Results\n\nNot evaluated."
    rows = [(r.measure, r.base or "-", r.this_model, r.difference or "-") for r in results.rows]
    heads = ("", "Base", "this model", "difference to Base (95% interval)")
    judged = f", judge {inline_text(results.judge)}" if results.judge else ""
    notes = "".join(f"\n{note}" for note in results.notes)
    return f"""## Results

{results.conversations} conversations about questions of split {results.split} ({results.groups}
independent groups), protocol {results.protocol}{judged}.

{markdown_grid(heads, rows)}

Mean ± standard error, clustered by group; differences are paired by question, sample and
temperature. An answer that cannot be read counts as wrong.{notes}"""


def _load_section(repo: str, *, adapter: bool) -> str:
    needs = " (needs `peft`, and loads the base with it)" if adapter else ""
    return f"""## Load

With transformers{needs}:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo}")
model = AutoModelForCausalLM.from_pretrained("{repo}")
chat = [{{"role": "user", "content": "…"}}]
inputs = tokenizer.apply_chat_template(
    chat, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
reply = model.generate(**inputs, max_new_tokens=256)
print(tokenizer.decode(reply[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
```

Anywhere convbench takes a model: `local:{repo}`, or `vllm:{repo}`."""


def _limits_section(manifest: RunManifest, results: EvaluationResults | None) -> str:
    lines = [
        f"- It was trained on the prompts of protocol {manifest.protocol.name} in mode "
        f"{manifest.mode}, for conversations of {manifest.turns} policy turns; it was not "
        "tested outside of them.",
        "- It was trained on logged conversations and a judge's rewards, which prefer some styles "
        "and lengths; a higher reward need not be a better answer.",
        "- It may state falsehoods with confidence, and has the faults of its base model. It was "
        "not tested for safety.",
    ]
    if results is None:
        lines.append("- Whether it is better than its base was not measured.")
    return "## Limits\n\n" + "\n".join(lines)


def _licence_section(manifest: RunManifest, judges: Mapping[str, JudgeSpec], base: str) -> str:
    who = dict.fromkeys(
        [m.model for m in manifest.cast.values()] + [s.model for s in judges.values() if s.model]
    )
    bound = [
        f"{inline_code(model)} ({model_terms(model)})" for model in who if model_terms(model) != "-"
    ]
    held = "licence of their base model; read that before use"
    if base in SHIPPED_REFS:
        held = f"licence of `{base}`, Apache 2.0"
    wrote = ""
    if bound:
        wrote = (
            f" Terms of the models that generated and judged the conversations: {', '.join(bound)}."
        )
    return (
        f"## Licence\n\nThe weights keep the {held}. The questions behind the training data: "
        f"{inline_code(manifest.task.licence.id)}.{wrote}"
    )
