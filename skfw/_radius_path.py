"""Linear estimators along the radius: the path of one data set, and cross-validation over it."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from ._certified import CallbackReportMixin, set_fitted, validated, warn_caller, with_callbacks
from ._linear import DESIGN
from ._params import check_integer, check_number, check_sample_weight
from .engine import Constraint

# The ends of an automatic grid, relative to the radius where a linear loss would have fallen to zero.
_BELOW, _ABOVE = 0.1, 30.0


def fit_path(template, radii, problem, coding):
    """Yield a fitted model for each radius, in ascending order, and how its run fell short, if it did.

    A fit starts where the path would be if it went on straight, as it nearly does, through the last two
    solutions (it begins at zero), or at the last one if that is better.
    """
    path, value = [(0.0, problem.null.x)], np.inf
    for radius in radii:
        model = at_radius(template, radius)
        here = problem.within(model._constraint())
        start = _straight_start(here, path, radius, value) if len(path) > 1 else None
        certificate = model._solve(here, coding.decode, start)
        path, value = [path[-1], (radius, certificate.result.x)], certificate.result.objective
        set_fitted(model, certificate.attributes | {"n_features_in_": problem.null.x.shape[0]})
        yield model, certificate.shortfall


def _straight_start(problem, path, radius, value):
    (older_radius, older), (old_radius, old) = path
    ahead = (radius - old_radius) / (old_radius - older_radius) * (old - older)
    start = problem.constraint.scale_into(old + ahead)
    if start is not None and (point := problem.at(start)).value <= value:
        return point
    start = problem.constraint.scale_into(old)
    return None if start is None else problem.at(start)


def radius_grid(template, radii, problem):
    """Return the radii in ascending order; a number of them stands for a grid made from the data.

    At the zero model the loss f and its gradient g are known, and in a ball of radius R no linear loss can
    fall by more than R times the dual norm of g. The grid goes from a tenth of the radius at which that is
    all of f to thirty times it, in equal ratios; a single radius is the middle.
    """
    if not isinstance(radii, Integral):
        if isinstance(radii, str) or np.ndim(radii) != 1 or not len(radii):
            raise ValueError(f"radii must be a number of radii or a sequence of them; got radii={radii!r}.")
        for number, radius in enumerate(radii):
            check_number(f"radii[{number}]", radius, above=0.0)
        return np.unique(np.asarray(radii, dtype=np.float64))
    check_integer("radii", radii, at_least=1)
    unit_ball = at_radius(template, 1.0)._constraint()
    gradient = problem.data.adjoint(problem.null.evaluation.residual)
    fall = abs(unit_ball.lmo(gradient).value)
    scale = problem.null.value / fall if fall > 0.0 else 1.0
    ends = _BELOW * scale, _ABOVE * scale
    return np.geomspace(*ends, radii) if radii > 1 else np.array([np.sqrt(ends[0]) * np.sqrt(ends[1])])


def at_radius(template, radius):
    """Return a clone with another radius: its own, or that of its constraint object."""
    if isinstance(template.constraint, Constraint):
        constraint = clone(template.constraint, safe=False).set_params(radius=float(radius))
        return clone(template).set_params(constraint=constraint)
    return clone(template).set_params(radius=float(radius))


class RadiusSearchMixin(CallbackReportMixin):
    """Chooses the radius by cross-validation.

    A subclass has the parameters of an estimator, with `radii` in place of its radius, and says which
    estimator that is and how it is scored.
    """

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Choose the radius and fit the model.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Targets: class labels for a classifier.
        sample_weight : array of shape (n_samples,), optional
            Weights in the fits and in the scores.

        Returns
        -------
        self
        """
        template = self._template()
        template._check_params()
        scorer = self._scorer(template)
        X, y, seen = validated(self, X, y, **DESIGN)
        weights = None if sample_weight is None else check_sample_weight(sample_weight, len(y))
        problem, coding = template._prepare(X, y, weights)
        radii = radius_grid(template, self.radii, problem)
        # What has no weight is no part of the model, and cannot be scored.
        has_weight = template._weights(y, weights) > 0.0
        folds = [
            (train, test[has_weight[test]])
            for train, test in check_cv(self.cv, y, classifier=is_classifier(template)).split(X, y)
        ]
        if not all(len(test) for _, test in folds):
            raise ValueError("A fold's test part has no sample with a positive weight; use other folds.")
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_path_scores)(template, radii, X, y, weights, train, test, scorer)
            for train, test in folds
        )
        scores = np.array([scores for scores, _ in found])
        if np.isnan(scores).any():
            fold, number = np.argwhere(np.isnan(scores))[0]
            raise ValueError(
                f"The score of fold {fold} at radius {radii[number]:g} is NaN, which chooses no radius; got "
                f"scoring={self.scoring!r}."
            )
        radius = float(radii[np.argmax(scores.mean(axis=0))])
        chosen = {"radii_": radii, "scores_": scores, "radius_": radius}
        model = at_radius(template, radius)
        with self._callbacks(X, y, sample_weight, seen) as report:
            certificate = model._solve(problem.within(model._constraint()), coding.decode, report=report)
            set_fitted(self, seen | chosen | certificate.attributes)
        in_folds = [shortfall for _, shortfalls in found for shortfall in shortfalls]
        warn_caller(type(self).__name__, [*in_folds, certificate.shortfall])
        return self


def _path_scores(template, radii, X, y, weights, train, test, scorer):
    """Return the scores on one fold's test part, for each radius, and how the runs fell short."""
    test_weight = {} if weights is None else {"sample_weight": weights[test]}
    train_weight = None if weights is None else weights[train]
    X_test, y_test = X[test], y[test]
    scores, shortfalls = [], []
    for model, shortfall in fit_path(template, radii, *template._prepare(X[train], y[train], train_weight)):
        scores.append(scorer(model, X_test, y_test, **test_weight))
        shortfalls.append(shortfall)
    return scores, shortfalls
