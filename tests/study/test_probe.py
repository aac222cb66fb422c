"""Probes on attention: against loops, on planted maps, on maps that know nothing, and from files to tables."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from coreferent import LETTERS, reader
from headscope.commands import app
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.errors import HeadscopeError
from headscope.study import probe as module
from headscope.study.probe import (
    COLUMNS,
    NEAR,
    PROBES,
    SPECIAL,
    AttentionAndWords,
    AttentionOnly,
    DistanceAndWords,
    Probe,
    RightBranching,
    Trees,
    WordMaps,
    WordVectors,
    fit,
    probe,
    read_vectors,
    score,
)
from tiny import eager_twin

HEADS = 6
PLANTED = 4
NO_VECTORS = WordVectors({"word": torch.ones(1)}, {"word"}, 1)


def random_tree(draw: random.Random, size: int) -> list[int]:
    """Candidates that govern: 0 is the root, 1 + i word i."""
    order = draw.sample(range(size), size)
    governors = [0] * size
    for place, word in enumerate(order[1:], start=1):
        governors[word] = 1 + draw.choice(order[:place])
    return governors


def forest(count: int, seed: int, first: int = 0) -> list[Trees]:
    """Batches of four sentences, two of them shorter than the others; every word is scored."""
    draw = random.Random(seed)
    batches = []
    for start in range(0, count, 4):
        size = draw.randrange(5, 12)
        trees = [random_tree(draw, size - i // 2) for i in range(4)]
        governors = torch.tensor([tree + [-1] * (size - len(tree)) for tree in trees])
        numbers = tuple(range(first + start, first + start + 4))
        batches.append(Trees(governors, governors >= 0, torch.zeros_like(governors), numbers=numbers))
    return batches


def gold_maps(trees: Trees, shuffled: bool = False) -> Tensor:
    """Noise in every head; in one of them governors look at their dependents, the classification token at the root."""
    noise = torch.Generator().manual_seed(trees.numbers[0])
    draw = random.Random(trees.numbers[0])
    places = SPECIAL + trees.governors.shape[1]
    maps = torch.rand(len(trees), HEADS, places, places, generator=noise)
    for sentence, row in enumerate(trees.governors.tolist()):
        governors = [governor for governor in row if governor >= 0]
        if shuffled:
            governors = random_tree(draw, len(governors))
        for word, governor in enumerate(governors):
            maps[sentence, PLANTED, 0 if governor == 0 else 1 + governor, SPECIAL + word] += 1.0
    return maps


def accuracy(probes: dict[str, Probe], test: list[Trees], maps: module.Maps | None) -> dict[str, float]:
    found = score(probes, test, maps, NO_VECTORS)
    return {name: sum(one.right.values()) / sum(one.words.values()) for name, one in found.items()}


def best_offset(trees: list[Trees]) -> float:
    counts: dict[int, int] = {}
    total = 0
    for batch in trees:
        for row in batch.governors.tolist():
            for word, governor in enumerate(row):
                total += governor >= 0
                if governor > 0:
                    counts[governor - 1 - word] = counts.get(governor - 1 - word, 0) + 1
    return max(counts.values()) / total


def test_a_head_that_holds_the_arcs_gets_the_weight_and_parses() -> None:
    train, test = forest(400, 1), forest(120, 2, first=1000)
    probes: dict[str, Probe] = {"only": AttentionOnly(HEADS), "words": AttentionAndWords(HEADS, 1)}
    fit(probes, train, gold_maps, NO_VECTORS)
    found = accuracy(probes, test, gold_maps)
    assert found["only"] > 0.97
    assert found["words"] > 0.97
    weight = probes["only"].weight.detach().reshape(2, HEADS).abs()  # type: ignore[union-attr,operator]
    strongest = weight[1, PLANTED].item()
    weight[1, PLANTED] = 0.0
    assert strongest > 5 * weight.max().item()


def test_maps_of_other_trees_are_worth_no_more_than_a_fixed_offset() -> None:
    train, test = forest(400, 1), forest(200, 2, first=1000)
    probes: dict[str, Probe] = {"only": AttentionOnly(HEADS)}
    fit(probes, train, lambda trees: gold_maps(trees, shuffled=True), NO_VECTORS)
    found = accuracy(probes, test, lambda trees: gold_maps(trees, shuffled=True))
    assert found["only"] < best_offset(test) + 0.05


# Against loops


def random_trees(seed: int = 0) -> tuple[Trees, Tensor, Tensor]:
    """A batch, its maps and its word vectors, with things beyond a sentence's end that must not matter."""
    noise = torch.Generator().manual_seed(seed)
    trees = forest(4, seed)[0]
    size = trees.governors.shape[1]
    maps = torch.rand(4, HEADS, SPECIAL + size, SPECIAL + size, generator=noise)
    return trees, maps, torch.randn(4, size, 3, generator=noise)


