"""What the estimators share: the run of the solver, the certificate it gives, and who is told of it."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel
from sklearn.utils.validation import validate_data

from ._params import check_flag, check_integer, check_number, check_restart, make_momentum, make_step_rule
from .engine import (
    GapRestart,
    Interrupted,
    Point,
    Problem,
    Result,
    State,
    best_corrector,
    frank_wolfe,
    sample_start,
)

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """Stands in for scikit-learn's own: there are no callbacks."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


# What is printed of the status of a run.
_ENDINGS = {
    "converged": "converged",
    "max_iter": "stopped by max_iter",
    "max_time": "stopped by max_time",
    "stalled": "stalled",
    "stopped": "stopped by a callback",
    "interrupted": "interrupted",
}
# Frames of these packages are passed over on the way to the line that called a fit; the third is joblib, and
# the last calls what a context manager decorates.
_LIBRARIES = (
    *(
        str(Path(file).parent) + os.sep
        for file in (__file__, sklearn.__file__, inspect.getfile(Parallel.__bases__[0]))
    ),
    contextlib.__file__,
)


def warn_caller(called: str, shortfalls: Iterable[str | None], category=ConvergenceWarning) -> None:
    """Warn of what fell short, in the name of what was called and at the line that did.

    It comes last in a fit, because a warning may be an error.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame, level = frame.f_back, level + 1
    for shortfall in filter(None, shortfalls):
        warnings.warn(f"{called} {shortfall}", category, stacklevel=level)


def conclude(called: str, certificate: Certificate, shortfalls: Iterable[str | None] = ()) -> None:
    """Raise the interrupt that ended a fit, or warn of its runs; `shortfalls` are those of runs before."""
    if certificate.interrupt:
        raise certificate.interrupt
    warn_caller(called, [*shortfalls, certificate.shortfall])


def stop_if_interrupted(certificate: Certificate) -> None:
    """Raise a plain interrupt if one ended the run: its result is not that of the whole fit."""
    if certificate.interrupt:
        raise KeyboardInterrupt from certificate.interrupt


def validated(estimator, X, *y, **options):
    """Validate the data of a fit; return it, and the attributes that tell of its features.

    scikit-learn sets these attributes itself, before anything is fitted. On a copy, they do not change the
    last model if the fit fails.
    """
    stand_in = copy(estimator)
    data = validate_data(stand_in, X, *y, **options)
    names = ("n_features_in_", "feature_names_in_")
    seen = {name: vars(stand_in)[name] for name in names if name in vars(stand_in)}
    return (*data, seen) if y else (data, seen)


def set_fitted(estimator, attributes) -> None:
    """Set all attributes of a fit at once, after everything that can fail."""
    if "feature_names_in_" not in attributes:
        vars(estimator).pop("feature_names_in_", None)
    vars(estimator).update(attributes)


@dataclass(frozen=True)
class Certificate:
    """The result of a run, the attributes it gives a model, and what is to be said once these are set.

    Attributes
    ----------
    result : Result
    attributes : dict
    shortfall : str or None
        How the run fell short of `tol`, if it did.
    interrupt : Interrupted or None
        What ended it, to be raised again.
    """

    result: Result
    attributes: dict
    shortfall: str | None
    interrupt: Interrupted | None


class CallbackReportMixin(CallbackSupportMixin):
    """Tells scikit-learn's callbacks of a fit and of its iterates."""

    @contextlib.contextmanager
    def _callbacks(self, X, y, sample_weight, seen):
        """Tell callbacks of a fit; yield what tells them of an iterate, None if there are no callbacks.

        It is given a function that returns the fitted attributes of the iterate beside those `seen` in the
        data, which is called only if a callback wants to see the model.
        """
        # Where scikit-learn keeps them. Telling nobody would cost a tenth of a fast iteration.
        if not getattr(self, "_skl_callbacks", None):
            yield None
            return
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        data = {"estimator": self, "X": X, "y": y, "metadata": metadata}
        fit = self._init_callback_context(max_subtasks=self.max_iter + 1)
        fit.call_on_fit_task_begin(**data)

        def report(attributes) -> bool:
            iterate = fit.subcontext(task_name="iteration")
            iterate.call_on_fit_task_begin(**data)
            return iterate.call_on_fit_task_end(**data, reconstruction_attributes=lambda: seen | attributes())

        yield report
        fit.call_on_fit_task_end(**data, reconstruction_attributes={})


