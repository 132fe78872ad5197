"""Frank-Wolfe with heavy-ball momentum, in prediction space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any, final

import numpy as np
import numpy.typing as npt

from ._certificate import AveragePlane, Cut
from ._lines import Segment
from ._momentum import Weighted
from ._problem import Problem
from ._protocols import (
    Array,
    Choice,
    Corrector,
    Data,
    Hint,
    Iterate,
    Momentum,
    Point,
    SampleVector,
    StepRule,
    check_kind,
)
from ._steps import LineSearch
from ._threads import thread_pool
from ._trace import Trace

# An iterative oracle is asked for a slack of at most this fraction of the gap before it. A corrector often
# halves that gap, and all of the slack is missing in the bound: with 0.25 completion of MovieLens takes an
# iteration more, and 1.0 to 1.5 times as long; with 0.05 the oracle takes what the iterations save. Steps
# alone win little at a time, and are hardly better with an oracle that takes longer.
_ORACLE_SHARE, _CORRECTED_SHARE = 0.25, 0.1
# A corrected run ends when its gap has not become smaller for this many iterations.
_PATIENCE = 20


@final
@dataclass(frozen=True)
class State:
    """What a callback is given at each iterate.

    Attributes
    ----------
    iteration : int
        Number of steps taken so far.
    point : Point
        The iterate, also as `x`, `predictions`, `intercept` and `objective`, its loss.
    atoms : int
        The number of its nonzeros, or of its rank-one terms.
    lower_bound : float
        The best lower bound of the optimum so far.
    gap : float
        Best objective so far minus `lower_bound`.
    """

    iteration: int
    point: Point
    atoms: int
    lower_bound: float
    gap: float

    @property
    def x(self) -> Iterate:
        """The model."""
        return self.point.x

    @property
    def predictions(self) -> SampleVector:
        """Its predictions, without the intercept."""
        return self.point.predictions

    @property
    def intercept(self) -> float | Array:
        """The best intercept."""
        return self.point.evaluation.intercept

    @property
    def objective(self) -> float:
        """The loss."""
        return self.point.value


@final
@dataclass(frozen=True)
class Result:
    """The best iterate of a run and its certificate.

    Attributes
    ----------
    x, predictions, intercept : the best iterate
    objective : float
        Its loss.
    lower_bound : float
        A proven lower bound of the optimum.
    gap : float
        ``objective - lower_bound``: the optimum is at most this far below `objective`.
    multiplier : float
        The Lagrange multiplier of the constraint: how fast the optimum falls as the radius grows. NaN for a
        set without a radius. Exact at the optimum, and about as accurate here as the gap is small.
    n_iter : int
        Number of steps.
    n_restarts : int
    status : {"converged", "max_iter", "max_time", "stalled", "stopped", "interrupted"}
        Whether the gap is within the tolerance and, if not, what ended the run: a limit, the precision of
        floating-point numbers (a corrector gained nothing for many iterations), the callback, or Ctrl-C.
    trace : dict of str to ndarray
        See `Trace`.
    """

    x: Iterate
    predictions: SampleVector
    intercept: float | Array
    objective: float
    lower_bound: float
    gap: float
    multiplier: float
    n_iter: int
    n_restarts: int
    status: str
    trace: dict[str, npt.NDArray[Any]]

    def __repr__(self) -> str:
        return (
            f"Result(status={self.status!r}, n_iter={self.n_iter}, "
            f"objective={self.objective:.6g}, gap={self.gap:.3g})"
        )


@final
class Interrupted(KeyboardInterrupt):
    """A run was interrupted (Ctrl-C); `result` is the best iterate until then, with its certificate."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)  # which is what it is made from again in another process
        self.result = result

    def __str__(self) -> str:
        return f"interrupted after {self.result.n_iter} steps, with a certified gap of {self.result.gap:.3g}"


