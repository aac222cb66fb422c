"""How good are the model's own translations?"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import judged
from sacrebleu import corpus_bleu, corpus_chrf
from sacrebleu.metrics.bleu import BLEU

from headscope import Ablate
from headscope.ablation.ablation_targets import variants_of
from headscope.ablation.estimates.gradient import gradient_terms
from headscope.ablation.estimates.norm import output_norms
from headscope.ablation.modes.mean import mean_results
from headscope.ablation.sweep import Sweep
from headscope.analysis.token_maps import encode_input
from headscope.tasks import get_task
from headscope.tasks.bleu import Bleu
from headscope.tasks.bleu import translate as generate
from headscope.tasks.inference import evaluate
from worded import sentence, translator

CHANCE = random.Random(9)
PAIRS = [(sentence(CHANCE), sentence(CHANCE)) for _ in range(12)]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.tasks.bleu.LONGEST", 8)


def written(folder: Path) -> Path:
    (folder / "dev.tsv").write_text(
        "".join(f"{source}\t{target}\n" for source, target in PAIRS), "utf-8"
    )
    return folder / "dev.tsv"


def translate(model: object, *, edit: str | None = None) -> list[str]:
    """One sentence at a time, by the library's own generation."""
    actual = []
    for source, _ in PAIRS:
        inputs = model.tokenizer(source, return_tensors="pt")  # type: ignore[attr-defined]
        with torch.no_grad():
            ids = model.model.generate(**inputs, num_beams=4, max_new_tokens=8)  # type: ignore[attr-defined]
        actual.append(model.tokenizer.decode(ids[0], skip_special_tokens=True))  # type: ignore[attr-defined]
    return actual


def test_bleu_and_chrf_are_sacrebleu_s_of_the_library_s_translations(tmp_path: Path) -> None:
    model, task = translator(), get_task("bleu")
    _, result = judged(model, task, task.items(written(tmp_path)))
    output, right = translate(model), [[target for _, target in PAIRS]]
    metrics = task.measure(result.scores)
    assert metrics["bleu"] == pytest.approx(corpus_bleu(output, right).score)
    assert metrics["chrf"] == pytest.approx(corpus_chrf(output, right).score)
    assert metrics["chrf"] > 1


def test_a_decoder_of_few_positions_translates_as_far_as_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headscope.tasks.bleu.LONGEST", 128)
    monkeypatch.setattr("worded.LONGEST", 12)
    model = translator()
    assert model.model.config.max_position_embeddings == 12
    batch = encode_input(model, "the old cat sat", None)
    (ids,) = generate(model, batch)
    assert 0 < len(ids) <= 12


def test_a_good_translation_has_a_high_score(tmp_path: Path) -> None:
    model, task = translator(), get_task("bleu")
    output = translate(model)
    (tmp_path / "dev.tsv").write_text(
        "".join(f"{PAIRS[i][0]}\t{output[i]}\n" for i in range(12)), "utf-8"
    )
    _, result = judged(model, task, task.items(tmp_path / "dev.tsv"))
    assert task.measure(result.scores)["chrf"] == pytest.approx(100)
    worse = task.measure(np.concatenate([result.scores[:6], result.scores[:6] * 0]))
    assert worse["chrf"] == pytest.approx(
        100
    )  # empty counts add nothing: the corpus' score is of sums


def test_the_loss_is_that_of_the_given_translation(tmp_path: Path) -> None:
    model = translator()
    losses = [judged(model, get_task(name), get_task(name).items(written(tmp_path)))[1].losses for name in
              ("bleu", "translation")]  # fmt: skip
    assert np.abs(losses[0] - losses[1]).max() < 1e-5


def test_what_watches_or_differentiates_sees_the_given_translation_alone(tmp_path: Path) -> None:
    """Beam search runs more sequences than the batch has, and has no gradients."""
    model, task, other = translator(), get_task("bleu"), get_task("translation")
    prepared = task.prepare(model, task.items(written(tmp_path)))
    plain = other.prepare(model, other.items(written(tmp_path)))
    norms = [
        output_norms(model, one, them, model.heads)
        for one, them in ((task, prepared), (other, plain))
    ]
    assert np.allclose(*norms)
    means = [mean_results(model, one, them, 4) for one, them in ((task, prepared), (other, plain))]
    assert all(torch.allclose(means[0][head], means[1][head], atol=1e-6) for head in model.heads)
    signed = [
        gradient_terms(model, one, them).signed for one, them in ((task, prepared), (other, plain))
    ]
    assert np.allclose(*signed, atol=1e-6)


def test_a_sweep_takes_no_shortcut_and_its_edits_reach_every_token(tmp_path: Path) -> None:
    model, task = translator(), Bleu("bleu")
    prepared = task.prepare(model, task.items(written(tmp_path)))
    sweep = Sweep(model, task, prepared)
    assert sweep.method == "plain"
    assert sweep.notes == ["bleu judges generated texts: every head needs a complete run"]
    groups = sweep.groups(variants_of(model, "site"))
    units = list(sweep.run(0, list(range(12)), groups))
    for unit in units[1:3]:
        with model.edited(Ablate(unit.variants[0].heads)):
            plain = evaluate(model, task, prepared)
        assert np.array_equal(plain.scores, unit.scores[0])
        assert not np.array_equal(plain.scores, units[0].scores[0])


def test_one_word_that_becomes_wrong_is_the_least_change() -> None:
    outputs = ["the old cat sat on a mat", "a dog ran"]
    worse = ["the old cat sleeps on a mat", "a dog ran"]
    right = ["the old cat sat on a mat .", "the dog ran"]
    counts = BLEU()._extract_corpus_statistics(outputs, [right])
    scores = np.concatenate([np.array(counts, dtype=np.float64), np.ones((2, 18))], axis=1)
    change = corpus_bleu(outputs, [right]).score - corpus_bleu(worse, [right]).score
    assert Bleu("bleu").change_of_one(scores) == pytest.approx(change)
