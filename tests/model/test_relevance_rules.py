"""Relevance adds up, in every family and layer, and is what is missing without a head when every gate is held fixed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from headscope.ablation.estimates.relevance import balance
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Edit
from headscope.model.relevance.rules import Rules, linearise
from headscope.model.relevance.sums import RelevanceSums
from headscope.model.relevance.supported import check_adds_up, check_supported, supported_types
from headscope.model.tokens import Batch
from reference.relevance import attnlrp_attention, by_growth, by_removal
from tiny import FAMILIES, batch_for, examples, in_double, shared, tiny

TEXT = [family for family in FAMILIES if family != "vit"]
# Gated: with a product in their layers, of 64 numbers a token. Coarse: their norms (XLNet: all) compute in float32
# whatever the model's own precision is.
GATED = ("llama", "mistral", "modernbert", "mt5", "qwen2", "qwen3")
# Attention that is more than queries times keys: there is no reference for AttnLRP's rules.
WRITTEN_OUT = ("deberta-v2", "xlnet")
COARSE = ("llama", "mistral", "qwen2", "qwen3", "xlnet")


def output_of(model: AttentionModel, batch: Batch) -> Tensor:
    """A random direction of the real tokens' last states, [sequence]."""
    states: Tensor = model(batch)[0]
    real = batch.inputs.get("decoder_attention_mask", batch.inputs["attention_mask"])
    direction = torch.randn(states.shape[-1], generator=torch.Generator().manual_seed(1)).to(states)
    return (states * real[..., None].to(states)).sum(dim=1) @ direction


def kept(
    model: AttentionModel, batch: Batch, rules: Rules = "voita"
) -> tuple[RelevanceSums, Tensor]:
    accounts = RelevanceSums(model, len(batch.indices))
    with linearise(model, rules, accounts), accounts.follow():
        result = output_of(model, batch)
        accounts.backward(result)
    return accounts, result.detach()


@pytest.mark.product
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("family", TEXT)
def test_inputs_and_biases_make_up_what_the_model_says(family: str, double: bool) -> None:
    model = in_double(tiny(family)) if double else tiny(family)
    batch = batch_for(model, examples(family))
    accounts, whole = kept(model, batch)
    result = sum(part.sum(dim=1) for part in accounts.inputs.values()) + sum(
        accounts.biases.values()
    )
    tolerance = 1e-10 if double and family not in COARSE else 1e-5
    assert float((result - whole).abs().max() / whole.abs().mean()) < tolerance
    check_adds_up(model, accounts, whole)


@pytest.mark.parametrize("family", TEXT)
def test_nothing_is_lost_in_any_layer(family: str) -> None:
    model = in_double(tiny(family))
    accounts, whole = kept(model, batch_for(model, examples(family)))
    result = balance(accounts, whole)
    stacks = {stack for stack, _, _ in result}
    assert stacks == (
        {"encoder", "decoder"} if model.is_encoder_decoder else {model.sites[0].stack}
    )
    assert {layer for _, layer, _ in result} == {-1, 0, 1, 2}
    size = float(whole.abs().mean())
    tolerance = 1e-5 if family in COARSE else 1e-10
    for (stack, layer, part), values in result.items():
        if part == "lost":
            assert float(values.abs().max()) < tolerance * size, (stack, layer)
    for stack in stacks:
        assert float(result[stack, 0, "heads"].abs().mean()) > 1e-3 * size


