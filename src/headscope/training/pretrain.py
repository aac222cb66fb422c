"""pretrain, the verb: masked language modelling from nothing, on a text corpus, with another mask in every epoch."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headscope.ablation.significance import metrics_of
from headscope.config.command_line import command_line
from headscope.config.requirements import changed, check_effects
from headscope.data.examples import Column
from headscope.data.held_out import check_held_out, is_held_out
from headscope.data.pack_sequences import packed
from headscope.errors import HeadscopeError
from headscope.masks import Masked as MaskedAttention
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import Sizes, Source, read_source
from headscope.model.saving import write_model
from headscope.study.inputs import Corpus, Files
from headscope.study.run_record import describe_model, versions
from headscope.study.schema.record import SCHEMA
from headscope.tasks.base import Item, Prepared
from headscope.tasks.per_token import IGNORED
from headscope.tasks.remasked import Remasked
from headscope.tasks.running import evaluate
from headscope.training.from_scratch import Scratch, begun
from headscope.training.loop import Step, Training
from headscope.training.resumable import BEST, DIVERGED, STATE, Resumable, draft
from headscope.training.settings import Settings

RECORD = "training.json"
SMALL = Sizes(layers=4, heads=4, hidden=128, intermediate=512)
TOKENIZER = "minilm"  # of a model that is given no configuration
UNDROPPED = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # few epochs: nothing is learned by heart
MOST_HELD_OUT = 500  # sequences: ten thousand masked tokens
MOMENTS = 10  # at which the held-out texts are asked, beside the checkpoints


def pretrain(
    *,
    corpus: Files,
    out: str | Path,
    config: str | Path | None = None,
    scratch: Scratch | None = None,
    settings: Settings | None = None,
    max_length: int = 128,
    held_out: float = 0.02,
    limit: int | None = None,
    column: Column = None,
    mask: str | None = None,
    open_special: bool = False,
    checkpoints: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    command: str = "",
    watch: Callable[[Step], None] = lambda step: None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train a new encoder to guess masked tokens; returns the record that is written as training.json.

    corpus    files of text, put one after another and cut into sequences of `max_length` tokens
    config    the kind of model: a named one, a directory, a hub id or a file config.json; a small BERT where None
    scratch   its size, and whose tokenizer it gets: see `Scratch`
    held_out  the share of the texts that is not learned from, in blocks over the whole corpus
    limit     only the first so many texts
    mask      attend only where this mask lets (open_special: but for special tokens)
    checkpoints  so many models along the way, in OUT/checkpoints
    """
    started = time.perf_counter()
    settings = settings or Settings(epochs=1, learning_rate=1e-3)
    scratch = scratch or Scratch()
    epochs = changed(settings).get("epochs")
    given = {
        "mask": mask,
        "open_special": open_special,
        "epochs": None if epochs == 1 else epochs,
    }  # 1: by default
    check_effects("pretrain", given | {"steps": settings.steps})
    worn = [] if mask is None else [MaskedAttention(mask, open_special=open_special)]
    source, scratch = _source(config, scratch, say)
    texts = _Texts(Corpus(corpus, (), False, column, limit), held_out)
    torch.manual_seed(settings.seed)
    model = begun(
        source,
        scratch,
        texts.train(),
        model_class=Remasked.model_class,
        max_length=max_length,
        device=device,
        say=say,
    ).wear(*worn)
    task = Remasked(seed=settings.seed)
    task.check(model)
    task.bind(model)
    train, held = texts.packed(model, max_length)
    if len(held.items) > MOST_HELD_OUT:
        held = _few(held)
    held = task.hidden(model, held)
    header = {
        "model": describe_model(model),
        "task": "masked",
        "data": texts.corpus.describe() | {"held_out": held_out},
        "scratch": asdict(scratch),
        "settings": asdict(settings),
        "max_length": max_length,
        "checkpoints": checkpoints,
        "versions": versions(),
    }
    baseline = unigram(train, held, model)
    share = f"{100 * texts.held_out:.1f} % of the texts"
    told = f"frequencies alone: loss {baseline['loss']:.3f}, the commonest token: accuracy {baseline['accuracy']:.4f}"
    say(f"{len(train.items)} sequences, {len(held.items)} held out ({share}); {told}")
    training = Training(model, task, train, settings)
    with draft(training, out, overwrite=overwrite, resume=resume, record=RECORD) as folder:
        run = Resumable(training, folder, header, checkpoints=checkpoints, may_slow=True)
        if resume:
            run.restore(say)
        _follow(run, task, held, watch, say)
        record = {
            "schema": SCHEMA,
            "command": command,
            **header,
            "sequences": {"train": asdict(train.counts), "held_out": asdict(held.counts)},
            "held_out_share": texts.held_out,
            "baseline": baseline,
            "moments": run.told["moments"],
            "diverged": run.told.get("diverged", []),
            "seconds": round(time.perf_counter() - started, 1),
        }
        if training.accelerator.is_main_process:
            write_model(model, folder)
            (folder / RECORD).write_text(
                json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8"
            )
            for name in (STATE, BEST, DIVERGED):
                (folder / name).unlink(missing_ok=True)
    return record


