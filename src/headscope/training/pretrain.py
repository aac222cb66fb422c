"""Pretrain: masked language modelling on a text corpus, from new weights, with new masked tokens in every epoch."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from headscope.ablation.significance import metrics_of
from headscope.config.command_line import command_line
from headscope.config.option import record_options
from headscope.config.pretrain import PretrainConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.config.training import ModelSizes
from headscope.data.examples import Example
from headscope.data.held_out import check_held_out, is_held_out
from headscope.data.pack_sequences import pack
from headscope.errors import HeadscopeError
from headscope.masks import Masked as MaskedAttention
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import Architecture, Source, read_source
from headscope.study.inputs import Corpus
from headscope.study.run_record import describe_model, versions
from headscope.tasks.inference import evaluate
from headscope.tasks.items import Item
from headscope.tasks.masked import DynamicMasking
from headscope.tasks.prepared import IGNORED, Prepared
from headscope.training.from_scratch import build_model
from headscope.training.loop import LoopSettings, Training
from headscope.training.result import (
    MomentRecord,
    TrainingRecord,
    TrainingResult,
    training_record,
    write_training,
)
from headscope.training.resumable import Resumable, resumable_run

SMALL = {"layers": 4, "heads_per_layer": 4, "hidden": 128, "intermediate": 512}  # default sizes
TOKENIZER = "minilm"  # model whose tokenizer is used by default
# Dropout is not needed: in few epochs there is no overfitting.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MAX_HELD_OUT = 500  # held-out sequences to evaluate on; they have about ten thousand masked tokens
MOMENTS = 10  # number of evaluations on the held-out texts, in addition to those at checkpoints


def pretrain(config: PretrainConfig, data: TextData, reading: Reading, run: Run) -> TrainingResult:
    """Train a new encoder to predict masked tokens.

    Texts are concatenated and split into sequences of `data.max_length` tokens. Blocks of neighbouring texts over
    the whole corpus are held out.
    """
    started = time.perf_counter()
    max_length = data.max_length or config.defaults["max_length"]
    new, tokenizer = _architecture(config, run, max_length)
    corpus = Corpus(data.corpus, data.texts, False, data.column, data.limit)
    texts = _Texts(corpus, config.held_out)
    torch.manual_seed(run.seed)
    model = build_model(new, texts.train(), run, tokenizer)
    if reading.mask is not None:
        model.edit_permanently(MaskedAttention(reading.mask, open_special=reading.open_special))
    task = DynamicMasking(seed=run.seed)
    task.check(model)
    task.set_vocabulary(model)
    train = texts.pack(model, max_length, held_out=False)
    held_out = _limit(texts.pack(model, max_length, held_out=True))
    held_out = task.mask_tokens(model, held_out)
    header: TrainingRecord = {
        "config": record_options(config, data, reading, run),
        "model": describe_model(model),
        "task": "masked",
        "data": corpus.describe() | {"held_out": config.held_out},
        "versions": versions(),
    }
    baseline = unigram(train, held_out, model)
    share = f"{100 * texts.held_out_share:.1f} % of the texts"
    run.log(
        f"{len(train.items)} sequences, {len(held_out.items)} held out ({share}); frequencies alone: "
        f"loss {baseline['loss']:.3f}, the commonest token: accuracy {baseline['accuracy']:.4f}"
    )
    settings = LoopSettings.from_config(config, run.seed, config.steps)
    training = Training(model, task, train, settings)
    with resumable_run(training, run, header, config.checkpoints) as resumable:
        _train(resumable, task, held_out, run)
        content: TrainingRecord = {
            "sequences": {"train": asdict(train.counts), "held_out": asdict(held_out.counts)},
            "held_out_share": texts.held_out_share,
            "baseline": baseline,
            "moments": resumable.history["moments"],
        }
        record = training_record(run, header, content, resumable.history, started)
        if training.accelerator.is_main_process and run.out is not None:
            write_training(model, record, resumable.folder)
    return TrainingResult(model, record, run.out)


def _architecture(
    config: PretrainConfig, run: Run, max_length: int
) -> tuple[Architecture, str | Path | None]:
    """The architecture, by default a small BERT, and the model whose tokenizer is used.

    The second is None if the tokenizer is the architecture's own, or a new one.
    """
    from transformers import BertConfig

    kind = DynamicMasking.model_class
    if config.architecture is None:
        small: dict[str, int | None] = {
            name: size or SMALL[name] for name, size in config.sizes().items()
        }
        if config.hidden is not None and config.intermediate is None:
            small["intermediate"] = None
        tokenizer = config.tokenizer or (None if config.vocabulary is not None else TOKENIZER)
        sizes = ModelSizes(**small, vocabulary=config.vocabulary)
        source = Source("bert", BertConfig(**NO_DROPOUT))
        return Architecture(source, kind, sizes, max_length=max_length), tokenizer
    source = read_source(config.architecture, say=run.log)
    if source.config.is_encoder_decoder:
        finetune = command_line("finetune", "MODEL", task="translation", from_scratch=True)
        raise HeadscopeError(
            f"must be an encoder such as bert, got {source.config.model_type}, an encoder-decoder",
            where="`architecture`",
            fix=f"Train it to translate: {finetune}",
        )
    return Architecture(source, kind, config, max_length=max_length), config.tokenizer


class _Texts:
    """A corpus in two parts: texts to train on, and held-out blocks of neighbouring texts."""

    def __init__(self, corpus: Corpus, share: float) -> None:
        check_held_out(share, corpus.total, corpus.name)
        self.corpus, self.share = corpus, share

    @property
    def held_out_share(self) -> float:
        """The share of the texts that is held out. It differs a little from `share`, since blocks are held out."""
        total = self.corpus.total
        return sum(is_held_out(number, self.share) for number in range(total)) / total

    def train(self) -> Iterator[str]:
        return (str(text.first) for text in self._texts(False))

    def _texts(self, held_out: bool) -> Iterator[Example]:
        texts = enumerate(self.corpus)
        return (text for number, text in texts if is_held_out(number, self.share) == held_out)

    def pack(self, model: AttentionModel, max_length: int, *, held_out: bool) -> Prepared:
        """The texts of one part, concatenated and split into sequences of `max_length` tokens."""
        sequences, counts = pack(model, self._texts(held_out), max_length=max_length)
        if not sequences:
            what = "a corpus must have texts with tokens, got none"
            raise HeadscopeError(what, where=self.corpus.name)
        items = [Item((), None) for _ in sequences]
        return Prepared(items, sequences, [(i,) for i in range(len(items))], None, counts)


def _limit(held_out: Prepared) -> Prepared:
    """At most MAX_HELD_OUT of the sequences, evenly spaced."""
    total = len(held_out.items)
    if total <= MAX_HELD_OUT:
        return held_out
    chosen = (held_out.sequences[i * total // MAX_HELD_OUT] for i in range(MAX_HELD_OUT))
    sequences = [replace(sequence, index=number) for number, sequence in enumerate(chosen)]
    items, parts = held_out.items[:MAX_HELD_OUT], held_out.parts[:MAX_HELD_OUT]
    return Prepared(items, sequences, parts, None, held_out.counts)


def unigram(train: Prepared, held_out: Prepared, model: AttentionModel) -> dict[str, float]:
    """Accuracy and loss of a baseline that uses only the token frequencies of the training texts.

    Its accuracy is that of always predicting the most frequent token. Its loss, in nats, is that of predicting the
    token frequencies with add-one smoothing.
    """
    assert held_out.labels is not None
    counts = Counter(token for sequence in train.sequences for token in sequence.source.ids)
    for token in model.marks.special:
        del counts[token]
    targets = [label for labels in held_out.labels for label in labels if label != IGNORED]
    total = sum(counts.values()) + model.model.config.vocab_size
    common = max(sorted(counts), key=counts.__getitem__)
    losses = [math.log(total / (counts[label] + 1)) for label in targets]
    accuracy = sum(label == common for label in targets) / len(targets)
    return {"accuracy": accuracy, "loss": float(np.mean(losses))}


def _train(resumable: Resumable, task: DynamicMasking, held_out: Prepared, run: Run) -> None:
    """Train to the end; evaluates on the held-out texts before training, at MOMENTS steps and at checkpoints."""
    moments = resumable.history.setdefault("moments", [])
    model, total = resumable.training.model, resumable.training.total

    def evaluate_at(step: int, train_loss: float | None) -> MomentRecord:
        metrics = metrics_of(task, evaluate(model, task, held_out))
        return {
            "step": step,
            "train_loss": train_loss,
            "loss": metrics["loss"]["value"],
            "accuracy": metrics["accuracy"]["value"],
            "metrics": metrics,
        }

    if not moments:
        moments.append(evaluate_at(resumable.training.number, None))
    due = {round(total * (i + 1) / MOMENTS) for i in range(MOMENTS)} | resumable.checkpoint_steps
    for step in resumable.steps():
        run.progress(step.number, step.total, "steps")
        if step.number in due:
            moments.append(evaluate_at(step.number, step.loss))
            result = f"loss {moments[-1]['loss']:.3f}, accuracy {moments[-1]['accuracy']:.4f}"
            run.log(f"step {step.number} of {total}: held out: {result}")
        if step.ends_epoch:
            resumable.save()