@pytest.mark.parametrize("family", TEXT)
def test_relevance_is_what_is_missing_without_the_head(family: str) -> None:
    model = in_double(tiny(family))
    batch = batch_for(model, examples(family))
    accounts, whole = kept(model, batch)
    called = [head for head in model.heads if head.site in accounts.heads]
    heads = [called[0], called[len(called) // 2], called[-1]]
    wanted = by_removal(
        model, lambda: output_of(model, batch), heads, 64 if family in GATED else None
    )
    for index, head in enumerate(heads):
        mine = accounts.heads[head.site][:, :, model.index_of(head)].sum(dim=1).numpy()
        tolerance = 1e-5 if family in COARSE else 1e-10
        assert np.abs(mine - wanted[:, index]).max() < tolerance * float(whole.abs().mean()), str(
            head
        )
        assert np.abs(mine).max() > 1e-3, str(head)


@pytest.mark.parametrize("family", [family for family in TEXT if family not in WRITTEN_OUT])
def test_relevance_by_attnlrp_is_how_fast_the_output_grows_with_the_head(family: str) -> None:
    model = in_double(tiny(family))
    batch = batch_for(model, examples(family))
    accounts, whole = kept(model, batch, "attnlrp")
    called = [head for head in model.heads if head.site in accounts.heads]
    heads = [called[0], called[len(called) // 2], called[-1]]
    coarse = family in (
        *COARSE,
        "esm",
        "modernbert",
    )  # the last two turn queries and keys in float32
    step, tolerance = (1e-2, 1e-3) if coarse else (1e-4, 1e-6)
    wanted = by_growth(
        model, lambda: output_of(model, batch), heads, 64 if family in GATED else None, step
    )
    voita, _ = kept(model, batch, "voita")
    for index, head in enumerate(heads):
        mine = accounts.heads[head.site][:, :, model.index_of(head)].sum(dim=1).numpy()
        assert np.abs(mine - wanted[:, index]).max() < tolerance * float(whole.abs().mean()), str(
            head
        )
    first = accounts.heads[heads[0].site].sum(dim=1) - voita.heads[heads[0].site].sum(dim=1)
    assert float(first.abs().max()) > 1e-3 * float(whole.abs().mean()), (
        "in the first layer the rules differ"
    )


@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "marian", "t5", "xlnet"])
def test_batches_and_padding_change_no_relevance(family: str, rules: Rules) -> None:
    model = shared(family)
    chosen = examples(family)
    many, _ = kept(model, batch_for(model, chosen), rules)
    for number, example in enumerate(chosen):
        alone, _ = kept(model, batch_for(model, [example]), rules)
        for site, of_heads in alone.heads.items():
            both = of_heads[0].sum(dim=0), many.heads[site][number].sum(dim=0)
            assert torch.allclose(*both, atol=2e-3 if rules == "attnlrp" else 1e-3, rtol=1e-3), (
                number,
                site,
            )
        for stack, tokens in alone.inputs.items():
            length = tokens.shape[1]
            assert torch.allclose(
                tokens[0], many.inputs[stack][number, :length], atol=2e-3, rtol=1e-3
            )
            assert not many.inputs[stack][number, length:].any()


def test_attention_by_attnlrp_is_what_its_rules_say() -> None:
    chance = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, 1, 4, 3, generator=chance, dtype=torch.float64).requires_grad_()
        for _ in range(3)
    )
    relevance = torch.randn(1, 1, 4, 3, generator=chance, dtype=torch.float64)
    model = shared("bert")
    with linearise(model, "attnlrp", RelevanceSums(model, 1)):
        kernel = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        written_out = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 3**-0.5, dim=-1) @ v
    wanted = attnlrp_attention(*(x.detach()[0, 0].numpy() for x in (q, k, v, relevance)))
    for output in (kernel, written_out):
        slopes = torch.autograd.grad(output, (q, k, v), relevance / output.detach())
        for x, slope, right in zip((q, k, v), slopes, wanted, strict=True):
            assert np.allclose((x * slope)[0, 0].detach().numpy(), right, atol=1e-10)


class _Opened(Edit):
    """Changes nothing, but has the weights written out."""

    def changes_weights(self, site: object) -> bool:
        return True


@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
@pytest.mark.parametrize("family", ["bert", "llama", "marian"])
def test_attention_that_is_written_out_has_the_relevance_of_the_kernel(
    family: str, rules: Rules
) -> None:
    model = in_double(shared(family))
    batch = batch_for(model, examples(family))
    plain, whole = kept(model, batch, rules)
    with model.edited(_Opened()):
        opened, _ = kept(model, batch, rules)
    coarse = 1e-5 if family in COARSE else 1e-9
    for site, match in plain.heads.items():
        assert torch.allclose(match, opened.heads[site], atol=coarse * float(whole.abs().mean())), (
            str(site)
        )


def test_the_last_layer_is_the_same_by_both_rules_and_the_others_are_not() -> None:
    model = shared("bert")
    batch = batch_for(model, examples("bert"))
    single, other = (kept(model, batch, rules)[0].heads for rules in ("voita", "attnlrp"))
    first, last = model.sites[0], model.sites[-1]
    assert torch.allclose(single[last], other[last], atol=1e-5)
    assert not torch.allclose(single[first], other[first], atol=1e-2)


