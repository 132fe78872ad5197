"""Momenta: which average of tangent planes gives the direction, and the steps that go with it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

from ._certificate import Cut
from ._protocols import Choice, Momentum, Planes

# The search for the best weight ends when the bound can rise by at most this fraction of the gap, or by the
# oracle's slack, which hides what there is; or after this many oracle calls. Two lines meet close to the
# maximum, so few are needed.
_SEARCH_PRECISION = 0.01
_SEARCH_STEPS = 10


class FixedWeights(Momentum):
    """A momentum whose weights depend on the number of the iteration alone."""

    @abstractmethod
    def weight(self, clock: float) -> float:
        """Return the weight of the newest plane, in (0, 1]."""

    def choose(self, planes: Planes, clock: float) -> Choice:
        """Choose the average with this iteration's weight."""
        weight = self.weight(clock)
        cut = planes.average(weight)
        return Choice(cut, weight, clock, cut.minimum.atom)

    def step(self, clock: float) -> float:
        """Return the same as the weight."""
        return self.weight(clock)


@final
@dataclass(frozen=True)
class Weighted(FixedWeights):
    """Weight 2/(k+2): recent planes count more. The paper's WFW, gap at most 2 L D^2 / (k+1)."""

    def weight(self, clock: float) -> float:
        """Return 2/(clock + 2)."""
        return 2.0 / (clock + 2.0)


@final
@dataclass(frozen=True)
class Uniform(FixedWeights):
    """Weight 1/(k+1): all planes count alike. The paper's UFW, gap at most L D^2 H_k / (2k)."""

    def weight(self, clock: float) -> float:
        """Return 1/(clock + 1)."""
        return 1.0 / (clock + 1.0)


@final
@dataclass(frozen=True)
class Constant(FixedWeights):
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
class NoMomentum(FixedWeights):
    """Only the newest plane counts: Frank-Wolfe without momentum."""

    def weight(self, clock: float) -> float:
        """Return 1."""
        return 1.0

    def step(self, clock: float) -> float:
        """Return 2/(clock + 2)."""
        return 2.0 / (clock + 2.0)


@final
@dataclass(frozen=True)
class GapRestart(Momentum):
    """Forgets the past planes when the newest one alone proves a smaller gap: the paper's Algorithm 3.

    The paper compares the gap of the average plane at one iterate with the gap of the newest plane at the
    iterate before; here both belong to the same iterate. After a restart the iterations are counted from
    ``2 L D^2 / gap``, which is at least their true number plus one, and the gap after k more is at most
    ``2 L D^2 / (k + that)``.

    Parameters
    ----------
    momentum : FixedWeights
        What chooses between restarts.
    scale : float
        ``L D^2``: Lipschitz constant of the gradient times the squared diameter of the set, in one norm. The
        guarantee needs a number that is not smaller.
        Where it is large compared with the gap, the weights after a restart are small and the average
        changes slowly: the guarantee gets better, the steps often do not.
    """

    momentum: FixedWeights
    scale: float

    def choose(self, planes: Planes, clock: float) -> Choice:
        """Choose the newest plane if it proves a smaller gap than the past average, else as `momentum`."""
        newest, past_gap = planes.newest, planes.objective - planes.past.bound
        # Where rounding has the objective below a bound, there is nothing left to win.
        if newest.bound > planes.past.bound and past_gap > 0.0:
            clock = 2.0 * self.scale / past_gap
            return Choice(newest, 1.0, clock, newest.minimum.atom, restarted=True)
        return self.momentum.choose(planes, clock)

    def step(self, clock: float) -> float:
        """Return the step of `momentum`."""
        return self.momentum.step(clock)


@final
@dataclass(frozen=True)
class Adaptive(Momentum):
    """The weight that maximises the lower bound.

    As a function of the weight the bound is concave: a minimum over the set of planes that are linear in it.
    Weight zero keeps the past bound and weight one forgets the past, so it never needs a restart. It falls
    back on the weight 2/(k+2) in an iteration that would not keep the guarantee of `Weighted`, a gap of at
    most 2 L D^2 / (k+1).
    """

    def choose(self, planes: Planes, clock: float) -> Choice:
        """Choose the average with the largest bound.

        Each average that is looked at gives a line above the bound: the value at its own minimiser. The next
        one is where the lines on the two sides of the maximum meet.
        """
        past, newest = planes.past, planes.newest

        def rise(cut: Cut) -> float:
            atom = cut.minimum.atom
            offset = newest.plane.offset - past.plane.offset
            return offset + atom.inner(newest.direction) - atom.inner(past.direction)

        low, low_cut, low_rise = 0.0, past, rise(past)
        high, high_cut, high_rise = 1.0, newest, rise(newest)
        weight, best = (1.0, newest) if newest.bound >= past.bound else (0.0, past)
        for _ in range(_SEARCH_STEPS):
            if low_rise <= 0.0 or high_rise >= 0.0:
                break
            fall = low_cut.bound - high_cut.bound
            meet = (high_rise * high - low_rise * low + fall) / (high_rise - low_rise)
            if not low < meet < high:  # the bounds are known up to the oracle's slack
                meet = (low + high) / 2.0
            ceiling = low_cut.bound + low_rise * (meet - low)
            worth = _SEARCH_PRECISION * (planes.objective - best.bound)
            if ceiling - best.bound <= max(worth, best.minimum.slack):
                break
            cut = planes.average(meet)
            if cut.bound > best.bound:
                weight, best = meet, cut
            if (slope := rise(cut)) > 0.0:
                low, low_cut, low_rise = meet, cut, slope
            else:
                high, high_cut, high_rise = meet, cut, slope
        # The past average's own atom is where the last step went already.
        atom = (best if weight else newest).minimum.atom
        return Choice(best, weight, clock, atom)

    def step(self, clock: float) -> float:
        """Return 2/(clock + 2)."""
        return 2.0 / (clock + 2.0)

    def promise(self, clock: float) -> float:
        """Return 2/(clock + 2): the gap of `Weighted` at the next iterate, divided by L D^2."""
        return 2.0 / (clock + 2.0)

    def fallback(self, planes: Planes, clock: float) -> Choice | None:
        """Choose the weight 2/(clock + 2), as `Weighted` does."""
        return Weighted().choose(planes, clock)
