"""Names of rows and columns: from ids of any kind to indices."""

from __future__ import annotations

from functools import cached_property
from itertools import repeat

import numpy as np

# Integers are looked up in a table unless it would have more than this many places for each id.
_SPARSE_TABLE = 8
# Above this not all integers are floating-point numbers.
_FIRST_ROUNDED = 2.0**53


def keep_ids(X):
    """Return ids as they are, where one array of them would have a type that changes them.

    In the common type of the columns of a data frame, or of a list with integers and other numbers, large
    integers lose digits, and in that of a list with numbers and strings the numbers become strings.
    """
    if hasattr(X, "columns") and hasattr(X, "astype"):  # a series has its own type already
        one_type = len(set(X.dtypes)) == 1 and all(isinstance(kind, np.dtype) for kind in X.dtypes)
        if not one_type and bool(X.isna().to_numpy().any()):
            raise ValueError("Input X contains NaN, which names no row and no column.")
        return X if one_type else X.astype(object)
    if isinstance(X, list | tuple):
        array = np.asarray(X)
        loses_digits = array.dtype.kind == "f" and _FIRST_ROUNDED <= np.abs(array).max(initial=0.0) < np.inf
        if loses_digits or array.dtype.kind in "US":
            return np.array(X, dtype=object)
    return X


class IdEncoder:
    """Numbers the distinct rows of an array of ids, which may be numbers or strings.

    Attributes
    ----------
    ids : ndarray of shape (n_ids, n_columns)
        The distinct rows, in the order of their indices.
    """

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

    def transform(self, ids):
        """Return the indices of ids, -1 for those not learned."""
        first, *others = self._columns
        numbers = first.transform(ids[:, 0])
        for encoder, column, pairs in zip(others, ids.T[1:], self._pairs, strict=True):
            codes = encoder.transform(column)
            wanted = numbers * len(encoder.values) + codes
            found = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
            learned = (numbers >= 0) & (codes >= 0) & (pairs[found] == wanted)
            numbers = np.where(learned, found, -1)
        return numbers


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
        self.values = np.array(in_order, dtype=values.dtype)

    def transform(self, values):
        codes = map(self._codes.get, values.tolist(), repeat(-1))
        return np.fromiter(codes, dtype=np.intp, count=len(values))
