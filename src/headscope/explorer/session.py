"""One model that answers: its attention on a text, what it says, and both without some of its heads.

A `State` is an input read by the model with some heads off. The last few are kept (`States`), so that the page can
ask for maps one layer at a time; a state that was forgotten is made again by attending again.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.analysis.lens_maps import HEAD_LENSES, LENSES, LensMaps, compute_lens_maps
from headscope.analysis.token_maps import TOKEN_LENSES, Input, encode_input
from headscope.config.command_line import command_line
from headscope.data.encode import Encoder
from headscope.errors import HeadscopeError, choices
from headscope.explorer.predictions import EncodedInput, labels_of, prediction_of
from headscope.explorer.responses import Answer, Refusal
from headscope.heads import HeadSet, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate
from headscope.model.weights_hash import weights_sha256
from headscope.report.look.token_axis import TokenAxis, axes_of, axes_payload, inert
from headscope.tasks.bleu import translate

TRIED_ONE_BY_ONE = ("value-zeroing", "knock-out")  # a pass for every token and layer
MOST_TRIED = 128  # tokens
KEPT_STATES = 16
KEPT_BYTES = 512_000_000  # 144 heads on 512 tokens are 151 MB a state
KEPT_TRANSLATIONS = 32
EXAMPLES = (
    ("The cat sat on the ", "mat", " because it was tired."),
    ("CC(=O)O.OCC>>CC(=O)OC", "C", ".O"),
)


@dataclass(frozen=True)
class Asked:
    """What names a state. `off` is written as HeadSet writes it: two ways to say the same heads are one state."""

    model: str
    text: str
    second: str | None
    off: str
    lens: str


@dataclass(frozen=True)
class State:
    """What the model did with an input.

    id       by which the page asks for its maps
    sides    of each stack, its queries and keys
    weights  of each site, [head, query, key]; of a lens that is not of heads, [form, query, key]
    entropy  of each site, [head]: nats, the mean over the rows of attention itself
    answer   the numbers that the prediction is told from
    lens     what the weights are where they are not attention itself
    kind     of the prediction: what the answer is
    """

    id: str
    reading: EncodedInput
    sides: dict[str, tuple[TokenAxis, TokenAxis]]
    weights: dict[Site, NDArray[np.float32]]
    entropy: dict[Site, NDArray[np.float32]]
    answer: Tensor
    lens: LensMaps | None = None
    kind: str = ""

    @property
    def shares(self) -> bool:
        return self.lens is None or self.lens.shares

    @cached_property
    def is_signed(self) -> bool:
        return not self.shares and any(bool((maps < 0).any()) for maps in self.weights.values())

    @cached_property
    def full(self) -> float:
        """What the darkest colour stands for where all maps have one scale."""
        sizes = [] if self.shares else [float(np.abs(maps).max()) for maps in self.weights.values()]
        return max(sizes, default=1.0) or 1.0

    @property
    def size(self) -> int:
        return sum(weights.nbytes for weights in self.weights.values()) + self.answer.nbytes


class States:
    """The states that were used last, as many as fit."""

    def __init__(self, most: int = KEPT_STATES, most_bytes: int = KEPT_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self._kept: OrderedDict[str, State] = OrderedDict()
        self._lock = Lock()  # the model's thread writes, those that pack maps read
        self._secret = secrets.token_bytes(16)  # a browser must not use another run's maps

    def name_of(self, asked: Asked) -> str:
        """The same for the same question while this server runs, and for no other."""
        return hmac.digest(self._secret, json.dumps(astuple(asked)).encode(), "sha256").hex()[:24]

    def find(self, name: str) -> State | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def keep(self, state: State) -> None:
        with self._lock:
            self._kept[state.id] = state
            self._kept.move_to_end(state.id)
            while len(self._kept) > 1 and self._is_full():
                self._kept.popitem(last=False)

    def _is_full(self) -> bool:
        size = sum(state.size for state in self._kept.values())
        return len(self._kept) > self.most or size > self.most_bytes


class Session:
    """One model of the explorer. Whoever calls it sees to it that nobody else does at the same time."""

    def __init__(
        self, name: str, model: AttentionModel, states: States, *, max_length: int | None = None
    ) -> None:
        model.check_evaluating()
        self.name, self.model, self.states = name, model, states
        self.max_tokens = Encoder(model, max_length=max_length).max_length
        self.prediction = prediction_of(model)
        self._said: OrderedDict[tuple[str, str], str] = OrderedDict()

    def about(self) -> Answer:
        """What the page is told of the model once."""
        model, kind = self.model, self.prediction.kind
        stacks: dict[str, list[Answer]] = {site.stack: [] for site in model.sites}
        for site in model.sites:
            stacks[site.stack].append({"layer": site.layer, "heads": list(site.numbers or ())})
        mask = getattr(model.tokenizer, "mask_token", None) if kind == "masked" else None
        return {
            "id": self.name,
            "name": inert(model.name),
            "sha256": weights_sha256(model),
            "kind": kind,
            "stacks": [{"name": name, "layers": layers} for name, layers in stacks.items()],
            "labels": labels_of(model) if kind == "classifier" else [],
            "mask_token": mask,
            "takes_pair": kind != "causal",
            "max_tokens": self.max_tokens,
            "lenses": {"heads": list(HEAD_LENSES), "tokens": list(TOKEN_LENSES)},
            "example": {"text": self._example(mask), "second": None, "lens": "raw"},
            "notes": [inert(note) for note in (*model.notes, *self.prediction.notes)],
        }

    def _example(self, mask: str | None) -> str:
        """A first text for the page: of those we have the one that the tokenizer knows best."""
        tokenizer = self.model.tokenizer
        assert tokenizer is not None
        unknown = tokenizer.unk_token_id

        def strange(parts: tuple[str, ...]) -> int:
            return int(tokenizer("".join(parts), verbose=False)["input_ids"].count(unknown))

        start, word, end = min(EXAMPLES, key=strange)
        return start + (word if mask is None else mask) + end

    def attend(self, text: str, second: str | None, off: str, lens: str) -> Answer:
        """The state of an input with some heads off, as the page is told it."""
        asked = self.asked(text, second, off, lens)
        before = self.state(replace(asked, off=""))
        after = self.state(asked) if asked.off else None
        now, changed = (before, None) if after is None else (after, after.answer)
        self.states.keep(before)  # it is compared with as long as heads are switched
        self.states.keep(now)
        return {
            "id": now.id,
            "off": asked.off,
            "sides": {stack: axes_payload(query, key) for stack, (query, key) in now.sides.items()},
            "prediction": self.prediction.told(now.reading, before.answer, changed),
            "summary": _summary(now, before, self._heads(asked.off)),
            "lens": _told_lens(asked.lens, now),
        }

    def translate(self, text: str, off: str) -> Answer:
        """The model's own translation, and the one without these heads."""
        if self.prediction.kind != "translation":
            what = f"{self.model.name} does not translate"
            raise HeadscopeError(what, expected="an encoder-decoder with a language model's head")
        heads = str(self._heads(off))
        before = self._translation(text, "")
        after = self._translation(text, heads) if heads else None
        return {"off": heads, "before": before, "after": after}

    def _translation(self, text: str, off: str) -> str:
        if (text, off) not in self._said:
            batch = encode_input(self.model, text, None, max_length=self.max_tokens)
            with torch.inference_mode(), self._without(off):
                said = translate(self.model, batch)[0]
            assert self.model.tokenizer is not None
            decoded = self.model.tokenizer.decode(said, skip_special_tokens=True)
            self._said[text, off] = inert(decoded)
            if len(self._said) > KEPT_TRANSLATIONS:
                self._said.popitem(last=False)
        return self._said[text, off]

    def _without(self, off: str) -> AbstractContextManager[None]:
        return self.model.edited(Ablate(off)) if off else nullcontext()

    def asked(self, text: str, second: str | None, off: str, lens: str) -> Asked:
        """What is asked, checked and in the one way it is written."""
        if lens not in LENSES:
            expected = choices(lens, LENSES)
            raise HeadscopeError(f'"{lens}" is no lens', where="lens", expected=expected)
        return Asked(self.name, text, second or None, str(self._heads(off)), lens)

    def _heads(self, named: str) -> HeadSet:
        return HeadSet(named if named.strip() else [], among=self.model.heads)

    def state(self, asked: Asked) -> State:
        """The state as it was kept, or made now."""
        name = self.states.name_of(asked)
        return self.states.find(name) or self._run(name, asked)

    def _run(self, name: str, asked: Asked) -> State:
        model = self.model
        batch = encode_input(model, asked.text, asked.second, max_length=self.max_tokens)
        reading = EncodedInput(asked.text, asked.second, batch)
        weights: dict[Site, NDArray[np.float32]] = {}
        entropy: dict[Site, NDArray[np.float32]] = {}

        def keep(attention: Attention) -> None:
            weights[attention.site] = attention.weights[0].float().cpu().numpy().copy()
            entropy[attention.site] = attention.row_entropy[0].float().mean(dim=-1).cpu().numpy()

        with torch.inference_mode(), self._without(asked.off):
            with model.watched(keep):
                output = self.prediction.run(reading)
            answer = self.prediction.read(output, reading).cpu()
        lens = None
        if asked.lens != "raw":
            lens = self._lens(reading, asked, max(maps.shape[-1] for maps in weights.values()))
            weights = self._through(lens)
        are_finite = all(np.isfinite(maps).all() for maps in weights.values())
        if not (are_finite and torch.isfinite(answer).all()):
            raise Refusal(
                503,
                f"{model.name} gave numbers that are not finite",
                fix="If it runs in half precision, start it in float32: "
                + command_line("serve", "MODEL", dtype="float32"),
            )
        order = {site: i for i, site in enumerate(model.sites)}
        weights = dict(sorted(weights.items(), key=lambda item: order[item[0]]))
        stacks = dict.fromkeys(site.stack for site in weights)
        sides = {stack: axes_of(model, batch, stack) for stack in stacks}
        kind = self.prediction.kind
        return State(name, reading, sides, weights, entropy, answer, lens, kind)

    def _lens(self, reading: EncodedInput, asked: Asked, length: int) -> LensMaps:
        if asked.lens in TRIED_ONE_BY_ONE and length > MOST_TRIED:
            raise HeadscopeError(
                f"{length} tokens",
                where=f"lens {asked.lens}",
                expected=f"at most {MOST_TRIED} tokens here: every token is tried by itself in every layer",
                fix="Shorten the text, or use headscope look, which has no such limit",
            )
        with self._without(asked.off):
            return compute_lens_maps(Input(self.model, reading.batch), asked.lens)

    def _through(self, lens: LensMaps) -> dict[Site, NDArray[np.float32]]:
        """The maps of a lens by site: of the heads that are there, or of the forms that stand beside each other."""
        found: dict[Site, NDArray[np.float32]] = {}
        for stack, weights in lens.maps.items():
            sites = [site for site in self.model.sites if site.stack == stack]
            if lens.forms is not None:
                forms = tuple(range(len(lens.forms)))
                sites = [Site(stack, layer, forms) for layer in range(len(weights))]
            for site in sites:
                maps = weights[site.layer][list(site.numbers or ())]
                if not np.isnan(maps).all():
                    found[site] = maps
        return found


