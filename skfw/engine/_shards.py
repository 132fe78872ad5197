"""Rows in blocks: sample vectors whose parts stay with their blocks, and who computes with them.

A `Runner` applies a function to all blocks and adds up what comes back. Where the blocks are, and whether
they are in memory at all, is its business alone. What crosses between the caller and the blocks are models
and directions, one number a feature, and sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, final

import numpy as np

from ._protocols import Array, Design

# A handle is whatever a runner keeps of a block: the block itself, or the name of where it is.
Handle = Any
Path: TypeAlias = tuple[str | int, ...]
# As many sums as are added up at once.
_FAN_IN = 16
# Numbers that are brought here to be added up, of so few blocks, because a task of its own takes longer: on a
# local cluster of two workers a pass over 8 blocks takes 14 ms then, and 29 with a task that adds.
_FEW_NUMBERS = 1 << 18


class Pieces:
    """Something that there is one of for each block.

    Parameters
    ----------
    handles : sequence of handles
    path : tuple of keys
        Which part of what the handles stand for, where that is a dictionary, or a dictionary of these.
    """

    def __init__(self, handles: Sequence[Handle], path: Path = ()) -> None:
        self.handles, self.path = tuple(handles), path

    def part(self, key: str) -> Pieces:
        """Return one of several parts."""
        return Pieces(self.handles, (*self.path, key))

    def of_blocks(self, numbers: Sequence[int]) -> Pieces:
        """Return the pieces of some of the blocks."""
        return Pieces([self.handles[k] for k in numbers], self.path)


class Deferred(Pieces):
    """Pieces that are computed, by the task that first needs them, from the arguments of a function.

    Attributes
    ----------
    is_kept : bool
        Whether the next task that needs them is given what the first one has computed.
    """

    is_kept = True

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(())
        self.function, self.arguments = function, arguments

    def settle(self, handles: Sequence[Handle], number: int) -> None:
        """Have the pieces where they were computed."""
        self.handles, self.path, self.arguments = tuple(handles), (number,), ()


@final
class Made(Deferred):
    """Pieces that each task makes for itself, because that takes next to nothing."""

    is_kept = False

    def of_blocks(self, numbers: Sequence[int]) -> Made:
        """Return the pieces of some of the blocks."""
        arguments = (each.of_blocks(numbers) if isinstance(each, Pieces) else each for each in self.arguments)
        return Made(self.function, *arguments)


@final
@dataclass(frozen=True)
class Origin:
    """Says of a vector that it is the predictions of a model: sums of it are then known without a pass."""

    design: Design
    model: Array


@final
class ShardVector:
    """One number, or one row of numbers, for each sample, with its parts where the blocks are.

    It is a sum of multiples of pieces. Sums and multiples of vectors are computed where a vector is used, and
    not before.

    Parameters
    ----------
    terms : dict of Pieces to float
    origin : Origin, optional
        What it is the predictions of, where that is known.
    """

    __slots__ = ("origin", "terms")
    __array_ufunc__ = None  # NumPy's numbers leave products to this class

    def __init__(self, terms: dict[Pieces, float], origin: Origin | None = None) -> None:
        self.terms, self.origin = terms, origin

    @classmethod
    def of(cls, pieces: Pieces) -> ShardVector:
        """Return the vector with these parts."""
        return cls({pieces: 1.0})

    def __add__(self, other: ShardVector) -> ShardVector:
        terms = dict(self.terms)
        for pieces, factor in other.terms.items():
            terms[pieces] = terms.get(pieces, 0.0) + factor
        mine, theirs = self.origin, other.origin
        if mine is None or theirs is None or mine.design is not theirs.design:
            return ShardVector(terms)
        return ShardVector(terms, Origin(mine.design, mine.model + theirs.model))

    def __sub__(self, other: ShardVector) -> ShardVector:
        return self + (-1.0) * other

    def __rmul__(self, number: float) -> ShardVector:
        origin = self.origin and Origin(self.origin.design, number * self.origin.model)
        return ShardVector({pieces: float(number) * factor for pieces, factor in self.terms.items()}, origin)

    def __truediv__(self, number: float) -> ShardVector:
        origin = self.origin and Origin(self.origin.design, self.origin.model / number)
        return ShardVector({pieces: factor / float(number) for pieces, factor in self.terms.items()}, origin)


class Runner(ABC):
    """Applies functions to blocks, each where it is.

    Attributes
    ----------
    latency : float
        Rough seconds that it takes to have anything computed and brought back.
    """

    latency: float = 0.0

    @abstractmethod
    def run(
        self, function: Callable[..., Any], shared: Any, pieces: Sequence[Sequence[Handle]]
    ) -> tuple[Handle, ...]:
        """Return handles of ``function(shared, *parts)`` for each block.

        Each of `pieces` has a handle for each block, and the function is given what these stand for.
        """

    @abstractmethod
    def submit(self, function: Callable[..., Any], handles: Sequence[Handle]) -> Handle:
        """Return the handle of a function of a list of what these handles stand for."""

    @abstractmethod
    def spread(self, parts: Sequence[Any]) -> tuple[Handle, ...]:
        """Return handles of parts that are given, one for each block."""

    @abstractmethod
    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Return what handles stand for."""

    def map(self, function: Callable[..., Any], *arguments: Any) -> Pieces:
        """Apply a function to the parts that arguments have of each block; others are the same for all."""
        plan = _Plan()
        template = [plan.place(argument) for argument in arguments]
        handles = self.run(_call, (function, template, plan.steps, list(plan.deferred)), plan.pieces)
        for number, deferred in plan.deferred.items():
            deferred.settle(handles, number)
        return Pieces(handles, (_RESULT,) if plan.deferred else ())

    def sums(self, function: Callable[..., Any], *arguments: Any, size: int = 1) -> tuple[Any, ...]:
        """Return the sums over the blocks of the numbers and arrays that a function returns as a tuple.

        `size` is about how many numbers that are.
        """
        return self.added(self.map(function, *arguments), size)

    def added(self, pieces: Pieces, size: int = 1) -> tuple[Any, ...]:
        """Return the sums over the blocks of tuples of about `size` numbers, added up a few at a time."""
        level = self._alone(pieces)
        while len(level) > _FAN_IN or (len(level) > 1 and len(level) * size > _FEW_NUMBERS):
            parts = [level[i : i + _FAN_IN] for i in range(0, len(level), _FAN_IN)]
            level = tuple(self.submit(_added, part) for part in parts)
        return _added(self.gather(level))

    def parts(self, pieces: Pieces) -> list[Any]:
        """Return the parts of all blocks."""
        return self.gather(self._alone(pieces))

    def _alone(self, pieces: Pieces) -> tuple[Handle, ...]:
        """Return handles of the pieces alone: the vectors beside them must not cross with them."""
        return self.run(_at_path, pieces.path, [pieces.handles]) if pieces.path else pieces.handles


