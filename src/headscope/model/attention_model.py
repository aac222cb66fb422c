"""`AttentionModel`: a transformers model whose attention can be observed and edited."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Heads, Site
from headscope.hooks import hook
from headscope.model.bfloat16 import prepare_bfloat16
from headscope.model.edits import Edit, as_edits
from headscope.model.families import family_of
from headscope.model.find_sites import assign_sites, expected_sites, record_calls
from headscope.model.lenses import Lens, LensObserver, make_lens
from headscope.model.manifest import Cut
from headscope.model.model_structure import ModelStructure
from headscope.model.reading import TextReading
from headscope.model.row_sums import Wanted
from headscope.model.sample_inputs import accepts, prepare_for_dtype
from headscope.model.seam import CallInspector, Observer, Seam
from headscope.model.seam_backend import SeamBackend, added, callable_parts
from headscope.model.self_check import self_check
from headscope.model.tokenizer import remember_settings
from headscope.model.tokens import Batch, Marks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from headscope.model.anatomy import Parts

DECODER_INPUTS = {"decoder_input_ids", "labels", "decoder_inputs_embeds"}


class AttentionModel(ModelStructure):
    """A transformers model whose attention can be observed and edited.

    `headscope.load` makes one from files. `AttentionModel(model, tokenizer)` wraps a model of transformers.

    Attributes
    ----------
    model, tokenizer
        The transformers model, and its tokenizer (None for images, or if it was not passed).
    path
        The directory it was loaded from; None for a live model.
    sites, heads
        Every `Site` and every `Head`, counted from 0.
    cut
        What was pruned from the model; None for an unpruned model.
    reading
        How a text becomes a vector: pooling of its token states, prompts, maximum length.
    untrained
        Names of parameters that are not in the loaded files and are therefore random, such as a new classifier.
    notes
        Messages for the user about how the model was loaded.
    permanent_edits
        The edits opened by `edit_permanently`.

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
        cut: Cut | None = None,
        reading: TextReading | None = None,
    ) -> None:
        self.model, self.tokenizer, self.cut = model, tokenizer, cut
        self.reading = reading or TextReading()
        # Set by `load`
        self.path: Path | None = None
        self.revision: str | None = None
        self.untrained: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
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
        self._sites, self._seam.sites = assign_sites(
            record_calls(self, self._seam), self._expected, kept, self.family, where=self.name
        )

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
        """The output of the transformers model. An encoder-decoder without decoder input runs only its encoder.

        batch  tensors by name, a `Batch` from `encode`, a text, or a list of texts
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
        """A deep copy of the model, to train or change. Edits and observers are not copied.

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
        """Wrap a changed copy of the transformers model, with the tokenizer and reading of this model."""
        tokenizer, reading = self.tokenizer, self.reading
        changed = AttentionModel(model, tokenizer, name=self.name, cut=cut, reading=reading)
        changed.path, changed.revision = path, self.revision
        changed.untrained, changed.notes = self.untrained, self.notes
        return changed

    # Shortcuts for functions of packages that import this one

    def save(self, out: str | Path, *, form: str = "small", overwrite: bool = False) -> Path:
        """Write the model to a directory.

        Parameters
        ----------
        out
            The directory. It must not exist yet, unless `overwrite`.
        form
            `small` (loaded by headscope), `plain` (loaded by transformers as it is) or `onnx`.
        overwrite
            Replace an existing directory. It is left unchanged if writing fails.

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
        """Show what every head attends to in one text or pair, as a view for notebooks.

        Parameters
        ----------
        first, second
            A text, or a pair of texts.
        **options
            Options of `headscope.look`.

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
        """While open, call observers with the `Attention` of every site of a forward pass.

        Parameters
        ----------
        *observers
            Functions of an `Attention`, which is valid only during the call.
        lens
            The map that observers get instead of the weights: a name in `LENSES`, or a `Lens`. With `gradient`,
            observers are called in the backward pass, from the last site to the first. Sites that the loss does not
            depend on are left out; their map would be 0. For several lenses, nest several `watched` contexts.
        wanted
            The quantities that the observers use, if they do not need the maps themselves. They may then be called with
            the `RowSums` of an entire batch, which are computed faster and in less memory.

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
        wrapped = [LensObserver(lens, observer) for observer in observers]
        active: list[Any] = self._seam.observers
        if lens.needs_gradient:
            active = self._seam.gradient_observers
        with self._open(), lens.open(), added(active, wrapped):
            yield
        if lens.needs_gradient and wrapped and not any(observer.was_called for observer in wrapped):
            raise HeadscopeError(
                "no backward pass took place while it was open, so no map was computed",
                where=f"lens {lens.name}",
                fix="Call backward() on a loss before it is closed",
            )

    @contextmanager
    def edited(self, *edits: Edit | Heads) -> Iterator[None]:
        """While open, attention is changed by these edits. The model is restored at the end, also after an exception.

        Contexts can be nested.

        Parameters
        ----------
        *edits
            Edits, or heads to ablate, such as `"3.2,4.*"` or `(3, 2)`.

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
        opened = as_edits(edits)
        for edit in opened:
            edit.bind(self.heads)
        with self._open(), added(self._seam.edits, opened):
            yield

    @contextmanager
    def inspected(self, inspector: CallInspector) -> Iterator[None]:
        """While open, pass every attention call (queries, keys, values, scaling) to `inspector`.

        It is called before attention is computed. Only one inspector may be open. It is not called in families that are
        observed through the softmax tap, such as XLNet.
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
        """Apply edits that stay in effect in every later use of this model.

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
            opened = as_edits(edits)
            self._permanent.enter_context(self.edited(*opened))
            self.permanent_edits += tuple(opened)
        return self

    def suspend_hooks(self) -> AbstractContextManager[None]:
        """A context in which the observers and edits that are open now have no effect."""
        return self._backend.suspend()

    def self_check(self) -> float:
        """Check on a small padded batch that observing does not change the outputs, and that ablating does.

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
        """Raise if the model is in training mode: dropout would make every number random."""
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
