"""Names of rows and columns: from ids of any kind to indices, and doubts whether they are ids."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from itertools import repeat
from numbers import Real

import numpy as np
from scipy import sparse

# Integers are looked up in a table unless it would have more than this many places for each id.
_SPARSE_TABLE = 8
# Above this not all integers are floating-point numbers.
_FIRST_ROUNDED = 2.0**53
# Ids are doubted where this share of so many entries are the only ones in their row, or in their column. Of
# 200 ratings taken at random from MovieLens 100K at most 83 % are, of all of them none in their row and 0.1 %
# in their column; with the time as part of the column's id all of them are.
_NEARLY_ALL, _MANY = 0.95, 200
# So many new ids at once, and none that is known, are doubted. Fewer are new users or new items.
_SEVERAL = 10


def keep_ids(X):
    """Return ids as they are, where one array of them would have a type that changes them.

    In the common type of the columns of a data frame, or of a list with integers and other numbers, large
    integers lose digits, and in that of a list with numbers and strings the numbers become strings.
    """
    if sparse.issparse(X):
        raise TypeError(
            "X must hold the ids of entries; got a sparse matrix. matrix_to_entries returns the ids and the "
            "values of its entries."
        )
    if hasattr(X, "columns") and hasattr(X, "astype"):  # a series has its own type already
        one_type = len(set(X.dtypes)) == 1 and all(isinstance(kind, np.dtype) for kind in X.dtypes)
        return X if one_type else X.astype(object)
    if isinstance(X, list | tuple):
        array = np.asarray(X)
        loses_digits = array.dtype.kind == "f" and _FIRST_ROUNDED <= np.abs(array).max(initial=0.0) < np.inf
        if loses_digits or array.dtype.kind in "US":
            return np.array(X, dtype=object)
    return X


def check_ids(X):
    """Raise a ValueError unless all ids can name something; `X` is an array."""
    for feature, values in enumerate(X.T):
        number = _first_that_is_no_id(values)
        if number is not None:
            raise ValueError(
                f"Ids must be numbers, strings or other hashable values, and neither missing (NaN, None) nor "
                f"infinite; entry {number} has {values[number]} as its {'column' if feature else 'row'} id."
            )


def _first_that_is_no_id(values):
    if values.dtype.kind in "fmM":
        return next(iter(np.flatnonzero(~np.isfinite(values))), None)
    if values.dtype.kind != "O":
        return None
    values = values.tolist()
    try:
        distinct = set(values)
    except TypeError:  # one of them cannot be hashed
        distinct = values
    return None if all(map(_is_id, distinct)) else [*map(_is_id, values)].index(False)


def _is_id(value):
    try:
        hash(value)
        return bool(value == value) and value not in (None, np.inf, -np.inf)
    except TypeError:  # it cannot be hashed, or is the NA of pandas, which is neither equal nor different
        return False


class IdEncoder:
    """Numbers the distinct rows of an array of ids, which may be numbers or strings.

    Attributes
    ----------
    ids : ndarray of shape (n_ids, n_columns)
        The distinct rows, in the order of their indices.
    """

    _later = None  # encodes the ids that were added

    def fit(self, ids):
        """Learn the ids and return their indices."""
        self._columns = [_column_encoder(column) for column in ids.T]
        first, *others = self._columns
        numbers = first.transform(ids[:, 0])
        self.ids = first.values[:, np.newaxis]
        self._pairs = []  # from a number for the columns so far and a code of the next one, to a number
        for encoder, column in zip(others, ids.T[1:], strict=True):
            n_codes = len(encoder.values)
            pairs, numbers = np.unique(numbers * n_codes + encoder.transform(column), return_inverse=True)
            so_far, codes = np.divmod(pairs, n_codes)
            self.ids = np.column_stack([self.ids[so_far], encoder.values[codes]])
            self._pairs.append(pairs)
        return numbers

    def extended(self, ids):
        """Return an encoder that knows more ids, which are distinct and new; the indices stay as they are."""
        if not len(ids):
            return self
        both = copy(self)
        both._n_learned = len(self.ids) if self._later is None else self._n_learned
        both.ids = _joined(self.ids, ids)
        both._later = IdEncoder()
        both._places = np.argsort(both._later.fit(both.ids[both._n_learned :]))
        return both

    def transform(self, ids):
        """Return the indices of ids, -1 for those not learned."""
        numbers = self._transform(ids)
        if self._later is None:
            return numbers
        later = self._later._transform(ids)
        return np.where(later >= 0, self._n_learned + self._places[later], numbers)

    def _transform(self, ids):
        first, *others = self._columns
        numbers = first.transform(ids[:, 0])
        for encoder, column, pairs in zip(others, ids.T[1:], self._pairs, strict=True):
            codes = encoder.transform(column)
            wanted = numbers * len(encoder.values) + codes
            found = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
            learned = (numbers >= 0) & (codes >= 0) & (pairs[found] == wanted)
            numbers = np.where(learned, found, -1)
        return numbers


def _joined(ids, more):
    """Return ids of both arrays; those of two types as objects, so that none of them changes."""
    if ids.dtype.kind != more.dtype.kind:
        ids, more = ids.astype(object), more.astype(object)
    return np.concatenate([ids, more])


def _column_encoder(values):
    """Return an encoder of one column, with its distinct `values` in order."""
    if np.can_cast(values.dtype, np.int64):
        low, high = int(values.min()), int(values.max())
        if high - low < _SPARSE_TABLE * len(values) + 1000:
            return _TableEncoder(values, low, high)
    return _HashEncoder(values)


class _TableEncoder:
    """Codes for integers of a small range: a code for each place in it."""

    def __init__(self, values, low, high):
        self._low, self._high = low, high
        self._codes = np.full(high - low + 1, -1, dtype=np.intp)
        self._codes[values.astype(np.int64, copy=False) - low] = 0
        places = np.flatnonzero(self._codes == 0)
        self._codes[places] = np.arange(len(places))
        self.values = (places + low).astype(values.dtype)

    @cached_property
    def _any_kind(self):
        """For numbers of other kinds, and what is no number."""
        return _HashEncoder(self.values)

    def transform(self, values):
        if not np.can_cast(values.dtype, np.int64):
            return self._any_kind.transform(values)
        values = values.astype(np.int64, copy=False)
        codes = self._codes[values.clip(self._low, self._high) - self._low]
        return np.where((values < self._low) | (values > self._high), -1, codes)


class _HashEncoder:
    """Codes for values of any kind that can be hashed; equal numbers of different types are the same id."""

    def __init__(self, values):
        distinct = set(values.tolist())
        try:
            in_order = sorted(distinct)
        except TypeError:  # numbers and strings
            in_order = sorted(distinct, key=lambda value: (type(value).__name__, value))
        self._codes = {value: code for code, value in enumerate(in_order)}
        self.values = np.fromiter(in_order, dtype=values.dtype, count=len(in_order))  # tuples stay tuples

    def transform(self, values):
        codes = map(self._codes.get, values.tolist(), repeat(-1))
        return np.fromiter(codes, dtype=np.intp, count=len(values))


def doubt_ids(X, observed, names=None):
    """Return why the features of `X`, which may have names, are hardly ids; None where they may well be.

    `observed` is the CSR matrix that stores the distinct entries that `X` names.
    """
    axes = _axes_without_repetition(observed)
    if not axes:
        return None
    return (
        f"found one entry only in nearly every {' and nearly every '.join(axes)}, from which next to nothing "
        f"is learned about it. {_hint(X, names)}"
    )


def _axes_without_repetition(observed):
    if observed.nnz < _MANY:
        return []
    counts = {"row": np.diff(observed.indptr), "column": np.bincount(observed.indices)}
    return [axis for axis, count in counts.items() if np.sum(count == 1) >= _NEARLY_ALL * observed.nnz]


def _hint(X, names):
    labels = [f"X[:, {feature}]" for feature in range(X.shape[1])]
    if names is not None:
        labels = [f"{label} ({name!r})" for label, name in zip(labels, names, strict=True)]
    if X.shape[1] > 2:
        n_ids = [IdEncoder().fit(X[:, [feature]]).max() for feature in range(1, X.shape[1])]
        for feature in (1 + int(np.argmax(n_ids)), 0):  # a time or the like; the number of the entry
            if not _axes_without_repetition(_pattern(np.delete(X, feature, axis=1))):
                return (
                    f"The first feature names the row, the others name the column together. Without "
                    f"{labels[feature]} the ids would repeat: leave it out unless it is part of a name."
                )
    for label, values in zip(labels, X.T, strict=True):
        fraction = next(filter(_is_fraction, values.tolist()), None)
        if fraction is not None:
            return f"{label} has numbers such as {fraction:.6g}, which are no ids."
    return "Are these the ids of rows and columns?"


def _pattern(X):
    """Return the CSR matrix that stores the distinct entries that `X` names."""
    indices = IdEncoder().fit(X[:, :1]), IdEncoder().fit(X[:, 1:])
    return sparse.csr_matrix((np.ones(len(X), dtype=bool), indices))


def _is_fraction(value):
    return isinstance(value, float) and not value.is_integer()


def doubt_new_ids(X, encoders, indices):
    """Return why it is odd that no row, or no column, was learned; None where it is not.

    Some new ids are nothing special, if they are of the type of those learned.
    """
    parts = zip(("rows", "columns"), (X[:, :1], X[:, 1:]), encoders, indices, strict=True)
    new = [(axis, ids, encoder) for axis, ids, encoder, found in parts if found.max() < 0]
    if len(new) == X.shape[1] == 2:
        swapped = zip(encoders, (X[:, 1:], X[:, :1]), strict=True)
        if all(encoder.transform(ids).max() >= 0 for encoder, ids in swapped):
            return "knows the rows in X as columns, and the columns as rows: they seem to be swapped."
    for axis, ids, encoder in new:
        if types := other_types(ids, encoder.ids):
            return f"knows none of the {axis} in X: ids are of type {types[0]}, in fit of type {types[1]}."
        n_ids = len(set(map(tuple, ids.tolist())))
        if n_ids >= _SEVERAL:
            return f"knows none of the {n_ids} {axis} in X: their ids were not seen in fit."
    return None


def other_types(ids, known):
    """Return the types of ids, and of those known, in words; None if some of a feature may be the same."""
    for values, known_values in zip(ids.T.tolist(), known.T.tolist(), strict=True):
        if not set(map(_kind, values)) & set(map(_kind, known_values)):
            both = [{type(value).__name__ for value in some} for some in (values, known_values)]
            return [" or ".join(sorted(names)) for names in both]
    return None


def _kind(value):
    """Equal numbers of different types are the same id, and so are equal strings."""
    return next((kind for kind in (Real, str) if isinstance(value, kind)), type(value))
