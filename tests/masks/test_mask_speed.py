"""Does a mask pay? Ways that leave work out give what the textbook gives, and what is said follows from the times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertModel
from typer.testing import CliRunner

from headscope import prune
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.masks import Mask, read_mask
from headscope.masks import speed as measuring
from headscope.masks.block_sparse import (
    attend_by_blocks,
    compile_flex,
    share_of_blocks,
    strips_of,
)
from headscope.masks.mask_file import MaskPositions, groups_of
from headscope.masks.patterns import PATTERNS
from headscope.masks.speed import MaskSpeed, MethodTime, SpeedAtLength, measure_mask_speed
from tiny import shared
from worded import saved

COMPOSED = ("longformer-no-diagonal", "window:width=3+first-and-last", "random:keep=0.02")


def textbook(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    scores = query.double() @ key.double().transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = torch.where(allowed, scores.exp(), 0.0)
    return (weights / weights.sum(dim=-1, keepdim=True)) @ value.double()


def states(heads: int, length: int) -> tuple[Tensor, ...]:
    return torch.randn(
        3, 2, heads, length, 4, generator=torch.Generator().manual_seed(length)
    ).unbind(0)


def met(name: str, length: int) -> Tensor:
    """A mask in which every query sees something."""
    allowed = read_mask(name).at(length)
    return allowed | (torch.eye(length, dtype=torch.bool) & ~allowed.any(dim=-1, keepdim=True))


def not_compiled(*args: Any, **kwargs: Any) -> Callable[..., Tensor]:
    raise RuntimeError("no C++ compiler was found\nand a long story")


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", not_compiled)


# Ways that leave work out


@pytest.mark.product
@pytest.mark.parametrize("length", [1, 2, 9, 128, 300])
@pytest.mark.parametrize("name", [*PATTERNS, *COMPOSED])
def test_attention_by_blocks_is_that_of_the_textbook(name: str, length: int) -> None:
    allowed = met(name, length)
    query, key, value = states(2, length)
    for block in (5, 128):
        result = attend_by_blocks(query, key, value, strips_of(allowed, block))
        kernel = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed
        )
        assert (result - kernel).abs().max() < 1e-5
        assert (result - textbook(query, key, value, allowed)).abs().max() < 1e-5


def test_heads_may_have_masks_of_their_own() -> None:
    allowed = torch.cat([met("window:width=1", 40), met("logsparse", 40), met("star", 40)])
    query, key, value = states(3, 40)
    result = attend_by_blocks(query, key, value, strips_of(allowed, 8))
    assert (result - textbook(query, key, value, allowed)).abs().max() < 1e-5


IN_STRIPS = {  # queries times keys, added up by hand over strips of 128 of 1,000 positions
    "window:width=8": 128 * 136 + 6 * 128 * 144 + 104 * 112,
    "star": 128 * 130 + 6 * 128 * 131 + 103 * 105 + 1 * 1000,  # the relay by itself
    "strided": 1000 * 1000,
}


@pytest.mark.parametrize("name", IN_STRIPS)
def test_a_strip_has_just_the_keys_that_its_queries_see(name: str) -> None:
    allowed = met(name, 1000)
    rows, cells = [], 0
    for strip in strips_of(allowed):
        queries, keys = (
            torch.arange(1000)[places].tolist() for places in (strip.queries, strip.keys)
        )
        seen = {key for query in queries for key in allowed[0, query].nonzero()[:, 0].tolist()}
        assert keys == sorted(seen)
        rows += queries
        cells += len(queries) * len(keys)
    assert sorted(rows) == list(range(1000)), "every query is answered once"
    assert cells == IN_STRIPS[name], "work is left out where the mask is local, and only there"


@pytest.mark.parametrize(
    ("name", "length"), [("window:width=2", 20), ("star", 33), ("dense", 7), ("diagonal", 12)]
)
def test_blocks_that_are_left_are_counted(name: str, length: int) -> None:
    allowed = met(name, length)[0].tolist()
    starts = range(0, length, 5)
    squares = [
        any(
            allowed[i][j]
            for i in range(top, min(top + 5, length))
            for j in range(left, min(left + 5, length))
        )
        for top in starts
        for left in starts
    ]
    assert share_of_blocks(met(name, length), 5) == pytest.approx(sum(squares) / len(squares))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", ["longformer", "bigbird", "no-diagonal"])
def test_flex_attention_is_given_the_mask_as_it_is(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Uncompiled here: slow, the same arithmetic."""
    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: function)
    per_head = torch.cat([met(name, 150), met("star", 150)])
    query, key, value = states(2, 150)
    for allowed in (per_head, per_head[:1]):
        result = compile_flex(allowed)(query, key, value)
        assert (result - textbook(query, key, value, allowed)).abs().max() < 1e-5


