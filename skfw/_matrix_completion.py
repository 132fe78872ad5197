"""Matrix completion in a nuclear-norm ball."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CertifiedFitMixin, conclude, set_fitted, validated, warn_caller, with_callbacks
from ._ids import IdEncoder, check_ids, doubt_ids, doubt_new_ids, keep_ids, other_types
from ._params import (
    COMPLETION_CONSTRAINTS,
    check_flag,
    check_integer,
    check_name,
    check_number,
    check_sample_weight,
    is_number,
    make_constraint,
)
from .engine import (
    BiasedSquaredLoss,
    FactoredMatrix,
    ObservedEntries,
    Problem,
    SquaredLoss,
    products_at,
    thread_pool,
)

_ROUNDING = 64.0 * np.finfo(np.float64).eps
# Relative to the largest: where a row's weight in the norm is smaller, its factors are nothing but rounding.
_LEAST_NORM_WEIGHT = 1e-8
# Predictions that `recommend` computes at once.
_BLOCK = 1 << 22
_BIASES = ("none", "mean", "rows", "columns", "both")
# Ids are checked by their own rules, with their own messages.
_ANY_IDS = {"dtype": None, "ensure_all_finite": False}


class HFWMatrixCompletion(CertifiedFitMixin, RegressorMixin, BaseEstimator):
    r"""Complete a matrix from some of its entries, with a bound on its nuclear norm and a certificate.

    An entry is a sample: its features are the ids of its row and its column, its target is its value. The
    model is the mean, a bias for each row and each column, and a matrix of low rank. Biases and matrix
    together minimise half the weighted mean squared error, with a small penalty on the biases and the matrix
    in a nuclear-norm ball, by Frank-Wolfe with heavy-ball momentum [1]_ and descent on the factors. The
    fitted `gap_` is a proven bound on the distance between its objective and the smallest one.

    Parameters
    ----------
    radius : float, default=2.0
        Bound of the sum of singular values of the low-rank part; for "weighted_nuclear", of the low-rank part
        after its rows and columns were multiplied by their weights. With ``normalize=True`` it is relative to
        the Frobenius norm of the observed values without mean and biases: 1 allows one singular value
        that could explain them all, and a grid such as ``[0.5, 1, 2, 3, 5, 10]`` fits data of any scale.
        Larger radii fit the observed entries more closely and need more iterations; choose it by
        cross-validation. Ignored if `constraint` is an object.
    constraint : {"weighted_nuclear", "nuclear"} or Constraint, default="weighted_nuclear"
        The set of the low-rank part. For "weighted_nuclear" the rows and columns are multiplied, before the
        norm is taken, by their number of entries to the power of `weight_exponent`, divided by the root of
        the mean square of that [2]_. An object is used with its own radius, which is relative as
        `radius` is with ``normalize=True``, and absolute with ``normalize=False``.
    weight_exponent : float, default=0.2
        For "weighted_nuclear": 0 gives the norm without weights, 0.5 that of a matrix sampled row by row and
        column by column. A weight is at least 1e-8 times the largest.
    biases : {"both", "rows", "columns", "mean", "none"}, default="both"
        What the model has beside the matrix of low rank. All but "none" have the mean.
    bias_penalty : float or None, default=3.0
        Biases are fitted together with the low-rank part, and shrunk as if each row and column had this many
        additional entries of zero (at least 2e-16 times the entries it has). None subtracts the means
        beforehand: the mean, then the rows' means, then the columns', which is how the paper prepares data.
    normalize : bool, default=True
        Whether `radius`, or that of a constraint object, is relative to the norm of the observed values.
    momentum : {"adaptive", "weighted", "uniform", "none"} or float in (0, 1), default="adaptive"
        Weight of the newest gradient in the average that gives the direction.
    step_size : {"line_search", "directional", "smooth", "parameter_free"}, default="line_search"
        See `HFWLogisticRegression`.
    corrective : bool, default=True
        Whether to improve the factors between the steps. Without it each step adds one to the rank.
    restart : bool, default=False
        Whether to forget past gradients when the newest alone proves a smaller gap. It needs a momentum with
        fixed weights: "weighted", "uniform" or a number.
    tol : float, default=5e-2
        Stop when `gap_` is at most `tol` times the objective without a low-rank part. Predictions are
        seldom better for a smaller one: on MovieLens 100K, 1e-2 takes twice the time and lowers the error on
        unseen ratings by 0.0005.
    max_iter : int, default=1000
        Largest number of steps.
    max_time : float, optional
        No iteration begins later than this many seconds after `fit` began: the model is the best one found
        until then, and its certificate is as valid as any.
    lipschitz : float, optional
        Lipschitz constant of the gradient, for ``step_size="smooth"`` and ``restart=True``.
    clip : tuple of two floats, optional
        Smallest and largest prediction, ``(1, 5)`` for ratings from one to five. An end may be None or
        infinite: ``(0, None)`` for values that are not negative.
    warm_start : bool, default=False
        Whether to start from the last fit's factors, for the ids it knew.
    random_state : int, RandomState instance or None, default=None
        Seed of the start vectors of the singular-vector oracle. Pass an int for the same bits in each run.
        Not used if `constraint` is an object: that has its own, ``NuclearBall(2.0, random_state=0)``.
    verbose : int, default=0
        Whether to print the progress.

    Attributes
    ----------
    row_ids_, column_ids_ : ndarray
        The ids seen, in the order of the factors.
    row_factors_ : ndarray of shape (n_rows, `rank_`)
    column_factors_ : ndarray of shape (n_columns, `rank_`)
        The low-rank part is ``row_factors_ @ column_factors_.T``; the columns of each are orthogonal, with
        squared norms `singular_values_`.
    singular_values_ : ndarray of shape (`rank_`,)
        Of the low-rank part itself, whatever the weights in the constraint.
    rank_ : int
    mean_ : float
    row_biases_, column_biases_ : ndarray
        Zero where `biases` leaves them out.
    objective_, lower_bound_, gap_ : float
        Half the weighted mean squared error on the observed entries, with the biases' penalty; a proven lower
        bound of the smallest one in the ball, :eq:`bound`, and their difference :eq:`gap`. The bound
        accounts for the inexact singular vectors; it is wrong with a probability below 1e-12 for each call
        of the oracle.
    multiplier_ : float
        The Lagrange multiplier of the constraint: how fast the smallest objective falls as the radius grows.
        NaN for a set of your own without a method `multiplier`.
    converged_ : bool
        Whether `gap_` met `tol`.
    n_iter_, n_restarts_ : int
    trace_ : dict of str to ndarray
        The run as a table; "atoms" is the number of rank-one terms.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    References
    ----------
    .. [1] B. Li, A. Sadeghi and G. B. Giannakis, "Heavy ball momentum for conditional gradient",
       NeurIPS 2021.
    .. [2] N. Srebro and R. Salakhutdinov, "Collaborative filtering in a non-uniform world: learning with the
       weighted trace norm", NeurIPS 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import HFWMatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    >>> entries = np.argwhere(rng.uniform(size=truth.shape) < 0.5)
    >>> values = truth[tuple(entries.T)]
    >>> model = HFWMatrixCompletion(radius=1.8, biases="none", tol=1e-3, random_state=0)
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
        constraint="weighted_nuclear",
        weight_exponent=0.2,
        biases="both",
        bias_penalty=3.0,
        normalize=True,
        momentum="adaptive",
        step_size="line_search",
        corrective=True,
        restart=False,
        tol=5e-2,
        max_iter=1000,
        max_time=None,
        lipschitz=None,
        clip=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.radius = radius
        self.constraint = constraint
        self.weight_exponent = weight_exponent
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
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    @thread_pool()
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, 2) or more columns
            Ids, numbers or strings. The first names the row, the others name the column together. A warning
            says if nearly every row, or column, has a single entry, as it does where a time or a measurement
            is taken for part of a name.
        y : array of shape (n_entries,)
            The entries' values.
        sample_weight : array of shape (n_entries,), optional
            A weight of two counts an entry twice, a weight of zero leaves it out.

        Returns
        -------
        self
        """
        began = perf_counter()
        self._check_params()
        X, y, seen = validated(self, keep_ids(X), y, **_ANY_IDS, ensure_min_features=2, y_numeric=True)
        check_ids(X)
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must have numbers, the values of the entries; got an array of {y.dtype}.")
        y = y.astype(np.float64, copy=False)
        with self._callbacks(X, y, sample_weight, seen) as report:
            certificate = self._complete(X, y, sample_weight, report, began)
            set_fitted(self, seen | certificate.attributes)
        conclude(type(self).__name__, certificate)
        doubt = doubt_ids(X, self._observed, seen.get("feature_names_in_"))
        warn_caller(type(self).__name__, [doubt], UserWarning)
        return self

    def _complete(self, X, y, sample_weight=None, report=None, began=None):
        """Run the solver on validated entries and certify what it found; nothing is set."""
        weights = check_sample_weight(sample_weight, len(y))
        largest_weight = 1.0 if sample_weight is None else float(np.max(np.asarray(sample_weight)))
        kept = slice(None) if weights.all() else weights > 0.0
        ids, values, weights = X[kept], y[kept], weights[kept]

        row_encoder, column_encoder = IdEncoder(), IdEncoder()
        rows, columns = row_encoder.fit(ids[:, :1]), column_encoder.fit(ids[:, 1:])
        shape = len(row_encoder.ids), len(column_encoder.ids)
        order = np.argsort(rows * shape[1] + columns, kind="stable")  # memory is read in order then
        values, weights = values[order], weights[order]
        entries = ObservedEntries(rows[order].astype(np.int32), columns[order].astype(np.int32), shape)
        del rows, columns, order
        matrix_weights = self._matrix_weights(entries, weights)
        # The penalty of the biases counts in entries, whose weight is one.
        penalty = None if self.bias_penalty is None else self.bias_penalty / largest_weight / weights.sum()
        weights = weights / weights.sum()
        # Values are divided by `scale`, so that nothing overflows; what mean and biases leave of them, the
        # targets, by the unit that the radius refers to.
        scale = float(np.abs(values).max()) or 1.0
        loss, mean, biases = self._make_loss(entries, values / scale, weights, penalty)
        target_unit, radius_unit = self._units(entries, loss, scale)
        constraint = self._constraint(matrix_weights, radius_unit)
        value_unit = scale * target_unit
        if not np.isfinite(value_unit * value_unit):
            raise ValueError(
                f"y is too large for its squares: it reaches {scale:g} in size. Divide it first."
            )
        problem = Problem(replace(loss, targets=loss.targets / target_unit), entries, constraint)
        data_attributes = {
            "_row_encoder": row_encoder,
            "_column_encoder": column_encoder,
            "row_ids_": row_encoder.ids[:, 0],
            "column_ids_": column_encoder.ids[:, 0] if X.shape[1] == 2 else column_encoder.ids,
            "_observed": entries.pattern,
            "mean_": scale * mean,
        }
        return self._solve(
            problem,
            partial(_model_attributes, data_attributes, value_unit, scale * biases),
            self._start(problem, row_encoder.ids, column_encoder.ids, value_unit),
            loss_unit=value_unit * value_unit,
            radius_unit=radius_unit,
            report=report,
            began=began,
        )

    def _check_params(self) -> None:
        self._check_solver_params()
        make_constraint(self.constraint, self.radius, COMPLETION_CONSTRAINTS)
        check_number("weight_exponent", self.weight_exponent, at_least=0.0)
        check_name("biases", self.biases, _BIASES)
        if self.bias_penalty is not None:
            check_number("bias_penalty", self.bias_penalty, above=0.0)
        check_flag("normalize", self.normalize)
        check_flag("warm_start", self.warm_start)
        if self.clip is not None and not _is_interval(self.clip):
            raise ValueError(
                f"clip must be None or a pair in ascending order, each end a number or None; "
                f"got clip={self.clip!r}."
            )

    def _matrix_weights(self, entries, weights):
        """Return the weights of rows and columns in the norm, from how much is known of each."""
        counts = np.bincount(entries.row_indices, weights), np.bincount(entries.column_indices, weights)
        powers = [(count / count.max()) ** self.weight_exponent for count in counts]
        floored = [np.maximum(power, _LEAST_NORM_WEIGHT) for power in powers]
        return [power / np.sqrt(np.mean(power**2)) for power in floored]

    def _units(self, entries, loss, scale):
        """Return what the solver's targets are divided by after `scale`, and what its radius is."""
        if self.normalize:
            norm = _observed_norm(entries, loss)
            return norm if norm > _ROUNDING else 1.0, 1.0  # of values up to one
        if isinstance(self.constraint, str):
            return 1.0, scale
        return 1.0 / scale, 1.0  # the radius of an object is as it is, and so are the values

    def _constraint(self, matrix_weights, radius_unit):
        """Return the set of the solver's models."""
        if not isinstance(self.constraint, str):
            return self.constraint
        radius = self.radius / radius_unit
        if not 0.0 < radius < np.inf:
            raise ValueError(
                f"radius and y must be of comparable size; got radius={self.radius} for values up to "
                f"{radius_unit:g}. Use normalize=True, or scale y."
            )
        return make_constraint(
            self.constraint,
            radius,
            COMPLETION_CONSTRAINTS,
            matrix_weights=matrix_weights,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def _make_loss(self, entries, values, weights, penalty):
        """Return the loss of the low-rank part, the mean, and biases that the loss does not know of."""
        mean = float(weights @ values) if self.biases != "none" else 0.0
        has_row_biases, has_column_biases = (
            self.biases in ("rows", "both"),
            self.biases in ("columns", "both"),
        )
        biases = np.zeros(sum(entries.shape))
        targets = values - mean
        if penalty is None:
            row_biases, column_biases = np.split(biases, entries.shape[:1])
            if has_row_biases:
                row_biases[:] = _group_means(entries.row_indices, targets, weights)
                targets = targets - row_biases[entries.row_indices]
            if has_column_biases:
                column_biases[:] = _group_means(entries.column_indices, targets, weights)
                targets = targets - column_biases[entries.column_indices]
        targets[np.abs(targets) <= _ROUNDING] = 0.0  # explained entirely: the rest is no signal
        if penalty is None or not (has_row_biases or has_column_biases):
            return SquaredLoss(targets, weights), mean, biases
        penalties = [penalty if used else np.inf for used in (has_row_biases, has_column_biases)]
        return BiasedSquaredLoss(targets, weights, entries, *penalties), mean, biases

    def _start(self, problem, row_ids, column_ids, value_unit):
        """Return the last fit's low-rank part, on the ids known to both, as a point of the set."""
        if not (self.warm_start and hasattr(self, "rank_")):
            return None
        if self._column_encoder.ids.shape[1] != column_ids.shape[1]:
            return None
        row_of, column_of = self._row_encoder.transform(row_ids), self._column_encoder.transform(column_ids)
        left = np.where(row_of[:, np.newaxis] >= 0, self.row_factors_[row_of], 0.0)
        right = np.where(column_of[:, np.newaxis] >= 0, self.column_factors_[column_of], 0.0)
        weights = np.full(self.rank_, 1.0 / value_unit)
        inside = problem.constraint.scale_into(FactoredMatrix(left, right, weights))
        return None if inside is None else problem.at(inside)

    def predict(self, X):
        """Return the values of entries; of rows and columns not seen in `fit` only the biases are known.

        A warning says if none of the rows, or none of the columns, was seen in `fit` and that is odd: because
        their ids are of another type, rows and columns are swapped, or ten or more ids are all new.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, `n_features_in_`)
            Ids, as in `fit`.

        Returns
        -------
        ndarray of shape (n_entries,)
        """
        check_is_fitted(self)
        X = validate_data(self, keep_ids(X), **_ANY_IDS, reset=False)
        check_ids(X)
        encoders = self._row_encoder, self._column_encoder
        rows, columns = indices = [
            encoder.transform(ids) for encoder, ids in zip(encoders, (X[:, :1], X[:, 1:]), strict=True)
        ]
        # Index -1, for what was not seen, reads the zero appended at the end.
        result = (
            self.mean_ + np.append(self.row_biases_, 0.0)[rows] + np.append(self.column_biases_, 0.0)[columns]
        )
        seen = (rows >= 0) & (columns >= 0)
        result[seen] += products_at(self.row_factors_, self.column_factors_, rows[seen], columns[seen])
        warn_caller(f"{type(self).__name__}.predict", [doubt_new_ids(X, encoders, indices)], UserWarning)
        return self._clipped(result)

    def recommend(self, row_ids, n=10):
        """Return the columns with the largest predictions among those not observed in a row.

        Parameters
        ----------
        row_ids : array of shape (n_rows,)
            Ids of rows seen in `fit`.
        n : int, default=10
            How many columns for each row.

        Returns
        -------
        column_ids : ndarray of shape (n_rows, n), with one axis more if several columns name a column
            The best first.
        predictions : ndarray of shape (n_rows, n)
        """
        check_is_fitted(self)
        check_integer("n", n, at_least=1)
        row_ids = np.asarray(keep_ids(row_ids)).reshape(-1)
        rows = self._row_encoder.transform(row_ids[:, np.newaxis])
        if rows.min(initial=0) < 0:
            new = row_ids[[np.argmin(rows)], np.newaxis]
            types = other_types(new, self._row_encoder.ids)
            reason = f": it is of type {types[0]}, in fit of type {types[1]}" if types else ""
            raise ValueError(f"Row {new.item()!r} was not seen in fit{reason}.")
        n_unseen = len(self.column_ids_) - np.diff(self._observed.indptr)[rows]
        if n_unseen.min(initial=n) < n:
            fewest = np.argmin(n_unseen)
            raise ValueError(
                f"Row {row_ids[fewest]} has {n_unseen[fewest]} columns without an entry; got n={n}."
            )
        best, predictions = np.empty((len(rows), n), dtype=np.intp), np.empty((len(rows), n))
        size = max(1, _BLOCK // len(self.column_ids_))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            scores = self.row_factors_[rows[part]] @ self.column_factors_.T
            scores += self.mean_ + self.row_biases_[rows[part]][:, np.newaxis] + self.column_biases_
            scores[self._observed[rows[part]].nonzero()] = -np.inf
            top = np.argpartition(-scores, n - 1, axis=1)[:, :n]
            order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
            best[part] = np.take_along_axis(top, order, axis=1)
            predictions[part] = np.take_along_axis(scores, best[part], axis=1)
        return self.column_ids_[best], self._clipped(predictions)

    def _clipped(self, predictions):
        return predictions if self.clip is None else np.clip(predictions, *_interval(self.clip))

    def __sklearn_tags__(self):
        """Declare that ids may be strings."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


def _is_interval(pair):
    if np.shape(pair) != (2,):
        return False
    low, high = _interval(pair)
    return is_number(low) and is_number(high) and low <= high


def _interval(pair):
    """Return both ends of an interval; None stands for no end."""
    low, high = pair
    return -np.inf if low is None else low, np.inf if high is None else high


def _group_means(groups, values, weights):
    return np.bincount(groups, weights * values) / np.bincount(groups, weights)


def _observed_norm(entries, loss):
    """Frobenius norm of the observed targets that biases leave; a repeated entry has its weighted mean."""
    residual = loss.evaluate(np.zeros(len(loss.weights))).residual
    return float(np.linalg.norm(entries.totals(residual) / entries.totals(loss.weights)))


def _model_attributes(data_attributes, value_unit, biases, x, intercept):
    """Return the fitted attributes of an iterate, with those that the data gives before the solver runs."""
    left, values, right = x.svd()
    values = value_unit * values
    row_biases, column_biases = np.split(biases + value_unit * intercept, x.shape[:1])
    return data_attributes | {
        "row_factors_": left * np.sqrt(values),
        "column_factors_": right * np.sqrt(values),
        "singular_values_": values,
        "rank_": len(values),
        "row_biases_": row_biases,
        "column_biases_": column_biases,
    }
