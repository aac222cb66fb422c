"""Which token comes next?"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from by_hand import judged, log_softmax
from transformers import BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from headscope.api.importance import importance
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks import Item, get_task
from headscope.tasks.per_token import score_tokens
from headscope.tasks.prepared import IGNORED
from tiny import excited
from worded import LONGEST, WORDS, sentence, tokenizer, worded

CHANCE = random.Random(7)
TEXTS = [sentence(CHANCE, least=1, most=12) for _ in range(10)]


def decoder() -> AttentionModel:
    config = GPT2Config(
        vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2, n_positions=LONGEST, pad_token_id=0
    )
    return AttentionModel(
        excited(GPT2LMHeadModel(config).eval(), 0), tokenizer(ends=True), name="decoder"
    )


def items() -> list[Item]:
    return [Item((text,), None, f"x:{i}") for i, text in enumerate(TEXTS, start=1)]


def test_losses_are_those_of_every_token_given_the_ones_before_it() -> None:
    model = decoder()
    prepared, result = judged(model, get_task("causal"), items())
    for i, sequence in enumerate(prepared.sequences):
        ids = sequence.source.ids
        with torch.no_grad():
            logits = model.model(input_ids=torch.tensor([ids])).logits[0].tolist()
        losses = [
            -log_softmax(logits[position], ids[position + 1]) for position in range(len(ids) - 1)
        ]
        right = sum(
            logits[position].index(max(logits[position])) == ids[position + 1]
            for position in range(len(ids) - 1)
        )
        assert result.losses[i] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
        assert result.scores[i] == pytest.approx([right, len(ids) - 1, sum(losses)], abs=1e-4)


def test_losses_of_a_large_vocabulary_are_as_exact_as_float32_allows() -> None:
    """Summed along another axis than the last, the losses of 50,000 tokens are off by 1e-4."""
    random = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(2, 3, 50_000, generator=random)
    labels = torch.tensor([[7, IGNORED, 49_999], [0, 1, 2]])
    expected = torch.stack(
        [
            sum(
                (row.double().logsumexp(dim=-1) - row.double()[label])
                for row, label in zip(rows, of_rows, strict=True)
                if label != IGNORED
            )
            for rows, of_rows in zip(logits, labels.tolist(), strict=True)
        ]
    )
    losses = score_tokens(logits, labels)[:, 0]
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=3e-5)
    in_float64 = score_tokens(logits.double(), labels)[:, 0]
    torch.testing.assert_close(in_float64, expected, rtol=0, atol=1e-10)


def test_every_importance_runs_on_a_decoder(tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    study = importance(decoder(), task="causal", data=tmp_path / "dev.txt", by="all")
    assert (study.heads.groupby("statistic").size() == 4).all()
    assert {"relevance", "gradient", "ablation-loss"} <= set(
        study.tables["ranks"]["importance"]
    ) | {"ablation-loss"}


def test_a_model_that_sees_both_sides_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertForMaskedLM does not predict the next token"):
        get_task("causal").prepare(worded(BertForMaskedLM), items())


def test_a_text_of_one_token_is_left_out_and_counted() -> None:
    model = decoder()
    model.tokenizer.backend_tokenizer.post_processor = None  # nothing is put around a text
    prepared = get_task("causal").prepare(
        model, [Item(("cat",), None), Item(("the cat sat",), None)]
    )
    assert len(prepared.items) == 1
    assert prepared.counts.skipped == {"of one token, before which there is nothing": 1}
