"""Imputation of missing values by a matrix of low rank."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.model_selection import ShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CallbackReportMixin, conclude, set_fitted, validated, with_callbacks
from ._entries import matrix_to_entries
from ._matrix_completion import HFWMatrixCompletion
from ._matrix_completion_cv import RadiusSearch, negative_rmse
from ._params import check_flag, check_number, is_number
from ._radius_path import at_radius
from .engine import thread_pool

# Numbers in the equations of new rows that are solved at once.
_BLOCK = 1 << 20
# From this share of values observed, a product with an array is faster than one with a sparse matrix.
_DENSE = 0.2
# The middle of the radii to choose from, how many there are, and the share of the values that decides.
_RADIUS, _N_RADII, _HELD_OUT = 5.0, 8, 0.1
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
        Bound of the sum of singular values, relative to the norm of the observed, standardised values without
        mean and biases. By default the one that best predicts a tenth of the observed values, held out for
        that; it is searched for as in `HFWMatrixCompletionCV`.
    bias_penalty : float, default=5.0
        The biases of rows and columns are shrunk as if each had this many additional entries of zero.
    tol : float, default=1e-2
        Stop when the certified gap is at most `tol` times what the low-rank part has lowered the objective
        by, as in `HFWMatrixCompletion`.
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
    HFWMatrixCompletion, HFWMatrixCompletionCV : Work on entries, with all options.

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
        indicator = None
        if self.add_indicator:
            indicator = MissingIndicator(missing_values=self.missing_values, error_on_new=False)
            indicator.fit(self._with_holes(X, entries, values))
        kept = (np.bincount(entries[:, 1], minlength=X.shape[1]) > 0) | self.keep_empty_features
        units = _Standardisation.of(entries, values, X.shape[1])
        seen |= {"indicator_": indicator, "_kept": kept, "_units": units} | units.attributes()
        standardised, _ = units.apply(entries, values, X.shape[0])
        with self._callbacks(X, None, None, seen) as report:
            completion, start, shortfalls = self._completion(), None, []
            if self.radius is None and len(values) > 1:  # a single value cannot choose
                completion, start, shortfalls = self._at_best_radius(entries, standardised)

            def fitted(attributes):
                model = copy(completion)
                set_fitted(model, attributes | {"n_features_in_": entries.shape[1]})
                return {"completion_": model, "n_iter_": model.n_iter_, "radius_": completion.radius}

            def report_fitted(attributes):
                return report(lambda: fitted(attributes()))

            told = report and report_fitted
            weights = np.ones(len(values))
            certificate = completion._complete(entries, standardised, weights, start=start, report=told)
            set_fitted(self, seen | fitted(certificate.attributes))
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
            _RADIUS if self.radius is None else self.radius,
            constraint="nuclear",
            implicit="none",
            bias_penalty=self.bias_penalty,
            tol=self.tol,
            max_iter=self.max_iter,
            max_time=self.max_time,
            random_state=self.random_state,
        )

    def _at_best_radius(self, entries, values):
        """Return the model to fit, one to start from, and how the fits that chose the radius fell short."""
        # Drawn once: all fits have the same seed, so that what differs between them is the radius.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        template = self._completion().set_params(random_state=seed)
        split = ShuffleSplit(1, test_size=_HELD_OUT, random_state=seed).split(values)
        data = entries, values, None, (None, None)
        search = RadiusSearch(template, data, list(split), negative_rmse)
        search.follow_grid(_RADIUS, _N_RADII)
        radii, _, best = search.results()
        return at_radius(template, radii[best]), search.models[radii[best]], search.shortfalls

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
        standardised, exponents = self._units.apply(entries, values, X.shape[0])
        row_units = np.ldexp(1.0, -exponents)
        completed = np.empty(X.shape, dtype=X.dtype)
        for part, rows in _completed(self.completion_, entries, standardised, row_units, X.shape):
            completed[part] = self._units.undo(rows, exponents[part], X.dtype)
        completed[tuple(entries.T)] = values
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


def _completed(model, entries, values, row_units, shape):
    """Fit each row's factors to its entries; yield rows with their slice, a block at a time.

    The values of a row, those given and those returned, are in units of two to a power: its `row_units` are
    what 1 is there.
    """
    rows, columns = entries.T
    # The factors and biases of all columns; those never seen have none.
    factors, biases = np.zeros((shape[1], model.rank_ + 1)), np.zeros(shape[1])
    seen = model.column_ids_.astype(np.intp)
    factors[seen, :-1], biases[seen] = model.column_factors_, model.mean_ + model.column_biases_
    factors[seen, -1] = 1.0  # what the bias of a row is multiplied by
    unbiased = values - row_units[rows] * biases[columns]
    observed = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    if len(rows) > _DENSE * shape[0] * shape[1]:
        observed = observed.toarray()
    targets = sparse.csr_matrix((unbiased, (rows, columns)), shape=shape) @ factors
    # The fitted rows solve these equations already: the multiplier of the norm is what holds them. It is
    # known up to the gap. The largest that it may be holds new rows, even where the ball holds nothing.
    norm = float(model.singular_values_.sum()) or 1.0
    multiplier = (model.radius * model.multiplier_ + model.gap_) / norm
    ridge = np.full(model.rank_ + 1, model._observed.nnz * multiplier)
    ridge[-1] = model.bias_penalty
    ridge += _RIDGE * float(model.singular_values_.max(initial=1.0))
    first, second = np.triu_indices(len(ridge))
    pairs = factors[:, first] * factors[:, second]
    pair_of = np.empty((len(ridge), len(ridge)), dtype=np.intp)
    pair_of[first, second] = pair_of[second, first] = np.arange(len(first))
    size = max(1, _BLOCK // max(len(first), shape[1]))
    for start in range(0, shape[0], size):
        part = slice(start, start + size)
        equations = np.take(observed[part] @ pairs, pair_of, axis=1) + np.diag(ridge)
        row_factors = np.linalg.solve(equations, targets[part][..., np.newaxis])[..., 0]
        yield part, row_factors @ factors.T + row_units[part, np.newaxis] * biases


@dataclass(frozen=True)
class _Standardisation:
    """How columns are standardised.

    They are divided by two to the power of `exponents`, so that they reach 1, but not 2: sums and differences
    do not overflow then. The others are means and standard deviations of what that leaves, 0 for a column
    without two different values.
    """

    exponents: np.ndarray
    means: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, entries, values, n_features):
        """Return that of the columns of these entries."""
        columns, largest = entries[:, 1], np.zeros(n_features)
        np.maximum.at(largest, columns, np.abs(values))
        exponents = np.frexp(largest)[1] - 1
        scaled = np.ldexp(values, -exponents[columns])
        counts = np.maximum(np.bincount(columns, minlength=n_features), 1)
        means = np.bincount(columns, scaled, n_features) / counts
        scales = np.sqrt(np.bincount(columns, (scaled - means[columns]) ** 2, n_features) / counts)
        scales[scales <= _ROUNDING * counts * np.abs(means)] = 0.0  # the rounding error of the mean
        return cls(exponents, means, scales)

    def apply(self, entries, values, n_rows):
        """Return standardised values, and the exponents of the powers of two that rows are divided by.

        A new row may have much larger values than those that were fitted. What is subtracted from it is
        divided, too.
        """
        rows, columns = entries.T
        exponents = np.zeros(n_rows, dtype=self.exponents.dtype)
        np.maximum.at(exponents, rows, np.frexp(values)[1] - 1 - self.exponents[columns])
        scaled = np.ldexp(values, -self.exponents[columns] - exponents[rows])
        centred = scaled - np.ldexp(self.means[columns], -exponents[rows])
        scales = self.scales[columns]
        return np.divide(centred, scales, out=np.zeros(len(values)), where=scales > 0.0), exponents

    def undo(self, standardised, row_exponents, dtype):
        """Return rows with their own units."""
        row_exponents = row_exponents[:, np.newaxis]
        scaled = standardised * self.scales + np.ldexp(self.means, -row_exponents)
        return _unscaled(scaled, self.exponents + row_exponents, dtype)

    def attributes(self):
        """Return the fitted attributes of an imputer."""
        scales = _unscaled(self.scales, self.exponents)
        return {
            "means_": _unscaled(self.means, self.exponents),
            "scales_": np.where(self.scales > 0.0, scales, 1.0),
        }


def _unscaled(scaled, exponents, dtype=np.float64):
    """Return numbers times powers of two; those too large for their type become its largest number."""
    largest = float(np.finfo(dtype).max)
    with np.errstate(over="ignore"):
        return np.ldexp(scaled, exponents).clip(-largest, largest).astype(dtype, copy=False)