# What is measured


def test_ratios_shares_and_times_follow_from_the_clock(
    monkeypatch: pytest.MonkeyPatch, without_compiler: None
) -> None:
    turns = {2: np.array([[10.0, 1.0]] * 8), 3: np.array([[1.0, 2.0, 0.5]] * 7 + [[4.0, 4.0, 8.0]])}
    monkeypatch.setattr(
        measuring, "time_interleaved", lambda runs, repeats, progress: turns[len(runs)]
    )
    result = measure_mask_speed(shared("bert"), "window:width=1", lengths=(20, 10), repeats=8)
    assert (result.heads, result.width, result.site, result.run_length) == (4, 8, "encoder.0", 10)
    assert [row.length for row in result.lengths] == [10, 20]
    short, long = result.lengths
    dense, masked, by_blocks = long.ways
    assert (dense.milliseconds, dense.ratio, dense.low, dense.high) == (1000.0, 1.0, 1.0, 1.0)
    assert (masked.milliseconds, masked.ratio, masked.low) == (2000.0, 2.0, 1.0)
    assert (by_blocks.ratio, by_blocks.high) == (0.5, 2.0)
    # 10 s for the model at 10 tokens, of which its two sites' attention takes 1 s each: 0.8 s a token beside it.
    assert short.attention == pytest.approx(2 / (2 + 8))
    assert long.attention == pytest.approx(2 / (2 + 16))
    assert long.sparsity == pytest.approx(1 - 58 / 400)
    assert result.without_flex == "no C++ compiler was found"


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "xlnet", "vit"])
def test_families_are_measured_at_their_own_shape(without_compiler: None, family: str) -> None:
    model = shared(family)
    result = measure_mask_speed(model, "no-diagonal", lengths=(6,), batch_size=2, repeats=6)
    first = next(site for site in model.sites if site.stack in ("encoder", "decoder"))
    assert result.site == str(first)
    assert result.heads == len(first.numbers or ())
    [row] = result.lengths
    own = 1 if first.stack == "decoder" else 0  # a decoder's first token has but itself
    assert row.sparsity == pytest.approx(1 - ((15 + own) if first.stack == "decoder" else 30) / 36)
    assert (row.attention is None) == (family == "t5"), (
        "of attention of several kinds no share is told"
    )
    assert [one.way for one in row.ways] == ["dense", "masked", "by blocks"]


def test_what_gives_another_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "compile_flex", lambda allowed: lambda query, key, value: value)
    result = measure_mask_speed(shared("bert"), "star", lengths=(9,), repeats=6)
    assert result.without_flex.startswith(
        "block-sparse attention differs from masked attention by "
    )
    assert result.ways == ("dense", "masked", "by blocks")


def test_a_learned_mask_for_each_head_is_met_by_a_cut_model(without_compiler: None) -> None:
    model = shared("bert")
    allowed = torch.stack(
        [torch.ones(8, 8, dtype=torch.bool).tril(-head) for head in range(len(model.heads))]
    )
    allowed |= torch.eye(8, dtype=torch.bool)
    mask = MaskPositions(groups_of(model.heads, "head"), "head", False, True, allowed).mask("mine")
    result = measure_mask_speed(prune(model, "0.0,0.2").model, mask, lengths=(8,), repeats=6)
    assert result.heads == 2
    open_ = int(allowed[1].sum() + allowed[3].sum())
    assert result.lengths[0].sparsity == pytest.approx(1 - open_ / 128)


