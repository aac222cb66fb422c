"""Every family through the seam: watching changes nothing, edits do what they say, nothing stays behind."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model import seam as seam_module
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Edit, Gate, MaskScores, Replace
from headscope.model.families import families
from headscope.model.seam import Seam
from tiny import (
    CASES,
    DECODERS,
    ENCODER_DECODERS,
    FAMILIES,
    TAPPED,
    at_real_tokens,
    batch_for,
    examples,
    family_of_case,
    in_double,
    library_attentions,
    outputs,
    real_sides,
    shared,
    tiny,
)

OWN_KERNEL = {family: "eager" if family in TAPPED else "sdpa" for family in FAMILIES}
SIDES = ("right", "left")
LONGER = (
    (9, 4),
    (9, 6),
    (5, None),
    (7, None),
)  # no sequence so short that masking one key leaves nothing


class Lens:
    """An observer that copies: the weights of every sequence at every site."""

    def __init__(self) -> None:
        self.weights: dict[tuple[Site, int], Tensor] = {}
        self.calls: Counter[Site] = Counter()

    def __call__(self, attention: Attention) -> None:
        rows = range(*attention.rows.indices(10**6))
        for row, weights in zip(rows, attention.weights, strict=False):
            self.weights[attention.site, row] = weights.clone()
        self.calls[attention.site] += len(attention.weights)


def sites_called(model: AttentionModel, case: str) -> set[Site]:
    return {site for site in model.sites if site.stack != "query" or case == "xlnet/two-streams"}


def watched(model: AttentionModel, inputs: Any, *edits: Edit) -> Lens:
    lens = Lens()
    with torch.no_grad(), model.edited(*edits), model.watched(lens):
        model(inputs)
    return lens


def traces(model: nn.Module) -> dict[str, Any]:
    """Everything that watching or editing could leave behind."""
    hooks = {
        name: (len(m._forward_hooks), len(m._forward_pre_hooks))
        for name, m in model.named_modules()
    }
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    configs = {
        name: getattr(m.config, "_attn_implementation", None)
        for name, m in model.named_modules()
        if hasattr(m, "config")
    }
    return {"hooks": hooks, "attributes": attributes, "configs": configs}


# The output projection by hand

PROJECTIONS: dict[str, dict[str, str]] = {
    "albert": {"encoder": "encoder.albert_layer_groups.0.albert_layers.0.attention.dense"},
    "distilbert": {"encoder": "transformer.layer.{}.attention.out_lin"},
    "modernbert": {"encoder": "layers.{}.attn.Wo"},
    "mpnet": {"encoder": "encoder.layer.{}.attention.attn.o"},
    "gpt2": {"decoder": "h.{}.attn.c_proj"},
    "vit": {"encoder": "layers.{}.attention.o_proj"},
    **{
        family: {"decoder": "layers.{}.self_attn.o_proj"} for family in DECODERS if family != "gpt2"
    },
    **{
        family: {
            "encoder": "encoder.layers.{}.self_attn.out_proj",
            "decoder": "decoder.layers.{}.self_attn.out_proj",
            "cross": "decoder.layers.{}.encoder_attn.out_proj",
        }
        for family in ("bart", "m2m_100", "marian", "mbart", "pegasus")
    },
    **{
        family: {
            "encoder": "encoder.block.{}.layer.0.SelfAttention.o",
            "decoder": "decoder.block.{}.layer.0.SelfAttention.o",
            "cross": "decoder.block.{}.layer.1.EncDecAttention.o",
        }
        for family in ("t5", "mt5")
    },
}
LIKE_BERT = {"encoder": "encoder.layer.{}.attention.output.dense"}


def projection_of(model: Any, head: Head) -> nn.Module:
    template = PROJECTIONS.get(model.config.model_type, LIKE_BERT)[head.stack]
    module: nn.Module = model.base_model.get_submodule(template.format(head.layer))
    return module


def slice_of(model: Any, head: Head, heads: int) -> Tensor:
    """A view [width in, width out] of the weights that turn this head's output into the site's."""
    if model.config.model_type == "xlnet":
        return model.base_model.layer[head.layer].rel_attn.o[:, head.head].T
    projection = projection_of(model, head)
    weight = projection.weight if model.config.model_type == "gpt2" else projection.weight.T
    width = weight.shape[0] // heads
    return weight[head.head * width : (head.head + 1) * width]


def without(model: AttentionModel, *heads: Head) -> Any:
    """A copy of the transformers model with these heads' slices of the output projection at zero."""
    reference = copy.deepcopy(model.model)
    for head in heads:
        with torch.no_grad():
            slice_of(reference, head, width_of(model, head.site)).zero_()
    return reference


