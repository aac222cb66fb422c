"""Word vectors: how they are scaled, how a file of them is read, and what is said of one that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headscope.data.word_vectors import WordVectors, read_vectors
from headscope.errors import HeadscopeError


def test_vectors_are_centred_reduced_and_scaled_by_the_words_trained_on() -> None:
    noise = torch.Generator().manual_seed(0)
    wide = torch.randn(30, 3, generator=noise) @ torch.randn(3, 8, generator=noise) + 5.0
    expected = {f"w{i}": row for i, row in enumerate(wide)}
    vectors = WordVectors(expected, {f"w{i}" for i in range(20)}, 3)
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
    result = read_vectors(path, {"the", ". ."})
    assert {key: value.tolist() for key, value in result.items()} == {
        "the": [1.0, 2.0],
        ". .": [5.0, 6.0],
    }


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
