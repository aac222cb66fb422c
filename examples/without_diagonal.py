"""Does attention need its diagonal? The universal approximation theorem of SparseBERT (Shi et al. 2021), made visible.

It says: transformer blocks with two heads of width 1 and a feed-forward layer of width 4, in which no token attends to
itself, come as near as one likes to any continuous function of a sequence, if there are enough blocks and more than two
tokens. Here such stacks are trained to fit one such function, at several lengths and depths, with the diagonal, without
it, and (as a control that must fail) without any attention. Everything else is the same: for each seed the three start
from the same weights and see the same sequences. All seeds are trained at once.

    python examples/without_diagonal.py --out theorem

writes errors.csv (length, depth, attention, seed, error) and errors.svg, and prints a table. The error is the distance
to the function over fresh sequences, over what the best constant leaves: 1 is nothing learned, 0 is the function.
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
)  # of a token, of which two places are given and read; heads have width 1
GIVEN = 2
KINDS = ("with the diagonal", "without it", "no attention")
BATCH, TESTED, RATE = 32, 1024, 0.03


def wanted(sequences: Tensor) -> Tensor:
    """The function [..., token, 2]: it needs the token itself, its neighbour, and the mean of all."""
    first, second = sequences.unbind(dim=-1)
    whole = torch.cos(math.pi * first) * second.mean(dim=-1, keepdim=True)
    return torch.stack([whole, (first - first.roll(-1, dims=-1)).abs()], dim=-1)


def least_without_attention(length: int) -> float:
    """The error of the best function of a token by itself, its position known: no stack without attention is below.

    What it cannot know are the others' second places, and the neighbour's first: E|u - u'| given u is u² - u + 1/2.
    """
    if length == 1:
        return 0.0
    unknown = (length - 1) / (24 * length**2) + (1 / 18 - 1 / 180)
    return math.sqrt(unknown / ((1 / 4 + 1 / (12 * length)) / 2 + 1 / 18))


class Stacks:
    """Many stacks of blocks side by side, one for each kind and seed: every tensor begins with [kind * seed]."""

    def __init__(self, length: int, depth: int, seeds: int) -> None:
        chance = torch.Generator().manual_seed(1000 * length + depth)

        def drawn(scale: float, *shape: int) -> Tensor:
            one = scale * torch.randn(seeds, *shape, generator=chance)
            return one.repeat(len(KINDS), *[1] * len(shape)).requires_grad_()

        self.positions = drawn(0.3, 1, length, WIDTH)
        self.blocks = [
            {
                "query, key, value": drawn(WIDTH**-0.5, WIDTH, 3 * HEADS),
                "output": drawn(depth**-0.5 / 2, HEADS, WIDTH),
                "inner": drawn(WIDTH**-0.5, WIDTH, HIDDEN),
                "inner bias": drawn(0.2, 1, HIDDEN),
                "outer": drawn(depth**-0.5 / 2, HIDDEN, WIDTH),
                "outer bias": drawn(0.0, 1, WIDTH),
            }
            for _ in range(depth)
        ]
        own = torch.eye(length, dtype=torch.bool)
        allowed = torch.stack(
            [torch.ones_like(own), ~own, torch.zeros_like(own)]
        ).repeat_interleave(seeds, dim=0)
        self.forbidden = torch.where(allowed, 0.0, -1e9)[
            :, None, None
        ]  # [stack, 1, 1, token, token]
        self.attends = allowed.any(
            dim=-1, keepdim=True
        ).float()  # [stack, token, 1]: 0 where there is nothing to see

    def parameters(self) -> list[Tensor]:
        return [self.positions, *(tensor for block in self.blocks for tensor in block.values())]

    def __call__(self, sequences: Tensor) -> Tensor:
        """[stack, sequence, token, 2] to the same shape: the first places of wider tokens, the others begin at 0."""
        states = torch.nn.functional.pad(sequences, (0, WIDTH - GIVEN)) + self.positions
        shape = states.shape
        for block in self.blocks:
            states = (states + self._attended(states, block)).flatten(1, 2)
            inner = torch.baddbmm(block["inner bias"], states, block["inner"]).relu()
            states = (states + torch.baddbmm(block["outer bias"], inner, block["outer"])).view(
                shape
            )
        return states[..., :GIVEN]

    def _attended(self, states: Tensor, block: dict[str, Tensor]) -> Tensor:
        """What attention adds to the states."""
        stacks, sequences, tokens, _ = states.shape
        made = torch.bmm(states.flatten(1, 2), block["query, key, value"]).view(
            stacks, sequences, tokens, 3, HEADS
        )
        query, key, value = made.permute(
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
        batch = torch.rand(seeds, BATCH, length, GIVEN, generator=chance).repeat(
            len(KINDS), 1, 1, 1
        )
        losses = (stacks(batch) - wanted(batch)).square().mean(dim=(1, 2, 3))
        optimizer.zero_grad()
        losses.sum().backward()  # stacks do not meet: each has the gradients of its own loss
        optimizer.step()
        schedule.step()
    fresh = torch.rand(1, TESTED, length, GIVEN, generator=chance.manual_seed(10_000 + length))
    right = wanted(fresh)
    left = (right - right.mean(dim=(1, 2), keepdim=True)).square().mean()
    with torch.no_grad():
        found = (stacks(fresh) - right).square().mean(dim=(1, 2, 3))
    return (found / left).sqrt().view(len(KINDS), seeds)


def measured(lengths: list[int], depths: list[int], *, seeds: int, steps: int) -> pd.DataFrame:
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
    """The mean over seeds, and the ends of its interval."""
    mean, count = float(values.mean()), len(values)
    half = (
        float(student.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count))
        if count > 1
        else math.nan
    )
    return mean, mean - half, mean + half


def table(errors: pd.DataFrame) -> str:
    """Mean errors with intervals over seeds, the difference that the diagonal makes, paired, and the best seeds."""
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
        told = [f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in cells]
        best = ", ".join(f"{by_kind[kind].min():.3f}" for kind in KINDS[:2])
        lines.append(f"| {length} | {depth} | {' | '.join(told)} | {best} |")
    return "\n".join(lines)


def drawn(errors: pd.DataFrame) -> Figure:
    """Error against depth, a panel for each length: means with intervals over seeds, and every seed as a point."""
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
            for place, kind in enumerate(KINDS):
                rows = errors[(errors["length"] == length) & (errors["attention"] == kind)]
                shift = 1.06 ** (place - 1)
                ax.scatter(
                    rows["depth"] * shift,
                    rows["error"],
                    s=4,
                    color=SERIES[place],
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
                    color=SERIES[place],
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
    parser.add_argument("--out", type=Path, required=True, help="the directory to write into")
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
    errors = measured(
        arguments.lengths, arguments.depths, seeds=arguments.seeds, steps=arguments.steps
    )
    errors.to_csv(arguments.out / "errors.csv", index=False, float_format="%.6f")
    from headscope.report.rendered_figures import save_figure

    print(save_figure(drawn(errors), arguments.out / "errors.svg"))
    print(table(errors))


if __name__ == "__main__":
    main()