def width_of(model: AttentionModel, site: Site) -> int:
    return sum(head.site == site for head in model.heads)


def some_heads(model: AttentionModel, case: str) -> list[Head]:
    """One head of the second layer of each stack; both streams of xlnet, which share their weights."""
    return [Head(site.stack, 1, 1) for site in sorted(sites_called(model, case)) if site.layer == 1]


# Watching


def test_the_contract_covers_every_registered_family() -> None:
    assert set(FAMILIES) == set(families())


@pytest.mark.product
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("case", CASES)
def test_watching_changes_no_output(case: str, side: str) -> None:
    """At real tokens. At padding they agree too, but where a padded query may look at nothing at all (causal or
    windowed attention and its padding): there the library spreads over everything, and nobody reads it."""
    model = shared(family_of_case(case))
    inputs = dict(batch_for(model, examples(case), side).inputs)
    with torch.no_grad():
        plain = outputs(model.model, inputs)
        with model.watched(Lens()):
            seen = outputs(model.model, inputs)
    torch.testing.assert_close(
        at_real_tokens(seen, inputs), at_real_tokens(plain, inputs), rtol=1e-5, atol=1e-5
    )
    looks_everywhere = family_of_case(case) not in (*DECODERS, *ENCODER_DECODERS, "modernbert")
    if looks_everywhere or (side == "right" and case not in ("mistral", "modernbert")):
        torch.testing.assert_close(seen, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.product
@pytest.mark.parametrize("mode", ["inference", "gradients"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("case", CASES)
def test_weights_seen_are_those_the_library_computes(case: str, side: str, mode: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    batch = batch_for(model, examples(case), side)
    library = library_attentions(model, dict(batch.inputs))
    lens = Lens()
    with torch.inference_mode(mode == "inference"), model.watched(lens):
        model(batch)
    assert set(library) == sites_called(model, case)
    for site, weights in library.items():
        queries, keys = real_sides(dict(batch.inputs), family, site.stack)
        for row in range(len(batch)):
            expected = weights[row][:, queries[row]][:, :, keys[row]]
            torch.testing.assert_close(
                lens.weights[site, row],
                expected,
                rtol=1e-5,
                atol=1e-5,
                msg=lambda m, s=site, r=row: f"{s} {r}: {m}",
            )
    assert lens.calls == Counter(dict.fromkeys(library, len(batch)))


@pytest.mark.parametrize("case", CASES)
def test_no_grad_inference_mode_and_gradients_show_the_same(case: str) -> None:
    model = shared(family_of_case(case))
    batch = batch_for(model, examples(case))
    seen = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        lens = Lens()
        with mode(), model.watched(lens):
            model(batch)
        seen.append(lens.weights)
    for other in seen[1:]:
        assert other.keys() == seen[0].keys()
        for key, weights in seen[0].items():
            torch.testing.assert_close(other[key], weights, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_inputs_are_not_changed(case: str) -> None:
    model = shared(family_of_case(case))
    batch = batch_for(model, examples(case))
    before = {name: tensor.clone() for name, tensor in batch.inputs.items()}
    watched(model, batch, Ablate(some_heads(model, case)))
    assert before.keys() == batch.inputs.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in batch.inputs.items())


@pytest.mark.parametrize("case", CASES)
def test_with_nothing_open_the_models_own_kernel_runs(case: str) -> None:
    family = family_of_case(case)
    model = tiny(family)
    fresh = copy.deepcopy(model.model)
    batch = batch_for(model, examples(case))
    before = traces(model.model)
    with torch.no_grad():
        plain = outputs(fresh, batch.inputs)
        watched(model, batch, Ablate(model.heads))
        assert model.model.config._attn_implementation == OWN_KERNEL[family]
        assert torch.equal(outputs(model.model, batch.inputs), plain)
        with model.edited():  # open, but with nothing in it
            assert torch.equal(outputs(model.model, batch.inputs), plain)
    assert traces(model.model) == before


@pytest.mark.parametrize("case", CASES)
def test_after_an_observer_raised_nothing_is_left(case: str) -> None:
    model = tiny(family_of_case(case))
    batch = batch_for(model, examples(case))
    before = traces(model.model)
    calls: list[Site] = []

    def fail(attention: Attention) -> None:
        calls.append(attention.site)
        if attention.site.layer == 1:
            raise ZeroDivisionError("on purpose")

    with torch.no_grad():
        plain = outputs(model.model, batch.inputs)
        with (
            pytest.raises(ZeroDivisionError, match="on purpose"),
            model.edited(Ablate("*.*" if one_stack(model) else "encoder.*.*")),
            model.watched(fail),
        ):
            model(batch)
        assert calls
        assert traces(model.model) == before
        assert torch.equal(outputs(model.model, batch.inputs), plain)
        again = watched(model, batch)
        assert set(again.calls) == sites_called(model, case)
        with model.watched(fail):  # caught while still open: the next forward starts afresh
            with pytest.raises(ZeroDivisionError):
                model(batch)
            with pytest.raises(ZeroDivisionError):
                model(batch)
    assert traces(model.model) == before


def one_stack(model: AttentionModel) -> bool:
    return len({site.stack for site in model.sites}) == 1


# transformers' own XLNet does not run in bfloat16: its positions stay in float32, and einsum refuses the mixture.
@pytest.mark.usefixtures("safe_bfloat16")
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "xlnet"])
def test_bfloat16_is_watched_in_float32(family: str) -> None:
    model = AttentionModel(
        copy.deepcopy(shared(family).model).to(torch.bfloat16), shared(family).tokenizer
    )
    batch = batch_for(model, examples(family))
    inputs = dict(batch.inputs)
    lens = Lens()
    with torch.no_grad():
        plain = outputs(model.model, inputs)
        with model.watched(lens):
            seen = outputs(model.model, inputs)
    real, expected = at_real_tokens(seen, inputs).float(), at_real_tokens(plain, inputs).float()
    assert (real - expected).abs().mean() < 0.02 * expected.abs().mean()
    tolerance = (
        2e-2 if family in TAPPED else 1e-5
    )  # a tapped softmax is the library's own, in bfloat16
    for weights in lens.weights.values():
        assert weights.dtype == torch.float32
        torch.testing.assert_close(
            weights.sum(-1), torch.ones_like(weights.sum(-1)), rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("family", ["bert", "bart", "llama", "mpnet"])
def test_models_that_share_a_configuration_do_not_disturb_each_other(family: str) -> None:
    single = tiny(family)
    reference = type(single.model)(single.model.config).eval()
    assert reference.config is single.model.config
    other = AttentionModel(reference, single.tokenizer)
    inputs = batch_for(single, examples(family)).inputs
    mine, theirs = Lens(), Lens()
    with torch.no_grad():
        alone = outputs(reference, inputs)
        with single.edited(Ablate(single.heads)), single.watched(mine):
            assert torch.equal(outputs(reference, inputs), alone)
            assert not mine.calls
            with other.watched(theirs):
                single(inputs)
                assert mine.calls
                assert not theirs.calls
                other(inputs)
                assert theirs.calls == mine.calls
            ablated = single(inputs)[0]
        assert torch.equal(outputs(reference, inputs), alone)
        assert reference.config._attn_implementation == OWN_KERNEL[family]
        assert not torch.equal(ablated, outputs(single.model, inputs))


@pytest.mark.parametrize("family", FAMILIES)
def test_training_and_checkpointing_do_not_count_twice(family: str) -> None:
    model = tiny(family)
    batch = batch_for(model, examples(family))
    model.model.train()
    if model.model.supports_gradient_checkpointing:
        model.model.gradient_checkpointing_enable()
    lens = Lens()
    with model.watched(lens):
        for _ in range(2):
            model(batch)[0].sum().backward()
    assert lens.calls == Counter(dict.fromkeys(sites_called(model, family), 2 * len(batch)))
    assert any(
        parameter.grad is not None and parameter.grad.any()
        for parameter in model.model.parameters()
    )


@pytest.mark.parametrize("family", ["bert", "bart", "gpt2", "t5"])
def test_checkpointing_gives_the_gradients_of_the_edited_model(family: str) -> None:
    model = tiny(family)
    batch = batch_for(model, examples(family))
    heads = some_heads(model, family)
    gradients = []
    for checkpointing in (False, True):
        model.model.zero_grad()
        if checkpointing:
            model.model.train()
            model.model.gradient_checkpointing_enable()
            for module in model.model.modules():  # train mode without its noise
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
                for name in ("dropout", "attention_dropout", "activation_dropout", "dropout_prob"):
                    if isinstance(getattr(module, name, None), float):
                        setattr(module, name, 0.0)
        with model.edited(Ablate(heads)):
            (at_real_tokens(model(batch)[0], dict(batch.inputs)) ** 3).sum().backward()
        gradients.append(
            {n: p.grad.clone() for n, p in model.model.named_parameters() if p.grad is not None}
        )
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(
            gradients[1][name], gradient, rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


# What must be refused


@pytest.mark.parametrize("family", ["bert", "mpnet", "t5"])
def test_a_forward_that_skips_a_site_is_refused(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(family)
    base = model.model.base_model
    layer = base.encoder.block[1].layer[0] if family == "t5" else base.encoder.layer[1].attention
    inputs = batch_for(model, examples(family)).inputs

    def skip(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        return (hidden, None, None)[: 2 if family == "bert" else 3]

    monkeypatch.setattr(layer, "forward", skip)
    with (
        torch.no_grad(),
        model.watched(Lens()),
        pytest.raises(HeadscopeError, match="1 of 2 sites in encoder"),
    ):
        model(inputs)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bart", "t5"])
def test_watching_with_a_cache_is_refused(family: str) -> None:
    model = tiny(family)
    inputs = dict(batch_for(model, examples(family, lengths=((6, None), (6, None)))).inputs)
    ids, mask = (
        ("decoder_input_ids", "decoder_attention_mask")
        if family in ENCODER_DECODERS
        else ("input_ids", "attention_mask")
    )
    first = {**inputs, ids: inputs[ids][:, :-1], mask: inputs[mask][:, :-1]}
    last = {**inputs, ids: inputs[ids][:, -1:]}
    with torch.no_grad():
        cache = model.model(**first, use_cache=True).past_key_values
        with (
            model.watched(Lens()),
            pytest.raises(HeadscopeError, match="without a cache of earlier tokens"),
        ):
            model.model(**last, past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_self_check_passes(family: str) -> None:
    assert shared(family).self_check() < 1e-5


@pytest.mark.parametrize("family", ["bert", "bart", "gpt2", "vit"])
def test_the_self_check_fails_when_observing_changes_outputs(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = seam_module.attend_in_chunks
    monkeypatch.setattr(seam_module, "attend_in_chunks", lambda *args: right(*args) * 1.01)
    with pytest.raises(HeadscopeError, match="self-check failed"):
        tiny(family).self_check()


@pytest.mark.parametrize("family", ["bert", "mpnet", "xlnet", "deberta-v2", "t5"])
def test_the_self_check_fails_when_edits_do_nothing(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seam, "edit_output", lambda self, site, output: output)
    with pytest.raises(HeadscopeError, match="ablating all heads changes nothing"):
        tiny(family).self_check()


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_the_self_check_fails_when_no_observer_is_called(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seam, "is_observed", lambda self, site: False)
    with pytest.raises(HeadscopeError, match="2 sites were not observed"):
        tiny(family).self_check()


# Editing outputs


@pytest.mark.parametrize("case", [case for case in CASES if case != "albert"])
def test_ablating_is_zeroing_the_output_projection(case: str) -> None:
    model = shared(family_of_case(case))
    inputs = batch_for(model, examples(case)).inputs
    for heads in [
        some_heads(model, case),
        [h for h in model.heads if h.head == 0 and h.site in sites_called(model, case)],
    ]:
        with torch.no_grad():
            plain = outputs(model.model, inputs)
            expected = outputs(without(model, *heads), inputs)
            with model.edited(Ablate(heads)):
                ablated = outputs(model.model, inputs)
        assert (ablated - plain).abs().max() > 1e-2
        torch.testing.assert_close(ablated, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1])
def test_ablating_in_albert_concerns_one_call_of_the_shared_module(layer: int) -> None:
    model = shared("albert")
    inputs = batch_for(model, examples("albert")).inputs
    reference = copy.deepcopy(model.model)
    calls: list[int] = []

    def silence(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        calls.append(len(calls))
        mixed = args[0].unflatten(-1, (4, -1)).clone()
        if calls[-1] == layer:
            mixed[..., 2, :] = 0
        return (mixed.flatten(-2),)

    projection_of(reference, Head("encoder", 0, 2)).register_forward_pre_hook(silence)
    with torch.no_grad():
        expected = outputs(reference, inputs)
        with model.edited(Ablate(f"{layer}.2")):
            ablated = outputs(model.model, inputs)
    assert len(calls) == 2
    assert (ablated - outputs(model.model, inputs)).abs().max() > 1e-2
    torch.testing.assert_close(ablated, expected, rtol=1e-5, atol=1e-5)
    untouched, edited = watched(model, inputs), watched(model, inputs, Ablate("1.2"))
    for key, weights in untouched.weights.items():
        assert torch.equal(edited.weights[key], weights), (
            "layer 1 is the last: no weights depend on its output"
        )


@pytest.mark.parametrize("case", CASES)
def test_replacing_puts_a_fixed_vector_in_a_heads_place(case: str) -> None:
    model = shared(family_of_case(case))
    inputs = batch_for(model, examples(case)).inputs
    head = Head(model.sites[-1].stack if case != "xlnet" else "encoder", 1, 1)
    reference = copy.deepcopy(model.model)
    width = slice_of(reference, head, width_of(model, head.site)).shape[0]
    vector = torch.linspace(-1, 1, width)
    by_hand(reference, head, width_of(model, head.site), lambda part: vector.expand_as(part))
    with torch.no_grad():
        expected = outputs(reference, inputs)
        with model.edited(Replace({head: vector})):
            replaced = outputs(model.model, inputs)
        assert (replaced - outputs(model.model, inputs)).abs().max() > 1e-3
    pairs = (at_real_tokens(output, dict(inputs)) for output in (replaced, expected))
    torch.testing.assert_close(*pairs, rtol=1e-5, atol=1e-5)


def by_hand(reference: Any, head: Head, heads: int, change: Callable[[Tensor], Tensor]) -> None:
    """Change one head's output in a plain transformers model, where it enters the output projection."""
    calls: Counter[str] = Counter()

    def changed(mixed: Tensor) -> Tensor:
        parts = list(mixed.unbind(dim=-2))
        parts[head.head] = change(parts[head.head])
        return torch.stack(parts, dim=-2)

    if (
        reference.config.model_type == "xlnet"
    ):  # both streams end in this method: the content stream first
        attention = reference.base_model.layer[head.layer].rel_attn
        right = attention.post_attention

        def post_attention(state: Tensor, mixed: Tensor, residual: bool = True) -> Tensor:
            calls["all"] += 1
            stream = "encoder" if calls["all"] % 2 else "query"
            return right(state, changed(mixed) if stream == head.stack else mixed, residual)

        attention.post_attention = post_attention
        return

    def hook(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor] | None:
        calls["all"] += 1
        if reference.config.model_type == "albert" and calls["all"] != head.layer + 1:
            return None
        return (changed(args[0].unflatten(-1, (heads, -1))).flatten(-2),)

    projection_of(reference, head).register_forward_pre_hook(hook)


@pytest.mark.parametrize("case", CASES)
def test_nested_edits_multiply_and_the_inner_exit_restores_the_outer(case: str) -> None:
    model = shared(family_of_case(case))
    inputs = batch_for(model, examples(case)).inputs
    single = some_heads(model, case)[
        -1
    ]  # of xlnet's two streams the one that the output is read from
    outer, inner = Gate({single: 0.5}), Gate({single: 0.4, Head(single.stack, 0, 0): 0.0})
    before = traces(model.model)
    with torch.no_grad():
        plain = outputs(model.model, inputs)
        with model.edited(Gate({single: 0.2, Head(single.stack, 0, 0): 0.0})):
            product = outputs(model.model, inputs)
        with model.edited(outer):
            halved = outputs(model.model, inputs)
            with model.edited(inner):
                torch.testing.assert_close(
                    outputs(model.model, inputs), product, rtol=1e-5, atol=1e-5
                )
            assert torch.equal(outputs(model.model, inputs), halved)
            with pytest.raises(ZeroDivisionError), model.edited(inner):
                raise ZeroDivisionError
            assert torch.equal(outputs(model.model, inputs), halved)
        assert not torch.equal(halved, plain)
        assert torch.equal(outputs(model.model, inputs), plain)
    assert traces(model.model) == before


@pytest.mark.parametrize("case", CASES)
def test_gates_of_one_change_nothing_and_are_seen_by_observers_as_before(case: str) -> None:
    model = shared(family_of_case(case))
    inputs = batch_for(model, examples(case)).inputs
    with torch.no_grad():
        plain = outputs(model.model, inputs)
        with model.edited(Gate(dict.fromkeys(model.heads, 1.0))):
            assert torch.equal(outputs(model.model, inputs), plain)
    last = max(site.layer for site in model.sites)
    untouched = watched(model, inputs)
    decoding = {
        head
        for head in model.heads
        if head.layer == last and (one_stack(model) or head.stack != "encoder")
    }
    gated = watched(model, inputs, Gate(dict.fromkeys(decoding, 0.3)))
    for (site, row), weights in untouched.weights.items():
        if (
            site.layer < last or site.stack == "encoder"
        ):  # weights are seen before gates: only later layers can tell
            assert torch.equal(gated.weights[site, row], weights)


# Editing scores


@pytest.mark.parametrize("case", CASES)
def test_masking_all_keys_but_oneself_leaves_the_identity(case: str) -> None:
    model = shared(family_of_case(case))
    batch = batch_for(model, examples(case))
    selected = [site for site in sites_called(model, case) if site.stack in ("encoder", "decoder")]
    lengths = {
        side.length for side in (batch.layout.encoder, batch.layout.decoder) if side is not None
    } or {17}
    for (
        length
    ) in lengths:  # the two sides of a pair have different lengths: a mask fits one of them
        stacks = {s.stack for s in selected if _length(batch, s.stack) == length}
        heads = [head for head in model.heads if head.stack in stacks]
        lens = watched(model, batch, MaskScores(torch.eye(length, dtype=torch.bool), heads))
        actual = [weights for (site, _), weights in lens.weights.items() if site.stack in stacks]
        assert actual
        for weights in actual:
            assert torch.equal(weights, torch.eye(weights.shape[-1]).expand_as(weights))


def _length(batch: Any, stack: str) -> int:
    side = getattr(batch.layout, stack)
    return 17 if side is None else side.length


@pytest.mark.parametrize("case", CASES)
def test_a_masked_key_gets_no_weight_at_all_and_the_others_are_recomputed(case: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    batch = batch_for(model, examples(case, lengths=LONGER))
    library = library_attentions(model, dict(batch.inputs))
    for site in [site for site in sites_called(model, case) if site.layer == 0]:
        queries, keys = real_sides(dict(batch.inputs), family, site.stack)
        mask = torch.ones(library[site].shape[-1], dtype=torch.bool)
        mask[2] = False
        chosen = Head(site.stack, 0, 1)
        lens = watched(model, batch, MaskScores(mask, [chosen]))
        for row in range(len(batch)):
            seen = lens.weights[site, row]
            plain = library[site][row][:, queries[row]][:, :, keys[row]]
            expected = plain[1].clone()
            expected[:, 2] = 0
            visible = (
                expected.sum(-1) > 1e-3
            )  # a row that saw little else depends on cancelled digits
            expected = expected / expected.sum(-1, keepdim=True)
            assert (seen[1][visible][:, 2] == 0).all()
            torch.testing.assert_close(seen[1][visible], expected[visible], rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(seen[0], plain[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_numbers_added_to_scores_tilt_the_weights(case: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    batch = batch_for(model, examples(case, lengths=LONGER))
    library = library_attentions(model, dict(batch.inputs))
    for site in [site for site in sites_called(model, case) if site.layer == 0]:
        queries, keys = real_sides(dict(batch.inputs), family, site.stack)
        tilt = torch.randn(library[site].shape[-2:], generator=torch.Generator().manual_seed(1))
        lens = watched(model, batch, MaskScores(tilt, [Head(site.stack, 0, 1)]))
        for row in range(len(batch)):
            plain = library[site][row][:, queries[row]][:, :, keys[row]]
            expected = plain[1] * tilt[queries[row]][:, keys[row]].exp()
            expected = expected / expected.sum(-1, keepdim=True)
            torch.testing.assert_close(lens.weights[site, row][1], expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(lens.weights[site, row][0], plain[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_masked_scores_change_the_output_watched_or_not(case: str) -> None:
    model = shared(family_of_case(case))
    inputs = batch_for(model, examples(case, lengths=LONGER)).inputs
    site = model.sites[0]
    mask = MaskScores(
        torch.tensor(-2.0), [Head(site.stack, 0, 0)]
    )  # the same for every key: nothing changes
    first = torch.zeros(1)
    with torch.no_grad():
        plain = outputs(model.model, inputs)
        with model.edited(mask):
            same = outputs(model.model, inputs)
        length = library_attentions(model, dict(inputs))[site].shape[-1]
        first = torch.nn.functional.one_hot(torch.tensor(0), length) * 3.0
        with model.edited(MaskScores(first, [Head(site.stack, 0, 0)])):
            tilted = outputs(model.model, inputs)
            with model.watched(Lens()):
                seen = outputs(model.model, inputs)
    at = {"left": at_real_tokens(same, dict(inputs)), "right": at_real_tokens(plain, dict(inputs))}
    torch.testing.assert_close(at["left"], at["right"], rtol=1e-5, atol=1e-5)
    assert (at_real_tokens(tilted, dict(inputs)) - at["right"]).abs().max() > 1e-3
    torch.testing.assert_close(
        *(at_real_tokens(o, dict(inputs)) for o in (seen, tilted)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.usefixtures("safe_bfloat16")
@pytest.mark.parametrize("family", ["bert", "deberta-v2", "mpnet"])
def test_numbers_added_to_scores_take_on_the_models_dtype(family: str) -> None:
    model = AttentionModel(
        copy.deepcopy(shared(family).model).to(torch.bfloat16), shared(family).tokenizer
    )
    inputs = batch_for(model, examples(family)).inputs
    with torch.no_grad(), model.edited(MaskScores(torch.ones(1), model.heads)):
        assert model(inputs)[0].dtype == torch.bfloat16


# Gradients


@pytest.mark.parametrize("case", CASES)
def test_gradients_reach_gates_and_score_biases(case: str) -> None:
    model = in_double(shared(family_of_case(case)))
    batch = batch_for(model, examples(case, lengths=LONGER))
    inputs = dict(batch.inputs)
    selected = [head for head in model.heads if head.site in sites_called(model, case)]
    gates = {head: torch.tensor(0.8, dtype=torch.float64, requires_grad=True) for head in selected}
    site = model.sites[-1] if case != "xlnet" else Site("encoder", 1)
    with torch.no_grad():
        shape = library_attentions(model, inputs)[site].shape[-2:]
        probe = torch.randn(
            outputs(model.model, inputs).shape, generator=torch.Generator().manual_seed(0)
        ).double()
    bias = torch.zeros(
        shape, dtype=torch.float64, requires_grad=True
    )  # taken to the dtype of the scores

    def loss() -> Tensor:
        with model.edited(Gate(gates), MaskScores(bias, [Head(site.stack, site.layer, 1)])):
            return at_real_tokens(outputs(model.model, inputs) * probe, inputs).sum()

    loss().backward()
    # Those that normalise or rotate in float32 whatever their weights are: a small step would drown in rounding.
    rounds = family_of_case(case) in (
        "esm",
        "llama",
        "mistral",
        "modernbert",
        "mt5",
        "qwen2",
        "qwen3",
        "t5",
        "xlnet",
    )
    step, tolerance = (3e-4, 2e-2) if rounds else (1e-5, 1e-5)
    if model.model.dtype == torch.float32:
        step, tolerance = 1e-2, 5e-2
    queries, keys = (
        side[0].nonzero().flatten().tolist()
        for side in real_sides(inputs, family_of_case(case), site.stack)
    )
    hidden = (
        set(queries) if site.stack == "query" else set()
    )  # nobody sees the tokens to be predicted
    seen = [key for key in keys if key <= queries[-1] and key not in hidden][
        -2:
    ]  # near enough for every window, visible to causal attention
    places = [
        (gates[selected[0]], ()),
        (gates[selected[-1]], ()),
        *((bias, (queries[-1], key)) for key in seen),
    ]
    for tensor, index in places:
        assert tensor.grad is not None
        assert tensor.grad[index].abs() > 1e-9
        assert tensor.grad[index].item() == pytest.approx(
            _slope(loss, tensor, index, step), rel=tolerance, abs=tolerance / 10
        )


def _slope(
    loss: Callable[[], Tensor], tensor: Tensor, index: tuple[int, ...], step: float
) -> float:
    """The central finite difference."""
    values = []
    with torch.no_grad():
        for sign in (1, -1):
            tensor[index] += sign * step
            values.append(loss().item())
            tensor[index] -= sign * step
    return (values[0] - values[1]) / (2 * step)


# Whole models


@pytest.mark.parametrize("family", ["bart", "marian", "t5", "gpt2", "llama"])
def test_generating_while_edited_equals_generating_with_zeroed_weights(family: str) -> None:
    auto = AutoModelForSeq2SeqLM if family in ENCODER_DECODERS else AutoModelForCausalLM
    model = tiny(family, head=auto)
    side = "right" if family in ENCODER_DECODERS else "left"
    inputs = dict(batch_for(model, examples(family, lengths=((6, None), (4, None))), side).inputs)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    heads = [head for head in model.heads if head.head != 0]
    options = {"max_new_tokens": 8, "do_sample": False, "num_beams": 1}
    plain = model.model.generate(**inputs, **options)
    expected = without(model, *heads).generate(**inputs, **options)
    with model.edited(Ablate(heads)):
        generated = model.model.generate(**inputs, **options)
    assert torch.equal(generated, expected)
    assert not torch.equal(generated, plain), (
        "the ablation must matter for this test to say anything"
    )
    assert torch.equal(model.model.generate(**inputs, **options), plain)


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "distilbert", "mpnet", "deberta-v2", "xlnet", "gpt2"]
)
def test_a_model_with_a_head_on_top_is_watched_and_edited(family: str) -> None:
    model = tiny(family, head=AutoModelForSequenceClassification)
    bare = tiny(family)
    assert model.heads == bare.heads
    batch = batch_for(model, examples(family))
    heads = some_heads(model, family)
    lens = watched(model, batch)
    assert set(lens.calls.values()) == {len(batch)}
    with torch.no_grad():
        expected = without(model, *heads)(**batch.inputs).logits
        with model.edited(Ablate(heads)):
            torch.testing.assert_close(model(batch).logits, expected, rtol=1e-5, atol=1e-5)
    assert model.self_check() < 1e-5


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_an_encoder_may_be_called_alone(family: str) -> None:
    model = shared(family)
    batch = batch_for(model, examples(family))
    inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
    lens = watched(model, inputs)
    assert {site.stack for site in lens.calls} == {"encoder"}
    whole = watched(model, batch)
    for key, weights in lens.weights.items():
        assert torch.equal(weights, whole.weights[key])


def test_the_input_mask_of_xlnet_is_known_to_be_padding() -> None:
    model = tiny("xlnet")
    ids = torch.tensor([[7, 8, 9, 10, 11, 12], [7, 8, 9, 10, 11, 12]])
    mask = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]])  # 1 is padding here
    lengths: list[int] = []
    with torch.inference_mode(), model.watched(lambda attention: lengths.append(attention.length)):
        model(input_ids=ids, input_mask=mask)
    assert sorted(set(lengths)) == [4, 6]
