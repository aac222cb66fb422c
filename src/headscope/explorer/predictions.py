"""What does the model say, and what does it say without these heads? One class for each kind of model.

`read` takes numbers from a forward pass, under whatever edits are open; `told` puts those of the intact model
(`before`) and those without the heads that are off (`after`, None where none is) side by side for the page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from headscope.data.batches import collate
from headscope.errors import HeadscopeError
from headscope.explorer.responses import Answer
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.report.look.token_axis import TokenAxis, inert
from headscope.tasks.pooling import check_readable, encode_texts, pool_states

CANDIDATES = 5


@dataclass(frozen=True)
class EncodedInput:
    """One input as it was given and as the model reads it."""

    text: str
    second: str | None
    batch: Batch


class Prediction(ABC):
    """What one kind of model says about an input."""

    kind: ClassVar[str]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the page should say about the numbers."""
        return ()

    def __init__(self, model: AttentionModel) -> None:
        self.model = model

    def run(self, reading: EncodedInput) -> Any:
        """The forward pass whose attention is shown."""
        return self.model(reading.batch)

    @abstractmethod
    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """The numbers that are kept of a pass."""

    @abstractmethod
    def told(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> Answer:
        """What the page is told of them."""

    def _token(self, number: int) -> str:
        """A token of the vocabulary as it is read by people."""
        assert self.model.tokenizer is not None
        token = self.model.tokenizer.convert_ids_to_tokens(number)
        if not isinstance(token, str):
            return f"token {number}"
        return TokenAxis((token,), (False,), (None,)).token_labels()[0]


class Classes(Prediction):
    """Class probabilities; of a model with one output, the number it gives."""

    kind = "classifier"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        logits: Tensor = output.logits[0].float()
        if len(logits) == 1:
            return logits
        return logits.sigmoid() if self._is_multiple() else logits.softmax(dim=-1)

    def told(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> Answer:
        names = labels_of(self.model)
        what = "number" if len(names) == 1 else "several" if self._is_multiple() else "one"
        return {"kind": self.kind, "what": what, "rows": _rows(names, before, after)}

    def _is_multiple(self) -> bool:
        problem = getattr(self.model.model.config, "problem_type", None)
        return bool(problem == "multi_label_classification")


class MaskedTokens(Prediction):
    """Candidates for each mask token in the text."""

    kind = "masked"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """[mask, vocabulary]: probabilities."""
        return output.logits[0, self._places(reading)].float().softmax(dim=-1)  # type: ignore[no-any-return]

    def told(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> Answer:
        now = [None] * len(before) if after is None else after
        rows = [_candidates(self._token, *pair) for pair in zip(before, now, strict=True)]
        tokens = self._places(reading).tolist()
        masks = [{"token": token, "rows": r} for token, r in zip(tokens, rows, strict=True)]
        return {"kind": self.kind, "masks": masks}

    def _places(self, reading: EncodedInput) -> Tensor:
        mask = getattr(self.model.tokenizer, "mask_token_id", None)
        ids = reading.batch.inputs["input_ids"][0]
        return (ids == (-1 if mask is None else mask)).nonzero()[:, 0]


class NextToken(Prediction):
    """Candidates for the token after the text."""

    kind = "causal"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        return output.logits[0, -1].float().softmax(dim=-1)  # type: ignore[no-any-return]

    def told(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> Answer:
        return {"kind": self.kind, "rows": _candidates(self._token, before, after)}


class GivenTarget(Prediction):
    """The log-probability of the given target, token by token, each given the ones before it."""

    kind = "translation"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """[token]: nats, below 0; none where no target was given."""
        labels = self._labels(reading)
        if not len(labels):
            return torch.zeros(0)
        chances: Tensor = output.logits[0].float().log_softmax(dim=-1).cpu()
        return chances.gather(1, labels[:, None])[:, 0]

    def told(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> Answer:
        if not len(before):
            return {"kind": self.kind, "before": None, "after": None, "rows": []}
        names = [self._token(number) for number in self._labels(reading).tolist()]
        sums = [None if told is None else _number(told.double().sum()) for told in (before, after)]
        rows = _rows(names, before, after)
        return {"kind": self.kind, "before": sums[0], "after": sums[1], "rows": rows}

    def _labels(self, reading: EncodedInput) -> Tensor:
        """What the decoder is to say: what it reads without its start, and the end."""
        given = reading.batch.inputs.get("decoder_input_ids")
        if given is None:
            return torch.zeros(0, dtype=torch.long)
        assert self.model.tokenizer is not None
        return torch.cat([given[0, 1:].cpu(), torch.tensor([self.model.tokenizer.eos_token_id])])


class Alike(Prediction):
    """The cosine of two texts' vectors, each read by itself; of one text, of its vector with and without the heads.

    A vector is pooled from the tokens' last states as `model.reading` says, with its prompt.
    """

    kind = "encoder"

    def __init__(self, model: AttentionModel) -> None:
        check_readable(model, model.name)
        super().__init__(model)

    @property
    def notes(self) -> tuple[str, ...]:
        if self.model.reading.is_stated:
            return ()
        what = "no file states the pooling: the sentence vector is the mean of the token states"
        return (f"{what}; see `pooling`",)

    def run(self, reading: EncodedInput) -> Any:
        """The output of the model below its head, which has the states."""
        kept: list[Any] = []
        handle = self.model.model.base_model.register_forward_hook(
            lambda module, args, output: kept.append(output)
        )
        try:
            output = self.model(reading.batch)
        finally:
            handle.remove()
        return kept[-1] if kept else output

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """[text, width]: one vector a text, of length 1."""
        how = self.model.reading
        if self.model.is_encoder_decoder:
            return pool_states(output, _main_side(reading.batch), how)
        texts = [text for text in (reading.text, reading.second) if text is not None]
        found, _, skipped = encode_texts(self.model, [(text, "", None) for text in texts], None)
        vectors = []
        for text, sequence, skip in zip(texts, found, skipped, strict=True):
            if sequence is None:
                where = f'text "{text[:40]}"'
                raise HeadscopeError("there are no tokens in it", where=where, expected="some text")
            batch = collate(self.model, [sequence])
            shown = reading.batch.inputs["input_ids"].cpu()
            is_shown = torch.equal(batch.inputs["input_ids"], shown)
            states = output if is_shown else self.run(EncodedInput(text, None, batch))
            vectors.append(pool_states(states, batch, how, skip))
        return torch.cat(vectors)

    def told(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> Answer:
        is_pair = reading.second is not None and not self.model.is_encoder_decoder
        one = _number(before[0] @ before[1]) if is_pair else 1.0
        other = None
        if after is not None:
            other = _number(after[0] @ after[1]) if is_pair else _number(before[0] @ after[0])
        of = "pair" if is_pair else "itself"
        return {"kind": self.kind, "of": of, "before": one, "after": other}


def prediction_of(model: AttentionModel) -> Prediction:
    """What this model says, by its class: a model whose head is none of these is read below its head."""
    name = type(model.model).__name__
    if name.endswith("ForSequenceClassification"):
        return Classes(model)
    if name.endswith("ForMaskedLM") and not model.is_encoder_decoder:
        return MaskedTokens(model)
    if model.model.get_output_embeddings() is not None:
        if model.is_encoder_decoder:
            return GivenTarget(model)
        if {site.stack for site in model.sites} == {"decoder"}:
            return NextToken(model)
    return Alike(model)


def labels_of(model: AttentionModel) -> list[str]:
    """The classes of a classifier by their names."""
    config = model.model.config
    return [inert(str(config.id2label.get(i, i))) for i in range(config.num_labels)]


def _main_side(batch: Batch) -> Batch:
    """The batch as `pooled` reads it: the states of an encoder-decoder are those of its decoder."""
    mask = batch.inputs.get("decoder_attention_mask")
    return batch if mask is None else Batch({"attention_mask": mask}, batch.layout)


def _rows(names: list[str], before: Tensor, after: Tensor | None) -> list[Answer]:
    others = [None] * len(names) if after is None else after.tolist()
    rows = zip(names, map(_number, before.tolist()), map(_number, others), strict=True)
    return [{"name": name, "before": one, "after": other} for name, one, other in rows]


def _candidates(name: Callable[[int], str], before: Tensor, after: Tensor | None) -> list[Answer]:
    """The best tokens of either, those of the edited model first where heads are off."""
    now = before if after is None else after
    largest = [
        scores.topk(min(CANDIDATES, len(scores))).indices.tolist() for scores in (now, before)
    ]
    best = list(dict.fromkeys(largest[0] + largest[1]))
    return _rows([name(i) for i in best], before[best], None if after is None else after[best])


def _number(value: Any) -> float | None:
    return None if value is None else float(f"{float(value):.7g}")
