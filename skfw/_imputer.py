"""Imputation of missing values by a matrix of low rank."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._entries import matrix_to_entries
from ._matrix_completion import HFWMatrixCompletion
from ._params import check_number
from .engine import NuclearBall

# Numbers in the equations of new rows that are solved at once.
_BLOCK = 1 << 20
# Radii to choose from, and the share of the values that decides. The search ends where the squared error is
# so many times that of the best one.
_RADII, _HELD_OUT, _WORSE = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0), 0.1, 1.1
# Of the largest squared singular value: keeps equations solvable where nothing else does.
_RIDGE = 1e-10


class HFWImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill in missing values by a matrix of low rank, fitted with a certificate.

    The columns are standardised, and completed by `HFWMatrixCompletion` in a nuclear-norm ball. A row to
    transform, known or new, is then fitted to the column space learned; observed values are left as they are.

    Parameters
    ----------
    radius : float, optional
        Bound of the sum of singular values, in units of the norm of the observed, standardised values. By
        default the one that best predicts a tenth of the observed values, held out for that.
    bias_penalty : float, default=5.0
        The biases of rows and columns are shrunk as if each had so many more entries that say zero.
    tol : float, default=1e-2
        Stop when the certified gap is at most `tol` times the objective without a low-rank part.
    max_iter : int, default=1000
        Largest number of steps.
    random_state : int, RandomState instance or None, default=None
        Seed of the start vectors of the singular-vector oracle.

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
        X = self._validated(X, reset=True)
        entries, values = matrix_to_entries(X)
        if not len(values):
            raise ValueError("X has no observed value; there is nothing to learn from.")
        # A seed, so that the fits that choose the radius are those of any other one.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.radius_ = (
            self._best_radius(entries, values, X.shape, seed) if self.radius is None else self.radius
        )
        return self._fit_entries(entries, values, X.shape, seed)

    def _fit_entries(self, entries, values, shape, seed):
        columns, n_features = entries[:, 1], shape[1]
        counts = np.maximum(np.bincount(columns, minlength=n_features), 1)
        self.means_ = np.bincount(columns, values, n_features) / counts
        left = values - self.means_[columns]
        squares = np.bincount(columns, left**2, n_features) / counts
        self.scales_ = np.where(squares > 0.0, np.sqrt(squares), 1.0)
        left /= self.scales_[columns]
        # The multiplier of a ball in the values' own units is what new rows are penalised with.
        ball = NuclearBall(self.radius_ * (float(np.linalg.norm(left)) or 1.0))
        self.completion_ = HFWMatrixCompletion(
            constraint=ball,
            bias_penalty=self.bias_penalty,
            normalize=False,
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=seed,
        ).fit(entries, left)
        self.n_iter_ = self.completion_.n_iter_
        self._n_entries = len(values)
        return self

    def _best_radius(self, entries, values, shape, seed):
        """Return the radius whose fit to most of the values predicts the others best."""
        held_out = np.random.default_rng(seed).uniform(size=len(values)) < _HELD_OUT
        if held_out.all() or not held_out.any():
            return _RADII[0]
        known, errors = (entries[~held_out], values[~held_out], shape), []
        trial, (rows, columns) = clone(self), entries[held_out].T
        for trial.radius_ in _RADII:
            completed = trial._fit_entries(*known, seed)._complete(*known)
            left = (completed[rows, columns] - values[held_out]) / trial.scales_[columns]
            errors.append(float(np.sum(left**2)))
            # Beyond the best radius the values are interpolated, now with a larger error, now a smaller one.
            if errors[-1] > _WORSE * min(errors):
                break
        return _RADII[int(np.argmin(errors))]

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
        X = self._validated(X, reset=False)
        return self._complete(*matrix_to_entries(X), X.shape).astype(X.dtype, copy=False)

    def _complete(self, entries, values, shape):
        """Fit each row's factors to its entries, and return all rows."""
        (rows, columns), n_features, model = entries.T, shape[1], self.completion_
        # The factors and biases of all columns; those never seen have none.
        factors, biases = np.zeros((n_features, model.rank_ + 1)), np.zeros(n_features)
        seen = model.column_ids_.astype(np.intp)
        factors[seen, :-1], biases[seen] = model.column_factors_, model.mean_ + model.column_biases_
        factors[seen, -1] = 1.0  # what the bias of a row is multiplied by
        left = (values - self.means_[columns]) / self.scales_[columns] - biases[columns]
        observed = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        targets = sparse.csr_matrix((left, (rows, columns)), shape=shape) @ factors
        # The fitted rows solve these equations already: their gradient is minus the multiplier times them.
        ridge = np.full(model.rank_ + 1, self._n_entries * model.multiplier_)
        ridge[-1] = self.bias_penalty
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
            result[part] = (row_factors @ factors.T + biases) * self.scales_ + self.means_
        result[rows, columns] = values
        return result

    def _validated(self, X, reset):
        return validate_data(
            self,
            X,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=reset,
        )

    def __sklearn_tags__(self):
        """Declare that NaN stands for what is missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
