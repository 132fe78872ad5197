"""Weights of the running average of tangent planes, and the parameter-free steps that go with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from ._certificate import Cut
from ._protocols import Momentum

# The search for the best weight ends when at most this fraction of the gap is left to win, or after so many
# oracle calls. Two lines meet close to the maximum, so few are needed.
_SEARCH_PRECISION = 0.01
_SEARCH_STEPS = 10


@final
@dataclass(frozen=True)
class Weighted(Momentum):
    """Weight 2/(k+2): recent planes count more. The paper's WFW, gap at most 2 L D^2 / (k+1)."""

    def weight(self, clock: float) -> float:
        """Return 2/(clock + 2)."""
        return 2.0 / (clock + 2.0)

    def step(self, clock: float) -> float:
        """Return the same as the weight."""
        return self.weight(clock)


@final
@dataclass(frozen=True)
class Uniform(Momentum):
    """Weight 1/(k+1): all planes count alike. The paper's UFW, gap at most L D^2 H_k / (2k)."""

    def weight(self, clock: float) -> float:
        """Return 1/(clock + 1)."""
        return 1.0 / (clock + 1.0)

    def step(self, clock: float) -> float:
        """Return the same as the weight."""
        return self.weight(clock)


@final
@dataclass(frozen=True)
class Constant(Momentum):
    """The same weight in every iteration: an exponential moving average.

    Parameters
    ----------
    value : float
        In (0, 1).
    """

    value: float

    def weight(self, clock: float) -> float:
        """Return `value`."""
        return self.value

    def step(self, clock: float) -> float:
        """Return 2/(clock + 3), the step the paper's analysis of constant weights asks for."""
        return 2.0 / (clock + 3.0)


@final
@dataclass(frozen=True)
class NoMomentum(Momentum):
    """Only the newest plane counts: plain Frank-Wolfe."""

    def weight(self, clock: float) -> float:
        """Return 1."""
        return 1.0

    def step(self, clock: float) -> float:
        """Return 2/(clock + 2)."""
        return 2.0 / (clock + 2.0)


@final
@dataclass(frozen=True)
class Adaptive(Momentum):
    """The weight that maximises the lower bound, so that the certified gap never grows.

    As a function of the weight the bound is concave: a minimum over the set of planes that are linear in it.
    The solver falls back on the weight 2/(k+2) in an iteration that would not keep the guarantee of
    `Weighted`, a gap of at most 2 L D^2 / (k+1).
    """

    def weight(self, clock: float) -> float:
        """Return the weight to fall back on, 2/(clock + 2)."""
        return 2.0 / (clock + 2.0)

    def step(self, clock: float) -> float:
        """Return 2/(clock + 2)."""
        return self.weight(clock)

    def best(
        self, old: Cut, newest: Cut, between: Callable[[Cut, Cut, float], Cut], objective: float
    ) -> tuple[float, Cut]:
        """Return the weight of the newest plane with the largest bound, and the average it gives.

        Each average that is looked at gives a line above the bound: the value at its own minimiser. The next
        one is where the lines on the two sides of the maximum meet.
        """

        def rise(cut: Cut) -> float:
            atom = cut.minimum.atom
            offset = newest.plane.offset - old.plane.offset
            return offset + atom.inner(newest.direction) - atom.inner(old.direction)

        low, low_cut, low_rise = 0.0, old, rise(old)
        high, high_cut, high_rise = 1.0, newest, rise(newest)
        weight, best = (1.0, newest) if newest.bound >= old.bound else (0.0, old)
        for _ in range(_SEARCH_STEPS):
            if low_rise <= 0.0 or high_rise >= 0.0:
                break
            fall = low_cut.bound - high_cut.bound
            meet = (high_rise * high - low_rise * low + fall) / (high_rise - low_rise)
            if not low < meet < high:  # the bounds are known up to the oracle's slack
                meet = (low + high) / 2.0
            ceiling = low_cut.bound + low_rise * (meet - low)
            if ceiling - best.bound <= _SEARCH_PRECISION * (objective - best.bound):
                break
            cut = between(old, newest, meet)
            if cut.bound > best.bound:
                weight, best = meet, cut
            if (slope := rise(cut)) > 0.0:
                low, low_cut, low_rise = meet, cut, slope
            else:
                high, high_cut, high_rise = meet, cut, slope
        return weight, best