class CertifiedFitMixin(CallbackReportMixin):
    """Solves the problem that an estimator has built."""

    #: What makes the gap smaller, beside more iterations.
    _remedy = "lower the radius"

    def _check_solver_params(self) -> None:
        make_momentum(self.momentum)
        make_step_rule(self.step_size, lambda: 1.0)
        check_restart(self.restart, self.momentum)
        check_flag("corrective", self.corrective)
        check_number("tol", self.tol, at_least=0.0)
        check_integer("max_iter", self.max_iter, at_least=1)
        if self.max_time is not None:
            check_number("max_time", self.max_time, above=0.0)
        if not isinstance(self.verbose, bool):
            check_integer("verbose", self.verbose, at_least=0)
        if self.lipschitz is not None:
            check_number("lipschitz", self.lipschitz, above=0.0)

    def _solve(
        self,
        problem: Problem,
        model,
        start: Point | None = None,
        *,
        loss_unit: float = 1.0,
        radius_unit: float = 1.0,
        report=None,
        began: float | None = None,
    ) -> Certificate:
        """Run the solver and certify what it found; nothing is set.

        `model` gives the fitted attributes for an iterate and its intercept; `report` is told of each. The
        problem's losses are multiplied by `loss_unit` in what is reported, and its radius by `radius_unit`.
        `began` is when the fit did, by default now.
        """
        began = perf_counter() if began is None else began
        momentum = base_momentum = make_momentum(self.momentum)

        def lipschitz() -> float:
            return problem.lipschitz if self.lipschitz is None else float(self.lipschitz)

        if self.restart:
            momentum = GapRestart(base_momentum, lipschitz() * problem.diameter * problem.diameter)
        step_rule = make_step_rule(self.step_size, lipschitz)
        null = problem.null.value
        certified = _Units(loss_unit, radius_unit)
        watch = None
        if report or self.verbose:
            watch = _Watch(problem, certified, began, self.verbose, report, model)
        max_time = np.inf if self.max_time is None else self.max_time
        limits = {"step_rule": step_rule, "max_iter": self.max_iter, "max_time": max_time, "began": began}
        if self.corrective and start is None:
            start = sample_start(problem, momentum=base_momentum, **limits)
        interrupt = None
        try:
            result = frank_wolfe(
                problem,
                momentum=momentum,
                corrector=self._corrector(problem) if self.corrective else None,
                **self._tolerances(null),
                start=start,
                callback=watch,
                **limits,
            )
        except Interrupted as interrupted:
            result, interrupt = interrupted.result, interrupted
        attributes = certified.attributes(result) | model(result.x, result.intercept)
        gap = attributes["gap_"]
        if self.verbose:
            print(f"{_ENDINGS[result.status]} after {result.n_iter} iterations, certified gap {gap:.3g}")
        return Certificate(result, attributes, self._shortfall(result, gap, null), interrupt)

    def _corrector(self, problem):
        return best_corrector(problem)

    def _tolerances(self, null) -> dict:
        """Return when the solver may stop, given the objective of the zero model."""
        return {"tolerance": self.tol * null}

    def _gap_unit(self, null, objective):
        """Return what `tol` is relative to, and what that is called."""
        return null, "the objective of the zero model"

    def _shortfall(self, result, gap, null) -> str | None:
        """Return how a run fell short of `tol`; None if it converged, or somebody stopped it."""
        if result.status in ("converged", "stopped", "interrupted"):
            return None
        unit, unit_name = self._gap_unit(null, result.objective)
        relative = result.gap / unit if unit > 0.0 else np.inf
        limit, advice = "", f"{self._remedy}: nothing moved any more"
        if result.status != "stalled":
            limit = f" ({result.status}={getattr(self, result.status)})"
            advice = f"raise {result.status}, or {self._remedy}"
        return (
            f"stopped after {result.n_iter} steps{limit} with a certified gap of "
            f"{gap:.3g}, which is {relative:.3g} of {unit_name}; tol={self.tol:g} was "
            f"asked for. The model is feasible and the gap is valid. For a smaller one {advice}."
        )


@dataclass(frozen=True)
class _Units:
    """What the solver's losses and its radius count in."""

    loss: float
    radius: float

    def attributes(self, result: Result) -> dict:
        """Return the fitted attributes of a certificate."""
        trace = dict(result.trace)
        with np.errstate(over="ignore"):  # an infinite gap is a valid one
            for name in ("objective", "lower_bound", "gap"):
                trace[name] = self.loss * trace[name]
        return self.bounds(result, result.multiplier, result.n_iter) | {
            "n_restarts_": result.n_restarts,
            "converged_": result.status == "converged",
            "trace_": trace,
        }

    def bounds(self, state: State | Result, multiplier: float, n_iter: int) -> dict:
        """Return the fitted attributes that iterates have, too."""
        return {
            "objective_": self.loss * state.objective,
            "lower_bound_": self.loss * state.lower_bound,
            "gap_": self.loss * state.gap,
            "multiplier_": self.loss * multiplier / self.radius,
            "n_iter_": n_iter,
        }


class _Watch:
    """Follows a run: tells callbacks, and prints the iterations 0, 1, ..., 10, 20, ..., 100, 200, ..."""

    def __init__(self, problem, units: _Units, began: float, verbose: int, report, model) -> None:
        self._problem, self._units, self._began = problem, units, began
        self._verbose, self._report, self._model = verbose, report, model

    def __call__(self, state: State) -> bool | None:
        if self._verbose:
            self._print(state)
        return self._report(lambda: self._attributes(state)) if self._report else None

    def _attributes(self, state: State) -> dict:
        multiplier = self._problem.multiplier(state.point)
        bounds = self._units.bounds(state, multiplier, state.iteration)
        return bounds | self._model(state.x, state.intercept)

    def _print(self, state: State) -> None:
        if state.iteration == 0:
            print(f"{'iteration':>9} {'objective':>12} {'gap':>9} {'atoms':>7} {'seconds':>8}")
        if not str(state.iteration)[1:].strip("0"):
            objective, gap = self._units.loss * state.objective, self._units.loss * state.gap
            seconds = perf_counter() - self._began
            print(f"{state.iteration:9d} {objective:12.6g} {gap:9.2e} {state.atoms:7d} {seconds:8.2f}")