def loop_scores(one: nn.Module, trees: Trees, maps: Tensor, vectors: Tensor, s: int, j: int) -> list[float]:
    """The formulas of the paper and its code, candidate by candidate: the root, then the words."""
    parameters = {name: value.detach().double().numpy() for name, value in one.named_parameters()}
    a, v = maps[s].double().numpy(), vectors[s].double().numpy()
    size = int(trees.present[s].sum())
    width = v.shape[1]
    scores = []
    for i in range(-1, size):
        pair = np.zeros(2 * width) if i < 0 else np.concatenate([v[i], v[j]])
        if isinstance(one, DistanceAndWords):
            ahead, behind = (0, 0) if i < 0 else (max(i - j, 0) / size, max(j - i, 0) / size)
            near = [float(i >= 0 and i - j == offset) for offset in NEAR]
            inputs = np.concatenate([pair, [ahead, behind, *near, float(i < 0)]])
            matrix = np.concatenate([parameters[name] for name in ("governor", "dependent", "distance")])
            scores.append(float(np.tanh(inputs @ matrix + parameters["bias"]) @ parameters["out"]))
            continue
        total = 0.0
        for k in range(2 * HEADS):
            head, place = k % HEADS, SPECIAL + j
            looks = a[head, place] if k < HEADS else a[head, :, place]
            start, end = parameters["root"]
            value = start * looks[0] + end * looks[1] if i < 0 else looks[SPECIAL + i]
            if isinstance(one, AttentionOnly):
                total += parameters["weight"][k] * value
            else:
                matrix = np.concatenate([parameters["governor"], parameters["dependent"]])[:, k]
                total += (pair @ matrix + parameters["bias"][k]) * value
        scores.append(total)
    return scores


@pytest.mark.parametrize(
    "one", [AttentionOnly(HEADS), AttentionAndWords(HEADS, 3), DistanceAndWords(3)], ids=lambda one: type(one).__name__
)
def test_scores_are_those_of_the_formulas(one: nn.Module) -> None:
    trees, maps, vectors = random_trees()
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=noise))
        scores = one(trees, maps, vectors)
    assert scores.shape == (4, trees.governors.shape[1], trees.governors.shape[1] + 1)
    for s in range(4):
        size = int(trees.present[s].sum())
        for j in range(size):
            expected = loop_scores(one, trees, maps, vectors, s, j)
            np.testing.assert_allclose(scores[s, j, : size + 1].numpy(), expected, atol=1e-3)


def test_the_next_word_governs_and_the_root_governs_the_last() -> None:
    trees, maps, vectors = random_trees()
    scores = RightBranching()(trees, maps, vectors)
    for s in range(4):
        size = int(trees.present[s].sum())
        assert scores[s, :size].argmax(dim=-1).tolist() == [*range(2, size + 1), 0]


