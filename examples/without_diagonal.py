"""Does attention need its diagonal? An experiment on the theorem of SparseBERT (Shi et al. 2021).

The universal approximation theorem: blocks with two heads of width 1 and a feed-forward layer of width 4, in which
no token attends to itself, approximate any continuous function of a sequence, given enough blocks and more than two
tokens. Here stacks of such blocks are trained to fit one function, at several lengths and depths: with the diagonal,
without the diagonal, and without any attention (a control that must fail). Everything else is equal: for each seed the
three stacks start from the same weights and get the same sequences. All seeds are trained at once.

    python examples/without_diagonal.py --out theorem

writes errors.csv (length, depth, attention, seed, error) and errors.svg, and prints a table. The error is the root mean
square distance to the function on new sequences, divided by that of the best constant: 1 means nothing learned, 0 is
a perfect fit.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from scipy.stats import t as student
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS, DEPTHS = (1, 2, 3, 8), (1, 2, 4, 8)
WIDTH, HEADS, HIDDEN = (
    8,
    2,
    4,
)  # width of a token, heads of width 1, width of the feed-forward layer
USED = 2  # numbers of a token that are the input, and in the end the output
KINDS = ("with the diagonal", "without it", "no attention")
BATCH, TEST_COUNT, RATE = 32, 1024, 0.03


def target(sequences: Tensor) -> Tensor:
    """The function to fit, [..., token, 2]: it depends on the token, its neighbour, and the mean of all tokens."""
    first, second = sequences.unbind(dim=-1)
    product = torch.cos(math.pi * first) * second.mean(dim=-1, keepdim=True)
    return torch.stack([product, (first - first.roll(-1, dims=-1)).abs()], dim=-1)


def least_without_attention(length: int) -> float:
    """A lower bound on the error without attention: the error of the best function of a token and its position.

    Such a function knows neither the second numbers of other tokens nor the first number of the neighbour. For these,
    E|u - u'| given u is u² - u + 1/2.
    """
    if length == 1:
        return 0.0
    unexplained = (length - 1) / (24 * length**2) + (1 / 18 - 1 / 180)
    return math.sqrt(unexplained / ((1 / 4 + 1 / (12 * length)) / 2 + 1 / 18))


class Stacks:
    """Stacks of blocks for all kinds of attention and seeds. The first axis of every tensor is [kind * seed]."""

    def __init__(self, length: int, depth: int, seeds: int) -> None:
        chance = torch.Generator().manual_seed(1000 * length + depth)

        def draw_weights(scale: float, *shape: int) -> Tensor:
            weights = scale * torch.randn(seeds, *shape, generator=chance)
            return weights.repeat(len(KINDS), *[1] * len(shape)).requires_grad_()

        self.positions = draw_weights(0.3, 1, length, WIDTH)
        self.blocks = [
            {
                "query, key, value": draw_weights(WIDTH**-0.5, WIDTH, 3 * HEADS),
                "output": draw_weights(depth**-0.5 / 2, HEADS, WIDTH),
                "inner": draw_weights(WIDTH**-0.5, WIDTH, HIDDEN),
                "inner bias": draw_weights(0.2, 1, HIDDEN),
                "outer": draw_weights(depth**-0.5 / 2, HIDDEN, WIDTH),
                "outer bias": draw_weights(0.0, 1, WIDTH),
            }
            for _ in range(depth)
        ]
        own = torch.eye(length, dtype=torch.bool)
        allowed = torch.stack(
            [torch.ones_like(own), ~own, torch.zeros_like(own)]
        ).repeat_interleave(seeds, dim=0)
        # Added to the scores, [stack, 1, 1, token, token]
        self.forbidden = torch.where(allowed, 0.0, -1e9)[:, None, None]
        # [stack, token, 1]: 0 for tokens that may not attend to any token
        self.attends = allowed.any(dim=-1, keepdim=True).float()

    def parameters(self) -> list[Tensor]:
        return [self.positions, *(tensor for block in self.blocks for tensor in block.values())]

    def __call__(self, sequences: Tensor) -> Tensor:
        """[stack, sequence, token, 2] to the same shape. Tokens are padded with zeros to their width."""
        states = torch.nn.functional.pad(sequences, (0, WIDTH - USED)) + self.positions
        shape = states.shape
        for block in self.blocks:
            states = (states + self._attend(states, block)).flatten(1, 2)
            inner = torch.baddbmm(block["inner bias"], states, block["inner"]).relu()
            states = (states + torch.baddbmm(block["outer bias"], inner, block["outer"])).view(
                shape
            )
        return states[..., :USED]

    def _attend(self, states: Tensor, block: dict[str, Tensor]) -> Tensor:
        """The output of attention, which is added to the states."""
        stacks, sequences, tokens, _ = states.shape
        projected = torch.bmm(states.flatten(1, 2), block["query, key, value"]).view(
            stacks, sequences, tokens, 3, HEADS
        )
        query, key, value = projected.permute(
            3, 0, 1, 4, 2
        )  # [stack, sequence, head, token] each: a head has width 1
        weights = torch.softmax(query[..., None] * key[..., None, :] + self.forbidden, dim=-1)
        mixed = (weights * value[..., None, :]).sum(dim=-1).transpose(2, 3).flatten(1, 2)
        return torch.bmm(mixed, block["output"]).view(states.shape) * self.attends[:, None]


def errors_of(length: int, depth: int, *, seeds: int, steps: int) -> Tensor:
    """[kind, seed]: the error of each stack after training."""
    stacks = Stacks(length, depth, seeds)
    optimizer = torch.optim.Adam(stacks.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    chance = torch.Generator().manual_seed(length)
    for _ in range(steps):
        batch = torch.rand(seeds, BATCH, length, USED, generator=chance).repeat(len(KINDS), 1, 1, 1)
        losses = (stacks(batch) - target(batch)).square().mean(dim=(1, 2, 3))
        optimizer.zero_grad()
        losses.sum().backward()  # stacks are independent: each gets the gradient of its own loss
        optimizer.step()
        schedule.step()
    fresh = torch.rand(1, TEST_COUNT, length, USED, generator=chance.manual_seed(10_000 + length))
    right = target(fresh)
    of_constant = (right - right.mean(dim=(1, 2), keepdim=True)).square().mean()
    with torch.no_grad():
        of_stacks = (stacks(fresh) - right).square().mean(dim=(1, 2, 3))
    return (of_stacks / of_constant).sqrt().view(len(KINDS), seeds)


def measure(lengths: list[int], depths: list[int], *, seeds: int, steps: int) -> pd.DataFrame:
    """A row for each length, depth, kind of attention and seed."""
    rows = []
    for length in lengths:
        for depth in depths:
            errors = errors_of(length, depth, seeds=seeds, steps=steps)
            for kind, of_kind in zip(KINDS, errors.tolist(), strict=True):
                rows += [(length, depth, kind, seed, error) for seed, error in enumerate(of_kind)]
            means = ", ".join(
                f"{mean:.3f} {kind}"
                for kind, mean in zip(KINDS, errors.mean(dim=1).tolist(), strict=True)
            )
            print(f"length {length}, depth {depth}: {means}", flush=True)
    return pd.DataFrame(rows, columns=["length", "depth", "attention", "seed", "error"])


def interval(values: pd.Series) -> tuple[float, float, float]:
    """The mean over seeds, and the ends of its 95 % interval."""
    mean, count = float(values.mean()), len(values)
    half = (
        float(student.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count))
        if count > 1
        else math.nan
    )
    return mean, mean - half, mean + half


def table(errors: pd.DataFrame) -> str:
    """Markdown table: mean errors with intervals over seeds, the paired effect of the diagonal, and the best seeds."""
    lines = [
        "| length | depth | " + " | ".join(KINDS) + " | without − with | best with, without |",
        "|---" * 7 + "|",
    ]
    for (length, depth), rows in errors.groupby(["length", "depth"]):
        by_kind = {
            kind: rows[rows["attention"] == kind].set_index("seed")["error"] for kind in KINDS
        }
        cells = [interval(by_kind[kind]) for kind in KINDS]
        cells.append(interval(by_kind[KINDS[1]] - by_kind[KINDS[0]]))
        texts = [f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in cells]
        best = ", ".join(f"{by_kind[kind].min():.3f}" for kind in KINDS[:2])
        lines.append(f"| {length} | {depth} | {' | '.join(texts)} | {best} |")
    return "\n".join(lines)


def draw(errors: pd.DataFrame) -> Figure:
    """Error by depth, one panel for each length: means with intervals over seeds, and a point for every seed."""
    from matplotlib.ticker import LogLocator, NullLocator

    from headscope.report.drawing.palette import MUTED, RULE, SERIES
    from headscope.report.drawing.style import figure_with_heading, style

    lengths, depths = sorted(set(errors["length"])), sorted(set(errors["depth"]))
    width, height = 0.9 + 1.75 * len(lengths), 3.6
    subtitle = (
        "two heads of width 1, a feed-forward layer of width 4 · 1 is nothing learned, 0 is the function · means with "
        f"95 % intervals, points are {errors['seed'].nunique()} seeds · dotted: the least error without attention"
    )
    with style():
        fig = figure_with_heading(
            width,
            height,
            "Error of stacked blocks against their number, with and without the diagonal",
            subtitle,
        )
        for column, length in enumerate(lengths):
            bounds = ((0.6 + 1.75 * column) / width, 0.8 / height, 1.55 / width, 1.85 / height)
            ax = fig.add_axes(bounds)
            for series, kind in enumerate(KINDS):
                rows = errors[(errors["length"] == length) & (errors["attention"] == kind)]
                shift = 1.06 ** (series - 1)
                ax.scatter(
                    rows["depth"] * shift,
                    rows["error"],
                    s=4,
                    color=SERIES[series],
                    alpha=0.35,
                    linewidths=0,
                )
                means = [interval(rows[rows["depth"] == depth]["error"]) for depth in depths]
                ends = [
                    [mean - low for mean, low, _ in means],
                    [high - mean for mean, _, high in means],
                ]
                ax.errorbar(
                    [depth * shift for depth in depths],
                    [mean for mean, _, _ in means],
                    ends,
                    fmt="o-",
                    markersize=3,
                    linewidth=1,
                    elinewidth=1,
                    color=SERIES[series],
                    label=kind,
                )
            ax.set(xscale="log", yscale="log", ylim=(errors["error"].min() / 1.3, 1.3))
            if length > 1:
                ax.axhline(
                    least_without_attention(length), color=MUTED, linewidth=0.8, linestyle=":"
                )
            ax.set_title(f"length {length}")
            ax.set_xticks(depths, [str(depth) for depth in depths])
            ax.set_xticks([], minor=True)
            ax.set_xlabel("blocks")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_locator(NullLocator())
            ax.tick_params(colors=RULE, labelcolor=MUTED, labelleft=column == 0)
            ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
        fig.legend(
            *ax.get_legend_handles_labels(),
            loc="lower center",
            ncols=3,
            frameon=False,
            fontsize=7.5,
        )
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="output directory")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=list(LENGTHS), help="tokens of a sequence"
    )
    parser.add_argument(
        "--depths", type=int, nargs="+", default=list(DEPTHS), help="blocks in a stack"
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    errors = measure(
        arguments.lengths, arguments.depths, seeds=arguments.seeds, steps=arguments.steps
    )
    errors.to_csv(arguments.out / "errors.csv", index=False, float_format="%.6f")
    from headscope.report.rendered_figures import save_figure

    print(save_figure(draw(errors), arguments.out / "errors.svg"))
    print(table(errors))


if __name__ == "__main__":
    main()
