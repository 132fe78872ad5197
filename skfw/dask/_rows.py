"""Rows of collections, frames and arrays as blocks, checked and aligned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dask
import dask.array
import numpy as np
from dask.optimization import cull
from dask.sizeof import sizeof
from distributed import futures_of
from distributed.system import MEMORY_LIMIT
from scipy import sparse

from ..engine import Extent, Here, Made, Pieces, design_matrix
from ._cluster import OnCluster

# Blocks are held for all of a fit if they take at most this share of the memory. Else each pass reads them
# again: Dask would write what it drops, and read it again, in each pass.
_HELD_SHARE = 0.5
# But where that is much work they are held, too. Either the data is in the graph of its collection: that has
# more than this share of the bytes. Or blocks have tasks in common: the graphs of single blocks have together
# more than this many times the tasks of the whole one.
_CARRIED_SHARE, _REPEATED = 0.1, 2.0


class InProcess(Here):
    """Blocks in this process, computed by Dask's local scheduler."""

    n_parts = 1
    memory = MEMORY_LIMIT

    def load(self, delayed):
        """Return what delayed objects stand for."""
        return dask.compute(*delayed)


@dataclass(frozen=True)
class FeatureLook:
    """What is known of the features of a block after one look at them.

    Attributes
    ----------
    extent : Extent
    dtype : dtype
    is_finite : bool
    is_ready : bool
        Whether they are an array or a CSR matrix of floats already.
    """

    extent: Extent
    dtype: np.dtype
    is_finite: bool
    is_ready: bool


@dataclass(frozen=True)
class Look:
    """What is known of targets and weights of a block after one look at them.

    Attributes
    ----------
    is_finite : bool
        Whether the targets are.
    weights : tuple of three floats
        The smallest and the largest sample weight, NaN if one is; and their sum, divided by the largest.
    targets : whatever the estimator has asked for
    """

    is_finite: bool
    weights: tuple
    targets: Any


@dataclass(frozen=True)
class Rows:
    """The rows of a fit in blocks.

    Attributes
    ----------
    runner : Runner
    X, y, weights : Pieces
        Features, targets and sample weights of the same blocks; none of them is empty.
    is_held : bool
        Whether the features are held, and not read again in each pass.
    features : list of FeatureLook
    looks : list of Look
    seen : dict
        The attributes that tell of the features.
    """

    runner: Any
    X: Pieces
    y: Pieces
    weights: Pieces
    is_held: bool
    features: list
    looks: list
    seen: dict

    @property
    def dtype(self):
        """Single precision if all blocks have that."""
        return np.result_type(*(each.dtype for each in self.features))

    @property
    def largest_weight(self):
        """The largest sample weight."""
        return max(look.weights[1] for look in self.looks)


def read_rows(name, client, X, y, sample_weight, look_at):
    """Return the rows of a fit; `look_at` is what to find out of targets and weights of a block.

    `name` is that of the estimator.
    """
    runner = InProcess() if client is None else OnCluster(client)
    blocks, names, is_held = _features(runner, X)
    features = runner.parts(runner.map(_look_at_features, blocks))
    if is_held and not all(each.is_ready for each in features):
        blocks = runner.map(_as_matrix, blocks)
    elif not is_held:
        blocks = Made(_as_matrix, blocks)
    lengths = [each.extent.n_rows for each in features]
    if not sum(lengths):
        raise ValueError(f"{name} needs at least one sample; X has none.")
    targets = _aligned(runner, "y", y, lengths)
    if sample_weight is None:
        weights = Made(_ones, targets)
    else:
        weights = Made(_as_weights, _aligned(runner, "sample_weight", sample_weight, lengths))
    # Empty blocks, as filters leave them, have nothing to say.
    filled = [k for k, length in enumerate(lengths) if length]
    features = [features[k] for k in filled]
    parts = [part.of_blocks(filled) for part in (blocks, targets, weights)]
    ends = np.cumsum(lengths)[filled]
    places = [f"block {k} (rows up to {end - 1})" for k, end in zip(filled, ends, strict=True)]
    _check_features(features, places)
    looks = runner.parts(runner.map(_look, *parts[1:], look_at))
    for look, place in zip(looks, places, strict=True):
        _check(look, place)
    if max(look.weights[1] for look in looks) == 0.0:
        raise ValueError("sample_weight must have a positive weight; got weights that are all zero.")
    seen = {"n_features_in_": len(features[0].extent.largest)}
    if names is not None:
        seen["feature_names_in_"] = np.array(names, dtype=object)
    return Rows(runner, *parts, is_held, features, looks, seen)


def _features(runner, X):
    """Return the blocks of features, the names of its columns, and whether the blocks are held."""
    names = getattr(X, "columns", None)
    names = None if names is None or not all(isinstance(each, str) for each in names) else list(names)
    sources = _sources(runner, X) if dask.is_dask_collection(X) and not futures_of(X) else None
    if sources is None:
        return _blocks(runner, X), names, True
    return Made(_read, Pieces(sources)), names, False