def test_credit_is_shared_and_only_scored_words_and_a_sentence_s_own_candidates_count() -> None:
    governors = torch.tensor([[0, 1, 1], [2, 0, -1]])
    scored = torch.tensor([[True, True, False], [True, True, False]])
    trees = Trees(governors, scored, torch.zeros_like(governors), numbers=(7, 3))

    class Fixed(Probe):
        def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
            return torch.tensor(
                [
                    [[1.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]],
                    [[0.0, 0.0, 1.0, 9.0], [0.0, 1.0, 0.0, 9.0], [0.0, 0.0, 0.0, 0.0]],
                ]
            )

    found = score({"fixed": Fixed()}, [trees], None, NO_VECTORS)["fixed"]
    assert found.right == {7: 1.5, 3: 1.0}
    assert found.words == {7: 2, 3: 2}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_maps_are_the_library_s_between_words_and_special_tokens(family: str) -> None:
    model = reader(family)
    texts = [("ab", "c", "abc", "d"), ("a", "bcd"), ("h",)]
    sequences = tuple(Encoder(model).encode([Example(words) for words in texts], 0))
    governors = torch.tensor([[0, 1, 1, 1], [0, 1, -1, -1], [0, -1, -1, -1]])
    trees = Trees(governors, governors >= 0, torch.zeros_like(governors), sequences, (0, 1, 2))
    maps = WordMaps(model, module._heads(model))(trees)
    assert maps.shape == (3, 4, 6, 6)
    twin = eager_twin(model)
    for s, sequence in enumerate(sequences):
        with torch.no_grad():
            layers = twin(torch.tensor([sequence.source.ids]), output_attentions=True).attentions
        whole = torch.cat([layer[0] for layer in layers])  # [head, token, token]
        groups: list[list[int]] = [[] for _ in range(6)]
        for place, (token, word) in enumerate(zip(sequence.source.ids, sequence.source.words, strict=True)):
            groups[{2: 0, 3: 1}[token] if word < 0 else SPECIAL + word].append(place)
        for q, query in enumerate(groups):
            for k, key in enumerate(groups):
                expected = whole[:, query][:, :, key].sum(dim=-1).mean(dim=-1) if query and key else torch.zeros(4)
                np.testing.assert_allclose(maps[s, :, q, k].numpy(), expected.numpy(), atol=1e-3)


def test_the_twin_keeps_the_embeddings_and_nothing_else() -> None:
    model = reader()
    twin = module._untrained(model, 0)
    own, drawn = (dict(one.model.named_parameters()) for one in (model, twin))
    same = {name for name, value in own.items() if value.dim() > 1 and torch.equal(value, drawn[name])}
    assert same == {f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")}


# Word vectors


def test_vectors_are_centred_reduced_and_scaled_by_the_words_trained_on() -> None:
    noise = torch.Generator().manual_seed(0)
    wide = torch.randn(30, 3, generator=noise) @ torch.randn(3, 8, generator=noise) + 5.0
    known = {f"w{i}": row for i, row in enumerate(wide)}
    vectors = WordVectors(known, {f"w{i}" for i in range(20)}, 3)
    assert vectors.rows(["w3", "stranger"]) == [4, 0]
    assert not vectors.table[0].any()
    seen = vectors.table[1:21]
    np.testing.assert_allclose(seen.mean(dim=0).numpy(), 0.0, atol=1e-5)
    assert seen.square().mean().item() == pytest.approx(1.0, abs=1e-5)
    # Three directions hold all there is: distances are kept, up to the scale.
    kept, whole = torch.pdist(vectors.table[1:]), torch.pdist(wide)
    np.testing.assert_allclose((kept / whole).numpy(), (kept / whole)[0].item(), rtol=1e-4)
    assert vectors.share([["w1", "x"], ["w2", "w29"]]) == 0.75


def test_vectors_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("4 2\nThe 1 2\nthe 3 4\n. . 5 6\nunused x y\n", "utf-8")
    found = read_vectors(path, {"the", ". ."})
    assert {key: value.tolist() for key, value in found.items()} == {"the": [1.0, 2.0], ". .": [5.0, 6.0]}


FORM = "a word and its numbers with blanks between them, as word2vec and GloVe write them"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "v.txt:2: 1 number after the word. Expected 2, as line 1 has it."),
        ("a 1 2\nb 1 2 3\n", "v.txt:2: 3 numbers after the word. Expected 2, as line 1 has it."),
        ("9 3\na 1 2\n", "v.txt:2: 2 numbers after the word. Expected 3, as line 1 has it."),
        ("a\n", f"v.txt:1: 0 numbers after the word. Expected {FORM}."),
        ("a 1 x\n", f'v.txt:1: "x" is not a number. Expected {FORM}.'),
        ("a 1 nan\n", f'v.txt:1: "nan" is not a number. Expected {FORM}.'),
        ("q 1 2\n", f"v.txt: it has a vector for none of the treebank's words. Expected {FORM}."),
        ("", f"v.txt: it has a vector for none of the treebank's words. Expected {FORM}."),
    ],
)
def test_bad_vectors_are_named_by_file_and_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v.txt").write_text(text, "utf-8")
    with pytest.raises(HeadscopeError) as error:
        read_vectors("v.txt", {"a", "b"})
    assert str(error.value) == message


