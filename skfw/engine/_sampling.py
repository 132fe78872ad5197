"""A start from a fit to some of the samples."""

from __future__ import annotations

from ._problem import Problem
from ._protocols import Data, Momentum, Point, StepRule
from ._solver import frank_wolfe
from .correctors import best_corrector

# A sample is not the data: how far from its own optimum a start needs to be at most.
_TOLERANCE = 1e-2
_MAX_ITER = 50


def sample_start(
    problem: Problem[Data],
    *,
    momentum: Momentum | None = None,
    step_rule: StepRule | None = None,
    max_iter: int = _MAX_ITER,
) -> Point | None:
    """Fit a sample of the rows, and that from a sample of them: a start that costs a fraction of a run.

    Returns None where there are not enough rows for it, or where the fit is no better than none.

    Parameters
    ----------
    problem, momentum, step_rule : as in `frank_wolfe`
    max_iter : int
        Largest number of steps in each sample; never more than 50.
    """
    if (sample := problem.sample) is None:
        return None
    x = frank_wolfe(
        sample,
        momentum=momentum,
        step_rule=step_rule,
        corrector=best_corrector(sample),
        tolerance=_TOLERANCE * problem.null.value,
        max_iter=min(max_iter, _MAX_ITER),
        start=sample_start(sample, momentum=momentum, step_rule=step_rule, max_iter=max_iter),
    ).x
    point = problem.at(x)
    return point if point.value < problem.null.value else None
