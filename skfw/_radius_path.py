"""Linear estimators along the radius: the path of one data set, and cross-validation over it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from ._certified import (
    CallbackReportMixin,
    conclude,
    set_fitted,
    stop_if_interrupted,
    validated,
    warn_caller,
    with_callbacks,
)
from ._linear import DESIGN, radius_scale
from ._params import check_integer, check_number, check_sample_weight
from .engine import Constraint, thread_pool

# The ends of an automatic grid, in units of `radius_scale`.
_BELOW, _ABOVE = 0.1, 10.0
# Where the largest radius of it is the best, the grid goes on by this share of its radii at a time, until it
# has this multiple of them.
_EXTENSION, _LONGEST = 0.3, 2


def fit_path(template, radii, problem, coding, solved=(), heading=""):
    """Yield a fitted model for each radius, in ascending order, and the certificate of its run.

    A fit starts where the path would be if it went on straight, as it nearly does, through the last two
    solutions (it begins at zero), or at the last one if that is better. Those `solved` before are given by
    radius, and by model and loss of the problem.
    """
    solved = [(0.0, problem.null.x, np.inf), *solved]
    for radius in radii:
        model = at_radius(template, radius)
        here = problem.within(model._constraint(radius / coding.radius_unit))
        start = _straight_start(here, *solved[-2:], radius) if len(solved) > 1 else None
        if template.verbose:
            print(f"{heading}radius {radius:.4g}")
        certificate = model._solve_coded(here, coding, start)
        stop_if_interrupted(certificate)
        solved.append((radius, certificate.result.x, certificate.result.objective))
        known = {"n_features_in_": problem.null.x.shape[0], "radius_": float(radius)}
        set_fitted(model, certificate.attributes | known)
        yield model, certificate


def _straight_start(problem, older, old, radius):
    (older_radius, older_x, _), (old_radius, old_x, old_value) = older, old
    ahead = (radius - old_radius) / (old_radius - older_radius) * (old_x - older_x)
    start = problem.constraint.scale_into(old_x + ahead)
    if start is not None and (point := problem.at(start)).value <= old_value:
        return point
    start = problem.constraint.scale_into(old_x)
    return None if start is None else problem.at(start)


def radius_grid(template, radii, problem, coding):
    """Return the radii in ascending order; a number of them stands for a grid made from the data.

    The grid goes from a tenth of `radius_scale` to ten times it, in equal ratios; a single radius is the
    middle.
    """
    given = check_radii(radii)
    if given is not None:
        return given
    unit = at_radius(template, 1.0)._constraint(1.0)
    scale = radius_scale(problem.within(unit)) * coding.radius_unit
    ends = _BELOW * scale, _ABOVE * scale
    return np.geomspace(*ends, radii) if radii > 1 else np.array([np.sqrt(ends[0]) * np.sqrt(ends[1])])


@thread_pool()
def path_arrays(name, template, X, y, radii, sample_weight):
    """Return radii, coefficients, intercepts and gaps of a path; warnings are in the name of a function."""
    template._check_params()
    X, y, _ = validated(template, X, y, **DESIGN, **template._target_options)
    problem, coding = template._prepare(X, y, sample_weight)
    radii = radius_grid(template, radii, problem, coding)
    models, certificates = zip(*fit_path(template, radii, problem, coding), strict=True)
    warn_caller(name, [certificate.shortfall for certificate in certificates])
    return (
        radii,
        np.stack([model.coef_ for model in models]),
        np.stack([model.intercept_ for model in models]),
        np.array([model.gap_ for model in models]),
    )


def check_radii(radii):
    """Return given radii in ascending order; None where only their number is given."""
    if isinstance(radii, Integral):
        check_integer("radii", radii, at_least=1)
        return None
    if isinstance(radii, str) or np.ndim(radii) != 1 or not len(radii):
        raise ValueError(f"radii must be a number of radii or a sequence of them; got radii={radii!r}.")
    for number, radius in enumerate(radii):
        check_number(f"radii[{number}]", radius, above=0.0)
    return np.unique(np.asarray(radii, dtype=np.float64))


def at_radius(template, radius):
    """Return a clone with another radius: its own, or that of its constraint object."""
    if isinstance(template.constraint, Constraint):
        own = [f"constraint__{name}" for name in template.constraint.get_params()]
        if "constraint__radius" not in own:
            raise ValueError(
                f"constraint must have a radius to search over, and {type(template.constraint).__name__} has "
                f"none; GridSearchCV searches over what it has: {', '.join(own)}."
            )
        constraint = clone(template.constraint, safe=False).set_params(radius=float(radius))
        return clone(template).set_params(constraint=constraint)
    return clone(template).set_params(radius=float(radius))


class ScoredSearchMixin:
    """The score of a search over radii, and the estimator that it searches with.

    A subclass has the parameters of that estimator, with `radii` in place of its radius, and `scoring`. It
    says which estimator that is, how it is scored by default, and what that score is called.
    """

    def score(self, X, y, sample_weight=None):
        """Return the score that the radius was chosen by, or that of the estimator if `scoring` is None.

        Parameters
        ----------
        X : as in `fit`
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        float
            The accuracy of a classifier, R² of a regressor, if `scoring` is None.
        """
        if self.scoring is None:
            return super().score(X, y, sample_weight)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return check_scoring(self, scoring=self.scoring)(self, X, y, **weights)

    def _template(self):
        own = self.get_params(deep=False)
        shared = {name: own[name] for name in self._estimator().get_params() if name in own}
        return self._estimator(**shared)

    def _scorer(self, template):
        if self.scoring is None:
            return self._default_scorer
        if not (isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                f"scoring must be None, one name or one callable: what chooses the radius; "
                f"got scoring={self.scoring!r}."
            )
        return check_scoring(template, scoring=self.scoring)


class RadiusSearchMixin(ScoredSearchMixin, CallbackReportMixin):
    """Chooses the radius by cross-validation."""

    @with_callbacks
    @thread_pool()
    def fit(self, X, y, sample_weight=None):
        """Choose the radius and fit the model.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,), for a regressor also (n_samples, n_targets)
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
        X, y, seen = validated(self, X, y, **DESIGN, **template._target_options)
        weights = None if sample_weight is None else check_sample_weight(sample_weight, len(y))
        problem, coding = template._prepare(X, y, weights)
        grid = radius_grid(template, self.radii, problem, coding)
        # What has no weight is no part of the model, and cannot be scored.
        has_weight = template._weights(y, weights) > 0.0
        every = np.arange(len(y))  # a part of a split may be a list, or a mask
        splits = list(check_cv(self.cv, y, classifier=is_classifier(template)).split(X, y))
        folds = [
            _Fold(f"fold {number} of {len(splits)}, ", train, every[test][has_weight[test]])
            for number, (train, test) in enumerate(splits, start=1)
        ]
        if not all(len(fold.test) for fold in folds):
            raise ValueError("A fold's test part has no sample with a positive weight; use other folds.")
        data = X, y, weights
        radii, folds, rises = self._search(template, grid, data, folds, scorer)
        scores = np.array([fold.scores for fold in folds])
        best = int(np.argmax(scores.mean(axis=0)))
        radius = float(radii[best])
        chosen = {"radii_": radii, "scores_": scores, "radius_": radius}
        model = at_radius(template, radius)
        problem = problem.within(model._constraint(radius / coding.radius_unit))
        if self.verbose:
            print(f"all data, radius {radius:.4g}")
        with self._callbacks(X, y, sample_weight, seen) as report:
            models = [(fold.unit / coding.radius_unit) * fold.solved[best][1] for fold in folds]
            start = _mean_start(problem, models)
            certificate = model._solve_coded(problem, coding, start, report=report)
            set_fitted(self, seen | chosen | certificate.attributes)
        conclude(type(self).__name__, certificate, [each for fold in folds for each in fold.shortfalls])
        if rises:
            doubt = (
                f"chose the largest radius it tried, {radius:.4g}; scores still rise there. Try larger ones."
            )
            warn_caller(type(self).__name__, [doubt], UserWarning)
        return self

    def _search(self, template, grid, data, folds, scorer):
        """Follow the path in each fold; return the radii, the folds, and whether scores rise to the end.

        An automatic grid goes on while they do.
        """
        radii, new = grid[:0], grid
        most = _LONGEST * len(grid) if isinstance(self.radii, Integral) and len(grid) > 1 else len(grid)
        while True:
            folds = Parallel(n_jobs=self.n_jobs)(
                delayed(_follow_path)(template, new, *data, fold, scorer) for fold in folds
            )
            radii = np.append(radii, new)
            scores = np.array([fold.scores for fold in folds])
            if np.isnan(scores).any():
                fold, number = np.argwhere(np.isnan(scores))[0]
                raise ValueError(
                    f"The score of fold {fold + 1} at radius {radii[number]:g} is NaN, which chooses none; "
                    f"got scoring={self.scoring!r}."
                )
            rises = most > len(grid) and _rises(scores.mean(axis=0), self.tol)
            if not rises or len(radii) >= most:
                return radii, folds, rises
            n_new = min(max(int(_EXTENSION * len(grid)), 1), most - len(radii))
            new = radii[-1] * (grid[1] / grid[0]) ** np.arange(1, n_new + 1)