# From files to tables


def conllu(sentences: list[tuple[list[str], list[int]]], relation: str = "dep") -> str:
    """The last word of each is punctuation."""
    lines = []
    for words, governors in sentences:
        for i, (word, governor) in enumerate(zip(words, governors, strict=True), start=1):
            name = "root" if governor == 0 else "punct" if i == len(words) else relation
            lines.append(f"{i}\t{word}\t_\tX\t_\t_\t{governor}\t{name}\t_\t_\n")
        lines.append("\n")
    return "".join(lines)


def sentences(count: int, seed: int) -> list[tuple[list[str], list[int]]]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        size = draw.randrange(3, 8)
        words = ["".join(draw.choices(LETTERS, k=draw.choice((1, 1, 2)))) for _ in range(size)]
        made.append((words, random_tree(draw, size)))
    return made


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.conllu").write_text(conllu(sentences(40, 0)), "utf-8")
    Path("test.conllu").write_text(conllu(sentences(30, 1)), "utf-8")
    return tmp_path


def test_a_run_gives_every_probe_with_its_interval_and_the_weights_of_every_head(files: Path) -> None:
    told: list[tuple[int, int]] = []
    found = probe(
        reader(), "train.conllu", test="test.conllu", dimensions=5, epochs=2, progress=lambda *it: told.append(it)
    )
    assert tuple(found.table.columns) == COLUMNS
    assert tuple(found.table["probe"]) == PROBES
    expected = [0, (2 * 5 + 8) * 256 + 512, 8 * 11 + 2, 8 + 2, 8 * 11 + 2]
    assert found.table["parameters"].tolist() == expected
    scored = sum(
        not (i == len(words) and governor > 0)
        for words, governors in sentences(30, 1)
        for i, governor in enumerate(governors, start=1)
    )
    assert found.table["count"].tolist() == [scored] * 5
    assert ((found.table["low"] <= found.table["uas"]) & (found.table["uas"] <= found.table["high"])).all()
    branching = sum(
        governor == (i + 1 if i < len(words) else 0)
        for words, governors in sentences(30, 1)
        for i, governor in enumerate(governors, start=1)
        if not (i == len(words) and governor > 0)
    )
    assert found.table["uas"][0] == pytest.approx(branching / scored)
    assert list(found.weights.columns) == ["stack", "layer", "head", "dependent", "governor"]
    assert len(found.weights) == 4
    assert told[-1] == (240, 240)
    assert found.record["test"]["used"] == 30
    assert found.record["vectors"] == {"files": [], "dimensions": 5, "known": 1.0}


def test_the_same_seed_gives_the_same_numbers_whatever_is_kept(files: Path) -> None:
    one, other = (probe(reader(), "train.conllu", test="test.conllu", epochs=2, memory=memory) for memory in (0, 2**30))
    pd.testing.assert_frame_equal(one.table, other.table, check_exact=True)
    pd.testing.assert_frame_equal(one.weights, other.weights, check_exact=True)


