"""Relevance on a real sentence encoder: the table of docs/explanation/relevance.md."""

from __future__ import annotations

import numpy as np
import pytest

import headscope
from headscope.ablation.estimates.relevance import balance
from headscope.model.relevance.rules import Rules, linearise
from headscope.model.relevance.sums import RelevanceSums
from headscope.model.relevance.targets import component_along

TEXT = "The committee that met on Tuesday decided that the old bridge, which nobody had crossed for years, would stay."


@pytest.mark.real
def test_minilm_is_shared_out_whole_and_attnlrp_loses_a_third(zoo_model) -> None:  # type: ignore[no-untyped-def]
    model = headscope.load(zoo_model("minilm"))
    (batch,) = headscope.encode(model, [TEXT])
    result = {}
    for rules in ("voita", "attnlrp"):
        accounts = RelevanceSums(model, 1)
        kind: Rules = rules  # type: ignore[assignment]
        with linearise(model, kind, accounts), accounts.follow():
            output = component_along(
                model.reading.vectors(
                    model(batch)[0], batch.inputs["attention_mask"], hold_lengths=True
                )
            )
            accounts.backward(output)
        result[rules] = {
            key: float(values) for key, values in balance(accounts, output.detach()).items()
        }
    voita, attnlrp = result["voita"], result["attnlrp"]
    biases = sum(value for (_, _, part), value in voita.items() if part == "biases")
    embeddings = voita["encoder", -1, "enters"]
    assert embeddings + biases == pytest.approx(1, abs=1e-5)
    assert 0.85 < embeddings < 1.05
    assert all(abs(value) < 1e-5 for (_, _, part), value in voita.items() if part == "lost")
    # The last layer's heads are the same by both rules; below, a part of it is gone by AttnLRP's.
    assert attnlrp["encoder", 5, "heads"] == pytest.approx(voita["encoder", 5, "heads"], abs=1e-5)
    lost = sum(value for (_, _, part), value in attnlrp.items() if part == "lost")
    assert 0.1 < lost < 0.6
    assert np.isfinite(list(attnlrp.values())).all()
