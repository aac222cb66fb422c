"""A transformers model whose attention can be watched and edited."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError, reason
from headscope.heads import Head, Heads, Site
from headscope.model.attention import Attention
from headscope.model.attention_interface import open_interface
from headscope.model.bfloat16 import prepare_bfloat16
from headscope.model.edits import Ablate, Edit
from headscope.model.families import Family, families
from headscope.model.fixed_attention import fixed_of
from headscope.model.lenses import Lens, make_lens
from headscope.model.manifest import Cut
from headscope.model.reading import TextReading
from headscope.model.seam import CallInspector, Observer, Seam
from headscope.model.softmax_tap import open_tap
from headscope.model.tokenizer import remember
from headscope.model.tokens import Batch, Marks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from headscope.model.anatomy import Parts

CANARY_TOLERANCE = (
    1e-4  # of the largest output; watching differs from SDPA by about 1e-6 of it in float32
)
CANARY_ROUNDINGS = 32  # in half precision: so many of the dtype's rounding errors


class AttentionModel:
    """A model with its sites and heads.

    model      the transformers model underneath
    tokenizer  its tokenizer; None for images, or where none was given
    path       the directory it came from; None for a live model
    sites      every (stack, layer), heads: every (stack, layer, head), counted from 0
    cut        what it has lost; None where it was not cut
    reading    how its token states become the vector of a text (pooling, prompts, length)
    untrained  parameters that were in no file and are therefore random (a new classifier, say)
    notes      what a user should know about how it was loaded
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        name: str | None = None,
        path: Path | None = None,
        revision: str | None = None,
        untrained: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        cut: Cut | None = None,
        reading: TextReading | None = None,
    ) -> None:
        self.model, self.tokenizer, self.path, self.revision = model, tokenizer, path, revision
        self.untrained, self.notes = untrained, notes
        self.cut = cut
        self.reading = reading or TextReading()
        self.parts: dict[Site, Parts] | None = (
            None  # where its parts are, once somebody has looked (model.anatomy)
        )
        self.family = family_of(model.config.model_type, where=name)
        self.name = name or type(model).__name__
        self.marks = Marks() if tokenizer is None else Marks.of(tokenizer)
        if tokenizer is not None:
            remember(tokenizer)
        self._expected = _stacks(model, self.family, self.name)
        self._frames = 0
        self._worn = ExitStack()
        self.worn: tuple[Edit, ...] = ()  # edits that it wears for good
        self.warned_inputs: set[str] = set()  # files whose unknown tokens were warned about
        self._seam = Seam(
            model,
            marks=self.marks,
            decoder_only=set(self._expected) == {"decoder"},
            takes_text=self.family.takes_text,
        )
        prepare_bfloat16(*model.parameters())
        self._sites: dict[Site, Site] = {}  # by address, with the heads each has
        self._find_sites({} if cut is None else cut.kept)

    def __repr__(self) -> str:
        stacks = Counter(site.stack for site in self.sites)
        widths = {
            stack: {len(site.numbers or ()) for site in self.sites if site.stack == stack}
            for stack in stacks
        }
        parts = [
            f"{stack} {count} x {' or '.join(map(str, sorted(widths[stack])))}"
            for stack, count in stacks.items()
        ]
        return (
            f"AttentionModel({self.name!r}, {type(self.model).__name__}: {', '.join(parts)} heads)"
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(self._sites.values())

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(head for site in self.sites for head in site.heads(len(site.numbers or ())))

    @property
    def attention_modules(self) -> dict[str, tuple[Site, ...]]:
        """Names of the attention modules in the order of their first call, each with the sites it serves.

        A module that several layers share (ALBERT) serves several sites.
        """
        return {name: tuple(sites) for name, sites in self._seam.sites.items()}

    @property
    def fixed(self) -> dict[Head, str]:
        """The heads that attend by a fixed pattern and have no queries and keys, each with its pattern."""
        found = {}
        for name, sites in self._seam.sites.items():
            fixed = fixed_of(self.model.get_submodule(name))
            if fixed is None:
                continue
            for site in sites:
                heads = site.heads(len(site.numbers or ()))
                for head, pattern in zip(heads, fixed.patterns, strict=True):
                    if pattern is not None:
                        found[head] = pattern
        return dict(sorted(found.items()))

    @property
    def shared_layers(self) -> dict[str, list[list[int]]]:
        """By stack, the groups of layers that call the same attention module (ALBERT); empty where none do."""
        found: dict[str, list[list[int]]] = {}
        for sites in self._seam.sites.values():
            for stack in dict.fromkeys(site.stack for site in sites):
                layers = [site.layer for site in sites if site.stack == stack]
                if len(layers) > 1:
                    found.setdefault(stack, []).append(layers)
        return found

    def index_of(self, head: Head) -> int:
        """Where in its site's tensors a head stands: its number, unless heads before it were cut."""
        return self._sites[head.site].index_of(head.head)

    @property
    def device(self) -> torch.device:
        place: torch.device = self.model.device
        return place

    @property
    def is_encoder_decoder(self) -> bool:
        return "cross" in self._expected

    def __call__(
        self, batch: Batch | Mapping[str, Tensor] | str | Sequence[str] | None = None, **inputs: Any
    ) -> Any:
        """The model's own output. An encoder-decoder without decoder input runs its encoder alone.

        batch  tensors by name, a `Batch` of `encode`, or a text or a list of texts to be tokenised
        """
        if isinstance(batch, str | list | tuple):
            batch = import_module("headscope.data.batches").batch_of_texts(
                self, batch
            )  # a package below this one
        if not isinstance(batch, Batch | Mapping) and (batch is not None or not inputs):
            raise HeadscopeError(
                f"{'None' if batch is None else type(batch).__name__} is not an input",
                where="model(…)",
                expected="a text, a list of texts, a Batch, or tensors by name",
                fix="Write model(input_ids=…) for token ids" if isinstance(batch, Tensor) else None,
            )
        self._prepare()
        given = batch.inputs if isinstance(batch, Batch) else (batch or {})
        inputs = {**given, **inputs}
        inputs = {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in inputs.items()}
        module: nn.Module = self.model
        if self.is_encoder_decoder and not {
            "decoder_input_ids",
            "labels",
            "decoder_inputs_embeds",
        } & set(inputs):
            module = self.model.get_encoder()
        if (
            hasattr(self.model.config, "use_cache")
            and "use_cache" not in inputs
            and _accepts(module, "use_cache")
        ):
            inputs["use_cache"] = False
        try:
            if isinstance(batch, Batch):
                self._seam.given_layout = batch.layout.to(self.device)
            return module(**inputs)
        finally:
            self._seam.given_layout = None

    def copy(self) -> AttentionModel:
        """The same model with weights of its own, to train or change. Edits and observers are not copied."""
        if self.is_open:
            raise HeadscopeError(
                "a model that is edited or observed cannot be copied",
                where=self.name,
                fix="Load it again without edits",
            )
        return AttentionModel(
            copy.deepcopy(self.model),
            self.tokenizer,
            name=self.name,
            path=self.path,
            revision=self.revision,
            untrained=self.untrained,
            notes=self.notes,
            cut=self.cut,
            reading=self.reading,
        )

    # Shortcuts for public functions of packages below this one: called through the public namespace, not imported.

    def save(self, out: str | Path, *, form: str = "small", overwrite: bool = False) -> Path:
        """Write the model: `small` (loaded by headscope), `plain` (loaded by transformers as it is) or `onnx`."""
        path: Path = import_module("headscope").save(self, out, form=form, overwrite=overwrite)
        return path

    def look(self, first: str, second: str | None = None, **options: Any) -> Any:
        """What every head attends to in one text or pair, as a view that draws itself in a notebook: headscope.look."""
        return import_module("headscope").look(self, first, second, **options)

    @cached_property
    def takes_segments(self) -> bool:
        """Whether the model can be told which of two texts a token is of, as `token_type_ids`."""
        return "token_type_ids" in inspect.signature(self.model.forward).parameters

    @contextmanager
    def watched(self, *observers: Observer, lens: str | Lens = "raw") -> Iterator[None]:
        """Hand every site call's `Attention` to the observers while this is open.

        lens  what it is seen through: a name of `LENSES`, or a lens made before. Through `gradient` observers are told
              while the loss' derivative comes back, from the last site to the first. Several: open one in another
        """
        seam = self._seam
        if isinstance(lens, Lens):
            looking: Lens | None = lens
        else:
            looking = None if lens == "raw" else make_lens(lens, self)
        told: list[Any] = [
            observer if looking is None else _Looked(looking, observer) for observer in observers
        ]
        open_now: list[Any] = (
            seam.behind if looking is not None and looking.needs_gradient else seam.observers
        )
        with self._open(), nullcontext() if looking is None else looking.open():
            open_now.extend(told)
            try:
                yield
            finally:
                _take_away(open_now, told)
        if (
            looking is not None
            and looking.needs_gradient
            and told
            and not any(one.is_told for one in told)
        ):
            raise HeadscopeError(
                "no derivative came back while it was open, so nothing was seen",
                where=f"lens {looking.name}",
                fix="Call backward() on a loss before it is closed",
            )

    @contextmanager
    def edited(self, *edits: Edit | Heads) -> Iterator[None]:
        """Change attention while this is open; nests, and restores on leaving, also after an exception.

        Heads, such as "3.2,4.*" or (3, 2), are ablated.
        """
        opened = [edit if isinstance(edit, Edit) else _ablation(edit) for edit in edits]
        for edit in opened:
            edit.bind(self.heads)
        with self._open():
            self._seam.edits.extend(opened)
            try:
                yield
            finally:
                _take_away(self._seam.edits, opened)

    @contextmanager
    def inspected(self, inspector: CallInspector) -> Iterator[None]:
        """Pass every attention call (queries, keys, values, scaling) to `inspector` while this is open.

        It receives the tensors before attention is computed. Only one inspector may be open. Families observed
        through the softmax tap (XLNet, for instance) have no such calls, and the inspector is not called.
        """
        if self._seam.inspecting is not None:
            raise RuntimeError(
                "attention calls are being inspected already; close the open `inspected` first"
            )
        with self._open():
            self._seam.inspecting = inspector
            try:
                yield
            finally:
                self._seam.inspecting = None

    def wear(self, *edits: Edit | Heads) -> AttentionModel:
        """Put edits on for good: all that is done with the model from now on is done under them."""
        if edits:
            worn = tuple(edit if isinstance(edit, Edit) else _ablation(edit) for edit in edits)
            self._worn.enter_context(self.edited(*worn))
            self.worn += worn
        return self

    def canary(self) -> float:
        """Prove on a small padded batch that watching changes nothing and ablating changes something.

        Returns the largest difference between watched and unwatched outputs, relative to the largest output.
        """
        self.check_evaluating()
        inputs = self._sample(batch=2)
        tolerance = max(CANARY_TOLERANCE, CANARY_ROUNDINGS * torch.finfo(self.model.dtype).eps)
        seen: Counter[Site] = Counter()

        def count(attention: Attention) -> None:
            seen[attention.site] += attention.weights.shape[0]

        with torch.inference_mode(), self._lifted():
            plain = self._values(inputs)
            with self.watched(count):
                watched = self._values(inputs)
            with self.edited(Ablate(self.heads)):
                ablated = self._values(inputs)
        difference = float((watched - plain).abs().max() / plain.abs().max().clamp_min(1e-12))
        missing = [str(site) for site in self.sites if seen[site] != 2 and site.numbers]
        if missing or not difference < tolerance or torch.equal(plain, ablated):
            raise HeadscopeError(
                f"the canary died: watching changes the outputs by {difference:.1e} of their size, "
                f"{len(missing)} sites were not seen, ablating all heads changes "
                f"{'nothing' if torch.equal(plain, ablated) else 'something'}",
                where=self.name,
                fix="Numbers from this model would be wrong; run headscope doctor and report it",
            )
        return difference

    def check_evaluating(self) -> None:
        """Refuse a model in training mode, whose dropout makes every number random."""
        if self.model.training:
            raise HeadscopeError(
                "the model is in training mode",
                where=self.name,
                fix="Call model.model.eval() first",
            )

    @property
    def is_open(self) -> bool:
        """Whether it is being watched or edited."""
        return self._frames > 0

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that are open now."""
        return tuple(self._seam.edits)

    # Inside

    def _prepare(self) -> None:
        """The model may have been cast since it was wrapped; its first parameter tells, as looking at all is slow."""
        prepare_bfloat16(*islice(self.model.parameters(), 1))

    @contextmanager
    def _lifted(self) -> Iterator[None]:
        """Without whatever is being watched and edited around it."""
        seam = self._seam
        around = seam.observers, seam.behind, seam.edits
        seam.observers, seam.behind, seam.edits = [], [], []
        try:
            yield
        finally:
            seam.observers, seam.behind, seam.edits = around

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Open the door to the seam; whoever leaves last closes it, in whatever order they leave."""
        if not self._frames:
            self._prepare()
            self._door = self._opened_door()
        self._frames += 1
        try:
            yield
        finally:
            self._frames -= 1
            if not self._frames:
                self._door.close()

    def _opened_door(self) -> ExitStack:
        tap = self.family.tap
        with ExitStack() as stack:
            stack.enter_context(
                open_interface(self._seam) if tap is None else open_tap(self._seam, tap)
            )
            # The parts that may be called by themselves: with a head on top, without it, encoder or decoder alone.
            parts = [self.model, self.model.base_model]
            parts += (
                [self.model.get_encoder(), self.model.get_decoder()]
                if self.is_encoder_decoder
                else []
            )
            for module in dict.fromkeys(parts):
                hooks = (
                    module.register_forward_pre_hook(self._seam.begin, with_kwargs=True),
                    module.register_forward_hook(
                        self._seam.end, with_kwargs=True, always_call=True
                    ),
                )
                for hook in hooks:
                    stack.callback(hook.remove)
            stack.callback(self._seam.reset)
            return stack.pop_all()

    def _find_sites(self, kept: Mapping[Site, tuple[int, ...]]) -> None:
        """One dry forward: which modules attend, how often, with how many heads; refuse what does not add up."""
        calls: list[tuple[str, int]] = []
        self._seam.recording = calls
        try:
            with self._open(), torch.inference_mode():
                self._run(self.model.base_model, self._sample(batch=1))
        except RuntimeError as cause:
            if self.model.dtype == torch.float32:
                raise
            raise HeadscopeError(
                f"{type(self.model).__name__} cannot compute in {str(self.model.dtype).removeprefix('torch.')} "
                f"({reason(cause)})",
                where=self.name,
                fix="Load it with dtype float32",
            ) from cause
        finally:
            self._seam.recording = None
        expected = self._expected
        silent = [Site(site.stack, site.layer, ()) for site, numbers in kept.items() if not numbers]
        found = Counter(site.stack for site in silent)
        layers = {
            stack: iter([n for n in range(count) if Site(stack, n) not in silent])
            for stack, count in expected.items()
        }
        self._sites = {site: site for site in silent}
        occurrences: Counter[str] = Counter()
        for name, heads in calls:
            stack = self.family.stack(name, occurrences[name])
            occurrences[name] += 1
            found[stack] += 1
            address = Site(stack, next(layers.get(stack, iter(())), found[stack]))
            site = Site(stack, address.layer, kept.get(address, tuple(range(heads))))
            assert len(site.numbers or ()) == heads, (
                f"{site} attends with {heads} heads, not {site.numbers}"
            )
            self._seam.sites.setdefault(name, []).append(site)
            self._sites[address] = site
        if found != Counter(expected):
            seen = ", ".join(
                f"{found[stack]} of {count} in {stack}" for stack, count in expected.items()
            )
            raise HeadscopeError(
                f"a test forward called {seen} attention sites, so numbers would be missing",
                where=self.name,
                fix=f"This {type(self.model).__name__} attends in a way headscope does not know",
            )
        order = {stack: i for i, stack in enumerate(expected)}
        self._sites = dict(
            sorted(self._sites.items(), key=lambda item: (order[item[0].stack], item[0].layer))
        )

    def _sample(self, batch: int) -> dict[str, Tensor]:
        """A few tokens (or a black image) that the model can be tried on; the second sequence is padded."""
        config = self.model.config
        if not self.family.takes_text:
            size = (
                config.image_size
                if isinstance(config.image_size, tuple | list)
                else [config.image_size] * 2
            )
            noise = torch.Generator().manual_seed(0)
            return {
                "pixel_values": torch.randn(batch, config.num_channels, *size, generator=noise).to(
                    self.device
                )
            }
        padding = getattr(config, "pad_token_id", None)
        longest = min(9, getattr(config, "max_position_embeddings", None) or 9)
        usable = [
            i
            for i in range(min(3, config.vocab_size - 1), min(config.vocab_size, 40))
            if i != padding
        ][:longest]
        ids = torch.tensor([usable] * batch, device=self.device)
        mask = torch.ones_like(ids)
        if batch > 1:
            mask[1, len(usable) * 2 // 3 :] = 0
            ids[1, len(usable) * 2 // 3 :] = (
                padding if padding is not None and 0 <= padding < config.vocab_size else 0
            )
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self.is_encoder_decoder:
            shorter = slice(max(1, len(usable) - 2))
            inputs |= {
                "decoder_input_ids": ids[:, shorter],
                "decoder_attention_mask": mask[:, shorter],
            }
        return inputs | {
            name: value.to(self.device) for name, value in self.family.dry_inputs(inputs).items()
        }

    def _run(self, module: nn.Module, inputs: dict[str, Tensor]) -> Any:
        self._prepare()
        return module(**inputs, **({"use_cache": False} if _accepts(module, "use_cache") else {}))

    def _values(self, inputs: dict[str, Tensor]) -> Tensor:
        """The model's main output at real tokens, in one row, for comparison."""
        output: Tensor = self._run(self.model.base_model, inputs)[0]
        mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
        if mask is not None and output.dim() == 3 and output.shape[:2] == mask.shape:
            output = output[mask.bool()]
        return output.float().flatten()


def _stacks(model: PreTrainedModel, family: Family, name: str) -> dict[str, int]:
    """How many sites each stack must have: fewer stacks where a class is only the encoder or decoder of its family."""
    expected = family.layers(model.config)
    if "cross" in expected:
        parts = {module.rpartition(".")[2] for module, _ in model.named_modules()}
        alone = next(
            (part for part in ("encoder", "decoder") if {"encoder", "decoder"} - parts == {part}),
            None,
        )
        if alone is not None:
            expected = {
                stack: count for stack, count in expected.items() if stack not in (alone, "cross")
            }
    elif getattr(model.config, "add_cross_attention", False) or (
        "encoder" in expected and getattr(model.config, "is_decoder", False)
    ):
        raise HeadscopeError(
            f"{type(model).__name__} is configured as a decoder for another model's encoder, which is not supported",
            where=name,
            expected="is_decoder and add_cross_attention false in config.json",
        )
    return expected


def family_of(model_type: str | None, *, where: str | Path | None = None) -> Family:
    """The family of a `model_type`, or a refusal by name with the list of what works."""
    known = families()
    if model_type not in known:
        raise HeadscopeError(
            f'model type "{model_type}" is not supported',
            where=where,
            expected=f"one of {', '.join(known)}",
            fix="To add a family, see docs/families.md",
        )
    return known[model_type]


class _Looked:
    """An observer that sees through a lens."""

    def __init__(self, lens: Lens, observer: Observer) -> None:
        self.lens, self.observer, self.is_told = lens, observer, False

    def __call__(self, attention: Attention, gradient: Tensor | None = None) -> None:
        self.is_told = True
        seen = self.lens.apply(attention, gradient)
        if seen is not None:
            self.observer(seen)


def _take_away(open_now: list[Any], these: Sequence[Any]) -> None:
    """Remove these very objects, the last entered first, wherever they stand."""
    for one in reversed(these):
        place = max(i for i, other in enumerate(open_now) if other is one)
        del open_now[place]


def _ablation(heads: Heads) -> Ablate:
    if isinstance(heads, type):
        name = heads.__name__
        raise HeadscopeError(
            f"{name} is a class", where="edited", expected=f'an edit, such as {name}("3.2")'
        )
    return Ablate(heads)


def _accepts(module: nn.Module, argument: str) -> bool:
    return argument in inspect.signature(module.forward).parameters