def _sources(runner, X):
    """Return what the blocks of a collection are read from; None if they are to be held."""
    delayed = _delayed(X)
    graph = dict(dask.delayed(list)(delayed).__dask_graph__())
    sources = [Source(cull(graph, [each.key])[0], each.key) for each in delayed]
    if isinstance(X, dask.array.Array) and isinstance(X._meta, np.ndarray) and not np.isnan(X.nbytes):
        size = X.nbytes
    else:
        size = len(sources) * runner.parts(runner.map(_n_bytes, Pieces(sources[:1])))[0]
    is_small = size <= _HELD_SHARE * runner.memory
    is_repeated = sum(len(each.graph) for each in sources) > _REPEATED * len(graph)
    is_carried = sum(sizeof(task) for task in graph.values()) > _CARRIED_SHARE * size
    return None if is_small or is_repeated or is_carried else sources


def _delayed(data):
    """Return a delayed object for each block of rows of a collection."""
    if not isinstance(data, dask.array.Array):
        return list(data.to_delayed())
    grid = data.to_delayed().reshape(data.numblocks[0], -1)
    return [row[0] if len(row) == 1 else dask.delayed(_side_by_side)(list(row)) for row in grid]


def _blocks(runner, data):
    """Return the blocks of rows of anything that has rows; they are held."""
    if dask.is_dask_collection(data):
        return Pieces(runner.load(_delayed(data)))
    part = _as_array(data)
    cuts = np.linspace(0, part.shape[0], runner.n_parts + 1).astype(int)
    return Pieces(runner.spread([part[a:b] for a, b in pairwise(cuts)]))


def _aligned(runner, name, data, lengths):
    """Return the blocks of data with the lengths of other blocks."""
    blocks = _blocks(runner, data)
    own = runner.parts(runner.map(_length, blocks))
    if sum(own) != sum(lengths):
        raise ValueError(
            f"X and {name} must have the same number of rows; got {sum(lengths)} and {sum(own)}."
        )
    if own == lengths:
        return Made(_as_array, blocks)
    starts, handles = np.cumsum([0, *own]), []
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        first = end - length
        used = [k for k in range(len(own)) if own[k] and starts[k] < end and starts[k + 1] > first]
        cuts = [(max(first - starts[k], 0), min(end - starts[k], own[k])) for k in used]
        used = used or [0]
        cuts = cuts or [(0, 0)]
        handles.append(runner.submit(_Cut(tuple(cuts)), [blocks.handles[k] for k in used]))
    return Pieces(tuple(handles))


def _check_features(features, places):
    """Raise a ValueError if something is wrong with the features of a block."""
    first = len(features[0].extent.largest)
    for each, where in zip(features, places, strict=True):
        if not each.is_finite:
            raise ValueError(f"X contains NaN or infinity, in {where}.")
        if len(each.extent.largest) != first:
            raise ValueError(
                f"X must have the same features in all blocks; got {first} in the first and "
                f"{len(each.extent.largest)} in {where}."
            )


def _check(look, where):
    """Raise a ValueError if something is wrong with targets or weights of a block."""
    if not look.is_finite:
        raise ValueError(f"y contains NaN or infinity, in {where}.")
    if not (np.isfinite(look.weights[:2]).all() and look.weights[0] >= 0.0):
        raise ValueError(
            f"sample_weight must be finite and non-negative; got weights from {look.weights[0]} to "
            f"{look.weights[1]} in {where}."
        )


# What is done with a block.


class Source:
    """What a block is read from: its part of the graph of a collection.

    It is read in the task that needs it, so a worker has as many blocks at once as it has threads.
    """

    def __init__(self, graph, key):
        self.graph, self.key = graph, key


def _read(source):
    return dask.get(source.graph, source.key)


@dataclass(frozen=True)
class _Cut:
    """Puts some rows of some blocks together."""

    cuts: tuple

    def __call__(self, parts):
        return np.concatenate([_as_array(part)[a:b] for (a, b), part in zip(self.cuts, parts, strict=True)])


def _side_by_side(parts):
    return sparse.hstack(parts, format="csr") if sparse.issparse(parts[0]) else np.hstack(parts)


def _as_array(part):
    if sparse.issparse(part):
        return part.tocsr()
    return part.to_numpy() if hasattr(part, "to_numpy") else np.asarray(part)


def _as_matrix(part):
    """Return features as an array or a CSR matrix of floats."""
    part = _as_array(part)
    if part.ndim != 2:
        raise ValueError(f"X must have two dimensions; got a block of shape {part.shape}.")
    if part.dtype.kind == "c":
        raise ValueError("X must have real numbers; got complex ones.")
    if not sparse.issparse(part):
        part = np.ascontiguousarray(part)
    return part if part.dtype in (np.float32, np.float64) else part.astype(np.float64)


def _as_weights(part):
    if part.ndim != 1:
        raise ValueError(f"sample_weight must have one dimension; got a block of shape {part.shape}.")
    return part.astype(np.float64)


def _ones(y):
    return np.ones(y.shape[0])


def _length(part):
    return len(_as_array(part))


def _n_bytes(source):
    return sizeof(_read(source))


def _look_at_features(part):
    X = _as_matrix(part)
    stored = X.data if sparse.issparse(X) else X
    with np.errstate(invalid="ignore"):
        extent = Extent.of(design_matrix(X, by_rows=True))
    return FeatureLook(extent, X.dtype, bool(np.isfinite(stored).all()), X is part)


def _look(y, weights, look_at):
    largest = float(weights.max())
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        total = float((weights / largest).sum()) if largest > 0.0 else 0.0
    is_finite = y.dtype.kind != "f" or bool(np.isfinite(y).all())
    summary = (float(weights.min()), largest, total)
    return Look(is_finite, summary, look_at(y, weights) if is_finite else None)
