"""Matrix completion with the radius chosen by cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from ._certified import (
    CallbackReportMixin,
    conclude,
    set_fitted,
    stop_if_interrupted,
    warn_caller,
    with_callbacks,
)
from ._completion_task import Task
from ._features import given_features
from ._ids import doubt_ids
from ._implicit import best_implicit
from ._matrix_completion import CompletedMatrixMixin, HFWMatrixCompletion, weighted_entries
from ._params import as_sample_weight, relative_weights
from ._radius_path import ScoredSearchMixin, at_radius, check_radii
from .engine import thread_pool

# The ends of an automatic grid, in units of the default radius.
_BELOW, _ABOVE = 0.3, 3.0
# It ends this many radii beyond the best one, and goes on to at most this multiple of the radii.
_BEYOND, _LONGEST = 2, 2
# A score is better if it is by this fraction. Where the start is within `tol` already, a larger radius leaves
# the model as it is, and its score differs by rounding.
_BETTER = 1e-6
_FOLDS = 5


def negative_rmse(model, X, y, sample_weight=None):
    """Return minus the root mean squared error."""
    errors = model._predicted(X)[0] - y
    unit = float(np.abs(errors).max()) or 1.0  # or squares might overflow
    return -unit * float(np.sqrt(np.average((errors / unit) ** 2, weights=sample_weight)))


class HFWMatrixCompletionCV(
    ScoredSearchMixin, CompletedMatrixMixin, CallbackReportMixin, RegressorMixin, BaseEstimator
):
    """Matrix completion in a nuclear-norm ball whose radius is chosen by cross-validation.

    In each fold the radii are gone through in ascending order, each fit starting from the one before. The
    model is then fitted to all entries at the radius with the best mean score.

    Parameters
    ----------
    radii : int or array of floats, default=10
        The radii, or how many. They are followed in ascending order until two in a row are worse than the
        best one: the largest, which take the longest, are seldom needed. A number stands for a grid in equal
        ratios around the default radius of `HFWMatrixCompletion`, from 0.3 to 3 times that. Where the last
        one of it is the best, it goes on, and where the first one is, it is continued to smaller radii, to at
        most twice as many in all; if scores rise even then, there is a warning.
    constraint : {"weighted_nuclear", "nuclear"} or Constraint, default="weighted_nuclear"
        As in `HFWMatrixCompletion`. The radius of an object is set to each of the radii in turn; an automatic
        grid is around the one it has.
    implicit : {"auto", "none", "rows", "columns", "both"}, default="auto"
        As in `HFWMatrixCompletion`. "auto" is decided once, before the radius.
    cv : int, cross-validation generator or iterable, optional
        By default five folds. A number of folds are shuffled, because entries are often in the order of their
        rows.
    scoring : str or callable, optional
        What to maximise, and what `score` returns. By default minus the root mean squared error is maximised,
        and `score` is R².
    n_jobs : int, optional
        How many folds are worked on at the same time.
    weight_exponent, max_rank, biases, bias_penalty, normalize, momentum, step_size, corrective, restart, \
