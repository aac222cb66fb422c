"""Slow, obvious twin of the 95 % intervals of shares: Wilson's by solving his equation, from lists of values."""

from __future__ import annotations

import math

Z = 1.96


def wilson(share: float, count: float) -> tuple[float, float]:
    """The two p with (share − p)² = z²·p·(1 − p) / count."""
    if share in (0.0, 1.0):  # a double root at the bound would be found with half the digits only
        other = Z**2 / (count + Z**2)
        return (0.0, other) if share == 0.0 else (1.0 - other, 1.0)
    a, b, c = 1 + Z**2 / count, -(2 * share + Z**2 / count), share**2
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def of_shares(values: list[float]) -> tuple[float, float]:
    """Interval of the mean of values between 0 and 1."""
    count, mean = len(values), sum(values) / len(values)
    if count == 1:
        return math.nan, math.nan
    if set(values) <= {0.0, 1.0}:
        return wilson(mean, count)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    if deviation <= 1e-6:
        changed = wilson(0.0, count)[1]  # the share of texts that may still have any other value
        return mean * (1 - changed), mean * (1 - changed) + changed
    if min(values) < 0 or max(values) > 1 + 1e-6:
        return mean - Z * deviation / math.sqrt(count), mean + Z * deviation / math.sqrt(count)
    return wilson(mean, mean * (1 - mean) * count / deviation**2)
