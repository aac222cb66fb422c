"""One model of the explorer: its attention and prediction on a text, with all heads or without some.

A `State` holds the attention and prediction for one input with a given set of heads off. The latest states are cached
(`States`), so that the page can request maps one layer at a time. If a state was evicted, the page attends again.
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

from headscope.analysis.lens_maps import LENSES, LensMaps, compute_lens_maps
from headscope.analysis.token_maps import encode_input
from headscope.config import names
from headscope.config.command_line import command_line
from headscope.data.encode import Encoder
from headscope.errors import HeadscopeError, choices
from headscope.explorer.predictions import EncodedInput, labels_of, prediction_of
from headscope.explorer.responses import JsonObject, Refusal
from headscope.heads import HeadSet, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate
from headscope.model.one_input import OneInput
from headscope.model.weights import weights_sha256
from headscope.report.look.token_axis import TokenAxis, axes_of, axes_payload, escape_controls
from headscope.tasks.bleu import translate

LONGEST_PER_TOKEN = 128  # tokens; limit for lenses that take a forward pass per token and layer
KEPT_STATES = 16
KEPT_BYTES = 512_000_000  # a state of 144 heads and 512 tokens has 151 MB
KEPT_TRANSLATIONS = 32
EXAMPLES = (  # start, a word that may be masked, end; and a beginning for models that continue a text
    ("The cat sat on the ", "mat", " because it was tired.", "The capital of France is"),
    ("CC(=O)O.OCC>>CC(=O)OC", "C", ".O", "CC(=O)O.OCC>>"),
)


@dataclass(frozen=True)
class StateKey:
    """Identifies a state: model, input, ablated heads, lens. `off` is `str(HeadSet)`, so equal sets have equal keys."""

    model: str
    text: str
    second: str | None
    off: str
    lens: str


@dataclass(frozen=True)
class State:
    """The attention and prediction of the model for an input.

    id       the name by which the page requests its maps
    sides    query and key tokens by stack
    weights  by site, [head, query, key]; [form, query, key] for a lens over all heads
    entropy  by site, [head]: mean entropy of the rows of raw attention, in nats
    answer   the numbers of the prediction
    lens     maps of the lens that `weights` come from; None for raw attention
    kind     kind of prediction, `Prediction.kind`
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
        """The number at the end of a colour scale for all maps: 1 for shares, else the largest absolute number."""
        sizes = [] if self.shares else [float(np.abs(maps).max()) for maps in self.weights.values()]
        return max(sizes, default=1.0) or 1.0

    @property
    def size(self) -> int:
        return sum(weights.nbytes for weights in self.weights.values()) + self.answer.nbytes


