"""Real weights, really cut: equal to the ablated model, to itself after a round trip, and without headscope."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import headscope
from headscope import Ablate

pytestmark = pytest.mark.real
TEXTS = ["The cat sat on the mat.", "It rains in Paris, and nobody minds at all.", "Yes."]
REACTIONS = ["CC(=O)O.OCc1ccccc1>>CC(=O)OCc1ccccc1", "C=CC=C.C=C>>C1CCC=CC1"]
ALONE = """
import sys, torch
sys.modules["headscope"] = None
from transformers import AutoModel, AutoTokenizer
model, tokenizer = AutoModel.from_pretrained(sys.argv[1]).eval(), AutoTokenizer.from_pretrained(sys.argv[1])
batch = tokenizer(sys.argv[3:], padding=True, return_tensors="pt")
with torch.inference_mode():
    torch.save((model(**batch).last_hidden_state, batch["attention_mask"]), sys.argv[2])
"""


def states(model: headscope.AttentionModel, texts: list[str]) -> torch.Tensor:
    assert model.tokenizer is not None
    batch = model.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        result: torch.Tensor = model(**batch)[0]
    return result[batch["attention_mask"].bool()]


@pytest.mark.parametrize(
    ("name", "heads", "texts"),
    [("minilm", "3.2,4.*,0.5-9", TEXTS), ("rxnmapper", "*.0,*.6", REACTIONS)],
)
def test_a_real_model_without_heads_is_the_ablated_one(
    name: str, heads: str, texts: list[str], zoo_model
) -> None:  # type: ignore[no-untyped-def]
    zoo_model(name)
    model = headscope.load(name)
    with model.edited(Ablate(heads)):
        wanted = states(model, texts)
    assert float(
        (states(headscope.prune(model, heads).model, texts) - wanted).abs().max()
    ) < 1e-5 * float(wanted.abs().max())


@pytest.mark.slow
def test_a_translator_translates_without_half_of_its_heads(zoo_model) -> None:  # type: ignore[no-untyped-def]
    zoo_model("opus-mt-en-fr", large=True)
    model = headscope.load("opus-mt-en-fr")
    cut = headscope.prune(model, "encoder.*.0-3,decoder.*.4-7,cross.0.*").model
    encoded = cut.tokenizer(["The cat sat on the mat."], return_tensors="pt")
    with torch.inference_mode():
        cached, plain = (
            cut.model.generate(**encoded, max_new_tokens=12, use_cache=way) for way in (True, False)
        )
        with model.edited(Ablate("encoder.*.0-3,decoder.*.4-7,cross.0.*")):
            ablated = model.model.generate(**encoded, max_new_tokens=12, use_cache=False)
    assert torch.equal(cached, plain)
    assert torch.equal(plain, ablated)


@pytest.mark.slow
def test_five_lines_bring_it_back_and_the_plain_form_needs_no_headscope(
    tmp_path: Path, zoo_model
) -> None:  # type: ignore[no-untyped-def]
    model = headscope.load(zoo_model("minilm"))
    cut = headscope.prune(model, "3.2,4.*").model
    cut.save(tmp_path / "small")
    cut.save(tmp_path / "plain", form="plain")
    again = headscope.load(tmp_path / "small")
    assert torch.equal(states(again, TEXTS), states(cut, TEXTS))
    sizes = [(tmp_path / form / "model.safetensors").stat().st_size for form in ("small", "plain")]
    assert sizes[1] - sizes[0] > 13 * (4 * 384 * 32 + 3 * 32) * 4 * 0.99  # bytes of thirteen heads
    code = [sys.executable, "-c", ALONE, str(tmp_path / "plain"), str(tmp_path / "out.pt"), *TEXTS]
    subprocess.run(code, check=True, capture_output=True)
    result, mask = torch.load(tmp_path / "out.pt")
    assert float((result[mask.bool()] - states(cut, TEXTS)).abs().max()) < 1e-5


def test_the_embeddings_of_the_docs_are_means_of_the_ablated_model_s_tokens(
    tmp_path: Path,
    zoo_model,  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page's own lines, against one text at a time without padding, added up token by token."""
    zoo_model("minilm")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "pruning.md").read_text("utf-8")
    output: dict[str, Any] = {}
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(snippet, "docs/explanation/pruning.md", "exec"), output)
    texts = re.search(r'tokenizer\(\s*\["(.*?)", "(.*?)"\]', page)
    assert texts is not None
    model = headscope.load("minilm")
    for text, vector in zip(texts.groups(), output["vectors"], strict=True):
        with model.edited(Ablate("3.2,4.*")):
            tokens = states(model, [text])
        mean = sum(tokens[position] for position in range(len(tokens))) / len(tokens)
        length = sum(float(value) ** 2 for value in mean) ** 0.5
        assert float((vector - mean / length).abs().max()) < 1e-5
    assert float(output["vectors"][0] @ output["vectors"][1]) > 0.4, "they mean much the same"
