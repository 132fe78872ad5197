"""Imputation of missing values by a matrix of low rank."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CallbackReportMixin, set_fitted, validated, warn_caller, with_callbacks
from ._entries import matrix_to_entries
from ._matrix_completion import HFWMatrixCompletion
from ._params import check_number
from .engine import NuclearBall

# Numbers in the equations of new rows that are solved at once.
_BLOCK = 1 << 20
# Radii to choose from, and the share of the values that decides. The search ends where the squared error is
# this multiple of that of the best one.
_RADII, _HELD_OUT, _WORSE = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0), 0.1, 1.1
_ROUNDING = np.finfo(np.float64).eps
# Of the largest squared singular value: keeps equations solvable where nothing else does.
_RIDGE = 1e-10
# Options of `validate_data` for a matrix with holes.
_MATRIX = {
    "accept_sparse": ["csr", "csc"],
    "dtype": [np.float64, np.float32],
    "ensure_all_finite": "allow-nan",
}


class HFWImputer(CallbackReportMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill in missing values by a matrix of low rank, fitted with a certificate.

    The columns are standardised, and completed by `HFWMatrixCompletion` in a nuclear-norm ball. A row to
    transform, known or new, is then fitted to the column space learned; observed values are left as they are.

    Parameters
    ----------
    radius : float, optional
        Bound of the sum of singular values, relative to the norm of the observed, standardised values. By
        default the one that best predicts a tenth of the observed values, held out for that.
    bias_penalty : float, default=5.0
        The biases of rows and columns are shrunk as if each had this many additional entries of zero.
    tol : float, default=1e-2
        Stop when the certified gap is at most `tol` times the objective without a low-rank part.
    max_iter : int, default=1000
        Largest number of steps.
    random_state : int, RandomState instance or None, default=None
        Seed of what is held out to choose the radius, and of the start vectors of the singular-vector oracle.

    Attributes
    ----------
    radius_ : float
        The radius, given or chosen.
    completion_ : HFWMatrixCompletion
        The fitted model of the standardised values: its `gap_`, `rank_`, `column_factors_` and the rest.
    means_, scales_ : ndarray of shape (`n_features_in_`,)
        What the columns were standardised by. A column without any value has mean 0, which it is filled with.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    HFWMatrixCompletion : Works on entries, with all options.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import HFWImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 8))
    >>> holes = rng.uniform(size=X.shape) < 0.2
    >>> completed = HFWImputer(random_state=0).fit_transform(np.where(holes, np.nan, X))
    >>> bool(abs(completed - X)[holes].mean() < 0.3 * abs(X)[holes].mean())
    True
    """

    def __init__(self, radius=None, *, bias_penalty=5.0, tol=1e-2, max_iter=1000, random_state=None):
        self.radius = radius
        self.bias_penalty = bias_penalty
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @with_callbacks
    def fit(self, X, y=None):
        """Learn the column space.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), with NaN where values are missing; or CSR or CSC
            Of a sparse matrix the stored values are the observed ones.
        y : ignored

        Returns
        -------
        self
        """
        if self.radius is not None:
            check_number("radius", self.radius, above=0.0)
        check_number("bias_penalty", self.bias_penalty, above=0.0)
        self._completion()._check_params()
        X, seen = validated(self, X, **_MATRIX)
        entries, values = matrix_to_entries(X)
        if not len(values):
            raise ValueError("X has no observed value; there is nothing to learn from.")
        # Drawn once: all fits have the same seed, so that what differs between them is the radius.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with self._callbacks(X, None, None, seen) as report:
            radius, shortfalls = self.radius, []
            if radius is None:
                radius, shortfalls = self._best_radius(entries, values, X.shape, seed)
            space, shortfall = self._column_space(radius, entries, values, X.shape, seed, report)
            set_fitted(self, seen | _space_attributes(radius, space))
        warn_caller(type(self).__name__, [*shortfalls, shortfall])
        return self

    def _completion(self):
        return HFWMatrixCompletion(
            bias_penalty=self.bias_penalty, normalize=False, tol=self.tol, max_iter=self.max_iter
        )

    def _column_space(self, radius, entries, values, shape, seed, report=None):
        """Return the column space at a radius, and how its fit fell short, if it did."""
        means, scales, standardised = _standardised(values, entries[:, 1], shape[1])
        # The multiplier of a ball with an absolute radius is what new rows are penalised with.
        ball = NuclearBall(radius * (float(np.linalg.norm(standardised)) or 1.0), random_state=seed)
        completion = self._completion().set_params(constraint=ball)

        def space(attributes):
            model = copy(completion)
            set_fitted(model, attributes | {"n_features_in_": entries.shape[1]})
            return _ColumnSpace(means, scales, len(values), model)

        def report_space(attributes):
            return report(lambda: _space_attributes(radius, space(attributes())))

        certificate = completion._complete(entries, standardised, report=report and report_space)
        return space(certificate.attributes), certificate.shortfall

    def _best_radius(self, entries, values, shape, seed):
        """Return the radius whose fit to most values predicts the others best, and how fits fell short."""
        held_out = np.random.default_rng(seed).uniform(size=len(values)) < _HELD_OUT
        if held_out.all() or not held_out.any():
            return _RADII[0], []
        training = entries[~held_out], values[~held_out], shape
        errors, shortfalls = [], []
        rows, columns = entries[held_out].T
        for radius in _RADII:
            space, shortfall = self._column_space(radius, *training, seed)
            shortfalls.append(shortfall)
            difference = (space.complete(*training)[rows, columns] - values[held_out]) / space.scales[columns]
            errors.append(float(np.sum(difference**2)))
            # Beyond the best radius the values are interpolated, now with a larger error, now a smaller one.
            if errors[-1] > _WORSE * min(errors):
                break
        return _RADII[int(np.argmin(errors))], shortfalls

    def transform(self, X):
        """Fill in what is missing.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = validate_data(self, X, **_MATRIX, reset=False)
        return self._space.complete(*matrix_to_entries(X), X.shape).astype(X.dtype, copy=False)

    def __sklearn_tags__(self):
        """Declare that NaN stands for what is missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _standardised(values, columns, n_features):
    """Return the means of the columns, their standard deviations, and the values standardised by them."""
    counts = np.maximum(np.bincount(columns, minlength=n_features), 1)
    means = np.bincount(columns, values, n_features) / counts
    centred = values - means[columns]
    sizes = np.zeros(n_features)
    np.maximum.at(sizes, columns, np.abs(centred))
    constant = sizes <= _ROUNDING * counts * np.abs(means)  # no more than the rounding error of the mean
    sizes[constant], centred[constant[columns]] = 1.0, 0.0
    centred /= sizes[columns]  # so that squares neither overflow nor underflow
    scales = np.sqrt(np.bincount(columns, centred**2, n_features) / counts)
    scales[constant] = 1.0
    return means, scales * sizes, centred / scales[columns]