@thread_pool()
def frank_wolfe(
    problem: Problem[Data],
    *,
    momentum: Momentum | None = None,
    step_rule: StepRule | None = None,
    corrector: Corrector | None = None,
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    max_iter: int = 1000,
    max_time: float = np.inf,
    start: Point | None = None,
    began: float | None = None,
    callback: Callable[[State], bool | None] | None = None,
) -> Result:
    """Minimise ``loss(A x)`` over a convex set, with a bound on the distance to the optimum.

    The problem is :eq:`problem`, an iteration is :eq:`average` and :eq:`step`, and the bound is :eq:`gap`.

    Parameters
    ----------
    problem : Problem
    momentum : Momentum, default=Weighted()
    step_rule : StepRule, default=LineSearch()
    corrector : Corrector, optional
        Improves each iterate over what has been discovered so far. By default the iterates are those of the
        steps alone. `best_corrector` gives the one that is made for a problem. It keeps the memory of one
        run, so each run needs a new one.
    tolerance : float
        Stop when the certified gap is at most this.
    relative_tolerance : float
        Stop as well when it is at most this fraction of what was won: of the zero model's loss less the
        objective.
    max_iter : int
        Largest number of steps.
    max_time : float
        No iteration begins later than this many seconds after the run began.
    start : Point, optional
        A point of the set, such as ``problem.at(x)``. By default zero if it is in the set, else the atom that
        the gradient at zero points to.
    began : float, optional
        When the run began, by ``time.perf_counter()``; by default now.
    callback : callable, optional
        Called with a `State` at each iterate; ends the run by returning True.

    Returns
    -------
    Result

    Raises
    ------
    Interrupted
        A `KeyboardInterrupt` with the result until then, if there is a bound already.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import L1Ball, Problem, SquaredLoss, design_matrix, frank_wolfe
    >>> loss = SquaredLoss(np.array([3.0, 1.0, 0.0]), np.full(3, 1 / 3))
    >>> result = frank_wolfe(Problem(loss, design_matrix(np.eye(3)), L1Ball(2.0)), tolerance=1e-3)
    >>> result.x
    array([2., 0., 0.])
    >>> result.status, bool(result.gap <= 1e-3)
    ('converged', True)
    """
    trace = Trace(perf_counter() if began is None else began)
    check_kind("problem", problem, Problem, "Problem(loss, data, constraint)")
    momentum = Weighted() if momentum is None else momentum
    step_rule = LineSearch() if step_rule is None else step_rule
    start = problem.start if start is None else start
    check_kind("momentum", momentum, Momentum, "Weighted()")
    check_kind("step_rule", step_rule, StepRule, "LineSearch()")
    check_kind("start", start, Point, "problem.at(x)")
    if corrector is not None:
        check_kind("corrector", corrector, Corrector, "best_corrector(problem)")
    if max_iter < 0:
        raise ValueError(f"max_iter must be at least 0; got max_iter={max_iter!r}.")
    run = _Run(problem, momentum, step_rule, corrector, start, tolerance, relative_tolerance)
    idle, last_gap = 0, np.inf
    try:
        for iteration in range(max_iter + 1):
            run.choose()
            atoms = problem.data.n_atoms(run.point.x)
            state = State(iteration, run.point, atoms, run.lower_bound, run.gap)
            idle, last_gap = 0 if run.gap < last_gap else idle + 1, run.gap
            ends = {
                "stopped": callback is not None and bool(callback(state)),
                "stalled": run.is_stuck or (corrector is not None and idle >= _PATIENCE),
                "max_time": trace.seconds >= max_time,
                "max_iter": iteration == max_iter,
            }
            if any(ends.values()) or run.has_converged:
                run.settle()
            row = {"objective": run.point.value, "lower_bound": run.lower_bound, "gap": run.gap}
            last = any(ends.values()) or run.has_converged
            step = np.nan if last else run.move()
            trace.add(**row, step=step, weight=run.choice.weight, atoms=atoms)
            if last:
                break
    except KeyboardInterrupt as interrupt:
        if not run.has_bound:
            raise
        run.settle()
        row = {"objective": run.best.value, "lower_bound": run.lower_bound, "gap": run.gap}
        atoms = problem.data.n_atoms(run.best.x)
        trace.add(**row, step=np.nan, weight=run.choice.weight, atoms=atoms)
        raise Interrupted(_result(run, trace, "interrupted")) from interrupt
    return _result(run, trace, next((name for name, applies in ends.items() if applies), ""))


