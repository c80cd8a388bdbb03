"""What the real ms-swift makes of an exported file: `python ms_swift_reads.py FILE MODEL FLAG`.

Runs in an interpreter that has ms-swift, which cannot share the pinned environment. Prints a list:
for every row of the file the stretches of text with a loss (`learnt`), the distinct weights of
their tokens (`scales`: 1.0 where ms-swift keeps none), as its own dataset loader and template give
them. FLAG is `false` (`--is_binary_loss_scale false`) or `unset`.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Read, encode, print."""
    from swift.dataset import load_dataset
    from swift.model import get_processor
    from swift.template import get_template

    file, model, flag = sys.argv[1:]
    data, _ = load_dataset(file, load_from_cache_file=False)
    processor = get_processor(model, model_type="llama")
    template = get_template(
        processor, template_type="llama3", is_binary_loss_scale=False if flag == "false" else None
    )
    template.set_mode("train")
    print(json.dumps([_learnt(template.encode(row), processor) for row in data]))


def _learnt(encoded: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    labels = encoded["labels"]
    scales = encoded.get("loss_scale") or [1.0] * len(labels)
    texts: list[list[int]] = []
    for before, label in zip([-100, *labels], labels, strict=False):
        if label != -100 and before == -100:
            texts.append([])
        if label != -100:
            texts[-1].append(label)
    return {
        "learnt": [tokenizer.decode(text) for text in texts],
        "scales": sorted({s for s, label in zip(scales, labels, strict=True) if label != -100}),
    }


if __name__ == "__main__":
    main()
