"""Edits: reversible changes of attention, such as ablating heads, gating them or masking scores.

An edit can change four things at a site: which keys a query may attend to, the scores before the softmax, the weights
after it, and the output of each head before the output projection. All edits are differentiable tensor operations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headscope.config.edit_record import EditRecord
from headscope.errors import HeadscopeError
from headscope.heads import Head, Heads, HeadSet, Site, head_names

if TYPE_CHECKING:
    from headscope.model.tokens import Layout


class Edit:
    """Base class of edits of attention.

    A subclass overrides one or more pairs of methods: `changes_output(site)`, which returns True at the sites that it
    changes, and `output(site, output)`, which returns the changed tensor. The other pairs are `changes_mask` and
    `allowed`, `changes_scores` and `scores`, `changes_weights` and `weights`.

    Examples
    --------
    An edit that halves the output of every head:

    >>> class Half(headscope.Edit):
    ...     def changes_output(self, site):
    ...         return True
    ...
    ...     def output(self, site, output):
    ...         return output / 2
    >>> model = headscope.load("minilm")
    >>> with model.edited(Half()):
    ...     output = model("The cat sat.")
    """

    def bind(self, heads: tuple[Head, ...]) -> None:
        """Resolve the names of heads to heads of the model; called when the edit is opened."""

    def __repr__(self) -> str:
        return str(EditRecord(type(self).__name__, self._fields()))

    def record(self) -> EditRecord:
        """The edit as JSON data for the run record."""
        has_own_text = type(self).__repr__ is not Edit.__repr__
        text = {"text": repr(self)} if has_own_text else {}
        return EditRecord(type(self).__name__, {**self._fields(), **text})

    def _fields(self) -> dict[str, Any]:
        """The parameters of the edit as JSON values; by default the heads that it changes."""
        by_site: dict[Site, list[int | tuple[int, object]]] = getattr(self, "_at", {})
        heads = [
            f"{site}.{item if isinstance(item, int) else item[0]}"
            for site, items in by_site.items()
            for item in items
        ]
        return {"heads": heads or [str(name) for name in self._names()]}

    def _names(self) -> Iterable[str | Head]:
        """The heads as the user named them, before `bind`."""
        return ()

    def begin_forward(self, layout: Layout) -> None:
        """Called at the beginning of each forward pass, with the tokens of its batch."""

    def changes_mask(self, site: Site) -> bool:
        """Whether `allowed` restricts attention at this site."""
        return False

    def changes_scores(self, site: Site) -> bool:
        """Whether `scores` changes the scores of this site."""
        return False

    def changes_weights(self, site: Site) -> bool:
        """Whether `weights` changes the weights of this site."""
        return False

    def changes_output(self, site: Site) -> bool:
        """Whether `output` changes the heads' outputs at this site."""
        return False

    def allowed(self, site: Site, shape: tuple[int, int, int, int], device: torch.device) -> Tensor:
        """A mask: bool (True may attend) or float (added to the scores), broadcastable to [batch, head, query, key].

        Faster than `scores`, since the model's usual kernel can apply a mask.

        shape  batch, head, query, key
        """
        return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)

    def scores(self, site: Site, scores: Tensor) -> Tensor:
        """The changed scores [batch, head, query, key] before the softmax. Padding is already masked."""
        return scores

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        """The changed weights [batch, head, query, key] after the softmax. Rows need not sum to 1."""
        return weights

    def output(self, site: Site, output: Tensor) -> Tensor:
        """The changed outputs of the heads [batch, query, head, width] before the output projection."""
        return output


class Gate(Edit):
    """Multiply the outputs of heads by numbers.

    Parameters
    ----------
    gates
        Factors by head. A key may be a head or a text that names several heads, a value a float or a tensor with one
        element. Gradients flow into tensors.

    Examples
    --------
    >>> headscope.Gate({"3.2": 0.5, (4, 0): 0.0}).gates
    {'3.2': 0.5, '4.0': 0.0}
    """

    def __init__(self, gates: Mapping[Any, float | Tensor]) -> None:
        self.gates = {name: gate for key, gate in gates.items() for name in head_names(key)}
        self._at: dict[Site, list[tuple[int, float | Tensor]]] = {}

    def _names(self) -> Iterable[str | Head]:
        return self.gates

    def _fields(self) -> dict[str, Any]:
        factors = [float(gate) for gates in self._at.values() for _, gate in gates]
        return super()._fields() | {"factors": factors}

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._at = {}
        for name, gate in self.gates.items():
            for head in HeadSet(name, among=heads):
                self._at.setdefault(head.site, []).append((head.head, gate))

    def changes_output(self, site: Site) -> bool:
        return site in self._at

    def output(self, site: Site, output: Tensor) -> Tensor:
        # Gates are stacked instead of copied into one tensor, so that each gets its gradient.
        factors: list[Tensor] = [output.new_ones(())] * output.shape[2]
        for head, gate in self._at[site]:
            factor = torch.as_tensor(gate, dtype=output.dtype, device=output.device)
            factors[site.index_of(head)] = factor.reshape(())
        return output * torch.stack(factors)[:, None]  # [head, 1]


class Ablate(Gate):
    """Set the outputs of heads to zero.

    Parameters
    ----------
    heads
        Heads to ablate: `"3.2,4.*"`, `[(3, 2), (4, 0)]` or `Head` objects.

    Examples
    --------
    >>> headscope.Ablate([(3, 2), "4.*"])
    Ablate(3.2, 4.*)
    >>> model = headscope.load("minilm")
    >>> with model.edited(headscope.Ablate("0.2,1.*")):
    ...     output = model("The cat sat.")
    """

    def __init__(self, heads: Heads) -> None:
        super().__init__(dict.fromkeys(head_names(heads), 0.0))

    def _fields(self) -> dict[str, Any]:
        return Edit._fields(self)