def _space_attributes(radius, space):
    """Return the fitted attributes of the imputer."""
    completion = space.completion
    return {
        "radius_": radius,
        "means_": space.means,
        "scales_": space.scales,
        "completion_": completion,
        "n_iter_": completion.n_iter_,
        "_space": space,
    }


@dataclass(frozen=True)
class _ColumnSpace:
    """What the columns were standardised by, and the model of `n_entries` values that are."""

    means: np.ndarray
    scales: np.ndarray
    n_entries: int
    completion: HFWMatrixCompletion

    def complete(self, entries, values, shape):
        """Fit each row's factors to its entries, and return all rows."""
        (rows, columns), n_features, model = entries.T, shape[1], self.completion
        # The factors and biases of all columns; those never seen have none.
        factors, biases = np.zeros((n_features, model.rank_ + 1)), np.zeros(n_features)
        seen = model.column_ids_.astype(np.intp)
        factors[seen, :-1], biases[seen] = model.column_factors_, model.mean_ + model.column_biases_
        factors[seen, -1] = 1.0  # what the bias of a row is multiplied by
        unbiased = (values - self.means[columns]) / self.scales[columns] - biases[columns]
        observed = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        targets = sparse.csr_matrix((unbiased, (rows, columns)), shape=shape) @ factors
        # The fitted rows solve these equations already: their gradient is minus the multiplier times them.
        ridge = np.full(model.rank_ + 1, self.n_entries * model.multiplier_)
        ridge[-1] = model.bias_penalty
        ridge += _RIDGE * float(model.singular_values_.max(initial=1.0))
        first, second = np.triu_indices(len(ridge))
        pairs = factors[:, first] * factors[:, second]
        result = np.empty(shape)
        size = max(1, _BLOCK // max(len(first), n_features))
        for start in range(0, shape[0], size):
            part = slice(start, start + size)
            equations = np.zeros((min(size, shape[0] - start), len(ridge), len(ridge)))
            equations[:, first, second] = equations[:, second, first] = observed[part] @ pairs
            equations[:, np.arange(len(ridge)), np.arange(len(ridge))] += ridge
            row_factors = np.linalg.solve(equations, targets[part][..., np.newaxis])[..., 0]
            result[part] = (row_factors @ factors.T + biases) * self.scales + self.means
        result[rows, columns] = values
        return result
