"""Short names: resolved, overridden, retired, priced."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.errors import FatalModelError, SpecError
from convbench.models import aliases, open_model, prices, resolve
from convbench.models.open import never_sent
from convbench.models.prices import Price


@pytest.fixture(autouse=True)
def _no_user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_every_shipped_alias_is_known_to_the_price_list_or_retired() -> None:
    known = aliases().models
    for name, alias in known.items():
        if alias.retired:
            assert alias.successor in known, name
            assert known[alias.successor].ref, name
        elif "/" in str(alias.ref) and ":" not in str(alias.ref):
            assert prices.list_price(str(alias.ref)), name
            ends = prices.list_entry(str(alias.ref)).get("deprecation_date") or "2099"
            assert ends > "2026-11-20", name
        else:
            assert alias.ref, name
            assert alias.ref.split(":")[0] in ("vllm", "local"), name


def test_a_retired_name_is_refused_with_its_successor() -> None:
    with pytest.raises(FatalModelError, match=r"Claude 4 Opus.*use claude-opus.*not comparable"):
        resolve("claude-4-opus")


def test_an_unknown_name_is_refused_with_a_hint() -> None:
    with pytest.raises(FatalModelError, match="did you mean claude-opus"):
        resolve("claude-opsu")


@pytest.mark.parametrize(
    ("given", "base", "expected"),
    [
        ("openai/gpt-4o-mini", None, "openai/gpt-4o-mini"),
        ("gpt-4.1-nano", None, "openai/gpt-4.1-nano"),
        ("claude-opus", None, "anthropic/claude-opus-5-5"),
        ("hosted_vllm/my/model", None, "hosted_vllm/my/model"),
        ("meta-llama/Llama-3.2-1B", "http://x/v1", "openai/meta-llama/Llama-3.2-1B"),
        ("my-model", "http://x/v1", "openai/my-model"),
        ("rule:a.b:c", None, "rule:a.b:c"),
        ("vllm:a/b", None, "vllm:a/b"),
    ],
)
def test_what_a_name_stands_for(given: str, base: str | None, expected: str) -> None:
    assert resolve(given, api_base=base).ref == expected


def test_a_checkpoint_folder_is_local(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path)).ref == f"local:{tmp_path}"


def test_weights_in_the_newest_run_are_named_by_the_run_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("a", "b"):
        folder = Path("runs") / run / "checkpoints/swift"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    Path("runs/latest").symlink_to("a")
    moving, real = "runs/latest/checkpoints/swift", "runs/a/checkpoints/swift"
    assert resolve(moving).ref == resolve(f"local:{moving}").ref == f"local:{real}"
    served = resolve(moving, api_base="http://127.0.0.1:9/v1")
    assert (served.ref, served.alias.weights) == (f"openai/{moving}", real)
    here = tmp_path / moving
    assert resolve(str(here)).ref == f"local:{tmp_path / real}"
    Path("runs/other").symlink_to("b")  # a link of the user's own does not move
    assert resolve("runs/other/checkpoints/swift").ref == "local:runs/other/checkpoints/swift"


def test_users_override_and_add(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "models.yaml").write_text(
        "default: fast\n"
        "models:\n"
        "  fast: {ref: hosted_vllm/llama, input_per_million: 1, output_per_million: 2,"
        " weights: /w}\n"
        "  gpt-4o: {ref: azure/my-gpt-4o}\n"
    )
    assert aliases([mine]).default == "fast"
    assert resolve("gpt-4o", specs=[mine]).ref == "azure/my-gpt-4o"
    assert resolve("gpt-4o-mini", specs=[mine]).ref == "openai/gpt-4o-mini"
    assert resolve("fast", specs=[mine]).alias.weights == "/w"
    model = open_model("fast", api_base="http://127.0.0.1:9/v1", specs=[mine])
    assert model.priced


def test_the_users_own_file_goes_before_the_shipped_one(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "convbench"
    folder.mkdir(parents=True)
    (folder / "models.yaml").write_text("models: {claude-opus: {ref: anthropic/other}}")
    assert resolve("claude-opus").ref == "anthropic/other"
    assert aliases().default == "llama-3.1-8b"


def test_a_bad_file_names_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models: {x: {ref: a/b, dorp: [seed]}}")
    with pytest.raises(SpecError, match=r"models\.yaml: models\.x\.dorp"):
        resolve("x", specs=[tmp_path])


def test_prices_from_the_list() -> None:
    assert prices.list_price("openai/gpt-4o-mini") == Price(0.15e-6, 0.6e-6, 0.075e-6)
    assert prices.list_price("anthropic/gpt-4o-mini") is None
    assert prices.list_price("hosted_vllm/anything") is None
    assert Price(2.0, 3.0, 0.5).cost_of(10, 1, cached=4) == 12 + 2 + 3
    assert never_sent(resolve("anthropic/claude-opus-5-5")) == {"temperature", "top_p"}
    assert never_sent(resolve("hosted_vllm/anything")) == set()


def test_an_address_with_a_slash_at_its_end_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1/")
    with pytest.raises(FatalModelError, match="OPENAI_API_KEY"):
        open_model("openai/gpt-4o-mini")
