"""Imputation of missing values by a matrix of low rank."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import (
    CallbackReportMixin,
    conclude,
    set_fitted,
    stop_if_interrupted,
    validated,
    with_callbacks,
)
from ._entries import matrix_to_entries
from ._matrix_completion import HFWMatrixCompletion
from ._params import check_flag, check_number, is_number
from .engine import NuclearBall, thread_pool

# Numbers in the equations of new rows that are solved at once.
_BLOCK = 1 << 20
# From this share of values observed, a product with an array is faster than one with a sparse matrix.
_DENSE = 0.2
# Radii to choose from, and the share of the values that decides.
_RADII, _HELD_OUT = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0), 0.1
_ROUNDING = np.finfo(np.float64).eps
# Of the largest squared singular value: keeps equations solvable where nothing else does.
_RIDGE = 1e-10


class HFWImputer(CallbackReportMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill in missing values by a matrix of low rank, fitted with a certificate.

    The columns are standardised, and completed by `HFWMatrixCompletion` in a nuclear-norm ball. A row to
    transform, known or new, is then fitted to the column space learned; observed values are left as they are.
    A column with equal values is filled with that value.

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
    max_time : float, optional
        No iteration begins later than this many seconds after its fit: that of each radius tried, and the
        last one.
    random_state : int, RandomState instance or None, default=None
        Seed of what is held out to choose the radius, and of the start vectors of the singular-vector oracle.
    missing_values : int, float or np.nan, default=np.nan
        What stands for a missing value; for ``pd.NA`` in a data frame it is ``np.nan``. Of a sparse matrix
        the stored values are the observed ones, zeros included, but for those equal to `missing_values`.
    add_indicator : bool, default=False
        Whether to append the output of a `MissingIndicator` to the completed columns: for each column with a
        missing value in `fit`, whether the value is missing.
    keep_empty_features : bool, default=False
        Whether to keep columns without any observed value in `fit`. What is missing there is filled with 0.

    Attributes
    ----------
    radius_ : float
        The radius, given or chosen.
    completion_ : HFWMatrixCompletion
        The fitted model of the standardised values: its `gap_`, `rank_`, `column_factors_` and the rest.
    means_, scales_ : ndarray of shape (`n_features_in_`,)
        What the columns were standardised by. The scale of a column without two different values is 1, the
        mean of one without any value 0.
    indicator_ : MissingIndicator or None
        None unless `add_indicator` is True.
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

    def __init__(
        self,
        radius=None,
        *,
        bias_penalty=5.0,
        tol=1e-2,
        max_iter=1000,
        max_time=None,
        random_state=None,
        missing_values=np.nan,
        add_indicator=False,
        keep_empty_features=False,
    ):
        self.radius = radius
        self.bias_penalty = bias_penalty
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.random_state = random_state
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features

    @with_callbacks
    @thread_pool()
    def fit(self, X, y=None):
        """Learn the column space.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), or CSR or CSC
            Missing is what equals `missing_values`, and what a sparse matrix does not store.
        y : ignored

        Returns
        -------
        self
        """
        self._check_params()
        X, seen = validated(self, X, **self._data_options())
        entries, values = self._observed(X)
        if not len(values):
            raise ValueError("X has no observed value; there is nothing to learn from.")
        columns = entries[:, 1]
        indicator = None
        if self.add_indicator:
            indicator = MissingIndicator(missing_values=self.missing_values, error_on_new=False)
            indicator.fit(self._with_holes(X, entries, values))
        kept = (np.bincount(columns, minlength=X.shape[1]) > 0) | self.keep_empty_features
        seen |= {"indicator_": indicator, "_kept": kept}
        exponents = _exponents(values, columns, X.shape[1])
        scaled = np.ldexp(values, -exponents[columns])
        # Drawn once: all fits have the same seed, so that what differs between them is the radius.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with self._callbacks(X, None, None, seen) as report:
            radius, shortfalls = self.radius, []
            if radius is None:
                radius, shortfalls = self._best_radius(entries, scaled, X.shape, seed)
            space, certificate = self._column_space(radius, entries, scaled, exponents, seed, report)
            set_fitted(self, seen | _space_attributes(radius, space))
        conclude(type(self).__name__, certificate, shortfalls)
        return self

    def _check_params(self):
        if self.radius is not None:
            check_number("radius", self.radius, above=0.0)
        check_number("bias_penalty", self.bias_penalty, above=0.0)
        self._completion()._check_params()
        if not is_number(self.missing_values) or np.isinf(self.missing_values):
            raise ValueError(
                "missing_values must be a finite number or np.nan; "
                f"got missing_values={self.missing_values!r}."
            )
        check_flag("add_indicator", self.add_indicator)
        check_flag("keep_empty_features", self.keep_empty_features)

    def _data_options(self):
        """Return the options of `validate_data`."""
        return {
            "accept_sparse": "csr",  # the order of the entries decides which are held out
            "dtype": [np.float64, np.float32],
            "ensure_all_finite": "allow-nan" if np.isnan(self.missing_values) else True,
        }

    def _observed(self, X):
        """Return the observed entries of validated data, and their values."""
        entries, values = matrix_to_entries(X)
        observed = values != self.missing_values  # what is stored in a sparse matrix may be missing, too
        return entries[observed], values[observed].astype(np.float64, copy=False)

    def _with_holes(self, X, entries, values):
        """Return the data as an array with `missing_values` wherever there is no entry."""
        matrix = np.full(X.shape, self.missing_values, dtype=X.dtype)
        matrix[tuple(entries.T)] = values
        return matrix

    def _completion(self):
        return HFWMatrixCompletion(
            bias_penalty=self.bias_penalty,
            normalize=False,
            tol=self.tol,
            max_iter=self.max_iter,
            max_time=self.max_time,
        )

    def _column_space(self, radius, entries, scaled, exponents, seed, report=None):
        """Return the column space at a radius, and the certificate of its fit."""
        means, scales, standardised = _standardised(scaled, entries[:, 1], len(exponents))
        # The multiplier of a ball with an absolute radius is what new rows are penalised with.
        ball = NuclearBall(radius * (float(np.linalg.norm(standardised)) or 1.0), random_state=seed)
        completion = self._completion().set_params(constraint=ball)

        def space(attributes):
            model = copy(completion)
            set_fitted(model, attributes | {"n_features_in_": entries.shape[1]})
            return _ColumnSpace(exponents, means, scales, len(scaled), model)

        def report_space(attributes):
            return report(lambda: _space_attributes(radius, space(attributes())))

        certificate = completion._complete(entries, standardised, report=report and report_space)
        return space(certificate.attributes), certificate

    def _best_radius(self, entries, scaled, shape, seed):
        """Return the radius whose fit to most values predicts the others best, and how fits fell short.

        As the radius grows the error falls, then rises. From 1, where a single singular value could explain
        all values, the search goes downhill in steps of two radii, then of one.
        """
        held_out = np.random.default_rng(seed).uniform(size=len(scaled)) < _HELD_OUT
        if held_out.all() or not held_out.any():
            return _RADII[0], []
        known, known_values = entries[~held_out], scaled[~held_out]
        rows, columns = entries[held_out].T
        _, scales, _ = _standardised(scaled, entries[:, 1], shape[1])
        unit_exponents = np.zeros(shape[1], dtype=np.intc)
        errors, shortfalls = {}, []

        def error(place):
            if place not in errors:
                radius = _RADII[place]
                space, certificate = self._column_space(radius, known, known_values, unit_exponents, seed)
                stop_if_interrupted(certificate)
                shortfalls.append(certificate.shortfall)
                completed = space.complete(known, known_values, shape, np.float64)
                difference = completed[rows, columns] - scaled[held_out]
                errors[place] = float(np.sum((difference / _divisors(scales)[columns]) ** 2))
            return errors[place]

        best = _RADII.index(1.0)
        for stride in (2, 1):
            for step in (stride, -stride):
                while 0 <= best + step < len(_RADII) and error(best + step) < error(best):
                    best += step
        return _RADII[best], shortfalls

    def transform(self, X):
        """Fill in what is missing.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            The columns that are kept, and those of the indicator.
        """
        check_is_fitted(self)
        X = validate_data(self, X, **self._data_options(), reset=False)
        entries, values = self._observed(X)
        completed = self._space.complete(entries, values, X.shape, X.dtype)
        completed = np.compress(self._kept, completed, axis=1)
        if self.indicator_ is None:
            return completed
        return np.hstack([completed, self.indicator_.transform(self._with_holes(X, entries, values))])

    def get_feature_names_out(self, input_features=None):
        """Return the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array of shape (`n_features_in_`,) of str, optional
            Names of the columns of X; by default `feature_names_in_`, or else ``x0``, ``x1``, ...

        Returns
        -------
        ndarray of str objects
        """
        names = super().get_feature_names_out(input_features)
        if self.indicator_ is None:
            return names[self._kept]
        return np.concatenate([names[self._kept], self.indicator_.get_feature_names_out(names)])

    def __sklearn_tags__(self):
        """Declare that NaN stands for what is missing, unless another number does."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = is_number(self.missing_values) and bool(np.isnan(self.missing_values))
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _exponents(values, columns, n_features):
    """Return the exponents of the powers of two that columns are divided by, so that they reach 1, but not 2.

    What that loses is beyond the digits of the largest. Sums and differences do not overflow then.
    """
    largest = np.zeros(n_features)
    np.maximum.at(largest, columns, np.abs(values))
    return np.frexp(largest)[1] - 1