@final
class Here(Runner):
    """Computes in this process, block by block: one block at a time is in use."""

    def run(
        self, function: Callable[..., Any], shared: Any, pieces: Sequence[Sequence[Handle]]
    ) -> tuple[Handle, ...]:
        return tuple(function(shared, *parts) for parts in zip(*pieces, strict=True))

    def submit(self, function: Callable[..., Any], handles: Sequence[Handle]) -> Handle:
        return function(handles)

    def spread(self, parts: Sequence[Any]) -> tuple[Handle, ...]:
        return tuple(parts)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return list(handles)


def _added(found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add tuples of numbers and arrays, entry by entry."""
    return tuple(reduce(np.add, numbers) for numbers in zip(*found, strict=True))


class _Plan:
    """What the tasks of a pass do: which pieces they are given, and what they compute of them beforehand.

    Attributes
    ----------
    pieces : list of sequences of handles
    steps : list of tuples of a function and its arguments
        For each of the deferred pieces that are needed, after those that it needs itself.
    deferred : dict of int to Deferred
        Those that are kept, by the numbers of their steps.
    """

    def __init__(self) -> None:
        self.pieces: list[Sequence[Handle]] = []
        self.steps: list[tuple[Callable[..., Any], list[Any]]] = []
        self.deferred: dict[int, Deferred] = {}
        self._numbers: dict[Pieces, int] = {}

    def place(self, argument: Any) -> Any:
        """Return what stands for an argument in the tasks."""
        if isinstance(argument, ShardVector):
            return _Sum(tuple((factor, self._place(pieces)) for pieces, factor in argument.terms.items()))
        return self._place(argument) if isinstance(argument, Pieces) else argument

    def _place(self, pieces: Pieces) -> _Part | _Step:
        if not isinstance(pieces, Deferred) or pieces.handles:
            self.pieces.append(pieces.handles)
            return _Part(len(self.pieces) - 1, pieces.path)
        if pieces not in self._numbers:
            step = pieces.function, [self.place(argument) for argument in pieces.arguments]
            number = self._numbers[pieces] = len(self.steps)
            self.steps.append(step)
            if pieces.is_kept:
                self.deferred[number] = pieces
        return _Step(self._numbers[pieces])


@final
@dataclass(frozen=True)
class _Part:
    """Stands for a piece that a task is given."""

    number: int
    path: Path


@final
@dataclass(frozen=True)
class _Step:
    """Stands for a piece that a task computes beforehand."""

    number: int


@final
@dataclass(frozen=True)
class _Sum:
    """Stands for a sum of multiples of pieces."""

    terms: tuple[tuple[float, _Part | _Step], ...]


_RESULT = "result"


def _call(shared: tuple[Callable[..., Any], list[Any], list[Any], list[int]], *pieces: Any) -> Any:
    """Call a function with arguments that are put together from pieces, and keep what was deferred."""
    function, template, steps, kept = shared
    done: list[Any] = []
    for step, arguments in steps:
        done.append(step(*(_found(place, pieces, done) for place in arguments)))
    result = function(*(_found(place, pieces, done) for place in template))
    return {_RESULT: result} | {number: done[number] for number in kept} if kept else result


def _found(place: Any, pieces: Sequence[Any], done: Sequence[Any]) -> Any:
    """Return what an argument stands for.

    Not a function within `_call`: that would refer to itself, and to all pieces, until Python next looks for
    such cycles. Blocks that are no longer needed would fill the memory.
    """
    if isinstance(place, _Sum):
        return _combined([(factor, _found(term, pieces, done)) for factor, term in place.terms])
    if isinstance(place, _Step):
        return done[place.number]
    if isinstance(place, _Part):
        return _at_path(place.path, pieces[place.number])
    return place


def _at_path(path: Path, piece: Any) -> Any:
    for key in path:
        piece = piece[key]
    return piece


def _combined(parts: list[tuple[float, Any]]) -> Any:
    (factor, first), *others = parts
    if not others and factor == 1.0:
        return first
    result = factor * first
    for factor, part in others:
        result += factor * part
    return result
