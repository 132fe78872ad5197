"""Matrix completion in a nuclear-norm ball."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CertifiedFitMixin
from ._ids import IdEncoder, keep_ids
from ._params import COMPLETION_CONSTRAINTS, check_flag, check_sample_weight, make_constraint
from .engine import FactoredMatrix, ObservedEntries, SquaredLoss

_ROUNDING = 64.0 * np.finfo(np.float64).eps
_BIASES = ("none", "mean", "rows", "columns", "both")


class HFWMatrixCompletion(CertifiedFitMixin, RegressorMixin, BaseEstimator):
    r"""Complete a matrix from some of its entries, with a bound on its nuclear norm and a certificate.

    An entry is a sample: its features are the ids of its row and its column, its target is its value. The
    model is a mean, a bias for each row and each column, and a matrix of low rank that minimises half the
    weighted mean squared error over a nuclear-norm ball, by Frank-Wolfe with heavy-ball momentum [1]_. The
    fitted `gap_` is a proven bound on the distance between its error and the smallest one in the ball.

    Parameters
    ----------
    radius : float, default=2.0
        Bound of the sum of singular values. With ``normalize=True`` it is in units of the Frobenius norm of
        the observed values without mean and biases: 1 allows one singular value that could explain them
        all, and a grid such as ``[0.5, 1, 2, 3, 5, 10]`` fits data of any scale. Larger radii fit the
        observed entries more closely and need more iterations; choose it by cross-validation.
    constraint : {"nuclear"} or Constraint, default="nuclear"
        The set of the low-rank part. An object is used as it is, with its own radius.
    biases : {"both", "rows", "columns", "mean", "none"}, default="both"
        What is removed before the low-rank fit: the mean, then the rows' means, then the columns' means.
    normalize : bool, default=True
        Whether `radius` is in units of the norm of the observed values.
    momentum : {"adaptive", "weighted", "uniform", "none"} or float in (0, 1), default="weighted"
        Weight of the newest gradient in the average that gives the direction.
    step_size : {"line_search", "directional", "smooth", "parameter_free"}, default="line_search"
        See `HFWLogisticRegression`.
    restart : bool, default=False
        Whether to forget past gradients when the newest alone proves a smaller gap.
    tol : float, default=2e-2
        Stop when `gap_` is at most `tol` times the objective without a low-rank part.
    max_iter : int, default=1000
        Largest number of steps; each adds at most one to the rank.
    lipschitz : float, optional
        Lipschitz constant of the gradient, for ``step_size="smooth"`` and ``restart=True``.
    clip : tuple of two floats, optional
        Smallest and largest prediction, ``(1, 5)`` for ratings from one to five.
    warm_start : bool, default=False
        Whether to start from the last fit's factors, for the ids it knew.
    random_state : int, RandomState instance or None, default=None
        Seed of the start vectors of the singular-vector oracle. Pass an int for the same bits in each run.
    verbose : int, default=0
        Whether to print the progress.

    Attributes
    ----------
    row_ids_, column_ids_ : ndarray
        The ids seen, in the order of the factors.
    row_factors_ : ndarray of shape (n_rows, rank_)
    column_factors_ : ndarray of shape (n_columns, rank_)
        The low-rank part is ``row_factors_ @ column_factors_.T``; the columns of each are orthogonal, with
        squared norms `singular_values_`.
    singular_values_ : ndarray of shape (rank_,)
    rank_ : int
    mean_ : float
    row_biases_, column_biases_ : ndarray
        Zero where `biases` leaves them out.
    objective_, lower_bound_, gap_ : float
        Half the weighted mean squared error on the observed entries, a proven lower bound of the smallest
        one in the ball, and their difference. The bound accounts for the inexact singular vectors; it is
        wrong with a probability below 1e-12 for each iteration.
    multiplier_ : float
        The Lagrange multiplier of the constraint: how fast the smallest objective falls as `radius` grows.
    converged_ : bool
        Whether `gap_` met `tol`.
    n_iter_, n_restarts_ : int
    trace_ : dict of str to ndarray
        The run as a table; "atoms" is the number of rank-one terms.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    References
    ----------
    .. [1] B. Li, A. Sadeghi and G. B. Giannakis, "Heavy ball momentum for conditional gradient",
       NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import HFWMatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    >>> entries = np.argwhere(rng.uniform(size=truth.shape) < 0.5)
    >>> values = truth[tuple(entries.T)]
    >>> model = HFWMatrixCompletion(radius=2, biases="none", tol=1e-3, random_state=0)
    >>> model.fit(entries, values).converged_
    True
    >>> everywhere = np.argwhere(np.ones_like(truth))
    >>> error = model.predict(everywhere) - truth[tuple(everywhere.T)]
    >>> bool(np.abs(error).mean() < 0.1 * np.abs(truth).mean())
    True
    """

    def __init__(
        self,
        radius=2.0,
        *,
        constraint="nuclear",
        biases="both",
        normalize=True,
        momentum="weighted",
        step_size="line_search",
        restart=False,
        tol=2e-2,
        max_iter=1000,
        lipschitz=None,
        clip=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.radius = radius
        self.constraint = constraint
        self.biases = biases
        self.normalize = normalize
        self.momentum = momentum
        self.step_size = step_size
        self.restart = restart
        self.tol = tol
        self.max_iter = max_iter
        self.lipschitz = lipschitz
        self.clip = clip
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, 2) or more columns
            Ids, numbers or strings. The first names the row, the others name the column together.
        y : array of shape (n_entries,)
            The entries' values.
        sample_weight : array of shape (n_entries,), optional
            A weight of two counts an entry twice, a weight of zero leaves it out.

        Returns
        -------
        self
        """
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        constraint = make_constraint(self.constraint, self.radius, COMPLETION_CONSTRAINTS, seed=seed)
        if not constraint.low_rank:
            raise ValueError(
                f"constraint must be a set of matrices with rank-one atoms, such as NuclearBall; "
                f"got constraint={constraint!r}."
            )
        self._check_solver_params()
        self._check_params()
        X, y = validate_data(self, keep_ids(X), y, dtype=None, ensure_min_features=2, y_numeric=True)
        y = y.astype(np.float64, copy=False)
        weights = check_sample_weight(sample_weight, len(y))
        weights = weights / weights.sum()
        if not weights.all():
            X, y, weights = X[weights > 0.0], y[weights > 0.0], weights[weights > 0.0]

        row_encoder, column_encoder = IdEncoder(), IdEncoder()
        rows, columns = row_encoder.fit(X[:, :1]), column_encoder.fit(X[:, 1:])
        entries = ObservedEntries(rows, columns, (len(row_encoder.ids), len(column_encoder.ids)))
        # Values are divided by `scale` so that nothing overflows, then by `unit`, which the radius counts in.
        scale = float(np.abs(y).max()) or 1.0
        mean, row_biases, column_biases = self._fit_biases(entries, y / scale, weights)
        centred = y / scale - mean - row_biases[rows] - column_biases[columns]
        centred[np.abs(centred) <= _ROUNDING] = 0.0  # explained entirely: what is left is no signal
        unit = (_observed_norm(entries, centred, weights) if self.normalize else 1.0 / scale) or 1.0
        start = self._start(constraint, row_encoder.ids, column_encoder.ids, scale * unit)
        square = (scale * unit) * (scale * unit)
        if not np.isfinite(square):
            raise ValueError(
                f"y is too large for its squares: it reaches {scale:g} in size. Divide it first."
            )
        result = self._solve(SquaredLoss(centred / unit, weights), entries, constraint, start, unit=square)

        left, values, right = result.x.svd()
        self._row_encoder, self._column_encoder = row_encoder, column_encoder
        self.row_ids_ = row_encoder.ids[:, 0]
        self.column_ids_ = column_encoder.ids[:, 0] if X.shape[1] == 2 else column_encoder.ids
        self.singular_values_ = scale * unit * values
        self.row_factors_ = left * np.sqrt(self.singular_values_)
        self.column_factors_ = right * np.sqrt(self.singular_values_)
        self.rank_ = len(values)
        self.mean_ = scale * mean
        self.row_biases_, self.column_biases_ = scale * row_biases, scale * column_biases
        return self

    def _check_params(self) -> None:
        if self.biases not in _BIASES:
            raise ValueError(
                f"biases must be one of {', '.join(map(repr, _BIASES))}; got biases={self.biases!r}."
            )
        check_flag("normalize", self.normalize)
        if self.clip is not None and not (np.shape(self.clip) == (2,) and self.clip[0] <= self.clip[1]):
            raise ValueError(
                f"clip must be None or a pair of numbers in ascending order; got clip={self.clip!r}."
            )

    def _fit_biases(self, entries, y, weights):
        """Return the mean, then the rows' means of what is left, then the columns'."""
        mean = float(weights @ y) if self.biases != "none" else 0.0
        row_biases, column_biases = np.zeros(entries.shape[0]), np.zeros(entries.shape[1])
        left = y - mean
        if self.biases in ("rows", "both"):
            row_biases = _group_means(entries.row_indices, left, weights)
            left = left - row_biases[entries.row_indices]
        if self.biases in ("columns", "both"):
            column_biases = _group_means(entries.column_indices, left, weights)
        return mean, row_biases, column_biases

    def _start(self, constraint, row_ids, column_ids, unit):
        """Return the last fit's low-rank part, on the ids known to both, as a point of the set."""
        if not (self.warm_start and hasattr(self, "rank_")):
            return None
        if self._column_encoder.ids.shape[1] != column_ids.shape[1]:
            return None
        row_of, column_of = self._row_encoder.transform(row_ids), self._column_encoder.transform(column_ids)
        left = np.where(row_of[:, np.newaxis] >= 0, self.row_factors_[row_of], 0.0)
        right = np.where(column_of[:, np.newaxis] >= 0, self.column_factors_[column_of], 0.0)
        weights = np.full(self.rank_, 1.0 / unit)
        return constraint.scale_into(
            FactoredMatrix((len(left), len(right)), tuple(left.T), tuple(right.T), weights)
        )

    def predict(self, X):
        """Return the values of entries; of rows and columns not seen in `fit` only the biases are known.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, n_features_in_)
            Ids, as in `fit`.

        Returns
        -------
        ndarray of shape (n_entries,)
        """
        check_is_fitted(self)
        X = validate_data(self, keep_ids(X), dtype=None, reset=False)
        rows, columns = self._row_encoder.transform(X[:, :1]), self._column_encoder.transform(X[:, 1:])
        # Index -1, for what was not seen, reads the zero appended at the end.
        result = (
            self.mean_ + np.append(self.row_biases_, 0.0)[rows] + np.append(self.column_biases_, 0.0)[columns]
        )
        seen = (rows >= 0) & (columns >= 0)
        for left, right in zip(self.row_factors_.T, self.column_factors_.T, strict=True):
            result[seen] += left[rows[seen]] * right[columns[seen]]
        return result if self.clip is None else np.clip(result, *self.clip)

    def __sklearn_tags__(self):
        """Declare that ids may be strings."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


def _group_means(groups, values, weights):
    return np.bincount(groups, weights * values) / np.bincount(groups, weights)


def _observed_norm(entries, values, weights):
    """Frobenius norm of the observed matrix; an entry observed repeatedly has its weighted mean value."""
    return float(np.linalg.norm(entries.totals(weights * values) / entries.totals(weights)))
