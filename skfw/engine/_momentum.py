"""Weights of the running average of tangent planes, and the parameter-free steps that go with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from ._protocols import Momentum


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