def _result(run: _Run, trace: Trace, ending: str) -> Result:
    """Return the best iterate of a run that has settled, and its certificate."""
    best = run.best
    return Result(
        best.x,
        best.predictions,
        best.evaluation.intercept,
        best.value,
        run.lower_bound,
        run.gap,
        run.problem.multiplier(best),
        len(trace.rows) - 1,
        run.n_restarts,
        "converged" if run.has_converged else ending,
        trace.columns(),
    )


class _Run:
    """The state of a run, and the two halves of an iteration that change it."""

    planes: _Planes
    choice: Choice

    def __init__(
        self,
        problem: Problem[Data],
        momentum: Momentum,
        step_rule: StepRule,
        corrector: Corrector | None,
        start: Point,
        tolerance: float,
        relative_tolerance: float,
    ) -> None:
        self.problem, self.momentum, self.step_rule, self.corrector = problem, momentum, step_rule, corrector
        self.start = self.point = self.best = start
        self._tolerance, self._relative_tolerance = tolerance, relative_tolerance
        self.has_bound = self.is_stuck = False
        self._largest_bound = problem.loss.infimum
        self.n_restarts = 0
        self._past: Choice | None = None
        self._calls = count()
        # The largest curvature between two points of the set so far. It is at most L D^2, which need not be
        # known.
        self._curvature, self._has_segment = 0.0, False

    @property
    def lower_bound(self) -> float:
        """The largest lower bound so far, or the best objective where rounding has that below it."""
        return min(self._largest_bound, self.best.value)

    @property
    def gap(self) -> float:
        """The certified gap of the best iterate."""
        return self.best.value - self.lower_bound

    @property
    def has_converged(self) -> bool:
        """Whether that gap is within one of the tolerances."""
        gap, tolerance = self.gap, self._tolerance
        if self._relative_tolerance:
            won = self.problem.null.value - self.best.value
            tolerance = max(tolerance, self._relative_tolerance * won)
        return gap <= tolerance

    def choose(self) -> None:
        """Average the tangent plane at the iterate with the past ones: a lower bound of the optimum."""
        accuracy = (_CORRECTED_SHARE if self.corrector else _ORACLE_SHARE) * self.gap
        past = self._past
        self.planes = _Planes(self.problem, past.cut if past else None, self.point, accuracy, self._calls)
        clock = past.clock + 1.0 if past else 0.0
        if past is None or self.corrector:  # which needs the gradient itself
            newest = self.planes.newest
            self._largest_bound = max(self._largest_bound, newest.bound)
        # Where that bound is enough, the run ends, and a search for a better one is wasted: with 25 million
        # entries it would call the oracle a dozen times, which takes as long as several steps.
        if past is None or (self.corrector and self.has_converged):
            self.choice = Choice(newest, 1.0, clock, newest.minimum.atom)
        else:
            self.choice = self.momentum.choose(self.planes, clock)
            self.n_restarts += self.choice.restarted
            self._largest_bound = max(self._largest_bound, self.planes.best_bound)
        self.has_bound = True

    def move(self) -> float:
        """Go to the next iterate; return the step that led there, zero where it was the corrector."""
        corrected = point = self.point
        if self.corrector:
            # Squares of huge numbers overflow. What is not finite falls nowhere, and leads nowhere.
            with np.errstate(all="ignore"):
                corrected = self.corrector.improve(point, self.planes.newest, point.value - self.lower_bound)
        following, step = corrected, 0.0
        if self.corrector and self.corrector.is_exclusive:
            self.is_stuck = corrected is point
        elif corrected is point or not self._keeps_promise(corrected):
            following, step = self._step()
            fallback = None
            if self._past and not self._keeps_promise(following):
                fallback = self.momentum.fallback(self.planes, self.choice.clock)
            if fallback:
                self.choice = fallback
                following, step = self._step()
            if corrected is not point and corrected.value <= following.value:
                following, step = corrected, 0.0
        self._past, self.point = self.choice, following
        if following.value < self.best.value:
            self.best = following
        return step

    def settle(self) -> None:
        """Predict the best iterate afresh, before its loss is relied on; it is never worse than the start.

        Predictions that were updated along lines keep the rounding errors of all that was added to them, even
        where it has cancelled since.
        """
        best, start = self.best, self.start
        self.best = self._afresh(best)
        if start is not best and start.value < self.best.value:
            self.best = min(self.best, self._afresh(start), key=lambda point: point.value)
        if self.point is best:
            self.point = self.best

    def _afresh(self, point: Point) -> Point:
        data = self.problem.data
        x = self.problem.constraint.restored(data.compressed(point.x))
        return self.problem.point(x, data.apply(x), point.evaluation)

    def _segment(self) -> Segment:
        step = self.momentum.step(self.choice.clock)
        segment = self.problem.segment(self.point, self.choice.atom, step)
        if self.momentum.promise(self.choice.clock):
            self._curvature, self._has_segment = max(self._curvature, segment.curvature_bound), True
        return segment

    def _step(self) -> tuple[Point, float]:
        """Take a Frank-Wolfe step."""
        segment = self._segment()
        end = self.step_rule.step(segment)
        x = (1.0 - end.step) * segment.x + end.step * segment.atom
        return Point(x, end.predictions, end.evaluation), end.step

    def _keeps_promise(self, point: Point) -> bool:
        """Whether the momentum guarantees a gap, and that at `point` is within it."""
        promise = self.momentum.promise(self.choice.clock)
        if not promise:
            return False
        gap = point.value - self.choice.cut.bound
        if gap > promise * self._curvature and not self._has_segment:
            # Mostly the corrector's own step is enough, and there is no need of the atom's predictions.
            change = point.predictions - self.point.predictions
            line = self.problem.line(self.point.predictions, self.point.evaluation, change)
            self._curvature = max(self._curvature, line.curvature_bound)
            if gap > promise * self._curvature:
                self._segment()
        return gap <= promise * self._curvature


