"""A start from a fit to some of the samples."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from ._problem import Problem
from ._protocols import Data, Momentum, Point, StepRule
from ._solver import Interrupted, frank_wolfe
from ._threads import thread_pool
from .correctors import best_corrector

# A sample is not the data: how far from its own optimum a start needs to be at most.
_TOLERANCE = 1e-2
_MAX_ITER = 50


@thread_pool()
def sample_start(
    problem: Problem[Data],
    *,
    momentum: Momentum | None = None,
    step_rule: StepRule | None = None,
    max_iter: int = _MAX_ITER,
    max_time: float = np.inf,
    began: float | None = None,
) -> Point | None:
    """Fit a sample of the rows, and that from a sample of them: a start that costs a fraction of a run.

    Returns None where there are not enough rows or no time for it, or where the fit is no better than none.

    Parameters
    ----------
    problem, momentum, step_rule, max_time, began : as in `frank_wolfe`
    max_iter : int
        Largest number of steps in each sample; never more than 50.
    """
    began = perf_counter() if began is None else began
    if perf_counter() - began >= max_time or (sample := problem.sample) is None:
        return None
    limits: Any = {
        "momentum": momentum,
        "step_rule": step_rule,
        "max_iter": min(max_iter, _MAX_ITER),
        "max_time": max_time,
        "began": began,
    }
    try:
        found = frank_wolfe(
            sample,
            corrector=best_corrector(sample),
            tolerance=_TOLERANCE * problem.null.value,
            start=sample_start(sample, **limits),
            **limits,
        )
    except Interrupted as interrupted:
        raise KeyboardInterrupt from interrupted  # its result is that of another problem
    point = problem.at(found.x, found.intercept)
    return point if point.value < problem.null.value else None
