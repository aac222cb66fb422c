"""Heads fixed for good are the heads under the edit, in every family that can lose queries and keys by heads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from headscope.ablation.ablation_targets import variants_of
from headscope.ablation.modes.fixed import nearest_patterns
from headscope.ablation.sweep import Sweep
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Uniform
from headscope.model.fix_heads import fix, format_patterns, read_patterns
from headscope.model.fixed_attention import TokenPositions
from headscope.model.fixed_patterns import LOOK_AHEAD, PATTERNS, Fixed
from headscope.model.surgery import prune
from headscope.model.weights import weights_sha256
from tiny import (
    DECODERS,
    FAMILIES,
    MOVED_BY_LEFT_PADDING,
    TAPPED,
    at_real_tokens,
    batch_for,
    examples,
    shared,
    tiny,
)
from toys import Means, means_of

REFUSED = (*DECODERS, *TAPPED, "esm", "modernbert")  # fused, rotated or not by a module
CAN = tuple(family for family in FAMILIES if family not in REFUSED)
FEW = ("albert", "bert", "distilbert", "marian", "t5", "vit")  # one of each kind


def patterns_for(model: AttentionModel, learned: tuple[int, ...] = (1,)) -> dict[Head, str]:
    """Every pattern in turns, for all heads of self-attention but these."""
    result = {}
    for i, head in enumerate(
        head for head in model.heads if head.stack != "cross" and head.head not in learned
    ):
        names = [name for name in PATTERNS if head.stack == "encoder" or name not in LOOK_AHEAD]
        turn = head.head if model.model.config.model_type == "albert" else i
        result[head] = names[turn % len(names)]
    return result


def states(model: AttentionModel, side: str = "right") -> Tensor:
    batch = batch_for(model, examples(model.model.config.model_type), side)
    with torch.inference_mode():
        return at_real_tokens(model(batch)[0], dict(batch.inputs))


def edited(model: AttentionModel, patterns: dict[Head, str], side: str = "right") -> Tensor:
    with model.edited(Fixed(patterns)):
        return states(model, side)


# The kernel, beside loops over positions


def result_by_hand(name: str, values: Tensor, row: int, is_causal: bool) -> Tensor:
    """What a head of this pattern gives at one row of a text [token, width] without padding, written out."""
    last = len(values) - 1
    weights = [0.0] * len(values)
    if name in ("current", "previous", "next", "first"):
        wanted = {
            "current": row,
            "previous": max(row - 1, 0),
            "next": min(row + 1, last),
            "first": 0,
        }[name]
        weights[wanted] = 1.0
    for j in range(len(values)):
        if name == "left" and (j <= row - 2 or (row < 2 and j == 0)):
            weights[j] = float((j + 1) ** 3)
        if name == "right" and (j >= row + 2 or (row > last - 2 and j == last)):
            weights[j] = float((last - j + 1) ** 3)
        if name == "end":
            weights[j] = float((j + 1) ** 3)
        if name == "start":
            weights[j] = float((last - j + 1) ** 3)
        if name == "uniform" and (j <= row or not is_causal):
            weights[j] = 1.0
    total = torch.zeros_like(values[0])
    for weight, value in zip(weights, values, strict=True):
        total = total + weight / sum(weights) * value
    return total


MASKS = {
    "none": [[1] * 7] * 2,
    "right": [[1] * 7, [1, 1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]],
    "left": [[0, 0, 1, 1, 1, 1, 1], [1] * 7],
    "between": [[1, 0, 1, 1, 0, 0, 1], [0, 1, 0, 0, 1, 0, 0]],
}


@pytest.mark.parametrize("padding", MASKS)
@pytest.mark.parametrize(
    ("name", "is_causal"),
    [(name, way) for name in PATTERNS for way in (False, True) if not (way and name in LOOK_AHEAD)],
)
def test_results_agree_with_sums_over_positions_by_hand(
    name: str, padding: str, is_causal: bool
) -> None:
    real = torch.tensor(MASKS[padding], dtype=torch.bool)
    values = torch.randn(
        len(real), 2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    result = TokenPositions(real, 7).results(name, values, is_causal)
    for sequence, tokens in enumerate(real):
        for head in range(2):
            text = values[sequence, head][tokens]
            for row, position in enumerate(tokens.nonzero()[:, 0].tolist()):
                wanted = result_by_hand(name, text, row, is_causal)
                assert torch.allclose(result[sequence, head, position], wanted, atol=1e-12), (
                    sequence,
                    head,
                    row,
                )


def test_the_last_rows_alone_are_the_last_of_all_rows() -> None:
    """As with a cache of earlier tokens."""
    real = torch.tensor(MASKS["left"], dtype=torch.bool)
    values = torch.randn(2, 2, 7, 3, generator=torch.Generator().manual_seed(1))
    for name in ("current", "previous", "left", "uniform", "first"):
        whole, last = (TokenPositions(real, rows).results(name, values, True) for rows in (7, 2))
        assert torch.equal(whole[:, :, -2:], last), name


# Every family


@pytest.mark.parametrize("family", CAN)
def test_the_fixed_model_is_the_edited_one(family: str) -> None:
    model = tiny(family)
    model.model.double()
    patterns = patterns_for(model)
    fixed = fix(model, patterns)
    for side in ("right", "left"):
        assert (states(fixed, side) - edited(model, patterns, side)).abs().max() < 1e-10
    assert fixed.fixed == patterns
    assert fixed.heads == model.heads
    assert sum(p.numel() for p in fixed.model.parameters()) < sum(
        p.numel() for p in model.model.parameters()
    )
    fixed.self_check()


@pytest.mark.parametrize(
    "family", [family for family in FEW if family not in MOVED_BY_LEFT_PADDING]
)
def test_the_side_of_the_padding_changes_nothing(family: str) -> None:
    fixed = fix(tiny(family), patterns_for(shared(family)))
    assert torch.allclose(states(fixed, "left"), states(fixed, "right"), atol=2e-5)


@pytest.mark.parametrize("family", FEW)
def test_all_heads_of_a_layer_may_be_fixed(family: str) -> None:
    model = tiny(family)
    model.model.double()
    patterns = patterns_for(model, learned=())
    fixed = fix(model, patterns)
    assert (states(fixed) - edited(model, patterns)).abs().max() < 1e-10
    learned = {head.site for head in patterns}
    names = [name for name, _ in fixed.model.named_parameters()]
    for name, sites in fixed.attention_modules.items():
        if sites[0] in learned:
            core = fixed.model.get_submodule(name)
            assert not [one for one in names if one.startswith(f"{name}.{core.fixed_heads.query}.")]


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_are_refused_by_name(family: str) -> None:
    model = shared(family)
    with pytest.raises(HeadscopeError) as raised:
        fix(model, {model.heads[0]: "first"})
    output = str(raised.value)
    assert type(model.model).__name__ in output
    assert "are not the outputs of separate linear layers" in output
    assert "\n" not in output


def test_fixed_heads_are_watched_and_edited_as_any() -> None:
    model = shared("bert")
    patterns = read_patterns("0.0,1.2=previous,0.1=left,1.3=end", model.heads)
    fixed = fix(model, patterns)
    result = nearest_patterns(fixed, Means(), means_of("bert"), batch_size=3)
    assert {head: result[head] for head in patterns} == patterns
    for edit in (Ablate("0.0,1.1"), Uniform("0.1,1.*"), Fixed({"0.0": "next"})):
        with fixed.edited(edit):
            mine = states(fixed)
        with model.edited(Fixed(patterns), edit):
            assert torch.allclose(mine, states(model), atol=1e-5), edit


def test_patterns_as_text_are_those_of_the_dict() -> None:
    model = shared("bert")
    as_text = fix(model, "0.0,1.2=previous,0.1=left")
    as_dict = fix(model, {"0.0,1.2": "previous", "0.1": "left"})
    assert torch.equal(states(as_text), states(as_dict))
    for wrong in (["0.0=previous"], 3.2):
        with pytest.raises(HeadscopeError, match="must be a dict of patterns by heads, got"):
            fix(model, wrong)  # type: ignore[arg-type]
    with pytest.raises(HeadscopeError, match="prevous"):
        fix(model, "0.0=prevous")


def test_importance_of_a_fixed_model_is_that_of_the_edited_one() -> None:
    model, task, prepared = shared("bert"), Means(), means_of("bert")
    patterns = patterns_for(model)
    fixed = fix(model, patterns)
    sweeps = [
        Sweep(fixed, task, prepared, batch_size=3),
        Sweep(model, task, prepared, batch_size=3, method="plain"),
    ]
    with model.edited(Fixed(patterns)):
        units = [
            list(first.run(0, range(8), first.groups(variants_of(first.model, "head"))))
            for first in sweeps
        ]
    assert sweeps[0].method == "reuse"
    for first, other in zip(*units, strict=True):
        assert first.group == other.group
        assert abs(first.losses - other.losses).max() < 1e-5


@pytest.mark.parametrize("family", FEW)
def test_fixed_and_cut_in_either_order_is_the_same(family: str) -> None:
    model = tiny(family)
    model.model.double()
    patterns = patterns_for(model)
    gone = "*.0-1" if family == "albert" else [model.heads[0], model.heads[1]]
    fixed = prune(fix(model, patterns), gone)
    left = {head: name for head, name in patterns.items() if head in fixed.heads}
    other = fix(prune(model, gone), left)
    assert fixed.heads == other.heads
    assert fixed.fixed == other.fixed == left
    for (name, mine), theirs in zip(
        fixed.model.named_parameters(), other.model.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs), name
    with model.edited(Ablate(gone), Fixed(patterns)):
        assert (states(fixed) - states(model)).abs().max() < 1e-10


def test_a_layer_of_fixed_heads_may_be_cut_whole() -> None:
    model = tiny("bert")
    fixed = prune(fix(model, {"0.*": "previous", "1.0": "end"}), layers=[0])
    with model.edited(Ablate("0.*"), Fixed({"1.0": "end"})):
        assert torch.allclose(states(fixed), states(model), atol=1e-5)
    assert list(map(str, fixed.fixed)) == ["encoder.1.0"]


def test_heads_may_be_fixed_one_after_another() -> None:
    model = tiny("bert")
    twice, once = (
        fix(fix(model, {"0.1": "left"}), {"0.3,1.*": "next"}),
        fix(model, {"0.1": "left", "0.3,1.*": "next"}),
    )
    assert twice.fixed == once.fixed
    for (name, mine), theirs in zip(
        twice.model.named_parameters(), once.model.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs), name
    with pytest.raises(HeadscopeError, match=r"encoder\.0\.1 is fixed already: left"):
        fix(twice, {"0.1": "next"})


@pytest.mark.parametrize("family", ["marian", "t5"])
@pytest.mark.parametrize("learned", [(1,), ()])
def test_a_translator_with_fixed_heads_says_the_same_with_a_cache(
    family: str, learned: tuple[int, ...]
) -> None:
    model = tiny(family, head=AutoModelForSeq2SeqLM)
    fixed = fix(model, patterns_for(model, learned))
    inputs = batch_for(fixed, examples(family)[:3]).inputs
    generate_inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")} | {
        "max_new_tokens": 6,
        "num_beams": 2,
    }
    with torch.inference_mode():
        outputs = [
            fixed.model.generate(**generate_inputs, do_sample=False, use_cache=way)
            for way in (True, False)
        ]
    assert torch.equal(*outputs)


def test_there_is_no_gradient_to_what_fixed_heads_do_not_have() -> None:
    fixed = fix(tiny("bert"), {"0.0-2": "previous", "1.*": "left"})
    state = fixed.model.state_dict()
    assert state["encoder.layer.0.attention.self.query.weight"].shape == (8, 32)
    assert state["encoder.layer.0.attention.self.key.bias"].shape == (8,)
    assert state["encoder.layer.0.attention.self.value.weight"].shape == (32, 32)
    assert not [
        name
        for name in state
        if "layer.1.attention.self.query" in name or "layer.1.attention.self.key" in name
    ]
    fixed.model.train()
    fixed(batch_for(fixed, examples("bert")))[0].square().sum().backward()
    core = fixed.model.encoder.layer
    for parameter in (core[0].attention.self.query.weight, core[0].attention.self.value.weight):
        assert parameter.grad.any()
    assert core[1].attention.self.value.weight.grad.view(4, -1).any(dim=1).all()


def test_gradients_are_those_of_the_edited_model() -> None:
    model = tiny("bert")
    patterns = patterns_for(model)
    fixed = fix(model, patterns)
    batch = batch_for(model, examples("bert"))
    mask = batch.inputs["attention_mask"][..., None]
    (fixed(batch)[0] * mask).square().sum().backward()
    with model.edited(Fixed(patterns)):
        (model(batch)[0] * mask).square().sum().backward()
    for layer in (0, 1):
        mine, theirs = (one.model.encoder.layer[layer].attention.self for one in (fixed, model))
        assert torch.allclose(
            mine.value.weight.grad, theirs.value.weight.grad, rtol=1e-3, atol=1e-4
        )
        rows = theirs.query.weight.grad.view(4, 8, -1)
        assert torch.allclose(mine.query.weight.grad, rows[1], rtol=1e-3, atol=1e-4)
        assert not rows[[0, 2, 3]].any()


def test_which_patterns_it_has_is_part_of_which_model_it_is() -> None:
    first, other = (fix(shared("bert"), {"0.1": name}) for name in ("left", "next"))
    assert weights_sha256(first) != weights_sha256(other)


# What is written, and what is refused


def test_patterns_are_read_as_they_are_written(tmp_path: Path) -> None:
    heads = shared("bert").heads
    result = read_patterns("0.0-1, 1.3=previous , 0.2=end", heads)
    assert {str(head): name for head, name in result.items()} == {
        "encoder.0.0": "previous",
        "encoder.0.1": "previous",
        "encoder.1.3": "previous",
        "encoder.0.2": "end",
    }
    path = tmp_path / "patterns.txt"
    path.write_text(f"# mine\n\n{format_patterns(result, heads)}")
    assert read_patterns(str(path), heads) == result


def test_raganato_is_the_papers_order_in_every_layer() -> None:
    result = read_patterns("encoder.*.0,encoder.*.2-3=raganato", shared("marian").heads)
    assert [f"{head}={name}" for head, name in result.items()] == [
        f"encoder.{layer}.{end}"
        for layer in (0, 1)
        for end in ("0=current", "2=previous", "3=next")
    ]


WRONG = {
    "0.1=spiral": '`fix`: "spiral" is not a fixed pattern',
    "0.9=left": '"0.9" is not in this model',
    "0.1": '`fix` "0.1": "0.1" has no pattern. Expected such as 3.2=previous,encoder.*.0-6=raganato',
    "0.1=left,0.0-1=next": "encoder.0.1 is given twice",
    "": '`fix` "": "" has no pattern',
    "=left": '"" does not name a head',
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(HeadscopeError) as raised:
        read_patterns(text, shared("bert").heads)
    assert WRONG[text] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_fixed_for_good_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="no head to fix"):
        fix(shared("bert"), {})
    with pytest.raises(
        HeadscopeError, match=r"encoder\.0\.2 cannot be fixed alone: layers share their weights"
    ):
        fix(shared("albert"), {"0.2": "left"})
    with pytest.raises(HeadscopeError, match="cannot look ahead, as next does"):
        read_patterns("decoder.*.*=raganato", tiny("marian", decoder_attention_heads=4).heads)
    with pytest.raises(
        HeadscopeError, match=r"8 heads of encoder\.0 for the 7 patterns of raganato"
    ):
        read_patterns("0.*=raganato", tiny("bert", num_attention_heads=8).heads)
    model = shared("bert")
    with (
        model.edited(Ablate("0.0")),
        pytest.raises(HeadscopeError, match="is being watched or edited"),
    ):
        fix(model, {"0.1": "left"})