class _Planes:
    """The tangent plane at an iterate, the past average, and what lies between them; see `Planes`."""

    def __init__(
        self, problem: Problem[Data], past: Cut | None, point: Point, accuracy: float, calls: Iterator[int]
    ) -> None:
        self._problem, self._past, self._accuracy, self._calls = problem, past, accuracy, calls
        self._tangent = AveragePlane.tangent(point.evaluation)
        self._newest: Cut | None = None
        self.objective = point.value
        self.best_bound = -np.inf

    @property
    def past(self) -> Cut:
        if self._past is None:
            raise ValueError("At the first iterate there is no past.")
        return self._past

    @property
    def newest(self) -> Cut:
        if self._newest is None:
            self._newest = self._noted(self._problem.minimise(self._tangent, self._hint()))
        return self._newest

    def average(self, weight: float) -> Cut:
        if weight == 1.0:
            return self.newest
        if self._newest is None:  # then the average's product with the data is the only one
            plane = self.past.plane.blend(self._tangent, weight)
            return self._noted(self._problem.minimise(plane, self._hint()))
        return self._noted(self._problem.minimise_average(self.past, self._newest, weight, self._hint()))

    def _noted(self, cut: Cut) -> Cut:
        self.best_bound = max(self.best_bound, cut.bound)
        return cut

    def _hint(self) -> Hint:
        # The number of the call makes keys differ within a run. The bits of the tangent plane's offset make
        # them differ between runs, of which a later one may start from what an earlier one has found.
        key = next(self._calls), int(np.float64(self._tangent.offset).view(np.uint64))
        return Hint(key, self._past.minimum.memory if self._past else None, self._accuracy)
