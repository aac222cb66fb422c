"""What can be mended after a cut without training: two closed forms, from a few examples.

fold    the mean of what each removed head wrote goes into the bias of the output projection (mean ablation, for free)
refit   each output projection is fitted anew, by least squares, so that what the cut layer gives comes nearest to what
        the whole model's layer gave; from the bottom up, each layer after those below it were mended
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor, nn

from headscope.ablation.modes.mean import mean_results
from headscope.config.checks import check_choice
from headscope.config.names import REPAIRS
from headscope.heads import Head, Site
from headscope.model.anatomy import Parts, anatomy, weight_of
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch
from headscope.tasks.base import Prepared, Task, batch_of, plan_batches

RIDGE = 1e-3  # of the mean square of what a head says: keeps a fit from few tokens near the weights there were


def repair_inplace(
    whole: AttentionModel,
    cut: AttentionModel,
    repair: str,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Repair the cut model in place: `fold` or `refit`, with these examples to learn from."""
    check_choice(repair, REPAIRS, "`repair`", "is no repair")
    if repair == "fold":
        fold(whole, cut, mean_results(whole, task, prepared, batch_size), say)
    else:
        refit(whole, cut, task, prepared, batch_size=batch_size, say=say)


def fold(
    whole: AttentionModel,
    cut: AttentionModel,
    means: dict[Head, Tensor],
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Add what the removed heads wrote on average to the biases. Layers that share a bias share the average."""
    gone = [head for head in whole.heads if head not in set(cut.heads) and head in means]
    parts = anatomy(whole)
    shares: dict[str, list[Tensor]] = {}
    for site in dict.fromkeys(head.site for head in gone):
        name = parts[site].projection
        if name is None:
            say(f"note: {site} has no output projection with a bias to fold the means into")
        else:
            weight = weight_of(whole.model.get_submodule(name))
            width = weight.shape[1] // sum(head.site == site for head in whole.heads)
            columns = torch.split(weight, width, dim=1)  # one block for each head
            here = [head for head in gone if head.site == site]
            terms = [columns[whole.index_of(head)] @ means[head].to(weight) for head in here]
            shares.setdefault(name, []).append(torch.stack(terms).sum(dim=0))
    without = 0
    for name, terms in shares.items():
        bias = cut.model.get_submodule(name).bias
        if bias is None:
            without += 1
            continue
        with torch.no_grad():
            bias += torch.stack(terms).mean(dim=0)
    if without:
        say(f"note: {without} output projections have no bias to fold the means into")


def refit(
    whole: AttentionModel,
    cut: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    say: Callable[[str], None] = lambda line: None,
) -> dict[Site, tuple[float, float]]:
    """Fit the output projections of the sites that lost heads, in the order in which they are called.

    Returns the squared error before and after, of each. Of a layer without heads the bias alone is fitted (GPT-2's is
    left to folding).
    """
    parts = anatomy(whole)
    # In the order in which they are called.
    calls = [site for sites in whole.attention_modules.values() for site in sites]
    widths = {site: sum(head.site == site for head in whole.heads) for site in calls}
    lost = [site for site in calls if sum(head.site == site for head in cut.heads) < widths[site]]
    batches = [batch_of(cut, prepared, numbers) for numbers in plan_batches(prepared, batch_size)]
    done: set[str] = set()
    errors: dict[Site, tuple[float, float]] = {}
    for site in lost:
        part = parts[site]
        if part.projection is None:
            say(f"note: {site} has no output projection that could be fitted")
            continue
        if part.projection in done:
            continue
        done.add(part.projection)
        gram = _Gram(cut.model.get_submodule(part.projection))
        times = sum(parts[one].projection == part.projection for one in calls)
        # What comes into a block is what its first attention is added to; a later one is added to something else.
        is_first = next(one for one in calls if parts[one].block == part.block) == site
        is_silent = not any(head.site == site for head in cut.heads)
        if is_silent and not _passed(cut, task, batches[0], part, times):
            say(
                f"note: {site} has no heads left, and nothing is called that could be fitted; fold mends its bias"
            )
            continue
        for batch in batches:
            wanted, given = (_passed(m, task, batch, part, times) for m in (whole, cut))
            sides = batch.layout.sides(site.stack)
            assert sides is not None
            for (_, target, before), (context, _, now) in zip(wanted, given, strict=True):
                shift = before - now if is_first and before.shape == target.shape else 0.0
                gram.add(context, target + shift, sides[0].real)
        errors[site] = gram.solve()
    return errors


class _Reached(Exception):
    """The pass got as far as it was wanted."""


def _passed(
    model: AttentionModel, task: Task, batch: Batch, part: Parts, times: int
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(what the projection took, what it gave, what came into the block) at each of its calls, which are `times`."""
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    entered: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entered.append(args[0] if args else kwargs["hidden_states"])

    def leave(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        found.append((args[0], output, entered[-1]))
        if len(found) == times:
            raise _Reached

    assert part.projection is not None
    with ExitStack() as stack:
        block = model.model.get_submodule(part.block)
        stack.callback(block.register_forward_pre_hook(enter, with_kwargs=True).remove)
        projection = model.model.get_submodule(part.projection)
        stack.callback(projection.register_forward_hook(leave).remove)
        stack.enter_context(torch.inference_mode())
        stack.enter_context(suppress(_Reached))
        task.single_pass(model, batch)
    return found


class _Gram:
    """Least squares with a ridge towards the weights there are, from sums over tokens in float64."""

    def __init__(self, projection: nn.Module) -> None:
        self.projection = projection
        weight = weight_of(projection).double().cpu()  # [out, in]
        offset = torch.zeros(len(weight), 1).double()
        self.has_bias = projection.bias is not None
        if self.has_bias:
            offset = projection.bias.detach().double().cpu()[:, None]  # type: ignore[operator]
        self.before = torch.cat([weight, offset], dim=1)
        size = self.before.shape[1]
        self.gram = torch.zeros(size, size, dtype=torch.float64)
        self.against = torch.zeros(len(weight), size, dtype=torch.float64)
        self.squares, self.count = 0.0, 0

    def add(self, context: Tensor, target: Tensor, real: Tensor) -> None:
        """context [sequence, token, in], target [sequence, token, out], real [sequence, token]."""
        taken = context[real.to(context.device)].double().cpu()
        ones = torch.full((len(taken), 1), float(self.has_bias), dtype=torch.float64)
        taken = torch.cat([taken, ones], dim=1)
        residual = target[real.to(target.device)].double().cpu() - taken @ self.before.T
        self.gram += taken.T @ taken
        self.against += residual.T @ taken
        self.squares += float(residual.square().sum())
        self.count += len(taken)

    def solve(self) -> tuple[float, float]:
        """Put the fitted weights in place; the mean squared error a token before and after."""
        ridge = RIDGE * float(self.gram.diagonal().mean()) + 1e-12
        eye = torch.eye(len(self.gram), dtype=torch.float64)
        change = torch.linalg.solve(self.gram + ridge * eye, self.against.T).T
        fitted = self.before + change
        explained = 2 * float((change * self.against).sum())
        after = self.squares - explained + float(((change @ self.gram) * change).sum())
        from transformers.pytorch_utils import Conv1D

        with torch.no_grad():
            weight: Tensor = self.projection.weight  # type: ignore[assignment]
            new = fitted[:, :-1].T if isinstance(self.projection, Conv1D) else fitted[:, :-1]
            weight.copy_(new.to(weight))
            if self.has_bias:
                bias: Tensor = self.projection.bias  # type: ignore[assignment]
                bias.copy_(fitted[:, -1].to(bias))
        return self.squares / max(self.count, 1), max(after, 0.0) / max(self.count, 1)
