"""Repair of a pruned model without training, in closed form, from a calibration set.

fold    adds the mean output of each removed head to the bias of the output projection. The result equals mean ablation
refit   fits the output projection of each layer by least squares, so that the pruned layer's output is nearest to the
        unpruned model's. Layers are fitted from the bottom up, each with the inputs that the repaired ones below give

In this module `whole` is the unpruned model and `cut` the pruned one.
"""

from __future__ import annotations

from collections import Counter
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
from headscope.tasks.base import Task
from headscope.tasks.prepared import Prepared, batch_of, plan_batches

RIDGE = 1e-3  # penalty relative to the mean square of the inputs: fits to few tokens stay near the original weights


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
    """Repair the pruned model in place by `fold` or `refit`, fitted to these examples."""
    check_choice(repair, REPAIRS, "`repair`", "is not a repair")
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
    """Add the mean outputs of removed heads to the biases of output projections.

    If several layers share a bias (ALBERT), the mean over these layers is added.
    """
    removed = [head for head in whole.heads if head not in set(cut.heads) and head in means]
    parts = anatomy(whole)
    offsets: dict[str, list[Tensor]] = {}  # by projection: the vector to add for each of its sites
    for site in dict.fromkeys(head.site for head in removed):
        name = parts[site].projection
        if name is None:
            say(f"note: {site} has no output projection with a bias to fold the means into")
        else:
            weight = weight_of(whole.model.get_submodule(name))
            width = weight.shape[1] // sum(head.site == site for head in whole.heads)
            columns = torch.split(weight, width, dim=1)  # [width, head width] for each head
            heads = [head for head in removed if head.site == site]
            terms = [columns[whole.index_of(head)] @ means[head].to(weight) for head in heads]
            offsets.setdefault(name, []).append(torch.stack(terms).sum(dim=0))
    without_bias = 0
    for name, vectors in offsets.items():
        bias = cut.model.get_submodule(name).bias
        if bias is None:
            without_bias += 1
            continue
        with torch.no_grad():
            bias += torch.stack(vectors).mean(dim=0)
    if without_bias:
        say(f"note: {without_bias} output projections have no bias to fold the means into")


def refit(
    whole: AttentionModel,
    cut: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    say: Callable[[str], None] = lambda line: None,
) -> dict[Site, tuple[float, float]]:
    """Fit the output projections of the sites that lost heads, in the order in which the model calls them.

    Returns for each site the mean squared error per token before and after. In a layer without heads only the bias is
    fitted. GPT-2 does not call such a layer; use `fold` there.
    """
    parts = anatomy(whole)
    calls = [site for sites in whole.attention_modules.values() for site in sites]
    before, after = (Counter(head.site for head in model.heads) for model in (whole, cut))
    lost = [site for site in calls if after[site] < before[site]]
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
        regression = _RidgeRegression(cut.model.get_submodule(part.projection))
        calls_per_pass = sum(parts[call].projection == part.projection for call in calls)
        # The first attention of a block is added to the residual stream at the block's input, a later one is not.
        is_first = next(call for call in calls if parts[call].block == part.block) == site
        if not after[site] and not _record_calls(cut, task, batches[0], part, calls_per_pass):
            say(
                f"note: {site} has no heads and no call that could be fitted; use fold for its bias"
            )
            continue
        for batch in batches:
            targets, inputs = (
                _record_calls(m, task, batch, part, calls_per_pass) for m in (whole, cut)
            )
            sides = batch.layout.sides(site.stack)
            assert sides is not None
            for (_, target, residual), (context, _, cut_residual) in zip(
                targets, inputs, strict=True
            ):
                # The layers below are pruned too, so the residual stream differs from the unpruned model's. The fit
                # also corrects this difference: its target is the sum of stream and output.
                shift = (
                    residual - cut_residual if is_first and residual.shape == target.shape else 0.0
                )
                regression.add(context, target + shift, sides[0].real)
        errors[site] = regression.solve()
    return errors


class _Stop(Exception):
    """Ends a forward pass when all calls are recorded."""


def _record_calls(
    model: AttentionModel, task: Task, batch: Batch, part: Parts, count: int
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(input of the projection, its output, input of the block) at each of its first `count` calls."""
    calls: list[tuple[Tensor, Tensor, Tensor]] = []
    entered: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entered.append(args[0] if args else kwargs["hidden_states"])

    def leave(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        calls.append((args[0], output, entered[-1]))
        if len(calls) == count:
            raise _Stop

    assert part.projection is not None
    with ExitStack() as stack:
        block = model.model.get_submodule(part.block)
        stack.callback(block.register_forward_pre_hook(enter, with_kwargs=True).remove)
        projection = model.model.get_submodule(part.projection)
        stack.callback(projection.register_forward_hook(leave).remove)
        stack.enter_context(torch.inference_mode())
        stack.enter_context(suppress(_Stop))
        task.single_pass(model, batch)
    return calls


class _RidgeRegression:
    """Least squares with a ridge penalty on the change of the weights, from sums over tokens in float64.

    before  [out, in + 1]: weights and bias before the fit
    gram    [in + 1, in + 1]: X'X, where X [token, in + 1] are the inputs and a column of ones
    cross   [out, in + 1]: R'X, where R [token, out] are the residuals of the weights before the fit
    """

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
        self.cross = torch.zeros(len(weight), size, dtype=torch.float64)
        self.squares, self.count = 0.0, 0  # sum of squared residuals, number of tokens

    def add(self, context: Tensor, target: Tensor, real: Tensor) -> None:
        """context [sequence, token, in], target [sequence, token, out], real [sequence, token]."""
        inputs = context[real.to(context.device)].double().cpu()  # [token, in]
        ones = torch.full((len(inputs), 1), float(self.has_bias), dtype=torch.float64)
        inputs = torch.cat([inputs, ones], dim=1)
        residual = target[real.to(target.device)].double().cpu() - inputs @ self.before.T
        self.gram += inputs.T @ inputs
        self.cross += residual.T @ inputs
        self.squares += float(residual.square().sum())
        self.count += len(inputs)

    def solve(self) -> tuple[float, float]:
        """Set the fitted weights; returns the mean squared error per token before and after."""
        ridge = RIDGE * float(self.gram.diagonal().mean()) + 1e-12  # solvable if all inputs are 0
        eye = torch.eye(len(self.gram), dtype=torch.float64)
        # The best change D of the weights solves D (X'X + ridge I) = R'X.
        change = torch.linalg.solve(self.gram + ridge * eye, self.cross.T).T
        fitted = self.before + change
        # Squared error after the fit, from the sums alone: |R - X D'|² = |R|² - 2 <D, R'X> + <D X'X, D>
        explained = 2 * float((change * self.cross).sum())
        after = self.squares - explained + float(((change @ self.gram) * change).sum())
        # GPT-2's linear layer, whose weight is [in, out]
        from transformers.pytorch_utils import Conv1D

        with torch.no_grad():
            weight: Tensor = self.projection.weight  # type: ignore[assignment]
            new = fitted[:, :-1].T if isinstance(self.projection, Conv1D) else fitted[:, :-1]
            weight.copy_(new.to(weight))
            if self.has_bias:
                bias: Tensor = self.projection.bias  # type: ignore[assignment]
                bias.copy_(fitted[:, -1].to(bias))
        return self.squares / max(self.count, 1), max(after, 0.0) / max(self.count, 1)