class States:
    """A cache of the most recently used states, limited by number and bytes."""

    def __init__(self, most: int = KEPT_STATES, most_bytes: int = KEPT_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self._states: OrderedDict[str, State] = OrderedDict()
        self._lock = Lock()  # the model's thread writes; the threads that pack maps read
        # Ids must differ between runs of the server: a browser may have cached maps of an earlier run.
        self._secret = secrets.token_bytes(16)

    def name_of(self, key: StateKey) -> str:
        """The id of a state: the same for the same key while this server runs."""
        return hmac.digest(self._secret, json.dumps(astuple(key)).encode(), "sha256").hex()[:24]

    def find(self, name: str) -> State | None:
        with self._lock:
            if name in self._states:
                self._states.move_to_end(name)
            return self._states.get(name)

    def keep(self, state: State) -> None:
        with self._lock:
            self._states[state.id] = state
            self._states.move_to_end(state.id)
            while len(self._states) > 1 and self._is_full():
                self._states.popitem(last=False)

    def _is_full(self) -> bool:
        size = sum(state.size for state in self._states.values())
        return len(self._states) > self.most or size > self.most_bytes


class Session:
    """One model of the explorer. Not thread-safe: calls must not overlap."""

    def __init__(
        self, name: str, model: AttentionModel, states: States, *, max_length: int | None = None
    ) -> None:
        model.check_evaluating()
        self.name, self.model, self.states = name, model, states
        self.max_tokens = Encoder(model, max_length=max_length).max_length
        self.prediction = prediction_of(model)
        self._translations: OrderedDict[tuple[str, str], str] = OrderedDict()

    def about(self) -> JsonObject:
        """The description of the model for the page."""
        model, kind = self.model, self.prediction.kind
        stacks: dict[str, list[JsonObject]] = {site.stack: [] for site in model.sites}
        for site in model.sites:
            stacks[site.stack].append({"layer": site.layer, "heads": list(site.numbers or ())})
        mask = getattr(model.tokenizer, "mask_token", None) if kind == "masked" else None
        return {
            "id": self.name,
            "name": escape_controls(model.name),
            "sha256": weights_sha256(model),
            "kind": kind,
            "stacks": [{"name": name, "layers": layers} for name, layers in stacks.items()],
            "labels": labels_of(model) if kind == "classifier" else [],
            "mask_token": mask,
            "takes_pair": kind != "causal",
            # The page puts the ablated heads in place of HEADS.
            "prune_command": command_line(
                "prune", escape_controls(model.name), heads="HEADS", out="small"
            ),
            "max_tokens": self.max_tokens,
            "lenses": {"heads": list(names.LENSES), "tokens": list(names.TOKEN_MAPS)},
            "example": {"text": self._example(mask), "second": None, "lens": "raw"},
            "notes": [escape_controls(note) for note in (*model.notes, *self.prediction.notes)],
        }

    def _example(self, mask: str | None) -> str:
        """A first text for the page: the example with the fewest unknown tokens."""
        tokenizer = self.model.tokenizer
        assert tokenizer is not None

        def count_unknown(parts: tuple[str, ...]) -> int:
            ids = tokenizer("".join(parts[:3]), verbose=False)["input_ids"]
            return int(ids.count(tokenizer.unk_token_id))

        start, word, end, opening = min(EXAMPLES, key=count_unknown)
        if self.prediction.kind == "causal":
            return opening
        return start + (word if mask is None else mask) + end

    def attend(self, text: str, second: str | None, off: str, lens: str) -> JsonObject:
        """The state of an input with some heads off, as the page shows it."""
        if lens not in LENSES:
            expected = choices(lens, LENSES)
            raise HeadscopeError(f'"{lens}" is not a lens', where="lens", expected=expected)
        heads = self._heads(off)
        key = StateKey(self.name, text, second or None, str(heads), lens)
        before = self._state(replace(key, off=""))
        after = self._state(key) if key.off else None
        now, changed = (before, None) if after is None else (after, after.answer)
        self.states.keep(before)  # also when heads are off: the changes refer to it
        self.states.keep(now)
        return {
            "id": now.id,
            "off": key.off,
            "sides": {stack: axes_payload(*sides) for stack, sides in now.sides.items()},
            "prediction": self.prediction.describe(now.reading, before.answer, changed),
            "summary": _summary(now, before, heads),
            "lens": _describe_lens(lens, now),
        }

    def translate(self, text: str, off: str) -> JsonObject:
        """The model's own translation, with all heads and without those that are off."""
        if self.prediction.kind != "translation":
            what = f"{self.model.name} does not translate"
            raise HeadscopeError(what, expected="an encoder-decoder with a language-model head")
        heads = str(self._heads(off))
        before = self._translation(text, "")
        after = self._translation(text, heads) if heads else None
        return {"off": heads, "before": before, "after": after}

    def _translation(self, text: str, off: str) -> str:
        if (text, off) not in self._translations:
            batch = encode_input(self.model, text, None, max_length=self.max_tokens)
            with torch.inference_mode(), self._without(off):
                ids = translate(self.model, batch)[0]
            assert self.model.tokenizer is not None
            decoded = self.model.tokenizer.decode(ids, skip_special_tokens=True)
            self._translations[text, off] = escape_controls(decoded)
            if len(self._translations) > KEPT_TRANSLATIONS:
                self._translations.popitem(last=False)
        return self._translations[text, off]

    def _without(self, off: str) -> AbstractContextManager[None]:
        return self.model.edited(Ablate(off)) if off else nullcontext()

    def _heads(self, addresses: str) -> HeadSet:
        return HeadSet(addresses if addresses.strip() else [], among=self.model.heads)

    def _state(self, key: StateKey) -> State:
        """The cached state, or a new one."""
        name = self.states.name_of(key)
        return self.states.find(name) or self._run(name, key)

    def _run(self, name: str, key: StateKey) -> State:
        model = self.model
        batch = encode_input(model, key.text, key.second, max_length=self.max_tokens)
        reading = EncodedInput(key.text, key.second, batch)
        weights: dict[Site, NDArray[np.float32]] = {}
        entropy: dict[Site, NDArray[np.float32]] = {}

        def observe(attention: Attention) -> None:
            weights[attention.site] = attention.weights[0].float().cpu().numpy().copy()
            entropy[attention.site] = attention.row_entropy[0].float().mean(dim=-1).cpu().numpy()

        with torch.inference_mode(), self._without(key.off):
            with model.watched(observe):
                output = self.prediction.run(reading)
            answer = self.prediction.read(output, reading).cpu()
        lens = None
        if key.lens != "raw":
            lens = self._lens(reading, key, max(maps.shape[-1] for maps in weights.values()))
            weights = self._through(lens)
        are_finite = all(np.isfinite(maps).all() for maps in weights.values())
        if not (are_finite and torch.isfinite(answer).all()):
            what = f"the output of {model.name} has numbers that are not finite"
            start = command_line("serve", "MODEL", dtype="float32")
            fix = f"If it runs in half precision, start it in float32: {start}"
            raise Refusal(503, what, fix=fix)
        order = {site: i for i, site in enumerate(model.sites)}
        weights = dict(sorted(weights.items(), key=lambda item: order[item[0]]))
        stacks = dict.fromkeys(site.stack for site in weights)
        sides = {stack: axes_of(model, batch, stack) for stack in stacks}
        kind = self.prediction.kind
        return State(name, reading, sides, weights, entropy, answer, lens, kind)

    def _lens(self, reading: EncodedInput, key: StateKey, length: int) -> LensMaps:
        if key.lens in names.PER_TOKEN_LENSES and length > LONGEST_PER_TOKEN:
            expected = f"at most {LONGEST_PER_TOKEN} tokens, since it takes a forward pass per token and layer"
            fix = "Shorten the text, or use headscope look, which has no such limit"
            what, where = f"{length} tokens", f"lens {key.lens}"
            raise HeadscopeError(what, where=where, expected=expected, fix=fix)
        with self._without(key.off):
            return compute_lens_maps(OneInput(self.model, reading.batch), key.lens)

    def _through(self, lens: LensMaps) -> dict[Site, NDArray[np.float32]]:
        """The maps of a lens by site: of the unpruned heads or, for a token map, of the forms of the lens."""
        by_site: dict[Site, NDArray[np.float32]] = {}
        for stack, weights in lens.maps.items():
            sites = [site for site in self.model.sites if site.stack == stack]
            if lens.forms is not None:
                forms = tuple(range(len(lens.forms)))
                sites = [Site(stack, layer, forms) for layer in range(len(weights))]
            for site in sites:
                maps = weights[site.layer][list(site.numbers or ())]
                if not np.isnan(maps).all():
                    by_site[site] = maps
        return by_site


def _summary(now: State, before: State, off: HeadSet) -> list[JsonObject]:
    """For each map its largest number, its mean row entropy in nats, and its change from the model with all heads on.

    The entropy is that of raw attention under every lens. Token maps, which are not of one head, have none.
    """
    of_heads = now.lens is None or now.lens.forms is None
    return [
        {
            **asdict(head),
            "off": of_heads and head in off,
            "largest": float(f"{np.abs(weights).max():.5g}"),
            "entropy": round(float(now.entropy[site][i]), 5) if of_heads else None,
            "change": 0.0
            if now is before
            else _change(weights, before.weights[site][i], now.shares),
        }
        for site, maps in now.weights.items()
        for i, (head, weights) in enumerate(zip(site.heads(len(maps)), maps, strict=True))
    ]


def _change(now: NDArray[np.float32], before: NDArray[np.float32], shares: bool) -> float:
    """The share of a map's [query, key] attention that moved: half the sum of absolute differences, averaged over rows.

    For numbers that are not shares: the sum of absolute differences divided by the sum of all absolute values.
    """
    apart = np.abs(now.astype(np.float64) - before)
    if shares:
        return round(float(apart.sum(axis=-1).mean() / 2), 5)
    both = float((np.abs(now).astype(np.float64) + np.abs(before)).sum())
    return round(float(apart.sum()) / (both or 1.0), 5)


def _describe_lens(name: str, now: State) -> JsonObject:
    """The JSON description of a lens: how to read its maps. `forms` and `layers` name the maps of a token map."""
    lens = now.lens
    return {
        "name": name,
        "how": "" if lens is None else lens.how,
        "shares": now.shares,
        "signed": now.is_signed,
        "full": now.full,
        "forms": None if lens is None else lens.forms,
        "layers": None if lens is None else lens.layers,
    }
