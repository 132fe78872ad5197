"""A matrix to complete: from its entries to a problem for the solver, and from its solution to a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import qr, svd

from ._features import CONSTANT, Side
from .engine import FactoredMatrix, FeaturedEntries, FeatureMap, Loss, ObservedEntries


@dataclass(frozen=True)
class SideModel:
    """The rows, or the columns, of a fitted model: what gives new ones their factors.

    The factors of a row are those of its id plus its features times those of the features.

    Attributes
    ----------
    side : Side
    id_factors : ndarray of shape (n_rows, rank)
        Of the rows that had entries in `fit`.
    feature_factors : ndarray of shape (n_features, rank)
    n_others : int
        Number of the columns that had entries in `fit`: only these make implicit features.
    metric : ndarray of shape (rank, rank)
        The squared norm of a row's ``factors`` in the constraint is its squared weight times
        ``factors @ metric @ factors``.
    weight_units : tuple of two floats
        The weight of a row in the norm is that of its entries, divided by the first, to the power of the
        weight exponent, divided by the second.
    """

    side: Side
    id_factors: np.ndarray
    feature_factors: np.ndarray
    n_others: int
    metric: np.ndarray
    weight_units: tuple

    def prior_factors(self, ids, pattern):
        """Return the factors that rows have by their features alone; `pattern` is that of their entries."""
        return self.side.features(ids, pattern[:, : self.n_others]) @ self.feature_factors

    @property
    def default_factors(self):
        """The factors of a row of which nothing is known: those of the feature that all have."""
        n_given, _, has_constant = self.side.kind
        return CONSTANT * self.feature_factors[n_given : n_given + has_constant].sum(axis=0)


@dataclass(frozen=True)
class Task:
    """Entries in the solver's units, with all that does not depend on the radius.

    Attributes
    ----------
    encoders : tuple of two IdEncoders
        Of the ids of the rows and of the columns.
    entries : ObservedEntries
    loss : Loss
        In targets divided by `value_unit`.
    given : tuple of two GivenFeatures, or None where there are none
    id_weights : tuple of two ndarrays
        Of the rows and the columns in the norm.
    weight_units : tuple of two pairs
        See `SideModel`.
    total_weight, largest_weight : float
        Of all entries, in units of the largest one, and that. The loss is a mean: multiplied by the first it
        is a sum.
    mean : float
    biases : ndarray
        Those that the loss does not know of.
    value_unit, radius_unit : float
        What values and the radius were divided by.
    """

    encoders: tuple
    entries: ObservedEntries
    loss: Loss
    given: tuple
    id_weights: tuple
    weight_units: tuple
    total_weight: float
    largest_weight: float
    mean: float
    biases: np.ndarray
    value_unit: float
    radius_unit: float

    @property
    def share_known(self):
        """Which share of all entries is known."""
        n_rows, n_columns = self.entries.shape
        return self.entries.pattern.nnz / (n_rows * n_columns)

    def sides(self, implicit):
        """Return what is known of rows and of columns; `implicit` says which have implicit features."""
        rows, columns = self.given
        return (
            Side(rows, implicit in ("rows", "both"), columns is not None),
            Side(columns, implicit in ("columns", "both"), rows is not None),
        )

    def data(self, sides):
        """Return the entries of a matrix whose rows and columns have features."""
        if not any(side.has_features for side in sides):
            return self.entries
        pattern = self.entries.pattern
        patterns = pattern, pattern.T.tocsr()
        features = [
            side.features(encoder.ids, pattern)
            for side, encoder, pattern in zip(sides, self.encoders, patterns, strict=True)
        ]
        return FeaturedEntries(self.entries, *map(FeatureMap, features))

    def norm_weights(self, shape):
        """Return the weights of a model's rows and columns in the norm; those of features are one."""
        return [
            np.append(weights, np.ones(length - len(weights)))
            for weights, length in zip(self.id_weights, shape, strict=True)
        ]

    def attributes(self, sides, problem, x, intercept):
        """Return the fitted attributes of a model of the solver."""
        factors, values, models = self._factors(sides, problem, x)
        row_biases, column_biases = np.split(
            self.biases + self.value_unit * intercept, self.entries.shape[:1]
        )
        fitted = {
            "mean_": self.mean,
            "row_factors_": factors[0],
            "column_factors_": factors[1],
            "singular_values_": values,
            "rank_": len(values),
            "row_biases_": row_biases,
            "column_biases_": column_biases,
            "_row_encoder": self.encoders[0],
            "_column_encoder": self.encoders[1],
            "_observed": self.entries.pattern,
            "_sides": models,
            "_penalty_unit": self.total_weight * self.radius_unit,
            "_largest_weight": self.largest_weight,
        }
        for axis, (side, encoder) in enumerate(zip(sides, self.encoders, strict=True)):
            if side.given is not None:
                fitted = with_featured(fitted, axis, _unknown(encoder, side.given.encoder.ids))
        return with_ids(fitted)

    def _factors(self, sides, problem, x):
        """Return the factors of rows and columns, the singular values, and what gives others theirs.

        The singular values are those of the matrix that is completed, not of the model that the norm is of.
        """
        weights = [np.ones(length) for length in x.shape]
        if problem.constraint.geometry == "nuclear ball":
            weights = problem.constraint.weights(x.shape)
        columns = [weight[:, np.newaxis] for weight in weights]
        left, values, right = FactoredMatrix(columns[0] * x.left, columns[1] * x.right, x.weights).svd()
        roots = np.sqrt(values)
        balanced = [left * roots / columns[0], right * roots / columns[1]]
        maps = problem.data.row_map, problem.data.column_map
        if not len(values):
            turns, values = [np.zeros((0, 0)), np.zeros((0, 0))], np.zeros(0)
        else:
            mapped = [m.apply(part) for m, part in zip(maps, balanced, strict=True)]
            cores = [qr(part, mode="economic")[1] for part in mapped]
            left, values, right = svd(cores[0] @ cores[1].T, full_matrices=False)
            rank = int(np.sum(values > max(x.shape) * np.finfo(np.float64).eps * values[0]))
            values = values[:rank]
            # Times the factors of a side, these give factors that are orthogonal, of squared norms `values`.
            turns = [
                cores[1].T @ right[:rank].T / np.sqrt(values),
                cores[0].T @ left[:, :rank] / np.sqrt(values),
            ]
        unit = np.sqrt(self.value_unit)
        n_ids = self.entries.shape
        factors, models = [], []
        for axis, (side, turn) in enumerate(zip(sides, turns, strict=True)):
            turned = unit * (balanced[axis] @ turn)
            factors.append(maps[axis].apply(turned))
            parts = np.split(turned, n_ids[axis : axis + 1])
            with np.errstate(over="ignore"):  # of values below the smallest normal number
                metric = np.linalg.inv(turn.T @ turn) / self.value_unit
            models.append(SideModel(side, *parts, n_ids[1 - axis], metric, self.weight_units[axis]))
        return factors, self.value_unit * values, tuple(models)


