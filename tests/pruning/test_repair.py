"""What a repair promises: exact where a head was constant or a copy, never worse on what it learned from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headscope.ablation.modes.mean import mean_results
from headscope.config.checks import repair_names
from headscope.errors import HeadscopeError
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Replace
from headscope.model.surgery import prune
from headscope.pruning.repair import fold, refit, repair_inplace
from headscope.tasks.inference import answers
from tiny import FAMILIES, tiny
from toys import Means, means_of

DEEP = [family for family in FAMILIES if family not in ("vit", "xlnet")]
# ALBERT has one bias for all its layers: what each of them lost on average cannot be in it.
BIASED = [
    family
    for family in DEEP
    if family not in ("albert", "llama", "mistral", "qwen2", "qwen3", "modernbert", "t5", "mt5")
]


def says(model: AttentionModel, family: str) -> Tensor:
    return answers(model, Means(), means_of(family))


def first_unit(model: AttentionModel) -> list:  # type: ignore[type-arg]
    from headscope.model.surgery import units

    return list(units(model)[0])


def copied(model: AttentionModel) -> AttentionModel:
    """Head 1 of the first layer is made a copy of head 0, but for what it writes."""
    attention = model.model.encoder.layer[0].attention.self
    with torch.no_grad():
        for part in (attention.query, attention.key, attention.value):
            part.weight[8:16] = part.weight[:8]
            part.bias[8:16] = part.bias[:8]
    return model


def constant(model: AttentionModel) -> AttentionModel:
    """Head 1 of the first layer says the same to every token."""
    with torch.no_grad():
        model.model.encoder.layer[0].attention.self.value.weight[8:16] = 0.0
    return model


def test_what_a_copy_wrote_is_given_to_the_head_it_copied() -> None:
    model = copied(tiny("bert"))
    cut = prune(model, "0.1")
    before = float((says(cut, "bert") - says(model, "bert")).abs().max())
    errors = refit(model, cut, Means(), means_of("bert"))
    after = float((says(cut, "bert") - says(model, "bert")).abs().max())
    assert before > 0.01
    assert after < before / 20
    ((worse, better),) = errors.values()
    assert better < worse / 100


def test_a_constant_head_is_folded_away_exactly() -> None:
    model = constant(tiny("bert"))
    cut = prune(model, "0.1")
    assert float((says(cut, "bert") - says(model, "bert")).abs().max()) > 1e-3
    fold(model, cut, mean_results(model, Means(), means_of("bert"), 4))
    assert float((says(cut, "bert") - says(model, "bert")).abs().max()) < 1e-5


@pytest.mark.parametrize("family", BIASED)
def test_folding_is_mean_ablation(family: str) -> None:
    model = tiny(family)
    gone = first_unit(model)
    means = mean_results(model, Means(), means_of(family), 4)
    with model.edited(Replace({head: means[head] for head in gone})):
        wanted = says(model, family)
    cut = prune(model, gone)
    fold(model, cut, means)
    assert float((says(cut, family) - wanted).abs().max()) < 1e-4


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_without_a_bias_there_is_nothing_to_fold_into_and_that_is_reported(family: str) -> None:
    model = tiny(family)
    cut = prune(model, first_unit(model))
    before, output = says(cut, family), list[str]()
    fold(model, cut, mean_results(model, Means(), means_of(family), 4), output.append)
    assert torch.equal(says(cut, family), before)
    assert output == ["note: 1 output projections have no bias to fold the means into"]


@pytest.mark.parametrize("family", DEEP)
def test_a_refit_is_never_further_from_what_it_was_fitted_to(family: str) -> None:
    model = tiny(family)
    cut = prune(model, first_unit(model))
    for before, after in refit(model, cut, Means(), means_of(family)).values():
        assert after <= before + 1e-9


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_a_model_that_was_cut_before_can_be_cut_and_refitted_again(family: str) -> None:
    once = prune(tiny(family), layers="encoder.1")
    gone = [head for head in once.heads if head.site.layer == 0][:1]
    assert refit(once, prune(once, gone), Means(), means_of(family))


def test_a_fit_from_few_tokens_does_not_blow_up() -> None:
    model = tiny("bert")
    cut = prune(model, "0.1,1.2")
    largest = max(float(p.abs().max()) for p in cut.model.parameters())
    few = means_of("bert")
    few.items, few.sequences, few.parts = few.items[5:6], few.sequences[:1], [(0,)]
    refit(model, cut, Means(), few)
    assert max(float(p.abs().max()) for p in cut.model.parameters()) < 10 * largest


@pytest.mark.parametrize("family", ["bert", "bart", "distilbert"])
def test_of_a_layer_without_heads_the_bias_is_fitted(family: str) -> None:
    """Alone it gives what the whole layer gave on average."""
    model = tiny(family)
    stack = model.sites[0].stack
    cut = prune(model, f"{stack}.0.*")
    errors = refit(model, cut, Means(), means_of(family))
    assert [str(site) for site in errors] == [f"{stack}.0"]
    folded = prune(model, f"{stack}.0.*")
    fold(model, folded, mean_results(model, Means(), means_of(family), 32))
    name = anatomy(model)[model.sites[0]].projection
    assert name is not None
    assert torch.allclose(
        cut.model.get_submodule(name).bias,
        folded.model.get_submodule(name).bias,
        rtol=0.02,
        atol=1e-4,
    )


def test_where_nothing_is_called_that_is_reported() -> None:
    messages: list[str] = []
    model = tiny("gpt2")
    assert refit(model, prune(model, "0.*"), Means(), means_of("gpt2"), say=messages.append) == {}
    assert messages == [
        "note: decoder.0 has no heads and no call that could be fitted; use fold for its bias"
    ]


def test_repairs_have_repair_names() -> None:
    assert repair_names("fold, refit") == repair_names("refit,fold,fold") == ("fold", "refit")
    assert repair_names(None) == ()
    with pytest.raises(HeadscopeError, match='"glue" is not a repair'):
        repair_names("glue")
    with pytest.raises(HeadscopeError, match='"glue" is not a repair'):
        repair_inplace(tiny("bert"), tiny("bert"), "glue", Means(), means_of("bert"))
