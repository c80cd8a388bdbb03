"""Runs in the shape of the paper's full set: every cell of its 21 tables, tiny, in one folder."""

import json
from functools import cache

import orjson

from convbench.reports.policies import NAMES
from convbench.reports.published import paper_tables
from tests.helpers.runs import make, questions

RECIPES = {name: recipe for recipe, name in NAMES.items()}
SAID = ("rock", "tide", "moon", "star", "lava", "moss", "sand", "wind")
SECOND = "claude-opus"


def cell_name(task, mode, protocol, turns, seed=0):
    middle = "" if protocol == "reasoning" else f"-{protocol}"
    length = "" if turns == 3 else f"-n{turns}"
    return f"{task}{middle}-{mode}{length}-seed{seed}"


@cache
def settings():
    """(task, mode, protocol, turns) → the printed methods' accuracies."""
    found = {}
    for table in paper_tables():
        if table.judge == "gpt-4o" and not table.by_size:
            key = (table.task, table.mode, table.protocol, table.turns)
            found[key] = {name: row["accuracy"].mean for name, row in table.methods.items()}
    return found


def words(question, sample, said):
    """A last reply of words that vary, with the answer."""
    at = int(question[1:]) + sample
    some = " ".join(SAID[(at + step) % len(SAID)] for step in range(4))
    return f"<thinking>{some}</thinking> The answer is {said}."


def rule(share, size):
    """Right on this share of the questions."""
    return lambda question, sample: "A" if int(question[1:]) < round(share * size) else "B"


def scores(share):
    return lambda question, sample: dict.fromkeys(
        ("overall", "accuracy", "reasoning", "comprehensiveness", "pedagogical", "confidence"),
        round(10 * share + 0.3 * sample + 0.1 * int(question[1:]), 3),
    )


def write_cell(root, key, methods, size=4, *, text=words, **more):
    """Write a cell's run with an evaluation of each method; return the run."""
    task, mode, protocol, turns = key
    examples = questions(size, task)
    more |= {"task": task, "mode": mode, "protocol": protocol, "samples": 2,
             "temperatures": (0.7,), "text": text}  # fmt: skip
    more["turns"] = None if protocol == "clarifying" else turns
    own = methods.get("Base", 0.1)
    folder = root / cell_name(*key)
    base = make(folder, examples, rule(own, size), scores=scores(own), **more)
    for name, share in methods.items():
        if name == "Base":
            continue
        recipe, _, rows = name.partition("-rows-")
        folder = RECIPES[recipe] + (f"-{rows}" if rows else "")
        checkpoint = base.checkpoints_folder / folder
        checkpoint.mkdir(parents=True)
        data = f"data: {{rows: {rows}}}\n" if rows else ""
        (checkpoint / "recipe.yaml").write_text(f"name: {RECIPES[recipe]}\n{data}")
        (checkpoint / "training.json").write_text(json.dumps({"conversations": 8}))
        make(
            base.evals_folder / folder, examples, rule(share, size), scores=scores(share),
            parent=base.manifest.id, checkpoint=f"checkpoints/{folder}", split="test", **more,
        )  # fmt: skip
    return base


def write_paper(root, size=4):
    """Write the whole set; accuracies are near the printed ones, so that orders agree."""
    for key, methods in settings().items():
        sized = {}
        if key[0] == "arc" and key[3] == 3:
            table = next(t for t in paper_tables() if t.by_size and t.mode == key[1])
            sized = {f"ReFit-rows-{n}": row["accuracy"].mean for n, row in table.methods.items()}
        base = write_cell(root, key, {**methods, **sized}, size)
        if key == ("arc", "thinking", "reasoning", 3):
            for run in (base, *base.child_runs()):
                second_judge(run)


def second_judge(run):
    """Score a run again, by another name."""
    lines = run.verdicts_file.read_bytes().splitlines()
    again = [orjson.dumps({**orjson.loads(line), "judge": SECOND}) for line in lines]
    run.verdicts_file.write_bytes(b"\n".join([*lines, *again, b""]))


def record(root, *ends):
    """Write the record of steps: (address, state, said, seconds)."""
    lines = [
        orjson.dumps({"address": a, "mark": "m", "state": s, "said": said, "seconds": t})
        for a, s, said, t in ends
    ]
    (root / "steps.jsonl").write_bytes(b"\n".join([*lines, b""]))
