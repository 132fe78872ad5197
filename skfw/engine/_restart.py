"""The restart of the paper's Algorithm 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class GapRestart:
    """Forget the past planes when the newest one alone proves a smaller gap.

    The paper compares the average plane's gap at one iterate with the plain gap at the iterate before; here
    both belong to the same iterate. After a restart the iterations are counted from ``2 L D^2 / gap``, at
    least their true number plus one, and the gap after k more is at most ``2 L D^2 / (k + that)``.

    Parameters
    ----------
    scale : float
        ``L D^2``: Lipschitz constant of the gradient times the squared diameter of the set, in one norm.
        Where it is large compared with the gap, the weights after a restart are small and the average
        changes slowly: the guarantee gets better, the steps often do not.

    Examples
    --------
    >>> from skfw.engine import GapRestart
    >>> restart = GapRestart(scale=8.0)
    >>> restart.due(average_gap=0.5, plain_gap=0.25), restart.clock(average_gap=0.5)
    (True, 32.0)
    """

    scale: float

    def due(self, average_gap: float, plain_gap: float) -> bool:
        """Whether to restart."""
        return plain_gap < average_gap

    def clock(self, average_gap: float) -> float:
        """Return where to set the momentum's clock."""
        return 2.0 * self.scale / average_gap
