"""Dynamic masking: what is asked, what stands in its place, and that it follows from seed, epoch and item alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from by_hand import log_softmax
from transformers import BertForMaskedLM

from headscope.data.examples import Example
from headscope.data.pack_sequences import pack
from headscope.tasks import Item, tasks
from headscope.tasks.masked import DynamicMasking
from headscope.tasks.prepared import Prepared, batch_of
from headscope.training.loop import LoopSettings, Training
from worded import SPECIAL, WORDS, sentence, worded

CHANCE = random.Random(3)
TEXTS = [Example(sentence(CHANCE, least=3, most=12)) for _ in range(60)]
MASK, LONGEST = WORDS.index("[MASK]"), 24


def made(seed: int = 0) -> tuple[DynamicMasking, Prepared]:
    model = worded(BertForMaskedLM)
    sequences, counts = pack(model, TEXTS, max_length=LONGEST)
    items = [Item((), None) for _ in sequences]
    task = DynamicMasking(seed=seed)
    task.set_vocabulary(model)
    return task, Prepared(items, sequences, [(i,) for i in range(len(items))], None, counts)


def test_it_is_no_task_by_name() -> None:
    assert DynamicMasking not in tasks().values()


def test_masks_differ_between_epochs_and_follow_from_seed_epoch_and_item() -> None:
    task, prepared = made()
    everything = list(range(len(prepared.items)))
    epochs = [task.training_examples(prepared, everything, epoch)[0] for epoch in (0, 1)]
    assert epochs[0].labels != epochs[1].labels
    assert epochs[0].labels is not None
    for items in ([5], [7, 2, 5], everything[::-1]):
        part, chosen = task.training_examples(prepared, items, 0)
        assert chosen == list(range(len(items)))
        assert part.labels is not None
        for number, item in enumerate(items):
            assert part.labels[number] == epochs[0].labels[item]
            assert part.sequences[number].source.ids == epochs[0].sequences[item].source.ids
            assert part.sequences[number].index == number
    assert made(seed=1)[0].training_examples(prepared, everything, 0)[0].labels != epochs[0].labels


def test_of_the_asked_tokens_eight_in_ten_are_masked_one_replaced_and_one_left() -> None:
    task, prepared = made()
    fates: Counter[str] = Counter()
    special = {WORDS.index(word) for word in SPECIAL}
    for epoch in range(200):
        drawn, _ = task.training_examples(prepared, list(range(len(prepared.items))), epoch)
        assert drawn.labels is not None
        for whole, shown, labels in zip(
            prepared.sequences, drawn.sequences, drawn.labels, strict=True
        ):
            content = [i for i, token in enumerate(whole.source.ids) if token not in special]
            positions = [i for i, label in enumerate(labels) if label >= 0]
            assert len(positions) == max(1, round(0.15 * len(content)))
            assert set(positions) <= set(content)
            for i, (before, after) in enumerate(
                zip(whole.source.ids, shown.source.ids, strict=True)
            ):
                if i not in positions:
                    assert before == after
                    continue
                assert labels[i] == before
                assert after == MASK or after not in special
                fates["mask" if after == MASK else "same" if after == before else "other"] += 1
    total = fates.total()
    assert total > 5000
    by_chance = 0.1 / (len(WORDS) - len(SPECIAL))  # the replacement may be the token itself
    for name, share in (("mask", 0.8), ("other", 0.1 - by_chance), ("same", 0.1 + by_chance)):
        assert fates[name] / total == pytest.approx(
            share, abs=4 * (share * (1 - share) / total) ** 0.5
        ), name


def test_the_loss_is_that_of_a_whole_forward_pass_at_the_asked_tokens() -> None:
    """Masked, replaced and kept ones alike; the fast way runs the head at these places alone."""
    task, prepared = made()
    model = worded(BertForMaskedLM)
    drawn, chosen = task.training_examples(prepared, list(range(len(prepared.items))), 4)
    assert drawn.labels is not None
    batch = batch_of(model, drawn, chosen)
    with torch.no_grad():
        losses = task.losses(
            task.extract_answers(task.call(model, batch), batch, drawn), drawn, chosen
        )
    kinds = set()
    for i, labels in enumerate(drawn.labels):
        ids = drawn.sequences[i].source.ids
        with torch.no_grad():
            logits = model.model(input_ids=torch.tensor([ids])).logits[0].tolist()
        positions = [at for at, label in enumerate(labels) if label >= 0]
        kinds |= {(ids[at] == MASK, ids[at] == labels[at]) for at in positions}
        expected = sum(-log_softmax(logits[at], labels[at]) for at in positions) / len(positions)
        assert losses[i].item() == pytest.approx(expected, abs=1e-5)
    assert kinds == {(True, False), (False, True), (False, False)}


def test_the_loop_asks_for_the_masks_of_its_epoch() -> None:
    task, prepared = made()
    seen: list[tuple[int, tuple[int, ...]]] = []
    plain = task.training_examples

    def noted(data: Prepared, items: list[int], epoch: int) -> tuple[Prepared, list[int]]:
        seen.append((epoch, tuple(items)))
        return plain(data, items, epoch)

    task.training_examples = noted  # type: ignore[method-assign]
    run = Training(worded(BertForMaskedLM), task, prepared, LoopSettings(epochs=2, batch_size=8))
    list(run)
    for epoch in (0, 1):
        assert sorted(item for at, items in seen if at == epoch for item in items) == list(
            range(len(prepared.items))
        )