def test_without_rules_the_embeddings_behind_a_norm_have_no_relevance_at_all() -> None:
    """Why plain gradient times input will not do: the norm undoes any change of length."""
    model = in_double(shared("bert"))
    batch = batch_for(model, examples("bert"))
    tables: list[Tensor] = []

    def catch(module: torch.nn.Module, args: object, output: Tensor) -> Tensor:
        tables.append(output.detach().requires_grad_())
        return tables[-1]

    embeddings = [
        module for module in model.model.modules() if isinstance(module, torch.nn.Embedding)
    ]
    handles = [module.register_forward_hook(catch) for module in embeddings]
    try:
        whole = output_of(model, batch)
        slopes = torch.autograd.grad(whole.sum(), tables)
    finally:
        for handle in handles:
            handle.remove()
    plain = sum(float((x * slope).detach().sum()) for x, slope in zip(tables, slopes, strict=True))
    accounts, _ = kept(model, batch)
    assert abs(plain) < 1e-7
    assert abs(float(accounts.inputs["encoder"].sum())) > 1


@pytest.mark.parametrize("family", ["albert", "gpt2", "marian", "xlnet"])
def test_everything_is_as_before_afterwards(family: str) -> None:
    model = tiny(family)
    batch = batch_for(model, examples(family))
    frozen = next(model.model.parameters()).requires_grad_(False)
    before = model(batch)[0]
    trained = [parameter.requires_grad for parameter in model.model.parameters()]
    kept(model, batch)
    accounts = RelevanceSums(model, 8)
    with pytest.raises(KeyError), linearise(model, "voita", accounts), accounts.follow():
        model(batch)["nothing of this name"]
    assert torch.equal(model(batch)[0], before)
    assert not model.is_open
    assert not frozen.requires_grad
    assert [parameter.requires_grad for parameter in model.model.parameters()] == trained
    assert all(parameter.grad is None for parameter in model.model.parameters())
    assert not any(
        "forward" in vars(module) or module._forward_hooks for module in model.model.modules()
    )


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_the_forward_pass_is_the_same(family: str) -> None:
    model = in_double(shared(family))
    batch = batch_for(model, examples(family))
    _, result = kept(model, batch)
    with torch.no_grad():
        assert torch.allclose(result, output_of(model, batch), atol=1e-11)


@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
@pytest.mark.parametrize("family", ["bert", "mpnet", "t5"])
def test_cut_heads_leave_the_others_their_numbers(family: str, rules: Rules) -> None:
    from headscope import prune

    model = in_double(tiny(family))
    batch = batch_for(model, examples(family))
    gone = "encoder.0.1,encoder.1.0"
    with model.edited(Ablate(gone)):
        wanted, _ = kept(model, batch, rules)
    cut = prune(model, gone).model
    result, _ = kept(cut, batch, rules)
    for head in cut.heads:
        site = next(site for site in cut.sites if site == head.site)
        mine = result.heads[site][:, :, cut.index_of(head)]
        assert torch.allclose(mine, wanted.heads[head.site][:, :, head.head], atol=1e-9), str(head)


# Bad input


def test_a_family_that_is_not_covered_is_named_with_those_that_are() -> None:
    with pytest.raises(HeadscopeError, match="do not cover the layers of vit") as error:
        check_supported(shared("vit"))
    assert all(family in str(error.value) for family in TEXT)
    assert supported_types() == tuple(sorted(TEXT))


@pytest.mark.usefixtures("safe_bfloat16")
def test_half_precision_is_refused() -> None:
    model = tiny("bert")
    model.model.bfloat16()
    with pytest.raises(HeadscopeError, match="bfloat16"):
        check_supported(model)


def test_a_layer_that_no_rule_knows_is_found_out() -> None:
    model = tiny("bert")

    class Strange(torch.nn.Module):
        def forward(self, states: Tensor) -> Tensor:
            return states.sin() * 3

    model.model.encoder.layer[0].intermediate.intermediate_act_fn = Strange()
    accounts, whole = kept(model, batch_for(model, examples("bert")))
    with pytest.raises(HeadscopeError, match="does not add up in this BertModel"):
        check_adds_up(model, accounts, whole)
