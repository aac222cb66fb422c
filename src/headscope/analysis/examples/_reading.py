"""The second pass: a model reads the texts again, and every file of this package is asked for its questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch

from headscope.analysis.examples._cases import Found
from headscope.analysis.examples._question import Asked, ExampleRole, Questions, RoleQuestion, Text
from headscope.data.batches import batches
from headscope.data.encode import Encoder, Long
from headscope.data.examples import Example
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens


@cache
def _functions(name: str) -> tuple[Callable[..., Any], ...]:
    """Those of this name in the files of this package that have one."""
    files = sorted(one.name for one in iter_modules([str(Path(__file__).parent)]))
    modules = [import_module(f"{__package__}.{file}") for file in files if file[0] != "_"]
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))


def questions_among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    """What all files ask of the words of a text at this site, for those of the roles that they know."""
    asked: Questions = {}
    for among_words in _functions("among_words"):
        asked |= among_words(text, site, roles)
    return asked


def question_among_tokens(role: str, query: Tokens, key: Tokens, row: int) -> RoleQuestion | None:
    """What is asked of the tokens of the sequence `row`; None for a role that does not speak of them."""
    asked = (among_tokens(role, query, key, row) for among_tokens in _functions("among_tokens"))
    return next((question for question in asked if question is not None), None)


@dataclass
class SecondPass:
    """A model that reads texts again, and what its heads are looked at for; the clearest cases are kept in `found`."""

    model: AttentionModel
    asked: Asked
    found: Found
    max_length: int | None
    batch_size: int

    def read_words(self, texts: list[Text]) -> None:
        """Look at the attention between words. Texts that are too long are left out."""

        def look(attention: Attention) -> None:
            site, numbers = attention.site, attention.examples
            heads = self.asked.get(site, {})
            posed = [questions_among_words(texts[number], site, heads) for number in numbers]
            if not any(posed):
                return
            weights = attention.between_words().weights.float().cpu().numpy()
            for row, (number, questions) in enumerate(zip(numbers, posed, strict=True)):
                example = texts[number].example
                labels = _sides(example, site.stack)
                for role, question in questions.items():
                    queries, keys = question.right.shape
                    for head in heads[role]:
                        cells = weights[row, site.index_of(head), :queries, :keys]
                        place = Head(site.stack, site.layer, head)
                        self.found.look(place, role, question, cells, labels, number, example)

        self._read([text.example for text in texts], look, "skip")

    def read_tokens(self, examples: list[Example]) -> None:
        """Look at the attention between tokens. Texts that are too long are truncated."""

        def look(attention: Attention) -> None:
            site = attention.site
            asked = self.asked.get(site, {})
            roles = {role: heads for role, heads in asked.items() if not role.relation}
            if not roles:
                return
            weights = attention.weights.float().cpu().numpy()
            for row, number in enumerate(attention.examples):
                labels, example = labels_of(self.model, attention, row), examples[number]
                for role, heads in roles.items():
                    question = question_among_tokens(role.name, attention.query, attention.key, row)
                    if question is None:
                        continue
                    for head in heads:
                        place = Head(site.stack, site.layer, head)
                        cells = weights[row, site.index_of(head)]
                        self.found.look(place, role, question, cells, labels, number, example)

        self._read(examples, look, "truncate")

    def _read(self, examples: list[Example], look: Callable[[Attention], None], long: Long) -> None:
        """Run the model over the examples; `look` is shown the attention, with the numbers of the examples."""
        if not examples:
            return
        encoder = Encoder(self.model, max_length=self.max_length, long=long)
        for batch in batches(encoder, examples, batch_size=self.batch_size):
            indices = batch.indices

            def observe(attention: Attention, indices: tuple[int, ...] = indices) -> None:
                attention.examples = indices[attention.rows]
                look(attention)

            with self.model.watched(observe), torch.inference_mode():
                self.model(batch)


def _sides(example: Example, stack: str) -> tuple[list[str], list[str]]:
    """The words that look and those looked at; the same list where it is one text."""
    source, target = (
        [] if text is None or isinstance(text, str) else list(text)
        for text in (example.first, example.second)
    )
    if stack == "cross":
        return target, source
    one = target if stack == "decoder" and target else source
    return one, one


def labels_of(model: AttentionModel, attention: Attention, row: int) -> tuple[list[str], list[str]]:
    """The tokens that look and those looked at; the same list where it is one text."""
    query = _written(model, attention.query, row)
    return query, query if attention.within_one_text else _written(model, attention.key, row)


def _written(model: AttentionModel, tokens: Tokens, row: int) -> list[str]:
    assert tokens.ids is not None
    tokenizer: Any = model.tokenizer
    ids = tokens.ids[row].tolist()
    raw = tokenizer.convert_ids_to_tokens(ids)
    return [tokenizer.decode([i]).strip() or str(token) for i, token in zip(ids, raw, strict=True)]
