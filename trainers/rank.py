"""Score replies by SWEET's critic against its reference: equation (3) of Zhou et al. (2025).

`CHECKPOINT/rank` holds rows with a `key`; the advantage of each turn of each goes, by key, to
`CHECKPOINT/rank/scores.jsonl`. The critic is `CHECKPOINT/critic`, the reference the recipe's model.

    python trainers/rank.py CHECKPOINT
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import torch
from trl.trainer.utils import add_fused_lm_head

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a program finds its neighbours

from convbench.learn.sweet import CRITIC, RANK, SCORES, SweetArgs
from convbench.schema.recipe import Recipe
from convbench.store.jsonl import write_atomic
from trainers.common import in_bf16, load_model, load_rows, main
from trainers.critic import Trajectory, score


def run(folder: Path, recipe: Recipe) -> None:
    """Write the advantages of the turns of all rows in the folder's `rank`."""
    rows = list(load_rows(folder / RANK))
    args, bf16 = SweetArgs.from_recipe(recipe), in_bf16(recipe)
    sides: list[list[torch.Tensor]] = []
    for path, name in ((str(folder / CRITIC), "critic"), (str(recipe.model), "reference")):
        model = load_model(path, bf16).eval()
        add_fused_lm_head(model)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        trajectories: list[Trajectory] = [(row[name]["ids"], row[name]["turns"]) for row in rows]
        sides.append(score(model, trajectories, args.normalize, recipe.fit.batch_size, bf16))
        del model  # before the other one is loaded
        gc.collect()
    lines = [
        json.dumps({"key": row["key"], "advantages": (a.double() - b.double()).tolist()})
        for row, a, b in zip(rows, *sides, strict=True)
    ]
    write_atomic(folder / RANK / SCORES, "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main(run)
