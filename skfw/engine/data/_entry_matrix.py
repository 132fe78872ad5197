"""Directions of matrix completion: matrices that are zero but for the observed entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from .._protocols import Array
from ._kernels import times


@final
@dataclass(frozen=True)
class EntryMatrix:
    """A matrix that is zero but for some entries, with the arithmetic of an array as far as it is needed.

    It can be added to another with the same entries, multiplied by a number, by a column ``(n_rows, 1)`` or
    by a row ``(n_columns,)``, and by matrices with ``@``. ``ravel`` and ``max`` are those of its entries. The
    product of two such matrices, one transposed, is an array.

    Parameters
    ----------
    matrix : CSR matrix, or the transpose of one, which cannot be multiplied by columns and rows
    """

    matrix: Any

    __array_ufunc__ = None  # NumPy then leaves `array * matrix` to the methods below

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.matrix.shape  # type: ignore[no-any-return]

    @property
    def T(self) -> EntryMatrix:  # noqa: N802 - as arrays call it
        """The transpose."""
        return EntryMatrix(self.matrix.T)

    def ravel(self) -> Array:
        """Return the entries."""
        return self.matrix.data  # type: ignore[no-any-return]

    def max(self) -> float:
        """Return the largest entry."""
        return float(self.matrix.data.max(initial=0.0))

    def astype(self, dtype: npt.DTypeLike) -> EntryMatrix:
        """Return the matrix in another precision."""
        return self._with(self.matrix.data.astype(dtype, copy=False))

    def __abs__(self) -> EntryMatrix:
        return self._with(np.abs(self.matrix.data))

    def __add__(self, other: EntryMatrix) -> EntryMatrix:
        return self._with(self.matrix.data + other.matrix.data)

    def __mul__(self, row: Array) -> EntryMatrix:
        return self._with(self.matrix.data * row[self.matrix.indices])

    def __rmul__(self, factor: Any) -> EntryMatrix:
        if np.ndim(factor):
            factor = np.repeat(factor[:, 0], np.diff(self.matrix.indptr))
        return self._with(factor * self.matrix.data)

    def __truediv__(self, number: float) -> EntryMatrix:
        return self._with(self.matrix.data / number)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, EntryMatrix):
            return (self.matrix @ other.matrix).toarray()
        return times(self.matrix, other)

    def _with(self, entries: npt.NDArray[Any]) -> EntryMatrix:
        stored = entries, self.matrix.indices, self.matrix.indptr
        return EntryMatrix(type(self.matrix)(stored, shape=self.shape))
