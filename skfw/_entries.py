"""From a matrix to its entries, and back."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def matrix_to_entries(matrix):
    """Return the observed entries of a matrix, as `HFWMatrixCompletion` takes them.

    Parameters
    ----------
    matrix : array with NaN where a value is missing, or sparse matrix
        Of a sparse matrix the stored values are the observed ones, zeros included.

    Returns
    -------
    entries : ndarray of shape (n_entries, 2)
        Row and column indices.
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
    if sparse.issparse(matrix):
        matrix = matrix.tocoo()
        rows, columns, values = matrix.row, matrix.col, matrix.data
        observed = ~np.isnan(values)
        rows, columns, values = rows[observed], columns[observed], values[observed]
    else:
        matrix = np.asarray(matrix)
        rows, columns = np.nonzero(~np.isnan(matrix))
        values = matrix[rows, columns]
    return np.column_stack([rows, columns]).astype(np.intp, copy=False), values


def entries_to_matrix(entries, values, shape=None):
    """Return the matrix with these entries, and NaN elsewhere.

    Parameters
    ----------
    entries : array of shape (n_entries, 2)
        Row and column indices, from zero.
    values : array of shape (n_entries,)
    shape : tuple of two ints, optional
        By default the smallest that holds the entries.

    Returns
    -------
    ndarray
    """
    entries = np.asarray(entries, dtype=np.intp).reshape(-1, 2)
    if entries.min(initial=0) < 0:
        row, column = entries[entries.min(axis=1).argmin()]
        raise IndexError(f"Indices of entries count from zero; got row {row}, column {column}.")
    rows, columns = entries.T
    if shape is None:
        shape = (int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1)
    matrix = np.full(shape, np.nan)
    matrix[rows, columns] = values
    return matrix
