"""pretrain: masked language modelling from new weights on a text corpus, with other masked tokens in every epoch."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headscope.ablation.significance import metrics_of
from headscope.config.command_line import command_line
from headscope.config.option import recorded
from headscope.config.pretrain import PretrainConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.config.training import ModelSizes
from headscope.data.held_out import check_held_out, is_held_out
from headscope.data.pack_sequences import pack
from headscope.errors import HeadscopeError
from headscope.masks import Masked as MaskedAttention
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import Source, read_source
from headscope.study.inputs import Corpus
from headscope.study.run_record import describe_model, versions
from headscope.tasks.base import Item, Prepared
from headscope.tasks.inference import evaluate
from headscope.tasks.masked import DynamicMasking
from headscope.tasks.per_token import IGNORED
from headscope.training.from_scratch import build_model
from headscope.training.loop import LoopSettings, Training
from headscope.training.result import TrainingResult, training_record, write_trained
from headscope.training.resumable import Resumable, resumable_run

SMALL = {"layers": 4, "heads": 4, "hidden": 128, "intermediate": 512}
TOKENIZER = "minilm"  # of a model without a configuration
# With few epochs there is no overfitting.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MAX_HELD_OUT = 500  # sequences: ten thousand masked tokens
MOMENTS = 10  # number of evaluations on the held-out texts, in addition to those at checkpoints


def pretrain(config: PretrainConfig, data: TextData, reading: Reading, run: Run) -> TrainingResult:
    """Train a new encoder to predict masked tokens.

    Texts are concatenated and split into sequences of `data.max_length` tokens. Blocks of neighbouring texts over
    the whole corpus are held out.
    """
    started = time.perf_counter()
    source, sizes, tokenizer = _source(config, run)
    max_length = data.max_length or config.defaults["max_length"]
    corpus = Corpus(data.corpus, data.texts, False, data.column, data.limit)
    texts = _Texts(corpus, config.held_out)
    torch.manual_seed(run.seed)
    model = build_model(
        source,
        sizes,
        texts.train(),
        model_class=DynamicMasking.model_class,
        run=run,
        tokenizer=tokenizer,
        max_length=max_length,
    )
    if reading.mask is not None:
        model.wear(MaskedAttention(reading.mask, open_special=reading.open_special))
    task = DynamicMasking(seed=run.seed)
    task.check(model)
    task.set_vocabulary(model)
    train, held = texts.packed(model, max_length)
    if len(held.items) > MAX_HELD_OUT:
        held = _few(held)
    held = task.mask_tokens(model, held)
    header = {
        "config": recorded(config, data, reading, run),
        "model": describe_model(model),
        "task": "masked",
        "data": texts.corpus.describe() | {"held_out": config.held_out},
        "versions": versions(),
    }
    baseline = unigram(train, held, model)
    share = f"{100 * texts.held_out:.1f} % of the texts"
    told = f"frequencies alone: loss {baseline['loss']:.3f}, the commonest token: accuracy {baseline['accuracy']:.4f}"
    run.log(f"{len(train.items)} sequences, {len(held.items)} held out ({share}); {told}")
    training = Training(
        model, task, train, LoopSettings.from_config(config, run.seed, config.steps)
    )
    with resumable_run(training, run, header, config.checkpoints) as resumable:
        _train(resumable, task, held, run)
        content = {
            "sequences": {"train": asdict(train.counts), "held_out": asdict(held.counts)},
            "held_out_share": texts.held_out,
            "baseline": baseline,
            "moments": resumable.told["moments"],
        }
        record = training_record(run, header, content, resumable.told, started)
        if training.accelerator.is_main_process and run.out is not None:
            write_trained(model, record, resumable.folder)
    return TrainingResult(model, record, run.out)


def _source(config: PretrainConfig, run: Run) -> tuple[Source, ModelSizes, str | Path | None]:
    """The architecture, its size, and whose tokenizer it gets; without an architecture those of a small BERT."""
    from transformers import BertConfig

    if config.architecture is None:
        small = {name: size or SMALL[name] for name, size in config.sizes().items()}
        if config.hidden is not None and config.intermediate is None:
            small["intermediate"] = None
        tokenizer = config.tokenizer or (None if config.vocabulary is not None else TOKENIZER)
        sizes = ModelSizes(**small, vocabulary=config.vocabulary)
        return Source("bert", BertConfig(**NO_DROPOUT)), sizes, tokenizer
    source = read_source(config.architecture, say=run.log)
    if source.config.is_encoder_decoder:
        raise HeadscopeError(
            f"{source.config.model_type} is an encoder-decoder",
            where="`architecture`",
            expected="an encoder, such as bert",
            fix="Train it to translate: "
            + command_line("finetune", "MODEL", task="translation", from_scratch=True),
        )
    return source, config, config.tokenizer


class _Texts:
    """A corpus in two: what is learned from, and what is held out, in blocks of neighbouring texts."""

    def __init__(self, corpus: Corpus, held_out: float) -> None:
        check_held_out(held_out, corpus.total, corpus.name)
        self.corpus, self.share = corpus, held_out

    @property
    def held_out(self) -> float:
        """The share that is held out in whole blocks."""
        return sum(map(self._is_held, range(self.corpus.total))) / self.corpus.total

    def _is_held(self, number: int) -> bool:
        return is_held_out(number, self.share)

    def train(self) -> Iterator[str]:
        return (str(text.first) for i, text in enumerate(self.corpus) if not self._is_held(i))

    def packed(self, model: AttentionModel, max_length: int) -> tuple[Prepared, Prepared]:
        """Sequences to learn from, and those that are held out."""
        sides = []
        for held in (False, True):
            texts = (text for i, text in enumerate(self.corpus) if self._is_held(i) == held)
            sequences, counts = pack(model, texts, max_length=max_length)
            if not sequences:
                what = "no text in it has tokens"
                raise HeadscopeError(what, where=self.corpus.name, expected="text")
            items = [Item((), None) for _ in sequences]
            parts: list[tuple[int, ...]] = [(i,) for i in range(len(items))]
            sides.append(Prepared(items, sequences, parts, None, counts))
        return sides[0], sides[1]


def _few(held: Prepared) -> Prepared:
    """MAX_HELD_OUT of the sequences, evenly spread."""
    chosen = [i * len(held.items) // MAX_HELD_OUT for i in range(MAX_HELD_OUT)]
    sequences = [replace(held.sequences[i], index=n) for n, i in enumerate(chosen)]
    items, parts = held.items[:MAX_HELD_OUT], held.parts[:MAX_HELD_OUT]
    return Prepared(items, sequences, parts, None, held.counts)


def unigram(train: Prepared, held: Prepared, model: AttentionModel) -> dict[str, float]:
    """What one reaches without a model, by how frequent tokens are where one learns: the commonest is always said.

    The loss is that of relative frequencies, one added to each of the vocabulary's counts.
    """
    assert held.labels is not None
    counts = Counter(token for sequence in train.sequences for token in sequence.source.ids)
    for token in model.marks.special:
        del counts[token]
    asked = [label for labels in held.labels for label in labels if label != IGNORED]
    total = sum(counts.values()) + model.model.config.vocab_size
    common = max(sorted(counts), key=counts.__getitem__)
    losses = [math.log(total / (counts[label] + 1)) for label in asked]
    return {
        "accuracy": sum(label == common for label in asked) / len(asked),
        "loss": float(np.mean(losses)),
    }


def _train(resumable: Resumable, task: DynamicMasking, held: Prepared, run: Run) -> None:
    """Train to the end and evaluate on the held-out texts at a few steps."""
    moments: list[dict[str, Any]] = resumable.told.setdefault("moments", [])
    model, total = resumable.training.model, resumable.training.total
    due = {round(total * (i + 1) / MOMENTS) for i in range(MOMENTS)} | resumable.to_keep
    if not moments:
        moments.append(_measured(model, task, held, resumable.training.number, None))
    for step in resumable.steps():
        run.progress(step.number, step.total, "steps")
        if step.number in due:
            moments.append(_measured(model, task, held, step.number, step.loss))
            loss, accuracy = moments[-1]["loss"], moments[-1]["accuracy"]
            what = f"held out: loss {loss:.3f}, accuracy {accuracy:.4f}"
            run.log(f"step {step.number} of {total}: {what}")
        if step.ends_epoch:
            resumable.save()


def _measured(
    model: AttentionModel, task: DynamicMasking, held: Prepared, step: int, train_loss: float | None
) -> dict[str, Any]:
    """Loss and accuracy at the masked tokens of the held-out texts, with intervals."""
    metrics = metrics_of(task, evaluate(model, task, held))
    return {
        "step": step,
        "train_loss": train_loss,
        "loss": metrics["loss"]["value"],
        "accuracy": metrics["accuracy"]["value"],
        "metrics": metrics,
    }