@dataclass(frozen=True)
class _Fold:
    """The path of a fold's training part as far as it is known, and its scores on the test part.

    Attributes
    ----------
    heading : str
        What is printed of the fold before a run.
    train, test : ndarray of ints
    unit : float
        What its models count in.
    solved : tuple
        Radius, model and loss of each solution.
    scores : tuple of floats
    shortfalls : tuple
        How the runs fell short of `tol`; None for those that did not.
    """

    heading: str
    train: np.ndarray
    test: np.ndarray
    unit: float = 1.0
    solved: tuple = ()
    scores: tuple = ()
    shortfalls: tuple = ()


@thread_pool()
def _follow_path(template, radii, X, y, weights, fold, scorer):
    """Return the fold with the models of more radii."""
    train, test = fold.train, fold.test
    test_weight = {} if weights is None else {"sample_weight": weights[test]}
    problem, coding = template._prepare(X[train], y[train], None if weights is None else weights[train])
    X_test, y_test = X[test], y[test]
    for model, certificate in fit_path(template, radii, problem, coding, fold.solved, fold.heading):
        result = certificate.result
        fold = replace(
            fold,
            unit=coding.radius_unit,
            solved=(*fold.solved, (model.radius_, result.x, result.objective)),
            scores=(*fold.scores, scorer(model, X_test, y_test, **test_weight)),
            shortfalls=(*fold.shortfalls, certificate.shortfall),
        )
    return fold


def _rises(scores, tol):
    """Whether the last score is the best, and not by the accuracy of the fits alone."""
    return bool(np.argmax(scores) == len(scores) - 1 and scores[-1] - scores[-2] > tol * abs(scores[-1]))


def _mean_start(problem, solutions):
    """Return the mean of the folds' solutions, which is in the set as they are; None if classes differ."""
    if any(x.shape != problem.null.x.shape for x in solutions):
        return None
    return problem.at(sum(solutions[1:], start=solutions[0]) / len(solutions))
