"""The whole way on real weights: command to table, against a slow recomputation that shares no code with it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

import headscope
from headscope.data.bundled import BUNDLED
from headscope.heads import Site
from sampling import slow

pytestmark = pytest.mark.real
SHARED = Path(__file__).parents[3] / "shared" / "data"
REACTIONS = [
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "CC(=O)O.OCc1ccccc1>>CC(=O)OCc1ccccc1",
    "C=CC=C.C=C>>C1CCC=CC1",
]
TRANSLATIONS = [
    (
        "The cat sat on the mat, and looked at the dog.",
        "Le chat s'assit sur le tapis et regarda le chien.",
    ),
    ("It rains.", "Il pleut."),
    ("The committee will answer the engineers soon.", "Le comité répondra bientôt aux ingénieurs."),
]


def pairs(count: int) -> list[tuple[str, str]]:
    lines = BUNDLED["wikipedia-pairs"].read_text("utf-8").splitlines()[:count]
    return [(record["a"], record["b"]) for record in map(json.loads, lines)]


SURFACE = [
    *(
        "self",
        "previous",
        "next",
        "distance",
        "cls",
        "sep",
        "punctuation",
        "special",
        "entropy",
        "cls-entropy",
    ),
    *("confidence", "confidence-content", "argmax-share", "argmax-offset"),
]


def table_by_hand(folder: Path, texts: list, model_class: str) -> pd.DataFrame:
    """stack, layer, head, statistic, value, from `output_attentions=True` under eager attention, one text at a time."""
    import transformers

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = (
        getattr(transformers, model_class)
        .from_pretrained(folder, attn_implementation="eager")
        .eval()
    )
    values: dict[tuple, list[float]] = defaultdict(list)
    offsets: dict[tuple, list[dict[int, float]]] = defaultdict(list)
    for text in texts:
        translated = model.config.is_encoder_decoder
        first, second = text if isinstance(text, tuple) else (text, None)
        source = tokenizer(first, None if translated else second, return_tensors="pt")
        sides = {"encoder": source["input_ids"][0].tolist()}
        extra = {}
        if translated:
            target = tokenizer(text_target=second)["input_ids"]
            sides["decoder"] = [model.config.decoder_start_token_id, *target[:-1]]
            extra["decoder_input_ids"] = torch.tensor([sides["decoder"]])
        with torch.no_grad():
            output = model(**source, **extra, output_attentions=True)
        result = {"encoder": output.encoder_attentions if translated else output.attentions}
        if translated:
            result |= {"decoder": output.decoder_attentions, "cross": output.cross_attentions}
        for stack, layers in result.items():
            query, key = (
                sides["decoder" if stack == "cross" else stack],
                sides["encoder" if stack == "cross" else stack],
            )
            for layer, weights in enumerate(layers):
                for head, a in enumerate(weights[0].double().numpy()):
                    for name, value in one_map(a, query, key, tokenizer, stack).items():
                        values[stack, layer, head, name].append(value)
                    if stack != "cross":
                        offsets[stack, layer, head].append(pointed(a, query, tokenizer))
    rows = [(*address, float(np.mean(numbers))) for address, numbers in values.items()]
    for address, histograms in offsets.items():
        total: dict[int, float] = defaultdict(float)
        for histogram in histograms:
            for offset, count in histogram.items():
                total[offset] += count
        # Documented: of equally frequent offsets the nearest, of two as near the one before.
        mode = max(total, key=lambda offset: (round(total[offset], 6), -abs(offset), -offset))
        shares = [histogram.get(mode, 0.0) / sum(histogram.values()) for histogram in histograms]
        rows += [
            (*address, "argmax-offset", float(mode)),
            (*address, "argmax-share", float(np.mean(shares))),
        ]
    return pd.DataFrame(rows, columns=["stack", "layer", "head", "statistic", "value"])


def one_map(
    a: np.ndarray, query: list[int], key: list[int], tokenizer, stack: str
) -> dict[str, float]:
    rows, columns = a.shape
    special = set(tokenizer.all_special_ids)
    separator = (
        tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    )
    dots = {i for token, i in tokenizer.get_vocab().items() if token.lstrip("▁Ġ") in (".", ",")}
    entropies = [-sum(w * np.log(w) for w in row if w > 0) for row in a]
    content = [j for j in range(columns) if key[j] not in special]
    result = {
        "entropy": np.mean(entropies),
        "confidence": a.max(axis=1).mean(),
        "confidence-content": np.mean(
            [a[i, content].max() for i in range(rows) if query[i] not in special]
        ),
        "punctuation": sum(a[:, j].sum() for j in range(columns) if key[j] in dots) / rows,
    }
    for name, wanted in (
        ("cls", {tokenizer.cls_token_id}),
        ("sep", {separator}),
        ("special", special),
    ):
        if any(token in wanted for token in key):
            result[name] = sum(a[:, j].sum() for j in range(columns) if key[j] in wanted) / rows
    if tokenizer.cls_token_id in query:
        result["cls-entropy"] = entropies[query.index(tokenizer.cls_token_id)]
    if stack != "cross":
        for name, offset in (("self", 0), ("previous", -1), ("next", 1)):
            result[name] = (
                sum(a[i, i + offset] for i in range(rows) if 0 <= i + offset < rows) / rows
            )
        result["distance"] = (
            sum(a[i, j] * abs(i - j) for i in range(rows) for j in range(rows)) / rows
        )
    return result


def pointed(a: np.ndarray, ids: list[int], tokenizer) -> dict[int, float]:
    content = [i for i, token in enumerate(ids) if token not in set(tokenizer.all_special_ids)]
    result: dict[int, float] = defaultdict(float)
    for i in content:
        largest = max(a[i, j] for j in content)
        ties = [j for j in content if a[i, j] == largest]
        for j in ties:
            result[j - i] += 1 / len(ties)
    return result


@pytest.mark.parametrize(
    ("name", "model_class", "texts", "stacks"),
    [
        slow("minilm", "BertModel", pairs(4), ["encoder"]),
        ("rxnmapper", "AlbertForMaskedLM", REACTIONS, ["encoder"]),
        ("rxnfp", "BertForMaskedLM", REACTIONS, ["encoder"]),
        slow("opus-mt-en-fr", "MarianMTModel", TRANSLATIONS, ["encoder", "decoder", "cross"]),
        slow("mpnet", "MPNetModel", pairs(2), ["encoder"]),
    ],
)
def test_the_table_agrees_with_a_recomputation_by_hand(
    name, model_class, texts, stacks, zoo_model
) -> None:
    folder = zoo_model(name, large=name in ("opus-mt-en-fr", "mpnet"))
    ours = headscope.analyze(name, texts=texts).heads
    by_hand = table_by_hand(folder, texts, model_class)
    ours = ours[ours["statistic"].isin(SURFACE)]
    key = ["stack", "layer", "head", "statistic"]
    both = ours.merge(by_hand, on=key, how="outer", suffixes=("", "_by_hand"))
    assert list(ours["stack"].unique()) == stacks
    assert not both.isna()[["value", "value_by_hand"]].any().any(), "a row is missing on one side"
    both["difference"] = (both["value"] - both["value_by_hand"]).abs()
    assert both["difference"].max() < 1e-5, both.nlargest(5, "difference")


@pytest.mark.slow
def test_the_batch_size_changes_nothing(zoo_model) -> None:
    zoo_model("minilm")
    model = headscope.load("minilm")
    single, many = (
        headscope.analyze(model, texts=pairs(48), batch_size=size).heads for size in (1, 32)
    )
    assert single.drop(columns=["value", "low", "high"]).equals(
        many.drop(columns=["value", "low", "high"])
    )
    for column in ("value", "low", "high"):
        assert (single[column] - many[column]).abs().max() < 1e-6


def test_every_zoo_model_at_hand_passes_its_self_check(zoo_model) -> None:
    zoo_model("minilm")
    for name in headscope.model.zoo.MODELS:
        if headscope.model.zoo.find(name) is not None:
            model = headscope.load(name)
            depth = 1 + max(site.layer for site in model.sites)
            # float32 rounding grows with depth; in float64 the difference is 0 for the 30 layers of smollm2.
            assert model.self_check() < 1e-6 * max(10, depth)


def test_ablating_one_call_of_albert_changes_only_what_comes_after_it(zoo_model) -> None:
    zoo_model("rxnmapper")
    model = headscope.load("rxnmapper")
    batch = next(headscope.encode(model, REACTIONS))
    seen: dict[str, dict[Site, torch.Tensor]] = {"intact": {}, "ablated": {}}
    for how, edits in (("intact", []), ("ablated", [headscope.Ablate("3.2")])):
        with (
            torch.inference_mode(),
            model.edited(*edits),
            model.watched(lambda a, how=how: seen[how].setdefault(a.site, a.weights.clone())),
        ):
            model(batch)
    changed = [
        site.layer
        for site in model.sites
        if not torch.equal(seen["intact"][site], seen["ablated"][site])
    ]
    assert changed == list(range(4, 12))


def test_head_5_of_rxnmapper_maps_atoms(zoo_model) -> None:
    file = SHARED / "uspto50k" / "uspto50k_mapped.tsv.gz"
    if not file.exists():
        pytest.skip("the mapped reactions are not here")
    zoo_model("rxnmapper")
    import importlib.util

    path = Path(__file__).parents[2] / "examples" / "atom_mapping.py"
    spec = importlib.util.spec_from_file_location("atom_mapping", path)
    example = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["atom_mapping"] = example
    spec.loader.exec_module(example)
    reactions = example.read_file(file, limit=40)
    right = example.accuracies(headscope.load("rxnmapper"), reactions["test"]).mean(dim=0)
    best = right.flatten().topk(8).indices
    assert set((best % 8).tolist()) == {5}, "the same head in eight layers"
    assert right[9, 5] > 0.9
    assert right[10, 5] > 0.88


def test_gzip_in_the_shared_folder_is_what_the_reader_expects() -> None:
    file = SHARED / "uspto50k" / "uspto15k_plain.txt.gz"
    if not file.exists():
        pytest.skip("the plain reactions are not here")
    from headscope.data.examples import read_examples

    with gzip.open(file, "rt", encoding="utf-8") as lines:
        expected = sum(1 for line in lines if line.strip())
    assert sum(1 for _ in read_examples([file])) == expected