def _unscaled(scaled, exponents, dtype=np.float64):
    """Return numbers times powers of two; those too large for their type become its largest number."""
    largest = float(np.finfo(dtype).max)
    with np.errstate(over="ignore"):
        return np.ldexp(scaled, exponents).clip(-largest, largest).astype(dtype, copy=False)


def _standardised(values, columns, n_features):
    """Return the means of the columns, their standard deviations, and the values standardised by them."""
    counts = np.maximum(np.bincount(columns, minlength=n_features), 1)
    means = np.bincount(columns, values, n_features) / counts
    centred = values - means[columns]
    sizes = np.zeros(n_features)
    np.maximum.at(sizes, columns, np.abs(centred))
    sizes[sizes <= _ROUNDING * counts * np.abs(means)] = 0.0  # no more than the rounding error of the mean
    # What is held out may be much larger than all others in its column: their squares would underflow.
    relative = np.where(sizes[columns] > 0.0, centred, 0.0) / _divisors(sizes)[columns]
    deviations = np.sqrt(np.bincount(columns, relative**2, n_features) / counts)
    return means, deviations * sizes, relative / _divisors(deviations)[columns]


def _divisors(scales):
    """Return what to divide columns by: their scales, or 1 where that is 0."""
    return np.where(scales > 0.0, scales, 1.0)


