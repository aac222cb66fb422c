"""The second pass over texts, which collects examples of the roles of all files in this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch

from headscope.analysis.examples._cases import ClearestCases, NumberedExample
from headscope.analysis.examples._question import (
    ExampleRole,
    HeadsByRole,
    Questions,
    RoleQuestion,
    Text,
)
from headscope.data.batches import batches
from headscope.data.encode import Encoder, Long
from headscope.data.examples import Example
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens


@cache
def _functions(name: str) -> tuple[Callable[..., Any], ...]:
    """The functions with this name in the files of this package whose names do not begin with an underscore."""
    files = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]))
    modules = [import_module(f"{__package__}.{file}") for file in files if file[0] != "_"]
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))


def questions_among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    """The questions about the words of a text at this site, by role; roles without a question are left out."""
    questions: Questions = {}
    for among_words in _functions("among_words"):
        questions |= among_words(text, site, roles)
    return questions


def question_among_tokens(role: str, query: Tokens, key: Tokens, row: int) -> RoleQuestion | None:
    """The question about the tokens of one sequence; None if the role is one of words. row: index of the sequence."""
    for among_tokens in _functions("among_tokens"):
        question: RoleQuestion | None = among_tokens(role, query, key, row)
        if question is not None:
            return question
    return None


@dataclass
class SecondPass:
    """A second pass of the model over texts, which adds the clearest cases of the heads' roles to `cases`."""

    model: AttentionModel
    heads: HeadsByRole
    cases: ClearestCases
    max_length: int | None
    batch_size: int

    def read_words(self, texts: list[Text]) -> None:
        """Add cases from the attention between words. Texts that are too long are left out."""

        def add_cases(attention: Attention) -> None:
            site, numbers = attention.site, attention.examples
            heads_of = self.heads.get(site, {})
            by_text = [questions_among_words(texts[number], site, heads_of) for number in numbers]
            if not any(by_text):
                return
            weights = attention.between_words().weights.float().cpu().numpy()
            for row, (number, questions) in enumerate(zip(numbers, by_text, strict=True)):
                example = texts[number].example
                text = NumberedExample(number, example, _sides(example, site.stack))
                for role, question in questions.items():
                    queries, keys = question.right.shape
                    for head in heads_of[role]:
                        cells = weights[row, site.index_of(head), :queries, :keys]
                        address = Head(site.stack, site.layer, head)
                        self.cases.add(address, role, question, cells, text)

        self._read([text.example for text in texts], add_cases, "skip")

    def read_tokens(self, examples: list[Example]) -> None:
        """Add cases from the attention between tokens. Texts that are too long are truncated."""

        def add_cases(attention: Attention) -> None:
            site = attention.site
            every = self.heads.get(site, {})
            roles = {role: heads for role, heads in every.items() if not role.relation}
            if not roles:
                return
            weights = attention.weights.float().cpu().numpy()
            for row, number in enumerate(attention.examples):
                labels = labels_of(self.model, attention, row)
                text = NumberedExample(number, examples[number], labels)
                for role, heads in roles.items():
                    question = question_among_tokens(role.name, attention.query, attention.key, row)
                    if question is None:
                        continue
                    for head in heads:
                        address = Head(site.stack, site.layer, head)
                        cells = weights[row, site.index_of(head)]
                        self.cases.add(address, role, question, cells, text)

        self._read(examples, add_cases, "truncate")

    def _read(
        self, examples: list[Example], observe: Callable[[Attention], None], long: Long
    ) -> None:
        """Run the model over examples. observe: called with each attention; its `examples` are indices of examples."""
        if not examples:
            return
        encoder = Encoder(self.model, max_length=self.max_length, long=long)
        for batch in batches(encoder, examples, batch_size=self.batch_size):
            indices = batch.indices

            def add_numbers(attention: Attention, indices: tuple[int, ...] = indices) -> None:
                attention.examples = indices[attention.rows]
                observe(attention)

            with self.model.watched(add_numbers), torch.inference_mode():
                self.model(batch)


def _sides(example: Example, stack: str) -> tuple[list[str], list[str]]:
    """The words of the queries, and those of the keys; the same list object if they are of one text."""
    source, target = (
        [] if text is None or isinstance(text, str) else list(text)
        for text in (example.first, example.second)
    )
    if stack == "cross":
        return target, source
    words = target if stack == "decoder" and target else source
    return words, words


def labels_of(model: AttentionModel, attention: Attention, row: int) -> tuple[list[str], list[str]]:
    """The tokens of the queries, and those of the keys; the same list object if they are of one text."""
    query = _decode(model, attention.query, row)
    return query, query if attention.within_one_text else _decode(model, attention.key, row)


def _decode(model: AttentionModel, tokens: Tokens, row: int) -> list[str]:
    assert tokens.ids is not None
    tokenizer: Any = model.tokenizer
    ids = tokens.ids[row].tolist()
    raw = tokenizer.convert_ids_to_tokens(ids)
    return [tokenizer.decode([i]).strip() or str(token) for i, token in zip(ids, raw, strict=True)]
