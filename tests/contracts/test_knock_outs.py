"""Knock-outs of every family against runs in which single values are zeroed by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, MaskScores
from headscope.model.knockout import KnockOut
from headscope.model.tokens import Batch
from headscope.model.value_zeroing import knockout_effects, value_zeroing, zero_values
from tiny import FAMILIES, at_real_tokens, batch_for, examples, in_double, outputs, shared, tiny

ONE = ((7, 3),)
TEXT_FAMILIES = [family for family in FAMILIES if family != "vit"]
VALUES = re.compile(r"(value|value_proj|v_proj|v_lin|\.v|v|c_attn|Wqkv|rel_attn)$")


def single_batch(family: str, model: AttentionModel) -> Batch:
    return batch_for(model, examples(family, seed=3, lengths=ONE))


def blocks_of(model: AttentionModel) -> list[str]:
    """The layers by name: the first number in a module's name ends its layer's."""
    names = [name for name, _ in model.model.named_modules() if name.rpartition(".")[2].isdigit()]
    outermost = [name for name in names if sum(part.isdigit() for part in name.split(".")) == 1]
    return [name for name in outermost if not re.search(r"ffn|bottleneck|groups_", name)]


def value_module(model: AttentionModel, block: str, stack: str) -> tuple[str, nn.Module]:
    actual = [
        (name, module)
        for name, module in model.model.get_submodule(block).named_modules()
        if VALUES.search(name)
        and not (isinstance(module, nn.Sequential) or name.endswith("LayerNorm"))
    ]
    crossing = [
        pair for pair in actual if re.search(r"encoder_attn|EncDecAttention|layer\.1", pair[0])
    ]
    own = [pair for pair in actual if pair not in crossing]
    chosen = crossing if stack == "cross" else own
    assert len(chosen) == 1, [name for name, _ in chosen]
    return chosen[0]


@contextmanager
def without_value(
    model: AttentionModel, block: str, stack: str, turn: int, token: int
) -> Iterator[None]:
    """By hand: what the layer's value projection gives for one token is zero, at the block's turn-th call."""
    name, module = value_module(model, block, stack)
    width = model.model.config.hidden_size
    calls = 0

    def zero(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls - 1 != turn:
            return output
        output = output.clone()
        output[:, token, 2 * width if name.endswith(("c_attn", "Wqkv")) else 0 :] = 0
        return output

    if name.endswith("rel_attn"):  # XLNet's values are no module's output
        original: Callable[..., Any] = module.rel_attn_core

        def core(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Any:
            value = value.clone()
            value[token] = 0
            return original(query, key, value, *rest, **named)

        module.rel_attn_core = core  # type: ignore[assignment]
        try:
            yield
        finally:
            del module.rel_attn_core
        return
    handle = module.register_forward_hook(zero)
    try:
        yield
    finally:
        handle.remove()


def block_states(model: AttentionModel, batch: Batch) -> dict[tuple[str, int], Tensor]:
    """What every call of every layer gives [token, width]."""
    result: dict[tuple[str, int], Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            states = output if isinstance(output, Tensor) else output[0]
            turn = sum(other == name for other, _ in result)
            result[name, turn] = states.flatten(0, 1)  # one sequence, whichever axis it is

        return hook

    with ExitStack() as stack, torch.inference_mode():
        for name in blocks_of(model):
            stack.callback(model.model.get_submodule(name).register_forward_hook(keep(name)).remove)
        model(batch)
    return result


def one_minus_cosine(single_batch: Tensor, other: Tensor) -> float:
    return 1 - float(single_batch @ other / (single_batch.norm() * other.norm()))


def by_hand(model: AttentionModel, batch: Batch, stack: str) -> NDArray[np.float64]:
    """[layer, query, key], a run for every layer and token."""
    sides = batch.layout.sides(stack)
    assert sides is not None
    plain = block_states(model, batch)
    is_decoder = stack != "encoder" and model.is_encoder_decoder
    calls = [position for position in plain if ("decoder" in position[0]) == is_decoder]
    result = np.zeros((len(calls), sides[0].length, sides[1].length))
    for layer, (block, turn) in enumerate(calls):
        for key in range(sides[1].length):
            with without_value(model, block, stack, turn, key):
                changed = block_states(model, batch)
            for query in range(sides[0].length):
                result[layer, query, key] = one_minus_cosine(
                    plain[block, turn][query], changed[block, turn][query]
                )
    return result


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_value_zeroing_is_that_of_a_run_for_every_token(family: str) -> None:
    model = in_double(shared(family))
    batch = single_batch(family, model)
    result = value_zeroing(model, batch)
    turned = zero_values(model, batch)
    assert not model.is_open
    tolerance = 1e-9 if next(model.model.parameters()).dtype == torch.float64 else 1e-5
    tolerance = (
        1e-6 if family in ("t5", "mt5", "llama", "mistral", "qwen2", "qwen3") else tolerance
    )  # float32 norms
    for stack, values in result.items():
        wanted = by_hand(model, batch, stack)
        for site, cells in turned[stack].items():
            np.testing.assert_allclose(cells[0], wanted[site.layer], atol=tolerance)
            assert cells.max() > 1e-3
        np.testing.assert_allclose(values.sum(axis=-1), 1, atol=1e-5)
        sums = wanted.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(values[:, 0], wanted / sums, atol=1e3 * tolerance)


def test_values_that_nobody_gathers_are_missed_by_nobody() -> None:
    model = shared("bert")
    batch = single_batch("bert", model)
    separators = batch.layout.encoder.separator[0].numpy()  # type: ignore[union-attr]
    with model.edited(KnockOut("separator", renormalise=False)):
        result = value_zeroing(model, batch)["encoder"]
    assert separators.sum() == 2
    assert (result[..., separators] == 0).all()
    assert (result[..., ~separators] > 0).all()


def test_a_head_that_says_nothing_turns_nothing() -> None:
    model = tiny("bert")
    projection = model.model.encoder.layer[1].attention.output.dense
    with torch.no_grad():
        projection.weight[:, 8:16] = 0  # head 1 of four, 8 wide
    result = zero_values(model, single_batch("bert", model), by_head=True)["encoder"]
    assert result[Site("encoder", 1)].shape == (4, 7, 7)
    assert (result[Site("encoder", 1)][1] == 0).all()
    for head in (0, 2, 3):
        assert (result[Site("encoder", 1)][head] > 0).all()


def test_one_head_alone_is_its_layer() -> None:
    model = tiny("bert", num_attention_heads=1)
    batch = single_batch("bert", model)
    together, alone = (
        zero_values(model, batch)["encoder"],
        zero_values(model, batch, by_head=True)["encoder"],
    )
    for site in together:
        np.testing.assert_array_equal(together[site], alone[site])


def test_how_many_tries_share_a_batch_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_double(shared("marian"))
    batch = single_batch("marian", model)
    whole, other = zero_values(model, batch, by_head=True), knockout_effects(model, batch)
    monkeypatch.setattr("headscope.model.value_zeroing.ROW_TOKENS", 27)
    parts, others = zero_values(model, batch, by_head=True), knockout_effects(model, batch)
    for stack in whole:
        np.testing.assert_allclose(other[stack], others[stack], atol=1e-9)
        for site in whole[stack]:
            np.testing.assert_allclose(whole[stack][site], parts[stack][site], atol=1e-9)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_the_map_of_knock_outs_is_that_of_single_runs(family: str) -> None:
    model = in_double(shared(family))
    batch = single_batch(family, model)
    for stack, values in knockout_effects(model, batch).items():
        if stack == "encoder" and model.is_encoder_decoder:
            continue  # its last states are not the model's output
        _, key_side = batch.layout.sides(stack)  # type: ignore[misc]
        with torch.inference_mode():
            plain = model(batch)[0][0]
        for layer, key in np.ndindex(values.shape[0], values.shape[3]):
            allowed = torch.ones(1, 1, 1, key_side.length, dtype=torch.bool)
            allowed[..., key] = False
            masked = MaskScores(
                allowed, heads=[head for head in model.heads if head.site == Site(stack, layer)]
            )
            with torch.inference_mode(), model.edited(masked):
                changed = model(batch)[0][0]
            for query in range(values.shape[2]):
                if (stack, key, query) == ("decoder", 0, 0):
                    assert values[layer, 0, 0, 0] == pytest.approx(
                        0, abs=1e-7
                    )  # it has no other key, so it is spared
                    continue
                wanted = one_minus_cosine(plain[query], changed[query])
                assert values[layer, 0, query, key] == pytest.approx(wanted, abs=1e-6)
    assert np.abs(values[:, 0] - values[:, 1]).max() > 1e-3  # the two forms are not the same


# The edit


@pytest.mark.parametrize("side", ["right", "left"])
def test_positions_and_classes_are_those_of_real_tokens(side: str) -> None:
    model = shared("bert")
    chosen = examples("bert", lengths=((9, 4), (5, None)))
    batch = batch_for(model, chosen, side)
    seen: dict[int, Tensor] = {}

    def keep(attention: Any) -> None:
        for row, weights in zip(
            range(*attention.rows.indices(99)), attention.weights, strict=False
        ):
            seen[row] = weights.clone()

    with (
        torch.inference_mode(),
        model.edited(KnockOut([0, 2], of="special", layers=[1])),
        model.watched(keep),
    ):
        model(batch)
    for row, example in enumerate(chosen):
        special = [token in (2, 1, 3, 4) for token in example.source]
        for query, is_special in enumerate(special):
            gone = (seen[row][:, query][:, [0, 2]] == 0).all()
            assert bool(gone) == is_special
        np.testing.assert_allclose(seen[row].sum(dim=-1), 1, atol=1e-6)


def test_without_renormalising_rows_lose_what_is_cut() -> None:
    model = shared("roberta")
    batch = single_batch("roberta", model)
    sums: dict[Site, Tensor] = {}
    plain: dict[Site, Tensor] = {}
    with torch.inference_mode():
        with model.watched(lambda a: plain.update({a.site: a.weights.clone()})):
            model(batch)
        edit = KnockOut([3], heads="0.1", renormalise=False)
        with (
            model.edited(edit),
            model.watched(lambda a: sums.update({a.site: a.weights.sum(dim=-1)})),
        ):
            model(batch)
    site = Site("encoder", 0)
    np.testing.assert_allclose(sums[site][0, 1], 1 - plain[site][0, 1, :, 3], atol=1e-6)
    np.testing.assert_allclose(sums[site][0, [0, 2, 3]], 1, atol=1e-6)


def test_what_would_see_nothing_is_spared_and_counted() -> None:
    model = shared("bert")
    batch = batch_for(model, examples("bert", lengths=((9, 4), (5, None))))
    edit = KnockOut("all")
    with torch.inference_mode():
        plain = outputs(model, batch.inputs)
        with model.edited(edit):
            spared = outputs(model, batch.inputs)
        with model.edited(KnockOut("all", renormalise=False)):
            nothing = outputs(model, batch.inputs)
        with model.edited(Ablate(model.heads)):
            ablated = outputs(model, batch.inputs)
    inputs = dict(batch.inputs)
    torch.testing.assert_close(at_real_tokens(spared, inputs), at_real_tokens(plain, inputs))
    torch.testing.assert_close(at_real_tokens(nothing, inputs), at_real_tokens(ablated, inputs))
    assert edit.spared == (9 + 5) * 2


def test_misuse_is_refused() -> None:
    model = shared("bert")
    with pytest.raises(
        HeadscopeError, match=r'"seperator" is not a class of tokens.*did you mean "separator"'
    ):
        KnockOut("seperator")
    with (
        pytest.raises(HeadscopeError, match=r"there is no layer 2\. Expected 0 to 1"),
        model.edited(KnockOut("special", layers=[2])),
    ):
        pass
    with pytest.raises(HeadscopeError, match="one input at a time"):
        value_zeroing(model, batch_for(model, examples("bert", lengths=((9, 4), (5, None)))))
