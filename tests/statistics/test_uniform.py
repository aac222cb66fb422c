"""What uniform attention would give: against loops over the keys that the library lets each query see."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import pytest
import torch

from headscope.heads import Head
from headscope.model.edits import Edit
from headscope.statistics import stream
from headscope.statistics.sinks import Sinks
from headscope.statistics.uniform import NAMES, UniformShares
from reference import surface
from reference.surface import Seen
from tiny import batch_for, examples, library_attentions, real_sides, shared

CASES = ["bert", "gpt2", "mistral", "modernbert", "marian", "vit", "xlnet/two-streams"]


def table_of(statistic: UniformShares) -> dict[tuple[str, int, str], float]:
    return {
        (row["stack"], row["layer"], row["statistic"]): row["value"]
        for row in statistic.tables()["uniform"]
    }


def by_hand(case: str) -> dict[tuple[str, int, str], float]:
    """The reference's statistics of rows that are equal wherever the library's weight is not 0."""
    model = shared(case.partition("/")[0])
    inputs = dict(batch_for(model, examples(case)).inputs)
    family = model.model.config.model_type
    result: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for site, weights in library_attentions(model, inputs).items():
        queries, keys = real_sides(inputs, family, site.stack)
        ids = inputs.get("input_ids")
        if site.stack == "decoder" and "decoder_input_ids" in inputs:
            ids = inputs["decoder_input_ids"]
        for i, of_heads in enumerate(weights):
            visible = (of_heads[0][queries[i]][:, keys[i]] > 0).double()
            rows = (visible / visible.sum(dim=-1, keepdim=True)).tolist()
            kinds = surface.kinds(
                None if ids is None else ids[i][keys[i]].tolist(), model.tokenizer, len(rows[0])
            )
            seen = Seen(rows, [set() for _ in rows], kinds, site.stack in surface.WITHIN_ONE_TEXT)
            for name in NAMES:
                if name in surface.COMPARE_POSITIONS and not seen.within_one_text:
                    continue
                if name in ("first", "sink") and site.stack == "query":
                    continue
                value = surface.PER_SEQUENCE[name](seen)
                if value is not None:
                    result[site.stack, site.layer, name].append(value)
    return {key: mean(values) for key, values in result.items() if sum(values) > 0}


@pytest.mark.parametrize("case", CASES)
def test_the_expectation_is_that_of_equal_weights_on_all_visible_keys(case: str) -> None:
    model = shared(case.partition("/")[0])
    statistic = UniformShares()
    for _ in stream(model, [batch_for(model, examples(case))], [statistic]):
        pass
    assert table_of(statistic) == pytest.approx(by_hand(case), abs=1e-6)


def test_merging_and_batches_change_nothing() -> None:
    model, some = shared("gpt2"), examples("gpt2")
    whole, parts = UniformShares(), [UniformShares(), UniformShares()]
    for _ in stream(model, [batch_for(model, some)], [whole]):
        pass
    for part, few in zip(parts, (some[:3], some[3:]), strict=True):
        for _ in stream(model, [batch_for(model, few, "left")], [part]):
            pass
    assert table_of(parts[0].merge(parts[1])) == pytest.approx(table_of(whole), abs=1e-6)


class Hidden(Edit):
    """One head may attend only to the first key."""

    def changes_mask(self, site) -> bool:
        return True

    def allowed(self, site, shape, device):
        allowed = torch.ones(1, shape[1], shape[2], shape[3], dtype=torch.bool, device=device)
        allowed[:, 1, :, 1:] = False
        return allowed


def test_masks_that_differ_between_heads_are_distinguished() -> None:
    """The sink of the head that sees one key is that key; what the others see does not change for them."""
    model, batch = shared("bert"), batch_for(shared("bert"), examples("bert", lengths=((12, 3),)))
    shapes = []
    statistic, even = Sinks(), UniformShares()
    with model.edited(Hidden()):
        for _ in stream(model, [batch], [statistic, even]):
            pass
        with (
            torch.inference_mode(),
            model.watched(lambda attention: shapes.append(attention.visible.shape[1])),
        ):
            model(batch)
    table = {
        (Head(row.stack, row.layer, row.head), row.statistic): row.value
        for row in statistic.table()
    }
    assert set(shapes) == {4}
    assert table[Head("encoder", 0, 1), "sink"] == pytest.approx(1.0)
    assert table_of(even)["encoder", 0, "cls"] == pytest.approx((1 + 3 / 12) / 4)