def _summary(now: State, before: State, off: HeadSet) -> list[Answer]:
    """Of each map the largest number, its rows' mean entropy in nats, and how far it is from the intact model's.

    `change` is the share of attention that went elsewhere: half the sum of differences, the mean over the rows. Where
    numbers are no shares it is the sum of differences over the sum of both, without signs. Entropy is that of attention
    itself; maps that are not of one head have none.
    """
    of_heads = now.lens is None or now.lens.forms is None
    told = []
    for site, maps in now.weights.items():
        was = before.weights[site]
        moved = np.zeros(len(maps)) if now is before else _moved(maps, was, now.shares)
        for i, head in enumerate(site.heads(len(maps))):
            told.append(
                asdict(head)
                | {
                    "off": of_heads and head in off,
                    "largest": float(f"{np.abs(maps[i]).max():.5g}"),
                    "entropy": round(float(now.entropy[site][i]), 5) if of_heads else None,
                    "change": round(float(moved[i]), 5),
                }
            )
    return told


def _moved(
    now: NDArray[np.float32], before: NDArray[np.float32], shares: bool
) -> NDArray[np.float64]:
    """[map]"""
    apart = np.abs(now.astype(np.float64) - before)
    if shares:
        return np.asarray(apart.sum(axis=-1).mean(axis=-1) / 2)
    both = (np.abs(now).astype(np.float64) + np.abs(before)).sum(axis=(-2, -1))
    return np.asarray(apart.sum(axis=(-2, -1)) / np.where(both > 0, both, 1))


def _told_lens(name: str, now: State) -> Answer:
    """How the maps are to be read: `forms` and `layers` name them where they are not of heads and layers."""
    lens = now.lens
    return {
        "name": name,
        "how": "" if lens is None else lens.how,
        "shares": now.shares,
        "signed": now.is_signed,
        "full": now.full,
        "forms": None if lens is None or lens.forms is None else list(lens.forms),
        "layers": None if lens is None or lens.layers is None else list(lens.layers),
    }
