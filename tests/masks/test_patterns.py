"""Named masks: what they allow, the sparsities that were printed, names and parameters as they are written."""

from __future__ import annotations

import pytest
import torch

from headscope.errors import HeadscopeError
from headscope.masks import read_mask, sparsity
from headscope.masks.patterns import PATTERNS

PRINTED = {  # SparseBERT's table 4: percent without attention, with and without the diagonal, at 128 positions
    "strided": (70.4, 71.2),
    "fixed": (72.7, 73.4),
    "longformer": (88.7, 89.5),
    "logsparse": (89.8, 90.6),
    "bigbird": (93.2, 93.9),
    "star": (96.1, 96.9),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_printed_sparsities_are_reproduced(name: str) -> None:
    with_diagonal, without = PRINTED[name]
    tolerance = 0.1 if name == "bigbird" else 0.05  # bigbird's is by chance: 93.16 on average
    assert 100 * sparsity(read_mask(name).at(128)) == pytest.approx(with_diagonal, abs=tolerance)
    assert round(100 * sparsity(read_mask(f"{name}-no-diagonal").at(128)), 1) == pytest.approx(
        without, abs=0.1001
    )


def slow(name: str, length: int) -> list[list[bool]]:
    """The definitions, cell by cell."""
    rules = {
        "dense": lambda i, j: True,
        "diagonal": lambda i, j: i == j,
        "no-diagonal": lambda i, j: i != j,
        "window": lambda i, j: abs(i - j) <= 4,
        "first-and-last": lambda i, j: 0 in (i, j) or length - 1 in (i, j),
        "strided": lambda i, j: abs(i - j) <= 4 or (i - j) % 4 == 0,
        "fixed": lambda i, j: i // 4 == j // 4 or j % 4 == 3,
        "longformer": lambda i, j: abs(i - j) <= 5 or {i, j} & {0, length // 2} != set(),
        "logsparse": lambda i, j: abs(i - j) in (0, 1, 2, 4, 8, 16, 32, 64),
        "star": lambda i, j: abs(i - j) <= 1 or 0 in (i, j),
    }
    return [[bool(rules[name](i, j)) for j in range(length)] for i in range(length)]


@pytest.mark.parametrize("length", [1, 2, 3, 9, 70])
@pytest.mark.parametrize("name", sorted(set(PATTERNS) - {"bigbird", "random"}))
def test_each_mask_is_its_definition(name: str, length: int) -> None:
    assert read_mask(name).at(length)[0].tolist() == slow(name, length)


def test_masks_by_chance_follow_from_their_seed() -> None:
    for name in ("bigbird", "random"):
        assert torch.equal(read_mask(name).at(40), read_mask(f"{name}:seed=0").at(40))
        assert not torch.equal(read_mask(name).at(40), read_mask(f"{name}:seed=1").at(40))
    assert read_mask("random:keep=0.25").at(40)[0].sum(dim=1).tolist() == [10] * 40
    assert read_mask("random:drop=1").at(40)[0].sum(dim=1).tolist() == [39] * 40
    assert read_mask("random:keep=0").at(5)[0].sum(dim=1).tolist() == [1] * 5
    extra = read_mask("bigbird").at(128)[0] & ~read_mask("star").at(128)[0]
    assert extra[1:].sum(dim=1).max() <= 4
    assert extra.sum() > 400


def test_bigbirds_default_is_as_documented() -> None:
    assert int(read_mask("bigbird").at(128).sum()) == 1126
    shares = [sparsity(read_mask(f"bigbird:seed={seed}").at(128)) for seed in range(200)]
    assert 100 * sum(shares) / len(shares) == pytest.approx(93.16, abs=0.01)


def test_parameters_unions_and_missing_diagonals() -> None:
    assert torch.equal(
        read_mask("window:width=2").at(9)[0],
        (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 2,
    )
    wide = read_mask("longformer:width=1,globals=first/3/last").at(9)[0]
    assert wide[3].all()
    assert wide[:, 8].all()
    assert not wide[1, 5]
    together = read_mask("window:width=0+first-and-last").at(9)[0]
    assert torch.equal(
        together, read_mask("diagonal").at(9)[0] | read_mask("first-and-last").at(9)[0]
    )
    bare = read_mask("window:width=2-no-diagonal").at(9)[0]
    assert not bare.diagonal().any()
    assert bare[0, 2]


REFUSED = [
    ("spiral", '`mask` "spiral": "spiral" is not a mask. Expected '),
    (
        "window:height=2",
        '`mask` "window:height=2": "height" is not a parameter of this mask. Expected width=4.',
    ),
    ("dense:width=2", "is not a parameter of this mask. Expected no parameters."),
    ("window:width=x", '`mask` "window:width=x": width must be a number of at least 0, got "x".'),
    ("strided:stride=0", "stride must be at least 1, got 0."),
    ("random:keep=1.5", "keep must be between 0 and 1, got 1.5."),
    (
        "longformer:globals=left",
        '"left" is not a position. Expected numbers from 0, first, middle or last, separated by /.',
    ),
    ("window+", '"" is not a mask.'),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_what_is_no_mask_is_refused(spec: str, message: str) -> None:
    with pytest.raises(HeadscopeError) as refused:
        read_mask(spec)
    assert message in str(refused.value)