def test_how_sentences_are_batched_does_not_change_what_a_probe_says(files: Path) -> None:
    model, heads = reader(), module._heads(reader())
    data = module._Data(["train.conllu"], ["test.conllu"], False, None, 0)
    data.encode(model, None)
    batches = module._batched(data.test, NO_VECTORS, module._of_words, len(heads), 0)
    alone = [
        replace(
            trees,
            governors=trees.governors[i : i + 1, :size],
            scored=trees.scored[i : i + 1, :size],
            words=trees.words[i : i + 1, :size],
            encoded=trees.encoded[i : i + 1],
            numbers=trees.numbers[i : i + 1],
        )
        for trees in batches
        for i, size in enumerate(trees.present.sum(dim=1).tolist())
    ]
    assert len(alone) == 30
    only = AttentionOnly(len(heads))
    only.weight.data = torch.randn(only.weight.shape, generator=torch.Generator().manual_seed(0)) * 5
    probes: dict[str, Probe] = {"only": only, "branching": RightBranching(), "distance": DistanceAndWords(1)}
    together, apart = (score(probes, some, WordMaps(model, heads), NO_VECTORS) for some in (batches, alone))
    assert together == apart


def test_one_treebank_is_cut_into_halves(files: Path) -> None:
    found = probe(reader(), "train.conllu", epochs=1)
    train, test = found.record["train"], found.record["test"]
    assert (train["half"], test["half"]) == ("train", "test")
    assert train["used"] + test["used"] == 40
    assert min(train["used"], test["used"]) > 8


def test_a_model_without_special_tokens_is_probed_too(files: Path) -> None:
    found = probe(reader("gpt2"), "train.conllu", test="test.conllu", epochs=1)
    assert found.table["uas"].between(0, 1).all()
    assert set(found.weights["stack"]) == {"decoder"}


NONE = "Expected sentences in CoNLL-U that the model can read."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"test": "punctuation.conllu"},
            "punctuation.conllu: no sentence with words (beside punctuation) is left to be scored on. " + NONE,
        ),
        (
            {"limit": 1},
            "train.conllu: no sentence with words (beside punctuation) is left to be scored on. "
            + NONE
            + " Give others with --test: one file is cut into two halves.",
        ),
        (
            {"test": "test.conllu", "max_length": 4},
            "train.conllu: no sentence with words (beside punctuation) is left to train on (40 too long, 30 too long). "
            + NONE,
        ),
        ({"epochs": 0}, "--epochs: 0 is too few. Expected 1 or more."),
        ({"dimensions": 0}, "--dimensions: 0 is too few. Expected 1 or more."),
    ],
)
def test_what_leaves_nothing_to_probe_is_said(options: dict[str, object], message: str, files: Path) -> None:
    Path("punctuation.conllu").write_text("1\t.\t_\tPUNCT\t_\t_\t0\troot\t_\t_\n\n", "utf-8")
    with pytest.raises(HeadscopeError) as error:
        probe(reader(), "train.conllu", **options)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_the_command_writes_tables_and_record(files: Path) -> None:
    model = reader()
    assert model.tokenizer is not None
    model.model.float().save_pretrained("model")
    model.tokenizer.save_pretrained("model")
    Path("v.txt").write_text("".join(f"{letter} {i} {i * i}\n" for i, letter in enumerate(LETTERS)), "utf-8")
    command = "probe model --treebank train.conllu --test test.conllu --vectors v.txt --epochs 1 --out out"
    said = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert said.exit_code == 0
    assert [line.split()[0] for line in said.stdout.splitlines()] == ["probe", *PROBES]
    assert tuple(pd.read_csv("out/probes.csv")["probe"]) == PROBES
    assert len(pd.read_csv("out/probe_weights.csv")) == 4
    record = json.loads(Path("out/run.json").read_text("utf-8"))
    assert record["vectors"]["files"][0]["path"] == "v.txt"
    assert 0.3 < record["vectors"]["known"] < 0.9
