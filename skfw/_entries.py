"""From a matrix to its entries, and back."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from scipy import sparse

from ._params import is_number


def matrix_to_entries(matrix):
    """Return the observed entries of a matrix, as `HFWMatrixCompletion` takes them.

    Parameters
    ----------
    matrix : array or data frame with NaN where a value is missing, or sparse matrix
        Of a sparse matrix the stored values are the observed ones, zeros included.

    Returns
    -------
    entries : ndarray of shape (n_entries, 2)
        Row and column indices. For a data frame they are its labels, which then are the ids of the model that
        is fitted to them.
    values : ndarray of shape (n_entries,)

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import entries_to_matrix, matrix_to_entries
    >>> entries, values = matrix_to_entries(np.array([[1.0, np.nan], [np.nan, 4.0]]))
    >>> entries.tolist(), values.tolist()
    ([[0, 0], [1, 1]], [1.0, 4.0])
    >>> entries_to_matrix(entries, values)
    array([[ 1., nan],
           [nan,  4.]])
    """
    is_frame = hasattr(matrix, "index") and hasattr(matrix, "columns")
    if not (is_frame or sparse.issparse(matrix)):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix must have two dimensions; got an array of shape {matrix.shape}.")
    for dtype in matrix.dtypes if is_frame else [matrix.dtype]:
        if dtype.kind not in "biuf":
            raise ValueError(f"matrix must have numbers, and NaN where one is missing; got dtype {dtype}.")
    if sparse.issparse(matrix):
        matrix = matrix.tocoo()
        rows, columns, values = matrix.row, matrix.col, matrix.data
        observed = ~np.isnan(values)
        rows, columns, values = rows[observed], columns[observed], values[observed]
    else:
        numbers = matrix.to_numpy(dtype=np.float64, na_value=np.nan) if is_frame else matrix
        rows, columns = np.nonzero(~np.isnan(numbers))
        values = numbers[rows, columns]
    if is_frame:
        row_labels, column_labels = _labels(matrix)
        return np.column_stack([row_labels[rows], column_labels[columns]]), values
    return np.column_stack([rows, columns]).astype(np.intp, copy=False), values


def _labels(frame):
    """Return the labels of rows and columns; those of two types as objects, so that none of them changes."""
    both = frame.index, frame.columns
    for axis, labels in zip(("rows", "columns"), both, strict=True):
        if not labels.is_unique:
            label = labels[labels.duplicated()][0]
            raise ValueError(
                f"matrix must have a label of its own for each of its {axis}; {label!r} repeats."
            )
    one_type = frame.index.dtype == frame.columns.dtype
    return [(labels if one_type else labels.astype(object)).to_numpy() for labels in both]


def entries_to_matrix(entries, values, shape=None):
    """Return the matrix with these entries, and NaN elsewhere.

    Parameters
    ----------
    entries : array of shape (n_entries, 2)
        Row and column indices, from zero.
    values : array of shape (n_entries,)
        An entry that occurs repeatedly gets the mean of its values.
    shape : tuple of two ints, optional
        By default the smallest that holds the entries.

    Returns
    -------
    ndarray
    """
    entries = np.asarray(entries if len(entries) else np.empty((0, 2)))
    values = np.asarray(values)
    if entries.ndim != 2 or entries.shape[1] != 2:
        raise ValueError(f"entries must have shape (n_entries, 2); got shape {entries.shape}.")
    if values.shape != entries.shape[:1]:
        raise ValueError(
            f"values must have shape {entries.shape[:1]}, one for each entry; got shape {values.shape}."
        )
    if values.dtype.kind not in "biuf":
        raise ValueError(f"values must be numbers; got an array of {values.dtype}.")
    rows, columns = _integers(entries).T
    if shape is None:
        shape = (int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1)
    elif np.shape(shape) != (2,) or not all(is_number(length, Integral) for length in shape):
        raise ValueError(f"shape must be a pair of integers; got shape={shape!r}.")
    outside = (rows < 0) | (columns < 0) | (rows >= shape[0]) | (columns >= shape[1])
    if outside.any():
        number = np.argmax(outside)
        raise IndexError(
            f"Indices of entries count from zero; got row {rows[number]}, column {columns[number]} "
            f"for shape {tuple(shape)}."
        )
    places, size = rows * shape[1] + columns, shape[0] * shape[1]
    counts, totals = np.bincount(places, minlength=size), np.bincount(places, values, minlength=size)
    return np.divide(totals, counts, out=np.full(size, np.nan), where=counts > 0).reshape(shape)


def _integers(entries):
    """Return indices as integers; other numbers may be whole, too."""
    if entries.dtype.kind not in "iuf":
        raise ValueError(f"entries must be indices of rows and columns; got an array of {entries.dtype}.")
    if entries.dtype.kind == "f":
        broken = ~np.isfinite(entries) | (np.floor(entries) != entries)
        if broken.any():
            raise ValueError(f"entries must be indices of rows and columns; got {entries[broken][0]}.")
    return entries.astype(np.intp, copy=False)