def test_a_mask_for_each_head_is_met_by_the_heads_that_are_left(without_compiler: None) -> None:
    per_head = Mask(
        "mine", lambda length, site: torch.ones(4, length, length, dtype=torch.bool).tril()
    )
    assert measure_mask_speed(shared("bert"), per_head, lengths=(8,), repeats=6).lengths[
        0
    ].sparsity == pytest.approx(28 / 64)


@pytest.mark.parametrize(
    ("highs", "pays"),
    [
        ((0.9, 0.8, 0.7), 256),
        ((1.1, 0.9, 0.8), 512),
        ((0.9, 1.1, 0.9), 1024),
        ((0.9, 0.9, 1.0), None),
    ],
)
def test_a_mask_pays_from_where_all_longer_ones_are_faster(
    highs: tuple[float, ...], pays: int | None
) -> None:
    rows = tuple(
        SpeedAtLength(
            length,
            0.9,
            0.5,
            0.5,
            (MethodTime("dense", 1, 1, 1, 1), MethodTime("by blocks", 1, high - 0.1, 0.1, high)),
        )
        for length, high in zip((256, 512, 1024), highs, strict=True)
    )
    result = MaskSpeed("window", "encoder.0", 1, 12, 32, 256, "", rows)
    assert result.pays_from("by blocks") == pays
    assert result.pays_from("flex") is None


# The command


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["speed", *words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertModel)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_says_what_was_measured_and_where_it_pays(
    folder: Path, without_compiler: None
) -> None:
    words = ("bert", "--mask", "window:width=1", "--length", "8,4", "--repeats", "6")
    outcome = run(*words, "--out", "pays.svg")
    assert outcome.exit_code == 0, outcome.output
    lines = outcome.stdout.splitlines()
    assert lines[1].split("  ")[0] == "tokens"
    assert [line.split()[0] for line in lines[2:8]] == ["4", "masked", "by", "8", "masked", "by"]
    assert (
        lines[-3]
        == "milliseconds: of the fastest turn; times as fast: the median of the ratios within a turn"
    )
    assert lines[-4] == "flex: left out, as it cannot be compiled here: no C++ compiler was found"
    assert lines[-1] == "pays.svg"
    assert "<svg" in (folder / "pays.svg").read_text("utf-8")
    record = json.loads(run(*words, "--json").stdout)
    assert [row["length"] for row in record["lengths"]] == [4, 8]
    assert set(record["pays_from"]) == {"by blocks", "flex"}
    assert record["lengths"][0]["sparsity"] == pytest.approx(6 / 16)


REFUSED = [
    (("--mask", "spiral"), '--mask "spiral": "spiral" is not a mask'),
    (
        ("--mask", "star", "--length", "8,x"),
        '--length must be one or more whole numbers such as 3,10,20, got "8,x"',
    ),
    (("--mask", "star", "--length", "0"), "--length must be at least 1, got 0"),
    (
        ("--mask", "star", "--length", "8,8"),
        "--length must not repeat a value.",
    ),
    (
        ("--mask", "star", "--length", "70000"),
        "--length must be at most 16384 with --mask, got 70000.",
    ),
    (("--mask", "star", "--batch-size", "0"), "--batch-size must be at least 1, got 0"),
    (
        ("--mask", "star", "--repeats", "5"),
        "--repeats must be at least 6 with --mask, got 5.",
    ),
    (("--mask", "star", "--against", "bert"), "--against requires that --mask is left out."),
    (
        ("--mask", "star", "--out", "pays.pdf"),
        'pays.pdf: the name of a picture must end in .svg or .png, got ".pdf".',
    ),
    (
        ("--mask", "star", "--out", "no/pays.svg"),
        "no/pays.svg: cannot be written: there is no directory no.",
    ),
    (("--out", "pays.svg"), "--out requires --mask NAME. It has no effect otherwise."),
    (("--length", "8,16"), "several values of --length require --mask."),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_measured_is_reported_before_a_model_is_loaded(
    words: tuple[str, ...], message: str
) -> None:
    refused = run("no-such-model", *words)
    assert isinstance(refused.exception, HeadscopeError), refused.output
    assert str(refused.exception).startswith(message)
