"""The paper's measure on a tiny CLIP with random weights."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.judges.render import check_measure, image_cosine
from convbench.judges.resolve import resolve_judge
from tests.support.later import later, needs

needs("PIL", "torch")
torch = later("torch")


def picture(colour: str) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (64, 48), colour).save(out, "PNG")
    return out.getvalue()


def save_clip(folder: Path) -> str:
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2}  # fmt: skip
    config = CLIPConfig(
        text_config={**small, "vocab_size": 20}, projection_dim=8,
        vision_config={**small, "image_size": 32, "patch_size": 16},
    )  # fmt: skip
    CLIPModel(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, '
        '"crop_size": {"height": 32, "width": 32}, "do_resize": true, "do_center_crop": true}'
    )
    return str(folder)


def test_cosine_of_embeddings(tmp_path: Path) -> None:
    model = save_clip(tmp_path)
    assert image_cosine(picture("red"), picture("red"), model) == pytest.approx(1, abs=1e-5)
    assert -1 <= image_cosine(picture("red"), picture("blue"), model) < 0.9999


def test_missing_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="offline measure: --judge render"):
        image_cosine(picture("red"), picture("blue"), str(tmp_path / "none"))


def test_what_the_measure_lacks_is_said_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = resolve_judge("render-paper").spec
    sheet = tmp_path / "sheet.css"
    monkeypatch.setenv("CONVBENCH_TAILWIND", str(sheet))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RunError, match=r"expected CLIP's weights.*--set judge\.args\.clip=PATH"):
        check_measure(spec.model_copy(update={"args": {**spec.args, "clip": str(tmp_path)}}))
    here = spec.model_copy(update={"args": {**spec.args, "clip": save_clip(tmp_path)}})
    with pytest.raises(RunError, match=r"no style sheet.*python -m convbench\.sandbox\.tailwind"):
        check_measure(here)
    sheet.write_text("a{}")
    check_measure(here)
    check_measure(resolve_judge("render").spec)


def test_the_two_measures_never_share_a_name() -> None:
    ours, clip = resolve_judge("render"), resolve_judge("render-clip")
    assert ours.spec.args["measure"] == "similarity"
    assert clip.spec.args["measure"] == "clip"
    assert ours.fingerprint != clip.fingerprint
    assert "CLIP" not in ours.spec.title
