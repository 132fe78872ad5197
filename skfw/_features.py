"""Features of rows and of columns: those that are given, and those that the pattern of the entries makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ._ids import IdEncoder, check_ids, keep_ids, other_types

# The mean squared norm of a row's features of one kind, beside the one that its id has. On MovieLens 100K
# and 1M anything from a quarter to one is as good, at the radius that suits it.
_SQUARED_NORM = 0.5
# The feature that all have.
CONSTANT = float(np.sqrt(_SQUARED_NORM))
# The sizes that can be divided by, and summed.
_SMALLEST, _LARGEST = 1e-300, 1e300


@dataclass(frozen=True)
class GivenFeatures:
    """Features of some ids, standardised.

    Those of an array have mean zero. All that are not constant have the same mean square. An id without
    features has zeros, which are the means of an array.

    Attributes
    ----------
    encoder : IdEncoder
        Of the ids that have features.
    means, scales : ndarray of shape (n_features,)
    matrix : CSR matrix of shape (n_ids, n_features)
        In the order of the encoder.
    """

    encoder: IdEncoder
    means: np.ndarray
    scales: np.ndarray
    matrix: sparse.csr_matrix

    @classmethod
    def fit(cls, name, given, n_id_columns):
        """Return features as `fit` is given them."""
        encoder, matrix = _parse(name, given, n_id_columns)
        means = np.zeros(matrix.shape[1]) if sparse.issparse(matrix) else matrix.mean(axis=0)
        sizes = abs(_standardised(matrix, means, np.ones(len(means)))).max(axis=0).toarray().ravel()
        rounding = len(encoder.ids) * np.finfo(np.float64).eps * np.abs(means)
        varies = sizes > np.maximum(rounding, _SMALLEST)
        sizes[~varies] = np.inf  # what is divided by it is zero
        relative = _standardised(matrix, means, sizes)  # whose squares do not overflow
        mean_squares = np.asarray(relative.power(2).mean(axis=0)).ravel()
        shares = np.where(varies, mean_squares, 1.0) * (max(varies.sum(), 1) / _SQUARED_NORM)
        scales = sizes * np.sqrt(shares)
        return cls(encoder, means, scales, _standardised(matrix, means, scales))

    @property
    def n_features(self):
        """Number of features."""
        return len(self.means)

    def of(self, ids):
        """Return the features of ids, zeros for those that have none."""
        places = self.encoder.transform(ids)
        padded = sparse.vstack([self.matrix, sparse.csr_matrix((1, self.n_features))], format="csr")
        return padded[places]  # the place -1 is that of the zeros

    def extended(self, name, given, n_id_columns):
        """Return the features of more ids beside these, in the same units; those known stay as they are."""
        encoder, matrix = _parse(name, given, n_id_columns)
        if matrix.shape[1] != self.n_features:
            raise ValueError(
                f"{name} must have {self.n_features} features, as in fit; got {matrix.shape[1]}."
            )
        new = self.encoder.transform(encoder.ids) < 0
        added = _standardised(matrix[new], self.means, self.scales)
        return replace(
            self,
            encoder=self.encoder.extended(encoder.ids[new]),
            matrix=sparse.vstack([self.matrix, added], format="csr"),
        )


def given_features(X, row_features, column_features):
    """Return what `fit` is given of the rows and of the columns of the entries `X`."""
    both = []
    for name, ids, given in (("row", X[:, :1], row_features), ("column", X[:, 1:], column_features)):
        if given is None:
            both.append(None)
            continue
        features = GivenFeatures.fit(f"{name}_features", given, ids.shape[1])
        if features.encoder.transform(ids).max() < 0:
            types = other_types(ids, features.encoder.ids)
            reason = f": they are of type {types[0]}, in {name}_features of type {types[1]}" if types else ""
            raise ValueError(f"{name}_features has none of the {name}s in X{reason}.")
        both.append(features)
    return tuple(both)


def _parse(name, given, n_id_columns):
    """Return an encoder of the ids, and the features in its order: a CSR matrix or an array."""
    if hasattr(given, "index") and hasattr(given, "columns"):
        ids, matrix = _of_frame(name, given)
    elif isinstance(given, tuple) and len(given) == 2:
        ids, matrix = np.asarray(keep_ids(given[0])), given[1]
        matrix = sparse.csr_matrix(matrix) if sparse.issparse(matrix) else np.asarray(matrix)
    else:
        raise TypeError(
            f"{name} must be a data frame indexed by id, or a pair of ids and a matrix; "
            f"got {type(given).__name__}."
        )
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf" or not all(matrix.shape):
        raise ValueError(
            f"{name} must have a matrix of numbers, a row for each id; got an array of {matrix.dtype} of "
            f"shape {matrix.shape}."
        )
    ids = ids.reshape(len(ids), -1) if len(ids) else ids.reshape(0, n_id_columns)
    if ids.shape != (matrix.shape[0], n_id_columns):
        raise ValueError(
            f"{name} must have an id for each row of its matrix, of {n_id_columns} column(s) as in X; "
            f"got ids of shape {ids.shape} for {matrix.shape[0]} rows."
        )
    check_ids(ids)
    matrix = matrix.astype(np.float64)
    if not abs(matrix).max() <= _LARGEST:  # NaN is not
        raise ValueError(
            f"{name} must have finite numbers of at most {_LARGEST:g} in size. Fill in what is missing first."
        )
    encoder = IdEncoder()
    numbers = encoder.fit(ids)
    if len(encoder.ids) < len(ids):
        label = encoder.ids[np.argmax(np.bincount(numbers) > 1)].tolist()
        label = label[0] if n_id_columns == 1 else tuple(label)
        raise ValueError(f"{name} must have one row for each id; {label!r} repeats.")
    return encoder, matrix[np.argsort(numbers)]


def _of_frame(name, frame):
    """Return the ids and the features of a data frame."""
    for column, kind in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "biuf":
            raise ValueError(
                f"{name} must have numbers; its column {column!r} has dtype {kind}. Encode it first, for "
                f"instance with sklearn.preprocessing.OneHotEncoder."
            )
    index = frame.index
    ids = index.to_numpy() if index.nlevels == 1 else np.array(index.tolist(), dtype=object)
    return ids, frame.to_numpy(dtype=np.float64, na_value=np.nan)


def _standardised(matrix, means, scales):
    """Return a CSR matrix; what is sparse is not centred."""
    if sparse.issparse(matrix):
        return sparse.csr_matrix(matrix @ sparse.diags(1.0 / scales))
    return sparse.csr_matrix((matrix - means) / scales)


@dataclass(frozen=True)
class Side:
    """What is known of the rows, or of the columns, beside the values of their entries.

    Attributes
    ----------
    given : GivenFeatures or None
    implicit : bool
        Whether features say where a row has entries.
    constant : bool
        Whether there is a feature that all have: what features of the other side do to the mean.
    """

    given: GivenFeatures | None
    implicit: bool
    constant: bool

    @property
    def kind(self):
        """The number of given features, whether there are implicit ones, and a constant."""
        return 0 if self.given is None else self.given.n_features, self.implicit, self.constant

    @property
    def has_features(self):
        """Whether there are any."""
        return any(self.kind)

    def features(self, ids, pattern):
        """Return the features of rows as a CSR matrix, from their ids and the pattern of their entries."""
        blocks = [sparse.csr_matrix((len(ids), 0))]
        if self.given is not None:
            blocks.append(self.given.of(ids))
        if self.constant:
            blocks.append(sparse.csr_matrix(np.full((len(ids), 1), CONSTANT)))
        if self.implicit:
            counts = np.diff(pattern.indptr)
            sizes = np.sqrt(_SQUARED_NORM / np.maximum(counts, 1))
            stored = np.repeat(sizes, counts), pattern.indices, pattern.indptr
            blocks.append(sparse.csr_matrix(stored, shape=pattern.shape))
        return sparse.hstack(blocks, format="csr")