def _space_attributes(radius, space):
    """Return the fitted attributes of the imputer."""
    completion = space.completion
    return {
        "radius_": radius,
        "means_": _unscaled(space.means, space.exponents),
        "scales_": np.where(space.scales > 0.0, _unscaled(space.scales, space.exponents), 1.0),
        "completion_": completion,
        "n_iter_": completion.n_iter_,
        "_space": space,
    }


@dataclass(frozen=True)
class _ColumnSpace:
    """A model of `n_entries` standardised values, and how to get there.

    Columns are divided by two to the power of `exponents`, and standardised by `means` and `scales` then. A
    scale of 0 is that of a column without two different values.
    """

    exponents: np.ndarray
    means: np.ndarray
    scales: np.ndarray
    n_entries: int
    completion: HFWMatrixCompletion

    def complete(self, entries, values, shape, dtype):
        """Fit each row's factors to its entries, and return all rows."""
        (rows, columns), n_features, model = entries.T, shape[1], self.completion
        # The factors and biases of all columns; those never seen have none.
        factors, biases = np.zeros((n_features, model.rank_ + 1)), np.zeros(n_features)
        seen = model.column_ids_.astype(np.intp)
        factors[seen, :-1], biases[seen] = model.column_factors_, model.mean_ + model.column_biases_
        factors[seen, -1] = 1.0  # what the bias of a row is multiplied by
        # A new row may have much larger values than those that were fitted. It is divided by a power of two,
        # and so are the numbers that are subtracted from it.
        row_exponents = np.zeros(shape[0], dtype=self.exponents.dtype)
        np.maximum.at(row_exponents, rows, np.frexp(values)[1] - 1 - self.exponents[columns])
        units = np.ldexp(1.0, -row_exponents)
        scaled = np.ldexp(values, -self.exponents[columns] - row_exponents[rows])
        standardised = (scaled - units[rows] * self.means[columns]) / _divisors(self.scales)[columns]
        unbiased = standardised - units[rows] * biases[columns]
        observed = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        if len(rows) > _DENSE * shape[0] * n_features:
            observed = observed.toarray()
        targets = sparse.csr_matrix((unbiased, (rows, columns)), shape=shape) @ factors
        # The fitted rows solve these equations already: their gradient is minus the multiplier times them.
        ridge = np.full(model.rank_ + 1, self.n_entries * model.multiplier_)
        ridge[-1] = model.bias_penalty
        ridge += _RIDGE * float(model.singular_values_.max(initial=1.0))
        first, second = np.triu_indices(len(ridge))
        pairs = factors[:, first] * factors[:, second]
        pair_of = np.empty((len(ridge), len(ridge)), dtype=np.intp)
        pair_of[first, second] = pair_of[second, first] = np.arange(len(first))
        result = np.empty(shape, dtype=dtype)
        size = max(1, _BLOCK // max(len(first), n_features))
        for start in range(0, shape[0], size):
            part = slice(start, start + size)
            equations = np.take(observed[part] @ pairs, pair_of, axis=1)
            equations[:, np.arange(len(ridge)), np.arange(len(ridge))] += ridge
            row_factors = np.linalg.solve(equations, targets[part][..., np.newaxis])[..., 0]
            unit = units[part, np.newaxis]
            completed = (row_factors @ factors.T + unit * biases) * self.scales + unit * self.means
            result[part] = _unscaled(completed, self.exponents + row_exponents[part, np.newaxis], dtype)
        result[rows, columns] = values
        return result
