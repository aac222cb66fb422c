"""Extractive question answering: the span of the answer in a paragraph, as in SQuAD 1.1 and 2.0.

Paragraphs longer than the model can read are split into overlapping windows; the best span of all windows is the
answer. A question without an answer (2.0) is answered by the empty span at the first token.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.config.checks import check_length
from headscope.data.encode import Counts, Side, model_limit
from headscope.data.encode import Sequence as Encoded
from headscope.data.squad import Question, read_squad
from headscope.data.unknown import UnknownTokens
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.targets import largest_logit
from headscope.model.tokens import Batch
from headscope.tasks.base import Chance, Scores, Task
from headscope.tasks.items import Item
from headscope.tasks.prepared import Prepared, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH, STRIDE = 384, 128  # tokens of a window; tokens that consecutive windows share
LONGEST_ANSWER = 30  # tokens
_UNREACHABLE = -1e4  # logit of padding, where no answer can be


class QuestionAnswering(Task):
    """F1 and exact match; the loss is the mean of the losses of the first and the last token of the answer."""

    names: ClassVar[tuple[str, ...]] = ("squad", "questions")
    metrics = ("f1", "exact")
    model_class = "AutoModelForQuestionAnswering"
    head = ("QuestionAnswering", "has no question-answering head")
    mean_column = 0

    def read(self, path: Path) -> Iterator[Item]:
        for question in read_squad(path):
            yield Item((question.text, question.context), question, question.where)

    def check(self, model: AttentionModel) -> None:
        super().check(model)
        if not getattr(model.tokenizer, "is_fast", False):
            what = "the tokenizer must give the positions of tokens in the text (a fast one), got a slow one"
            raise HeadscopeError(what, where=model.name)

    def prepare(
        self, model: AttentionModel, items: list[Item], *, max_length: int | None = None
    ) -> Prepared:
        tokenizer = model.tokenizer
        assert tokenizer is not None
        limit = model_limit(model)
        length = min(LENGTH, limit) if max_length is None else max_length
        check_length(length, limit, model.name)
        counts = Counts()
        unknown = UnknownTokens(model, counts.unknown)
        sequences: list[Encoded] = []
        parts: list[tuple[int, ...]] = []
        spans: list[tuple[int, int]] = []  # by window: first and last token of the answer
        # By window and token: start and end in the context; (0, 0) outside of it.
        offsets: list[list[tuple[int, int]]] = []
        for item in items:
            counts.read += 1
            size = len(tokenizer(item.texts[0].strip(), add_special_tokens=False)["input_ids"])
            if size + tokenizer.num_special_tokens_to_add(pair=True) >= length:
                what = f"the question must fit into a window of {length} tokens with its paragraph, got {size} tokens"
                raise HeadscopeError(what, where=item.where)
            encoding = tokenizer(
                item.texts[0].strip(),
                item.texts[1],
                truncation="only_second",
                max_length=length,
                stride=min(STRIDE, length // 3),
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            first = len(sequences)
            for window in range(len(encoding["input_ids"])):
                of_context = [number == 1 for number in encoding.sequence_ids(window)]
                in_text = zip(encoding["offset_mapping"][window], of_context, strict=True)
                in_context = [tuple(offset) if inside else (0, 0) for offset, inside in in_text]
                ids = encoding["input_ids"][window]
                types = encoding["token_type_ids"][window] if "token_type_ids" in encoding else None
                side = Side(ids, [-1] * len(ids), [int(inside) for inside in of_context], types)
                sequences.append(Encoded(len(sequences), side))
                spans.append(_span(item.target, in_context))
                offsets.append(in_context)
            parts.append(tuple(range(first, len(sequences))))
            counts.used += 1
            counts.sequences += len(parts[-1])
            counts.windowed += len(parts[-1]) > 1
            ids = [token for window in encoding["input_ids"] for token in window]
            unknown.add(ids, item.texts, item.where)
        unknown.warn()
        targets = torch.tensor(spans)
        return Prepared(items, sequences, parts, targets, counts, extras=(length, offsets))

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 2, token]: logits of the first and last token, padded to the longest window."""
        logits = torch.stack([output.start_logits, output.end_logits], dim=1).float()
        is_padding = ~batch.inputs["attention_mask"].bool().to(logits.device)
        logits = logits.masked_fill(is_padding[:, None], _UNREACHABLE)
        length, _ = prepared.extras
        return torch.nn.functional.pad(logits, (0, length - logits.shape[-1]), value=_UNREACHABLE)

    def predicted_logit(self, answers: Tensor) -> Tensor:
        """Sum of the logits of the best first and the best last token."""
        return largest_logit(answers).sum(dim=1)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        """The mean over an item's windows; the target of a window without the answer is its first token."""
        spans = prepared.targets[sequences_of(prepared, items)].to(answers.device)
        ends = answers.flatten(0, 1)  # [window * 2, token]
        each = torch.nn.functional.cross_entropy(ends, spans.flatten(), reduction="none")
        windows = each.view(-1, 2).mean(dim=1)
        sizes = torch.tensor([len(prepared.parts[item]) for item in items], device=answers.device)
        owner = torch.arange(len(sizes), device=answers.device).repeat_interleave(sizes)
        return windows.new_zeros(len(sizes)).index_add(0, owner, windows) / sizes

    def scores(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Scores:
        """Columns: F1 and exact match of the predicted span with the reference answer that it matches best."""
        start = 0
        rows = []
        for item in items:
            count = len(prepared.parts[item])
            predicted = self._predict(answers[start : start + count], prepared, item)
            start += count
            question: Question = prepared.items[item].target
            right = [text for text, _ in question.answers] or [""]
            exact = max(float(_normalize(predicted) == _normalize(text)) for text in right)
            rows.append([max(_f1(predicted, text) for text in right), exact])
        return np.array(rows, dtype=np.float64)

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """The loss of a uniform distribution over the tokens of a window."""
        logs = [math.log(len(sequence.source.ids)) for sequence in prepared.sequences]
        of_items = [np.mean([logs[number] for number in part]) for part in prepared.parts]
        return Chance(loss=float(np.mean(of_items)))

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        return replace(prepared, targets=answers.argmax(dim=-1).cpu())

    def _predict(self, logits: Tensor, prepared: Prepared, item: int) -> str:
        """The text of the best span; empty if no answer is better."""
        question: Question = prepared.items[item].target
        best, text = -np.inf, ""
        empty = np.inf
        for window, (first, last) in zip(prepared.parts[item], logits.cpu().numpy(), strict=True):
            offsets = prepared.extras[1][window]
            inside = np.zeros(len(first), dtype=bool)
            inside[: len(offsets)] = [end > begin for begin, end in offsets]
            sums = np.where(inside, first, -np.inf)[:, None] + np.where(inside, last, -np.inf)
            sums = np.where(_is_span(len(first)), sums, -np.inf)  # [first, last]
            i, j = np.unravel_index(int(sums.argmax()), sums.shape)
            empty = min(empty, float(first[0] + last[0]))
            if sums[i, j] > best:
                best, text = float(sums[i, j]), question.context[offsets[i][0] : offsets[j][1]]
        return text if best > empty else ""


@cache
def _is_span(length: int) -> NDArray[np.bool_]:
    """[first, last]: whether a span does not end before it starts, and is short enough for an answer."""
    size = np.arange(length)[None] - np.arange(length)[:, None]
    return (size >= 0) & (size < LONGEST_ANSWER)


def _span(question: Question, offsets: list[tuple[int, int]]) -> tuple[int, int]:
    """The first and last token of the first answer in this window; (0, 0) if it is not in it."""
    if not question.answers:
        return 0, 0
    text, begin = question.answers[0]
    end = begin + len(text)
    inside = [
        i
        for i, (first, last) in enumerate(offsets)
        if last > first and first < end and last > begin
    ]
    if not inside or offsets[inside[0]][0] > begin or offsets[inside[-1]][1] < end:
        return 0, 0
    return inside[0], inside[-1]


def _normalize(text: str) -> list[str]:
    """Words in lower case without punctuation and articles, as in SQuAD."""
    letters = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def _f1(predicted: str, right: str) -> float:
    words, expected = _normalize(predicted), _normalize(right)
    if not words or not expected:
        return float(words == expected)
    common = sum((Counter(words) & Counter(expected)).values())
    return 2 * common / (len(words) + len(expected))