def with_ids(fitted):
    """Return the attributes with the ids as users know them."""
    columns = fitted["_column_encoder"].ids
    return fitted | {
        "row_ids_": fitted["_row_encoder"].ids[:, 0],
        "column_ids_": columns[:, 0] if columns.shape[1] == 1 else columns,
    }


def _unknown(encoder, ids):
    return ids[encoder.transform(ids) < 0]


def with_featured(fitted, axis, ids):
    """Return the attributes with more rows, or columns, that are known by their given features alone."""
    model = fitted["_sides"][axis]
    others = fitted["_observed"].shape[1 - axis]
    pattern = sparse.csr_matrix((len(ids), others), dtype=bool)
    factors = model.prior_factors(ids, pattern)
    return with_rows(fitted, axis, ids, factors, np.zeros(len(ids)), pattern)


def with_rows(fitted, axis, ids, factors, biases, pattern):
    """Return the attributes with rows, or columns, added, or replaced where they are known.

    `pattern` is a CSR matrix of booleans with their entries.
    """
    name = ("row", "column")[axis]
    encoder = fitted[f"_{name}_encoder"]
    encoder = encoder.extended(_unknown(encoder, ids))
    places = encoder.transform(ids)
    n_old, n_new = len(fitted[f"{name}_biases_"]), len(encoder.ids)

    def put(old, new):
        result = np.zeros((n_new, *old.shape[1:]))
        result[:n_old] = old
        result[places] = new
        return result

    observed = fitted["_observed"] if axis == 0 else fitted["_observed"].T.tocsr()
    # The rows of both, in the order of the encoder.
    where = np.arange(n_new)
    where[places] = n_old + np.arange(len(places))
    observed = sparse.vstack([observed, pattern], format="csr")[where]
    return fitted | {
        f"_{name}_encoder": encoder,
        f"{name}_factors_": put(fitted[f"{name}_factors_"], factors),
        f"{name}_biases_": put(fitted[f"{name}_biases_"], biases),
        "_observed": observed if axis == 0 else observed.T.tocsr(),
    }


def mapped_start(models, encoders, problem, task, sides, max_rank=None):
    """Return the low-rank part of a fitted model, on the ids known to both, as a model of the solver.

    `models` and `encoders` are those of the fitted model. None if its features are others.
    """
    parts = []
    for axis, (model, side) in enumerate(zip(models, sides, strict=True)):
        if model.side.kind != side.kind:
            return None
        ids = _mapped(model.id_factors, encoders[axis], task.encoders[axis])
        n_implicit = model.n_others if side.implicit else 0
        shared, implicit = np.split(model.feature_factors, [len(model.feature_factors) - n_implicit])
        if side.implicit:
            implicit = _mapped(implicit, encoders[1 - axis], task.encoders[1 - axis])
        parts.append(np.vstack([ids, shared, implicit]))
    left, right = parts
    start = FactoredMatrix(left, right, np.full(left.shape[1], 1.0 / task.value_unit))
    if max_rank is not None:
        left, values, right = start.svd()
        start = FactoredMatrix.from_svd(left[:, :max_rank], values[:max_rank], right[:, :max_rank])
    return problem.constraint.scale_into(start)


def _mapped(factors, old, new):
    places = old.transform(new.ids)
    places = np.where(places < len(factors), places, -1)  # what was added to a model later has none
    return np.where(places[:, np.newaxis] >= 0, factors[places], 0.0)
