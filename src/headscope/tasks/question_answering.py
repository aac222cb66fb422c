"""Extractive question answering: where in the paragraph does the answer stand? SQuAD 1.1 and 2.0.

A paragraph that is longer than the model reads is cut into overlapping windows; the best span of all of them is the
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
from headscope.tasks.base import Chance, Item, Prepared, Task, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH, STRIDE = 384, 128  # tokens of a window, tokens that two windows share
LONGEST_ANSWER = 30
_UNREACHABLE = -1e4  # the logit of a token that is no place for an answer


class QuestionAnswering(Task):
    """F1 and exact match; the loss is the mean of those of the first and the last token of the answer."""

    names: ClassVar[tuple[str, ...]] = ("squad", "questions")
    metrics = ("f1", "exact")
    model_class = "AutoModelForQuestionAnswering"
    head = ("QuestionAnswering", "does not answer questions")

    def read(self, path: Path) -> Iterator[Item]:
        for question in read_squad(path):
            yield Item((question.text, question.context), question, question.where)

    def check(self, model: AttentionModel) -> None:
        super().check(model)
        if not getattr(model.tokenizer, "is_fast", False):
            raise HeadscopeError(
                "the tokenizer does not say where its tokens stand in the text", where=model.name
            )

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
        spans: list[tuple[int, int]] = []  # of each window: the first and last token of the answer
        # Of each token: where it stands in the context; (0, 0) elsewhere
        places: list[list[tuple[int, int]]] = []
        for item in items:
            counts.read += 1
            asked = len(tokenizer(item.texts[0].strip(), add_special_tokens=False)["input_ids"])
            if asked + tokenizer.num_special_tokens_to_add(pair=True) >= length:
                raise HeadscopeError(
                    f"the question has {asked} tokens, which leaves no room for its paragraph",
                    where=item.where,
                    expected=f"a question that fits into a window of {length} tokens",
                )
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
                offsets = encoding["offset_mapping"][window]
                here = [
                    tuple(o) if inside else (0, 0)
                    for o, inside in zip(offsets, of_context, strict=True)
                ]
                ids = encoding["input_ids"][window]
                types = encoding["token_type_ids"][window] if "token_type_ids" in encoding else None
                side = Side(ids, [-1] * len(ids), [int(inside) for inside in of_context], types)
                sequences.append(Encoded(len(sequences), side))
                spans.append(_span(item.target, here))
                places.append(here)
            parts.append(tuple(range(first, len(sequences))))
            counts.used += 1
            counts.sequences += len(parts[-1])
            counts.windowed += len(parts[-1]) > 1
            ids = [token for window in encoding["input_ids"] for token in window]
            unknown.add(ids, item.texts, item.where)
        unknown.warn()
        return Prepared(
            items, sequences, parts, torch.tensor(spans), counts, extras=(length, places)
        )

    def extract_answers(self, output: Any, batch: Batch, prepared: Prepared) -> Tensor:
        """[sequence, 2, token]: logits of the first and last token, filled up to the longest window."""
        logits = torch.stack([output.start_logits, output.end_logits], dim=1).float()
        logits = logits.masked_fill(
            ~batch.inputs["attention_mask"].bool()[:, None].to(logits.device), _UNREACHABLE
        )
        length, _ = prepared.extras
        return torch.nn.functional.pad(logits, (0, length - logits.shape[-1]), value=_UNREACHABLE)

    def predicted_logit(self, answers: Tensor) -> Tensor:
        """The best first and the best last token together."""
        return largest_logit(answers).sum(dim=1)

    def losses(self, answers: Tensor, prepared: Prepared, items: Sequence[int]) -> Tensor:
        """The mean over an item's windows; a window without the answer should say so (its first token)."""
        spans = prepared.targets[sequences_of(prepared, items)].to(answers.device)
        each = torch.nn.functional.cross_entropy(
            answers.flatten(0, 1), spans.flatten(), reduction="none"
        )
        windows = each.view(-1, 2).mean(dim=1)
        sizes = torch.tensor([len(prepared.parts[item]) for item in items], device=answers.device)
        owner = torch.arange(len(sizes), device=answers.device).repeat_interleave(sizes)
        return windows.new_zeros(len(sizes)).index_add(0, owner, windows) / sizes

    def scores(
        self, answers: Tensor, prepared: Prepared, items: Sequence[int]
    ) -> NDArray[np.float64]:
        """Columns: F1, exact match, of the best span against the best of the given answers."""
        start = 0
        found = []
        for item in items:
            count = len(prepared.parts[item])
            said = self._said(answers[start : start + count], prepared, item)
            start += count
            question: Question = prepared.items[item].target
            right = [text for text, _ in question.answers] or [""]
            exact = max(float(_normal(said) == _normal(text)) for text in right)
            found.append([max(_f1(said, text) for text in right), exact])
        return np.array(found, dtype=np.float64)

    def measure(self, scores: NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(self.metrics, scores.mean(axis=0).tolist(), strict=True))

    @property
    def mean_column(self) -> int | None:
        return 0

    def chance(self, model: AttentionModel, prepared: Prepared) -> Chance:
        """The loss of all tokens of a window alike."""
        logs = [math.log(len(sequence.source.ids)) for sequence in prepared.sequences]
        of_items = [np.mean([logs[number] for number in part]) for part in prepared.parts]
        return Chance(loss=float(np.mean(of_items)))

    def with_predicted_labels(self, answers: Tensor, prepared: Prepared) -> Prepared:
        return replace(prepared, targets=answers.argmax(dim=-1).cpu())

    def _said(self, logits: Tensor, prepared: Prepared, item: int) -> str:
        """The text of the best span; empty where no answer is better."""
        question: Question = prepared.items[item].target
        best, said = -np.inf, ""
        empty = np.inf
        for window, (first, last) in zip(prepared.parts[item], logits.cpu().numpy(), strict=True):
            places = prepared.extras[1][window]
            inside = np.zeros(len(first), dtype=bool)
            inside[: len(places)] = [end > begin for begin, end in places]
            together = (
                np.where(inside, first, -np.inf)[:, None] + np.where(inside, last, -np.inf)[None]
            )
            together = np.where(_short(len(first)), together, -np.inf)
            i, j = np.unravel_index(int(together.argmax()), together.shape)
            empty = min(empty, float(first[0] + last[0]))
            if together[i, j] > best:
                best, said = float(together[i, j]), question.context[places[i][0] : places[j][1]]
        return said if best > empty else ""


@cache
def _short(length: int) -> NDArray[np.bool_]:
    """[first, last]: whether a span ends no sooner than it begins, and is not too long for an answer."""
    size = np.arange(length)[None] - np.arange(length)[:, None]
    return (size >= 0) & (size < LONGEST_ANSWER)


def _span(question: Question, places: list[tuple[int, int]]) -> tuple[int, int]:
    """The first and last token of the first answer in this window; (0, 0) where it is not in it."""
    if not question.answers:
        return 0, 0
    text, begin = question.answers[0]
    end = begin + len(text)
    inside = [
        i for i, (first, last) in enumerate(places) if last > first and first < end and last > begin
    ]
    if not inside or places[inside[0]][0] > begin or places[inside[-1]][1] < end:
        return 0, 0
    return inside[0], inside[-1]


def _normal(text: str) -> list[str]:
    """SQuAD's way: lower case, without punctuation and articles."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def _f1(said: str, right: str) -> float:
    one, other = _normal(said), _normal(right)
    if not one or not other:
        return float(one == other)
    both = sum((Counter(one) & Counter(other)).values())
    return 2 * both / (len(one) + len(other))