def heads_off(edits: Iterable[Edit]) -> set[Head]:
    """The heads that these edits ablate: a `Gate` multiplies their output by 0. The edits must be bound to a model."""
    return {
        Head(site.stack, site.layer, head)
        for edit in edits
        if isinstance(edit, Gate)
        for site, gates in edit._at.items()
        for head, gate in gates
        if float(gate) == 0
    }


class Replace(Edit):
    """Replace the outputs of heads by constant vectors, such as their means over a corpus.

    A head gets the same vector at every query.

    Parameters
    ----------
    vectors
        A vector [width] by head. A key may be a head or a text that names several heads.

    Examples
    --------
    >>> import torch
    >>> headscope.Replace({"3.2": torch.zeros(32)})
    Replace(3.2)
    """

    def __init__(self, vectors: Mapping[Any, Tensor]) -> None:
        self.vectors = {name: vector for key, vector in vectors.items() for name in head_names(key)}
        self._at: dict[Site, list[tuple[int, Tensor]]] = {}

    def _names(self) -> Iterable[str | Head]:
        return self.vectors

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._at = {}
        for name, vector in self.vectors.items():
            for head in HeadSet(name, among=heads):
                self._at.setdefault(head.site, []).append((head.head, vector))

    def changes_output(self, site: Site) -> bool:
        return site in self._at

    def output(self, site: Site, output: Tensor) -> Tensor:
        outputs = list(output.unbind(dim=2))  # per head: [batch, query, width]
        for head, vector in self._at[site]:
            if vector.shape != (output.shape[-1],):
                raise HeadscopeError(
                    f"the vector for {site}.{head} has shape {tuple(vector.shape)}",
                    expected=f"({output.shape[-1]},)",
                )
            index = site.index_of(head)
            outputs[index] = vector.to(output).expand_as(outputs[index])
        return torch.stack(outputs, dim=2)


class Uniform(Edit):
    """Give every key that a query may attend to the same weight, 1/n (Kovaleva et al. 2019).

    Parameters
    ----------
    heads
        Heads to change: `"3.2,4.*"`, `[(3, 2), (4, 0)]` or `Head` objects.

    Examples
    --------
    >>> headscope.Uniform("3.2,4.*")
    Uniform(3.2,4.*)
    """

    def __init__(self, heads: Heads) -> None:
        self.heads = tuple(head_names(heads))
        self._at: dict[Site, list[int]] = {}

    def _names(self) -> Iterable[str | Head]:
        return self.heads

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._at = HeadSet(self.heads, among=heads).by_site()

    def changes_scores(self, site: Site) -> bool:
        return site in self._at

    def scores(self, site: Site, scores: Tensor) -> Tensor:
        allowed = scores > masked_score(scores.dtype)
        is_edited = head_mask(site, self._at[site], scores)
        return torch.where(is_edited & allowed, torch.zeros_like(scores), scores)


class MaskScores(Edit):
    """Mask attention scores before the softmax, or add numbers to them.

    Parameters
    ----------
    mask
        Bool (True may attend) or float (added), broadcastable to [batch, head, query, key].
    heads
        Heads to change; all by default.

    Examples
    --------
    >>> import torch
    >>> one_sided = torch.ones(5, 5, dtype=torch.bool).tril()  # [query, key]
    >>> edit = headscope.MaskScores(one_sided, heads="0.*")
    """

    def __init__(self, mask: Tensor, heads: Heads | None = None) -> None:
        self.mask = mask
        self.heads = None if heads is None else tuple(head_names(heads))
        self._at: dict[Site, list[int]] = {}

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._at = HeadSet(heads if self.heads is None else self.heads, among=heads).by_site()

    def changes_scores(self, site: Site) -> bool:
        return site in self._at

    def scores(self, site: Site, scores: Tensor) -> Tensor:
        lowest = masked_score(scores.dtype)
        if self.mask.dtype == torch.bool:
            masked = scores.masked_fill(~self.mask.to(scores.device), lowest)
        else:
            masked = (scores + self.mask.to(scores)).clamp_min(lowest)
        # Padding keeps a lower score than keys that are masked here. If a query has no other key left, its attention is
        # therefore spread over real keys only.
        is_edited = head_mask(site, self._at[site], scores)
        return torch.where(is_edited & (scores >= lowest), masked, scores)


def head_mask(site: Site, heads: Collection[int], cells: Tensor) -> Tensor:
    """[head, 1, 1], bool: True at the heads of `cells` [batch, head, query, key] whose number is in `heads`."""
    mask = torch.zeros(cells.shape[1], dtype=torch.bool, device=cells.device)
    mask[[site.index_of(head) for head in heads]] = True
    return mask[:, None, None]


def masked_score(dtype: torch.dtype) -> float:
    """The score of a masked key: low enough for a weight of exactly 0, but above that of padding (XLNet: -1e30)."""
    return max(torch.finfo(dtype).min / 2, -1e9)


def as_edits(edits: Sequence[Edit | Heads]) -> list[Edit]:
    """A list of edits in which heads are replaced by their ablation."""
    for edit in edits:
        if isinstance(edit, type):
            name = edit.__name__
            raise HeadscopeError(
                f"{name} is a class", where="edited", expected=f'an edit, such as {name}("3.2")'
            )
    return [edit if isinstance(edit, Edit) else Ablate(edit) for edit in edits]
