"""LearnableEdit masks: their distribution, what they do to attention, what is chosen in the end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headscope.config.learn_mask import LearnMaskConfig
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.learning.learned_mask import COLD, FAR, LearnedMask
from headscope.masks import Masked, read_mask
from headscope.model.attention import Attention
from tiny import (
    CASES,
    at_real_tokens,
    batch_for,
    examples,
    family_of_case,
    in_double,
    inputs_for,
    outputs,
    shared,
    tiny,
)

FORMS = ("renormalised", "additive", "multiplicative")


def disturbed(learned: LearnedMask, seed: int = 0) -> LearnedMask:
    with torch.no_grad():
        learned.alpha.copy_(
            2 * torch.randn(learned.alpha.shape, generator=torch.Generator().manual_seed(seed))
        )
    return learned


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("alpha", [-2.0, 0.0, 1.5])
def test_entries_are_open_as_often_as_the_closed_form_says_at_any_temperature(
    alpha: float, progress: float
) -> None:
    torch.manual_seed(0)
    learned = LearnedMask(shared("bert"), [200], LearnMaskConfig(penalty=1.0), start=alpha)
    learned.draw(progress)
    count = learned.logits.numel()
    expected = 1 / (1 + math.exp(-alpha))
    assert abs(float((learned.logits > 0).float().mean()) - expected) < 4 * math.sqrt(
        expected * (1 - expected) / count
    )


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 0.8176), (0.25, 0.5588), (0.5, 0.3), (0.7, 0.3)]
)
def test_under_a_target_just_so_much_is_open_as_shall_be_by_then(
    progress: float, expected: float
) -> None:
    """From sigmoid(1.5) = 0.8176 to 0.3 in the first half of the steps, whatever the entries have become."""
    learned = LearnedMask(shared("bert"), [30], LearnMaskConfig(sparsity=0.7), start=1.5)
    torch.manual_seed(0)
    with torch.no_grad():
        learned.alpha.add_(torch.randn(learned.alpha.shape))
    share = learned.open_share(torch.sigmoid(learned.competing(progress)).detach())
    assert float(share) == pytest.approx(expected, abs=1e-4)


def test_it_gets_colder_until_it_settles() -> None:
    learned = LearnedMask(shared("bert"), [6], LearnMaskConfig(sparsity=0.5))
    actual = []
    for progress in (0.0, 0.375, 0.749):
        learned.draw(progress)
        actual.append(learned.temperature)
    assert actual[0] == 1.0
    assert actual[1] == pytest.approx(math.sqrt(COLD))
    assert actual[2] == pytest.approx(COLD, rel=0.01)


@pytest.mark.parametrize("case", CASES)
def test_where_all_is_equally_open_nothing_changes(case: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    inputs = inputs_for(family, examples(case)[:4])
    learned = LearnedMask(model, [64], LearnMaskConfig(soft=True)).eval()
    learned.draw(0.0)
    with torch.no_grad():
        plain = at_real_tokens(outputs(model, inputs), inputs)
        with model.edited(learned.edit()):
            assert torch.allclose(at_real_tokens(outputs(model, inputs), inputs), plain, atol=1e-5)


def by_hand(weights: Tensor, learned: LearnedMask, head: int, group: int) -> Tensor:
    """Weights [query, key] of one text under the soft mask, entry by entry."""
    length = len(weights)
    alpha = learned.alpha[group].tolist()
    result = torch.zeros(length, length)
    for i in range(length):
        for j in range(length):
            low, high = min(i, j), max(i, j)
            ends = {i, j} & {0, length - 1}
            position = high - low if learned.structured else high * (high + 1) // 2 + low
            kept = 1 / (1 + math.exp(-alpha[position]))
            if learned.form == "additive":
                kept = math.exp(
                    -FAR / (1 + math.exp(alpha[position]))
                )  # 1 - M, written so that nothing cancels
            if learned.structured and ends:
                kept = 1.0
            result[i, j] = float(weights[i, j]) * (0.0 if i == j and not learned.diagonal else kept)
    if learned.form != "multiplicative":
        result = result / result.sum(dim=1, keepdim=True)
    return result


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("per", ["model", "layer", "head"])
def test_soft_masks_do_what_the_formulas_say(
    per: str, form: str, diagonal: bool, structured: bool, side: str
) -> None:
    model = shared("bert")
    chosen = [example for example in examples("bert") if len(example.source) > 2][:4]
    batch = batch_for(model, chosen, side)
    config = LearnMaskConfig(
        soft=True,
        form=form,
        structured=structured,
        without_diagonal=not diagonal,
        per=per,  # type: ignore[arg-type]
        penalty=0.0,  # type: ignore[arg-type]
    )
    learned = LearnedMask(model, [64], config)
    disturbed(learned)
    if form == "additive":
        with torch.no_grad():
            learned.alpha.add_(9.0)  # or all but one key of a row is forbidden
    learned.eval().draw(0.0)

    def seen(layer: int, below: int) -> dict[int, Tensor]:
        """Weights of a layer when only the layers below this one are masked."""
        into: dict[int, Tensor] = {}

        def look(attention: Attention) -> None:
            if attention.site == Site("encoder", layer):
                for index, row in enumerate(range(attention.rows.start, attention.rows.stop)):
                    into[row] = attention.weights[index].clone()

        edit = learned.edit()
        for name in ("changes_mask", "changes_weights"):
            plain = getattr(edit, name)
            setattr(edit, name, lambda site, plain=plain: site.layer < below and plain(site))
        with torch.no_grad(), model.edited(edit), model.watched(look):
            model(batch)
        return into

    for layer in (0, 1):
        plain, masked = seen(layer, layer), seen(layer, layer + 1)
        for row, weights in plain.items():
            for head in range(len(weights)):
                group = {"model": 0, "layer": layer, "head": layer * len(weights) + head}[per]
                expected = by_hand(weights[head], learned, head, group)
                assert torch.allclose(masked[row][head], expected, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("structured", [False, True])
def test_what_is_chosen_and_written_acts_as_what_was_learned(
    case: str, structured: bool, tmp_path: Path
) -> None:
    family = family_of_case(case)
    model = shared(family)
    inputs = inputs_for(family, examples(case)[:5])
    learned = disturbed(
        LearnedMask(
            model,
            [64],
            LearnMaskConfig(sparsity=0.6, structured=structured, without_diagonal=True, per="head"),
        )
    )
    learned.eval().draw(0.0)
    learned.positions().write(tmp_path / "mask.npz")
    mask = str(tmp_path / "mask.npz")
    with torch.no_grad():
        with model.edited(learned.edit()):
            expected = at_real_tokens(outputs(model, inputs), inputs)
        with model.edited(Masked(mask)):
            result = at_real_tokens(outputs(model, inputs), inputs)
        assert torch.allclose(result, expected, atol=1e-5)
        assert not torch.allclose(result, at_real_tokens(outputs(model, inputs), inputs), atol=1e-3)


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_the_open_share_counts_the_cells_of_the_texts(structured: bool, diagonal: bool) -> None:
    lengths = [3, 3, 7, 10]
    learned = disturbed(
        LearnedMask(
            shared("bert"),
            lengths,
            LearnMaskConfig(sparsity=0.5, structured=structured, without_diagonal=not diagonal),
        )
    )
    open_ = cells = 0
    mask = learned.positions().mask("learned")
    for length in lengths:
        allowed = mask.at(length)[0]
        open_, cells = open_ + int(allowed.sum()), cells + length**2
    assert float(learned.open_share(learned.binarize())) == pytest.approx(open_ / cells)
    coarsest = float(learned.free.max())
    assert 0 <= 0.5 - open_ / cells <= coarsest


def test_a_sparsity_is_reached_although_every_position_keeps_a_key() -> None:
    learned = LearnedMask(shared("bert"), [20, 32, 32], LearnMaskConfig(sparsity=0.8, per="layer"))
    with (
        torch.no_grad()
    ):  # one position that all attend to, and a few among themselves: most rows would be empty
        learned.alpha.fill_(-3.0)
        learned.alpha[:, learned.entry[2, :12].unique()] = 4.0
        learned.alpha[:, learned.entry[:12, :12].unique()] += 3.0
    chosen = learned.binarize()
    assert 1 - float(learned.open_share(chosen)) == pytest.approx(0.8, abs=0.002)
    assert 1 - float(learned.open_share(chosen)) >= 0.8 - 1e-6
    assert chosen[:, learned.entry].bool().any(dim=-1).all()
    best = learned.alpha.detach()[:, learned.entry].argmax(dim=-1)
    rows = torch.arange(learned.length)
    assert all(
        chosen[group, learned.entry[rows, best[group]]].all() for group in range(len(chosen))
    )


def test_distances_fill_the_available_space() -> None:
    learned = LearnedMask(shared("bert"), [40], LearnMaskConfig(sparsity=0.6, structured=True))
    with (
        torch.no_grad()
    ):  # by turns: the seventh and those after it would take more than is left, the last would not
        learned.alpha.copy_(-torch.arange(40.0)[None])
    chosen, sizes = learned.binarize()[0], learned.free / learned.free.sum()
    left = 0.4 - float(learned.open_share(learned.binarize()))
    closed = (chosen == 0) & (learned.free > 0)
    assert left >= -1e-6
    assert (
        float((sizes * (1 - learned.always_open_share))[closed].min()) > left
    )  # nothing that is closed would fit in


def test_distances_of_which_nothing_was_learned_are_forbidden() -> None:
    """In texts of 6 a distance of 4 or 5 always has an end; in longer ones it has not, and was never learned."""
    learned = LearnedMask(shared("bert"), [6], LearnMaskConfig(penalty=0.0, structured=True))
    assert learned.binarize()[0].tolist() == [1, 1, 1, 1, 0, 0]
    allowed = learned.positions().mask("learned").at(20)[0]
    assert allowed[8].nonzero()[:, 0].tolist() == [0, *range(5, 12), 19]


def test_gradients_reach_every_entry_and_agree_with_differences() -> None:
    model = in_double(tiny("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    inputs = inputs_for(
        "bert", [example for example in examples("bert") if len(example.source) == 5][:2]
    )
    for form in FORMS:
        learned = disturbed(LearnedMask(model, [5], LearnMaskConfig(soft=True, form=form)).double())
        if form == "additive":
            with torch.no_grad():
                learned.alpha.add_(9.0)

        def loss(learned: LearnedMask = learned) -> Tensor:
            learned.draw(0.0)
            with model.edited(learned.edit()):
                return at_real_tokens(outputs(model, inputs), inputs).pow(2).sum()

        loss().backward()
        assert learned.alpha.grad is not None
        for position in (0, 4, 9):
            with torch.no_grad():
                learned.alpha[0, position] += 1e-5
                above = float(loss())
                learned.alpha[0, position] -= 2e-5
                below = float(loss())
                learned.alpha[0, position] += 1e-5
            assert float(learned.alpha.grad[0, position]) == pytest.approx(
                (above - below) / 2e-5, rel=1e-4, abs=1e-6
            )


def test_no_row_is_left_without_a_key() -> None:
    learned = LearnedMask(
        shared("bert"), [6], LearnMaskConfig(penalty=1.0, without_diagonal=True), start=-3.0
    )
    with torch.no_grad():
        learned.alpha[0, learned.entry[4, 1]] = -2.0
    allowed = learned.positions().mask("learned").at(6)[0]
    assert allowed.any(dim=1).all()
    assert allowed[4].tolist() == [False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "requires `penalty`, `sparsity` or `soft=True`"),
        ({"penalty": 1.0, "sparsity": 0.5}, "requires either `penalty` or `sparsity`, got both"),
        ({"penalty": -1.0}, "`penalty` must be at least 0, got -1"),
        ({"sparsity": 1.0}, "`sparsity` must be between 0 and 1, got 1"),
        ({"sparsity": 0.5, "soft": True}, "`sparsity` must be left out with `soft=True`"),
        ({"sparsity": 0.99, "structured": True}, r"`sparsity` must be at most .* got 0\.99"),
        (
            {"sparsity": 0.05, "without_diagonal": True},
            r"`sparsity` must be at least 0\.101 .* got 0\.05",
        ),
        ({"penalty": 1.0, "form": "soft"}, '`form` must be .* got "soft"'),
        ({"penalty": 1.0, "per": "token"}, '`per` must be .* got "token"'),
    ],
)
def test_what_makes_no_mask_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(HeadscopeError, match=message):
        LearnedMask(shared("bert"), [10], LearnMaskConfig(**options))  # type: ignore[arg-type]


def test_a_mask_file_of_another_length_or_model_is_refused(tmp_path: Path) -> None:
    model = shared("bert")
    learned = disturbed(LearnedMask(model, [4], LearnMaskConfig(sparsity=0.4, per="layer")))
    path = tmp_path / "mask.npz"
    learned.positions().write(path)
    inputs = inputs_for(
        "bert", [example for example in examples("bert") if len(example.source) > 4][:1]
    )
    with (
        model.edited(Masked(str(path))),
        pytest.raises(HeadscopeError, match="texts must have at most 4 tokens under this mask"),
    ):
        outputs(model, inputs)
    deeper = tiny("bert", num_hidden_layers=len({head.layer for head in model.heads}) + 1)
    with (
        pytest.raises(HeadscopeError, match="which the mask is for, got one with encoder"),
        deeper.edited(Masked(str(path))),
    ):
        pass
    assert read_mask(f"{path}-no-diagonal").at(3, Site("encoder", 0))[0].diagonal().sum() == 0
