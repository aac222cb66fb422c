"""Predictions of a model, with all its heads and without those that are off. One class per kind of model.

`read` extracts numbers from the output of a forward pass. `describe` makes the JSON for the page from two such results:
`before` of the model with all heads on, and `after` without the heads that are off (None if none is off).
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
from headscope.explorer.responses import JsonObject
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.report.look.token_axis import WORD_START, TokenAxis, escape_controls
from headscope.tasks.pooling import check_readable, encode_texts, pool_states

CANDIDATES = 5
SPACE = "␣"  # marks a candidate that begins with a blank, since " a" and "a" are different tokens


@dataclass(frozen=True)
class EncodedInput:
    """One input: the texts, and the batch that the model reads."""

    text: str
    second: str | None
    batch: Batch


class Prediction(ABC):
    """The prediction of one kind of model for an input."""

    kind: ClassVar[str]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the numbers, for the page."""
        return ()

    def __init__(self, model: AttentionModel) -> None:
        self.model = model

    def run(self, reading: EncodedInput) -> Any:
        """Run the forward pass whose attention is shown, and return its output."""
        return self.model(reading.batch)

    @abstractmethod
    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """The numbers of the prediction, from the output of `run`."""

    @abstractmethod
    def describe(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> JsonObject:
        """The JSON of the prediction for the page."""

    def _token(self, number: int) -> str:
        """A token of the vocabulary in readable form."""
        assert self.model.tokenizer is not None
        token = self.model.tokenizer.convert_ids_to_tokens(number)
        if not isinstance(token, str):
            return f"token {number}"
        label = TokenAxis((token,), (False,), (None,)).token_labels()[0]
        has_space = token.startswith(WORD_START) and not label.startswith(SPACE)
        return SPACE + label if has_space else label


class Classes(Prediction):
    """Class probabilities; for a model with a single output, that number."""

    kind = "classifier"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        logits: Tensor = output.logits[0].float()
        if len(logits) == 1:
            return logits
        return logits.sigmoid() if self._is_multiple() else logits.softmax(dim=-1)

    def describe(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> JsonObject:
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
        return output.logits[0, self._positions(reading)].float().softmax(dim=-1)  # type: ignore[no-any-return]

    def describe(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> JsonObject:
        positions = self._positions(reading).tolist()
        now = [None] * len(before) if after is None else after
        masks = [
            {"token": position, "rows": _candidates(self._token, *pair)}
            for position, *pair in zip(positions, before, now, strict=True)
        ]
        return {"kind": self.kind, "masks": masks}

    def _positions(self, reading: EncodedInput) -> Tensor:
        mask = getattr(self.model.tokenizer, "mask_token_id", None)
        ids = reading.batch.inputs["input_ids"][0]
        return (ids == (-1 if mask is None else mask)).nonzero()[:, 0]


class NextToken(Prediction):
    """Candidates for the token after the text."""

    kind = "causal"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        return output.logits[0, -1].float().softmax(dim=-1)  # type: ignore[no-any-return]

    def describe(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> JsonObject:
        return {"kind": self.kind, "rows": _candidates(self._token, before, after)}


class TargetTokens(Prediction):
    """The log-probability of each target token, given the ones before it."""

    kind = "translation"

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """[token]: log-probabilities in nats; empty without a target."""
        labels = self._labels(reading)
        if not len(labels):
            return torch.zeros(0)
        log_probabilities: Tensor = output.logits[0].float().log_softmax(dim=-1).cpu()
        return log_probabilities.gather(1, labels[:, None])[:, 0]

    def describe(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> JsonObject:
        if not len(before):
            return {"kind": self.kind, "before": None, "after": None, "rows": []}
        names = [self._token(number) for number in self._labels(reading).tolist()]
        sums = [None if of is None else _round(of.double().sum()) for of in (before, after)]
        rows = _rows(names, before, after)
        return {"kind": self.kind, "before": sums[0], "after": sums[1], "rows": rows}

    def _labels(self, reading: EncodedInput) -> Tensor:
        """The tokens that the decoder should predict: its input without the start token, and the end token."""
        target = reading.batch.inputs.get("decoder_input_ids")
        if target is None:
            return torch.zeros(0, dtype=torch.long)
        assert self.model.tokenizer is not None
        return torch.cat([target[0, 1:].cpu(), torch.tensor([self.model.tokenizer.eos_token_id])])


class TextVectors(Prediction):
    """The cosine of the embeddings of two texts, or of one text's embeddings with and without the heads that are off.

    Each text is embedded by itself: the last states of its tokens are pooled. `model.reading` has prompt and pooling.
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
        """The output of the base model, below the task head; it has the token states."""
        states: list[Any] = []
        handle = self.model.model.base_model.register_forward_hook(
            lambda module, args, output: states.append(output)
        )
        try:
            output = self.model(reading.batch)
        finally:
            handle.remove()
        return states[-1] if states else output

    def read(self, output: Any, reading: EncodedInput) -> Tensor:
        """[text, width]: one embedding per text, scaled to length 1."""
        how, batch = self.model.reading, reading.batch
        if self.model.is_encoder_decoder:  # its states are those of the decoder
            mask = batch.inputs.get("decoder_attention_mask")
            side = batch if mask is None else Batch({"attention_mask": mask}, batch.layout)
            return pool_states(output, side, how)
        texts = [text for text in (reading.text, reading.second) if text is not None]
        sequences, _, skipped = encode_texts(self.model, [(text, "", None) for text in texts], None)
        vectors = []
        for text, sequence, skip in zip(texts, sequences, skipped, strict=True):
            if sequence is None:
                where = f'text "{text[:40]}"'
                raise HeadscopeError("there are no tokens in it", where=where, expected="some text")
            alone = collate(self.model, [sequence])
            is_shown = torch.equal(alone.inputs["input_ids"], batch.inputs["input_ids"].cpu())
            states = output if is_shown else self.run(EncodedInput(text, None, alone))
            vectors.append(pool_states(states, alone, how, skip))
        return torch.cat(vectors)

    def describe(self, reading: EncodedInput, before: Tensor, after: Tensor | None) -> JsonObject:
        is_pair = reading.second is not None and not self.model.is_encoder_decoder
        intact = _round(before[0] @ before[1]) if is_pair else 1.0
        edited = None
        if after is not None:
            edited = _round(after[0] @ after[1] if is_pair else before[0] @ after[0])
        of = "pair" if is_pair else "itself"
        return {"kind": self.kind, "of": of, "before": intact, "after": edited}


def prediction_of(model: AttentionModel) -> Prediction:
    """The kind of prediction for the class of a model; for an unknown task head, the embedding below it."""
    name = type(model.model).__name__
    if name.endswith("ForSequenceClassification"):
        return Classes(model)
    if name.endswith("ForMaskedLM") and not model.is_encoder_decoder:
        return MaskedTokens(model)
    if model.model.get_output_embeddings() is not None:
        if model.is_encoder_decoder:
            return TargetTokens(model)
        if {site.stack for site in model.sites} == {"decoder"}:
            return NextToken(model)
    return TextVectors(model)


def labels_of(model: AttentionModel) -> list[str]:
    """The names of a classifier's classes."""
    config = model.model.config
    return [escape_controls(str(config.id2label.get(i, i))) for i in range(config.num_labels)]


def _rows(names: list[str], before: Tensor, after: Tensor | None) -> list[JsonObject]:
    edited = [None] * len(names) if after is None else after.tolist()
    rows = zip(names, before.tolist(), edited, strict=True)
    return [{"name": name, "before": _round(old), "after": _round(new)} for name, old, new in rows]


def _candidates(
    name: Callable[[int], str], before: Tensor, after: Tensor | None
) -> list[JsonObject]:
    """The most likely tokens of both results; if heads are off, those of the edited model come first."""
    now = before if after is None else after
    count = min(CANDIDATES, len(before))
    indices = [i for scores in (now, before) for i in scores.topk(count).indices.tolist()]
    best = list(dict.fromkeys(indices))
    return _rows([name(i) for i in best], before[best], None if after is None else after[best])


def _round(value: Any) -> float | None:
    """Round to seven significant digits."""
    return None if value is None else float(f"{float(value):.7g}")