def _source(
    config: str | Path | None, scratch: Scratch, say: Callable[[str], None]
) -> tuple[Source, Scratch]:
    """The configuration, a small BERT's where none is given, with what is then left to be chosen."""
    from transformers import BertConfig

    if config is None:
        small = {name: getattr(scratch.sizes, name) or size for name, size in asdict(SMALL).items()}
        if scratch.sizes.hidden is not None and scratch.sizes.intermediate is None:
            small["intermediate"] = None
        tokenizer = scratch.tokenizer or (None if scratch.vocabulary is not None else TOKENIZER)
        return Source("bert", BertConfig(**UNDROPPED)), Scratch(
            Sizes(**small), tokenizer, scratch.vocabulary
        )
    source = read_source(config, say=say)
    if source.config.is_encoder_decoder:
        raise HeadscopeError(
            f"{source.config.model_type} is an encoder-decoder",
            where="`config`",
            expected="an encoder, such as bert",
            mend="Train it to translate: "
            + command_line("finetune", "MODEL", task="translation", from_scratch=True),
        )
    return source, scratch


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
            sequences, counts = packed(model, texts, max_length=max_length)
            if not sequences:
                raise HeadscopeError(
                    "no text in it has tokens", where=self.corpus.name, expected="text"
                )
            items = [Item((), None) for _ in sequences]
            sides.append(
                Prepared(items, sequences, [(i,) for i in range(len(items))], None, counts)
            )
        return sides[0], sides[1]


def _few(held: Prepared) -> Prepared:
    """MOST_HELD_OUT of the sequences, evenly spread."""
    chosen = [i * len(held.items) // MOST_HELD_OUT for i in range(MOST_HELD_OUT)]
    sequences = [replace(held.sequences[i], index=n) for n, i in enumerate(chosen)]
    return Prepared(
        held.items[:MOST_HELD_OUT], sequences, held.parts[:MOST_HELD_OUT], None, held.counts
    )


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


def _follow(
    run: Resumable,
    task: Remasked,
    held: Prepared,
    watch: Callable[[Step], None],
    say: Callable[[str], None],
) -> None:
    """To the end, with the held-out texts asked at a few moments."""
    moments: list[dict[str, Any]] = run.told.setdefault("moments", [])
    total = run.training.total
    due = {round(total * (i + 1) / MOMENTS) for i in range(MOMENTS)} | run.to_keep
    if not moments:
        moments.append(_measured(run.training.model, task, held, run.training.number, None))
    for step in run.steps():
        watch(step)
        if step.number in due:
            moments.append(_measured(run.training.model, task, held, step.number, step.loss))
            say(f"step {step.number} of {total}: {told_of(moments[-1], 'held out')}")
        if step.ends_epoch:
            run.save()


def _measured(
    model: AttentionModel, task: Remasked, held: Prepared, step: int, train_loss: float | None
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


def told_of(moment: dict[str, Any], who: str) -> str:
    return f"{who}: loss {moment['loss']:.3f}, accuracy {moment['accuracy']:.4f}"
