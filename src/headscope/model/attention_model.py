"""A transformers model whose attention can be observed and edited."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError, reason
from headscope.heads import Head, Heads, Site
from headscope.hooks import hook
from headscope.model.attention import Attention
from headscope.model.bfloat16 import prepare_bfloat16
from headscope.model.edits import Ablate, Edit
from headscope.model.families import Family, families
from headscope.model.find_sites import assign_sites, expected_sites
from headscope.model.fixed_attention import get_fixed_heads
from headscope.model.lenses import Lens, make_lens
from headscope.model.manifest import Cut
from headscope.model.reading import TextReading
from headscope.model.row_sums import Wanted
from headscope.model.sample_inputs import accepts, prepare_for_dtype, run_base_model, sample_inputs
from headscope.model.seam import CallInspector, Observer, Seam
from headscope.model.seam_backend import SeamBackend, added, callable_parts
from headscope.model.self_check import self_check
from headscope.model.tokenizer import remember_settings
from headscope.model.tokens import Batch, Marks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from headscope.model.anatomy import Parts

DECODER_INPUTS = {"decoder_input_ids", "labels", "decoder_inputs_embeds"}


class AttentionModel:
    """A transformers model whose attention can be observed and edited.

    `headscope.load` makes one from files. `AttentionModel(model, tokenizer)` wraps a model of transformers.

    Attributes
    ----------
    model, tokenizer
        The transformers model, and its tokenizer (None for images, or if none was given).
    path
        The directory it was loaded from; None for a live model.
    sites, heads
        Every `Site` and every `Head`, counted from 0.
    cut
        What was pruned from it; None for a whole model.
    reading
        How its token states become the vector of a text (pooling, prompts, length).
    untrained
        Parameters that were in no file and are therefore random (a new classifier, for example).
    notes
        What a user should know about how it was loaded.
    permanent_edits
        The edits of `edit_permanently`.

    Examples
    --------
    >>> model = headscope.load("minilm")
    >>> model
    AttentionModel('minilm', BertModel: encoder 6 x 12 heads)
    >>> model("The cat sat.").last_hidden_state.shape  # text, token, width
    torch.Size([1, 6, 384])
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
        self.untrained, self.notes, self.cut = untrained, notes, cut
        self.reading = reading or TextReading()
        self.parts: dict[Site, Parts] | None = None  # set by model.anatomy when first needed
        self.family = family_of(model.config.model_type, where=name)
        self.name = name or type(model).__name__
        self.marks = Marks() if tokenizer is None else Marks.of(tokenizer)
        if tokenizer is not None:
            remember_settings(tokenizer)
        self._expected = expected_sites(model, self.family, self.name)
        self._permanent = ExitStack()
        self.permanent_edits: tuple[Edit, ...] = ()
        self.warned_inputs: set[str] = set()  # files whose unknown tokens were warned about
        self._seam = Seam(
            model,
            marks=self.marks,
            decoder_only=set(self._expected) == {"decoder"},
            takes_text=self.family.takes_text,
        )
        parts = callable_parts(model, is_encoder_decoder=self.is_encoder_decoder)
        self._backend = SeamBackend(self._seam, self.family.tap, parts)
        prepare_bfloat16(*model.parameters())
        kept = {} if cut is None else cut.kept
        # By address (stack and layer alone); the values also know which heads they have.
        self._sites, self._seam.sites = assign_sites(
            self._record_calls(), self._expected, kept, self.family, where=self.name
        )

    def __repr__(self) -> str:
        widths: dict[str, list[int]] = {}
        for site in self.sites:
            widths.setdefault(site.stack, []).append(len(site.numbers or ()))
        parts = [
            f"{stack} {len(heads)} x {' or '.join(map(str, sorted(set(heads))))}"
            for stack, heads in widths.items()
        ]
        return (
            f"AttentionModel({self.name!r}, {type(self.model).__name__}: {', '.join(parts)} heads)"
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every call of an attention module: stack and layer."""
        return tuple(self._sites.values())

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every head, by stack, layer and number."""
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
        patterns: dict[Head, str | None] = {}
        for name, sites in self._seam.sites.items():
            fixed = get_fixed_heads(self.model.get_submodule(name))
            if fixed is not None:
                for site in sites:
                    heads = site.heads(len(site.numbers or ()))
                    patterns.update(zip(heads, fixed.patterns, strict=True))
        return {head: name for head, name in sorted(patterns.items()) if name is not None}

    @property
    def shared_layers(self) -> dict[str, list[list[int]]]:
        """The groups of layers of each stack that call the same attention module (ALBERT); empty if none do."""
        groups: dict[str, list[list[int]]] = {}
        for sites in self._seam.sites.values():
            for stack in dict.fromkeys(site.stack for site in sites):
                layers = [site.layer for site in sites if site.stack == stack]
                if len(layers) > 1:
                    groups.setdefault(stack, []).append(layers)
        return groups

    def index_of(self, head: Head) -> int:
        """The index of a head in its site's tensors: its number, unless heads before it were pruned."""
        return self._sites[head.site].index_of(head.head)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.model.device
        return device

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has cross-attention."""
        return "cross" in self._expected

    @cached_property
    def takes_segments(self) -> bool:
        """Whether the model takes `token_type_ids`, which tell the first of two texts from the second."""
        return accepts(self.model, "token_type_ids")

    @property
    def is_open(self) -> bool:
        """Whether the model is being observed or edited."""
        return self._backend.is_open

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that are open at present."""
        return tuple(self._seam.edits)

    def __call__(
        self, batch: Batch | Mapping[str, Tensor] | str | Sequence[str] | None = None, **inputs: Any
    ) -> Any:
        """The model's own output. An encoder-decoder without decoder input runs its encoder alone.

        batch  tensors by name, a `Batch` of `encode`, or a text or a list of texts to be tokenised
        """
        if isinstance(batch, str | list | tuple):
            batch = hook("batch_of_texts")(self, batch)
        if not isinstance(batch, Batch | Mapping) and (batch is not None or not inputs):
            raise HeadscopeError(
                f"{'None' if batch is None else type(batch).__name__} is not an input",
                where="model(…)",
                expected="a text, a list of texts, a Batch, or tensors by name",
                fix="Write model(input_ids=…) for token ids" if isinstance(batch, Tensor) else None,
            )
        prepare_for_dtype(self)
        inputs = {**(batch.inputs if isinstance(batch, Batch) else batch or {}), **inputs}
        inputs = {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in inputs.items()}
        module: nn.Module = self.model
        if self.is_encoder_decoder and not DECODER_INPUTS & set(inputs):
            module = self.model.get_encoder()
        if hasattr(self.model.config, "use_cache") and accepts(module, "use_cache"):
            inputs.setdefault("use_cache", False)
        try:
            if isinstance(batch, Batch):
                self._seam.layout_override = batch.layout.to(self.device)
            return module(**inputs)
        finally:
            self._seam.layout_override = None

    def copy(self) -> AttentionModel:
        """The same model with weights of its own, to train or change. Edits and observers are not copied.

        Returns
        -------
        AttentionModel

        Raises
        ------
        HeadscopeError
            If the model is being observed or edited.

        Examples
        --------
        >>> model = headscope.load("minilm")
        >>> model.copy().heads == model.heads
        True
        """
        if self.is_open:
            raise HeadscopeError(
                "a model that is edited or observed cannot be copied",
                where=self.name,
                fix="Load it again without edits",
            )
        return self.wrap_changed(copy.deepcopy(self.model), cut=self.cut, path=self.path)

    def wrap_changed(
        self, model: PreTrainedModel, *, cut: Cut | None, path: Path | None = None
    ) -> AttentionModel:
        """A changed copy of this transformers model as an `AttentionModel` with the same tokenizer and reading."""
        return AttentionModel(
            model,
            self.tokenizer,
            name=self.name,
            path=path,
            revision=self.revision,
            untrained=self.untrained,
            notes=self.notes,
            cut=cut,
            reading=self.reading,
        )

    # Shortcuts for functions of later packages

    def save(self, out: str | Path, *, form: str = "small", overwrite: bool = False) -> Path:
        """Write the model to a directory.

        Parameters
        ----------
        out
            The directory. It must not exist yet, unless `overwrite`.
        form
            `small` (loaded by headscope), `plain` (loaded by transformers as it is) or `onnx`.
        overwrite
            Replace what is there. It stays as it is if writing fails.

        Returns
        -------
        Path
            `out`

        Raises
        ------
        HeadscopeError
            If `out` exists, or the model cannot be written in this form.

        Examples
        --------
        >>> headscope.prune("minilm", "3.2").model.save("small")  # doctest: +SKIP
        """
        path: Path = hook("save")(self, out, form=form, overwrite=overwrite)
        return path

    def look(self, first: str, second: str | None = None, **options: Any) -> Any:
        """What every head attends to in one text or pair, as a view that draws itself in a notebook.

        Parameters
        ----------
        first, second
            A text, or a pair of texts.
        **options
            Those of `headscope.look`.

        Returns
        -------
        Look

        Examples
        --------
        >>> view = headscope.load("minilm").look("The cat sat.")
        """
        return hook("look")(self, first, second, **options)

    # Observing and editing

    @contextmanager
    def watched(
        self,
        *observers: Observer,
        lens: str | Lens = "raw",
        wanted: Wanted | None = None,
    ) -> Iterator[None]:
        """Call observers with the `Attention` of every site while this is open.

        Parameters
        ----------
        *observers
            Functions of an `Attention`. It is valid only during the call.
        lens
            The map they get instead of the weights: a name of `LENSES`, or a `Lens`. With `gradient` they are called
            in the backward pass, from the last site to the first. For several lenses, nest several of these.
        wanted
            What the observers use of raw attention, if they need no whole maps. They may then be called with
            `RowSums` of a whole batch, which are computed faster and in less memory.

        Raises
        ------
        HeadscopeError
            If a lens needs gradients and no backward pass took place.

        Examples
        --------
        >>> model = headscope.load("minilm")
        >>> entropies = {}
        >>> def observe(attention):
        ...     entropies[str(attention.site)] = attention.row_entropy.mean().item()
        >>> with model.watched(observe):
        ...     output = model("The cat sat.")
        >>> len(entropies)
        6
        """
        if lens == "raw":
            observed: list[Any] = self._seam.observers
            added_observers: list[Any] = list(observers)
            if wanted is not None:
                observed = self._seam.sums_observers
                added_observers = [(observer, wanted) for observer in observers]
            with self._open(), added(observed, added_observers):
                yield
            return
        lens = lens if isinstance(lens, Lens) else make_lens(lens, self)
        wrapped = [_LensObserver(lens, observer) for observer in observers]
        active: list[Any] = self._seam.observers
        if lens.needs_gradient:
            active = self._seam.gradient_observers
        with self._open(), lens.open(), added(active, wrapped):
            yield
        if lens.needs_gradient and wrapped and not any(observer.was_called for observer in wrapped):
            raise HeadscopeError(
                "no derivative came back while it was open, so nothing was seen",
                where=f"lens {lens.name}",
                fix="Call backward() on a loss before it is closed",
            )

    @contextmanager
    def edited(self, *edits: Edit | Heads) -> Iterator[None]:
        """Change attention while this is open; nests, and restores on leaving, also after an exception.

        Parameters
        ----------
        *edits
            Edits. Heads, such as `"3.2,4.*"` or `(3, 2)`, are ablated.

        Raises
        ------
        HeadscopeError
            If an edit names a head that the model does not have.

        Examples
        --------
        >>> model = headscope.load("minilm")
        >>> with model.edited("0.2,1.*"):
        ...     without = model("The cat sat.")
        """
        opened = _as_edits(edits)
        for edit in opened:
            edit.bind(self.heads)
        with self._open(), added(self._seam.edits, opened):
            yield

    @contextmanager
    def inspected(self, inspector: CallInspector) -> Iterator[None]:
        """Pass every attention call (queries, keys, values, scaling) to `inspector` while this is open.

        It receives the tensors before attention is computed. Only one inspector may be open. Families observed
        through the softmax tap (XLNet, for instance) have no such calls, and the inspector is not called.
        """
        if self._seam.inspector is not None:
            raise RuntimeError(
                "attention calls are being inspected already; close the open `inspected` first"
            )
        with self._open():
            self._seam.inspector = inspector
            try:
                yield
            finally:
                self._seam.inspector = None

    def edit_permanently(self, *edits: Edit | Heads) -> AttentionModel:
        """Apply edits to everything that is done with this model from now on.

        Parameters
        ----------
        *edits
            Edits, or heads to ablate.

        Returns
        -------
        AttentionModel
            The model itself.

        Examples
        --------
        >>> model = headscope.load("minilm").edit_permanently("0.2")
        >>> model.permanent_edits
        (Ablate(encoder.0.2),)
        """
        if edits:
            opened = _as_edits(edits)
            self._permanent.enter_context(self.edited(*opened))
            self.permanent_edits += tuple(opened)
        return self

    def suspend_hooks(self) -> AbstractContextManager[None]:
        """Run the model without the observers and edits that are open at present."""
        return self._backend.suspend()

    def self_check(self) -> float:
        """Check on a small padded batch that observing changes nothing and ablating changes something.

        Returns
        -------
        float
            The largest difference between observed and plain outputs, relative to the largest output.

        Raises
        ------
        HeadscopeError
            If the check fails, or the model is in training mode.

        Examples
        --------
        >>> headscope.load("minilm").self_check() < 1e-4
        True
        """
        self.check_evaluating()
        return self_check(self)

    def check_evaluating(self) -> None:
        """Refuse a model in training mode: dropout would make every number random."""
        if self.model.training:
            raise HeadscopeError(
                "the model is in training mode",
                where=self.name,
                fix="Call model.model.eval() first",
            )

    # Internals

    def _open(self) -> AbstractContextManager[None]:
        if not self.is_open:
            prepare_for_dtype(self)
        return self._backend.open()

    def _record_calls(self) -> list[tuple[str, int]]:
        """(module name, number of heads) of every attention call of a test forward pass."""
        calls: list[tuple[str, int]] = []
        self._seam.recorded_calls = calls
        try:
            with self._open(), torch.inference_mode():
                run_base_model(self, sample_inputs(self, batch=1))
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
            self._seam.recorded_calls = None
        return calls


def family_of(model_type: str | None, *, where: str | Path | None = None) -> Family:
    """The family of a `model_type`; an error that lists the supported types if there is none."""
    supported = families()
    if model_type not in supported:
        raise HeadscopeError(
            f'model type "{model_type}" is not supported',
            where=where,
            expected=f"one of {', '.join(supported)}",
            fix="To add a family, see docs/reference/families.md",
        )
    return supported[model_type]


class _LensObserver:
    """An observer that gets a lens' maps instead of the weights."""

    def __init__(self, lens: Lens, observer: Observer) -> None:
        self.lens, self.observer, self.was_called = lens, observer, False

    def __call__(self, attention: Attention, gradient: Tensor | None = None) -> None:
        self.was_called = True
        mapped = self.lens.apply(attention, gradient)
        if mapped is not None:
            self.observer(mapped)


def _as_edits(edits: Sequence[Edit | Heads]) -> list[Edit]:
    """Edits as they are; heads as their ablation."""
    for edit in edits:
        if isinstance(edit, type):
            name = edit.__name__
            raise HeadscopeError(
                f"{name} is a class", where="edited", expected=f'an edit, such as {name}("3.2")'
            )
    return [edit if isinstance(edit, Edit) else Ablate(edit) for edit in edits]