tol, max_iter, max_time, lipschitz, clip
        As in `HFWMatrixCompletion`, for each of the fits.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds, and of all fits.
    verbose : int, default=0
        Whether to print the progress of each fit, with its fold and its radius.

    Attributes
    ----------
    radius_ : float
        The radius with the best mean score; the smallest of them if there are several.
    radii_ : ndarray of shape (n_radii,)
        The radii tried, in ascending order.
    scores_ : ndarray of shape (n_folds, n_radii)
    implicit_ : {"none", "rows", "columns", "both"}
        The implicit features used.

    Notes
    -----
    All other attributes and methods are those of `HFWMatrixCompletion`, fitted to all entries at `radius_`.

    See Also
    --------
    HFWMatrixCompletion : The same with a given radius.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import HFWMatrixCompletionCV
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 40))
    >>> entries = np.argwhere(rng.uniform(size=truth.shape) < 0.3)
    >>> values = truth[tuple(entries.T)] + 0.1 * rng.normal(size=len(entries))
    >>> model = HFWMatrixCompletionCV(tol=1e-2, random_state=0).fit(entries, values)
    >>> model.scores_.shape[0], model.implicit_
    (5, 'none')
    >>> everywhere = np.argwhere(np.ones_like(truth))
    >>> bool(np.abs(model.predict(everywhere) - truth.ravel()).mean() < 0.2)
    True
    """

    _estimator, _default_scorer = HFWMatrixCompletion, staticmethod(negative_rmse)
    _default_score_name = "minus RMSE"

    def __init__(
        self,
        radii=10,
        *,
        constraint="weighted_nuclear",
        weight_exponent=0.2,
        implicit="auto",
        cv=None,
        scoring=None,
        n_jobs=None,
        max_rank=None,
        biases="both",
        bias_penalty=3.0,
        normalize=True,
        momentum="adaptive",
        step_size="line_search",
        corrective=True,
        restart=False,
        tol=1e-1,
        max_iter=1000,
        max_time=None,
        lipschitz=None,
        clip=None,
        random_state=None,
        verbose=0,
    ):
        self.radii = radii
        self.constraint = constraint
        self.weight_exponent = weight_exponent
        self.implicit = implicit
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.max_rank = max_rank
        self.biases = biases
        self.bias_penalty = bias_penalty
        self.normalize = normalize
        self.momentum = momentum
        self.step_size = step_size
        self.corrective = corrective
        self.restart = restart
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.lipschitz = lipschitz
        self.clip = clip
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    @thread_pool()
    def fit(self, X, y, sample_weight=None, *, row_features=None, column_features=None):
        """Choose the radius and fit the model.

        Parameters
        ----------
        X, y, sample_weight, row_features, column_features : as in `HFWMatrixCompletion`

        Returns
        -------
        self
        """
        # Drawn once: all fits have the same seed, so that what differs between them is the radius.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        template = self._template().set_params(random_state=seed)
        template._check_params()
        grid = check_radii(self.radii)
        scorer = self._scorer(template)
        X, y, seen = self._validated(X, y)
        entries = weighted_entries(X, y, sample_weight)
        given = given_features(X, row_features, column_features)
        implicit = template.implicit
        if implicit == "auto":
            implicit = best_implicit(template, *entries, given)
        template.set_params(implicit=implicit)
        weights = None if sample_weight is None else as_sample_weight(sample_weight, len(y))
        folds = self._folds(X, y, weights, seed)
        task = template._task(*entries, given)
        search = RadiusSearch(template, (X, y, weights, given), folds, scorer, self.n_jobs, self.scoring)
        if grid is None:
            rises = search.follow_grid(template._radius(task, implicit), self.radii)
        else:
            rises = False
            search.follow(grid)
        radii, scores, best = search.results()
        radius = float(radii[best])
        chosen = {"radii_": radii, "scores_": scores}
        model = at_radius(template, radius)
        if self.verbose:
            print(f"all entries, radius {radius:.4g}")
        with self._callbacks(X, y, sample_weight, seen) as report:
            certificate = model._complete_task(task, implicit, search.models[radius], report)
            set_fitted(self, seen | certificate.attributes | chosen)
        conclude(type(self).__name__, certificate, search.shortfalls)
        doubts = [doubt_ids(X, self._observed, seen.get("feature_names_in_"))]
        if rises:
            doubts.append(
                f"chose the largest radius it tried, {radius:.4g}; scores still rise there. Try larger ones."
            )
        warn_caller(type(self).__name__, doubts, UserWarning)
        return self

    def _folds(self, X, y, weights, seed):
        cv = _FOLDS if self.cv is None else self.cv
        if isinstance(cv, Integral):
            cv = KFold(cv, shuffle=True, random_state=seed)
        has_weight = np.ones(len(y), dtype=bool) if weights is None else weights > 0.0
        every = np.arange(len(y))  # a part of a split may be a list, or a mask
        folds = [[every[part][has_weight[part]] for part in split] for split in check_cv(cv).split(X, y)]
        if not all(len(part) for fold in folds for part in fold):
            raise ValueError("A fold has a part without any entry of positive weight; use other folds.")
        return folds


class RadiusSearch:
    """Scores of radii in folds, each radius starting from the models of the next smaller one.

    Attributes
    ----------
    models : dict
        By radius, the model of the first fold.
    shortfalls : list
        How the runs fell short of `tol`; None for those that did not.
    """

    def __init__(self, template, data, folds, scorer, n_jobs=None, scoring=None):
        self._template, self._scorer, self._n_jobs, self._scoring = template, scorer, n_jobs, scoring
        self._folds = [_Fold.of(template, data, *fold) for fold in folds]
        self._last = None
        self._scores, self.models, self.shortfalls = {}, {}, []

    def follow_grid(self, unit, n_radii):
        """Try radii until the best one lies between others; return whether there is no such end."""
        if n_radii == 1:
            self.try_radius(unit)
            return False
        ratio = (_ABOVE / _BELOW) ** (1.0 / (n_radii - 1))
        most = _LONGEST * n_radii
        self.follow(_BELOW * unit * ratio ** np.arange(most))
        radii, scores, best = self.results()
        # Downwards, no model is a start for the next one.
        while best == 0 and len(radii) < most and _is_better(*scores.mean(axis=0)[:2]):
            self._last = None
            self.try_radius(radii[0] / ratio)
            radii, scores, best = self.results()
        return best == len(radii) - 1

    def follow(self, radii):
        """Try radii in ascending order, until the best one is behind."""
        for radius in radii:
            self.try_radius(radius)
            tried, _, best = self.results()
            if len(tried) - 1 - best >= _BEYOND:
                break

    def try_radius(self, radius):
        """Fit and score all folds at a radius."""
        starts = self._last or [None] * len(self._folds)
        numbers = range(1, len(self._folds) + 1)
        fitted = Parallel(n_jobs=self._n_jobs)(
            delayed(_fit_fold)(
                at_radius(self._template, radius),
                fold,
                self._scorer,
                start,
                f"fold {number} of {len(self._folds)}, radius {radius:.4g}",
            )
            for number, fold, start in zip(numbers, self._folds, starts, strict=True)
        )
        models, scores, shortfalls = zip(*fitted, strict=True)
        if np.isnan(scores).any():
            fold = int(np.argmax(np.isnan(scores))) + 1
            raise ValueError(
                f"The score of fold {fold} at radius {radius:g} is NaN, which chooses none; "
                f"got scoring={self._scoring!r}."
            )
        self._last, self._scores[radius], self.models[radius] = models, scores, models[0]
        self.shortfalls.extend(shortfalls)

    def results(self):
        """Return the radii in ascending order, their scores by fold, and the first of the best."""
        radii = np.array(sorted(self._scores))
        scores = np.array([self._scores[radius] for radius in radii]).T
        means = scores.mean(axis=0)
        return radii, scores, int(np.argmin(_is_better(means.max(), means)))


def _is_better(score, other):
    return score - other > _BETTER * abs(score)


@dataclass(frozen=True)
class _Fold:
    """What the fits of a fold share: the task of its training part, and the test part.

    Attributes
    ----------
    task : Task
    test : tuple of two arrays
        Ids and values.
    test_weight : dict
        The keyword of the scorer, if there are weights.
    """

    task: Task
    test: tuple
    test_weight: dict

    @classmethod
    def of(cls, template, data, train, test):
        """Return the fold with these places of the data: ids, values, weights or None, and features."""
        X, y, weights, given = data
        part = np.ones(len(train)) if weights is None else weights[train]
        test_weight = {} if weights is None else {"sample_weight": relative_weights(weights[test])}
        return cls(template._task(X[train], y[train], part, given), (X[test], y[test]), test_weight)


@thread_pool()
def _fit_fold(model, fold, scorer, start, heading):
    """Return a model of the fold's training part, its score on the test part, and how it fell short."""
    if model.verbose:
        print(heading)
    certificate = model._complete_task(fold.task, model.implicit, start)
    stop_if_interrupted(certificate)
    n_features = fold.test[0].shape[1]
    set_fitted(model, certificate.attributes | {"n_features_in_": n_features})
    return model, scorer(model, *fold.test, **fold.test_weight), certificate.shortfall
