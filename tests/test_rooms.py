"""The engine's rooms: who may know whom. Read off the source, so that a hole in a wall is noticed."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "skfw"
ENGINE = PACKAGE / "engine"
FOLDERS = ("losses", "data", "constraints", "correctors")
SOLVER = ("_solver", "_momentum", "_steps", "_sampling", "_constraint_checks", "_loss_checks")
# What a room may not import. All may import what the top level of the engine shares.
FORBIDDEN = {
    "losses": {"data", "constraints", "correctors", *SOLVER, "_problem", "_lines"},
    "data": {"losses", "constraints", "correctors", *SOLVER, "_problem", "_lines"},
    "constraints": {"losses", "data", "correctors", *SOLVER, "_problem", "_lines"},
    "correctors": {"losses", "data", "constraints", *SOLVER},
    # The top level: only what puts a fit together knows how correctors are found, and only what asks a set
    # what a fit would ask knows data.
    "": set(FOLDERS),
}
EXCEPTIONS = {("_sampling.py", "correctors"), ("_constraint_checks.py", "data")}
# Questions about the kind of a number, or of another object of one's own class, or what an argument is, only
# to refuse it.
ASKED = {
    "_atoms.py": {"FactoredMatrix"},
    "data/_entry_matrix.py": {"EntryMatrix"},
    "data/_featured_entries.py": {"MappedMatrix"},
    "_protocols.py": {"kind"},
    "data/_design_matrix.py": {"np.memmap"},
    "_shards.py": {"ShardVector", "Pieces", "Deferred", "_Sum", "_Part", "_Step"},
}
KINDS_OF_NUMBERS = {"bool", "Real", "Integral", "int", "float", "np.integer", "np.floating", "np.ndarray"}

FILES = sorted(ENGINE.rglob("*.py"))


def name_of(file):
    return str(file.relative_to(ENGINE))


every_file = pytest.mark.parametrize("file", FILES, ids=name_of)


def imported(file):
    """Yield the dotted module, from the package's top, and the names that each import takes from it."""
    here = ["skfw", *file.relative_to(PACKAGE).parts]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split("."), []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = here[: -node.level] if node.level else []
            yield [*start, *(node.module.split(".") if node.module else [])], [a.name for a in node.names]


def modules(file):
    """Yield the rooms, or modules of the top level, that a file imports of the engine."""
    for module, names in imported(file):
        if module[:2] == ["skfw", "engine"]:
            yield from module[2:3] or names


def test_the_files_are_found():
    assert {"_solver.py", "losses/_separable.py", "correctors/_table.py"} <= {name_of(file) for file in FILES}


@every_file
def test_rooms_do_not_know_each_other(file):
    room = file.parent.name if file.parent != ENGINE else ""
    if name_of(file) == "__init__.py":  # which exports them all
        return
    known = {module for module in modules(file) if (name_of(file), module) not in EXCEPTIONS}
    assert not (known - {room}) & FORBIDDEN[room]


@every_file
def test_nothing_in_the_engine_needs_scikit_learn(file):
    tops = {module[0] for module, _ in imported(file)}
    assert "sklearn" not in tops
    # Nor the estimators.
    assert all(module[1:2] == ["engine"] for module, _ in imported(file) if module[0] == "skfw")


@pytest.mark.parametrize(
    "file", sorted([*PACKAGE.glob("*.py"), *FILES]), ids=lambda file: str(file.relative_to(PACKAGE))
)
def test_no_private_name_leaves_its_module(file):
    """A module may have a private name; what is imported from it is public among its neighbours."""
    for module, names in imported(file):
        if module[0] != "skfw":
            continue
        folder = PACKAGE.joinpath(*module[1:])
        private = {name for name in names if name.startswith("_") and not name.startswith("__")}
        assert all((folder / f"{name}.py").exists() for name in private)


def called(file, *functions):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            yield node


@every_file
def test_no_room_asks_what_an_object_is(file):
    """Objects are used through their interface: no class of another room is asked for, and no attribute."""
    for call in called(file, "isinstance", "issubclass"):
        kinds = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
        asked = {ast.unparse(kind) for kind in kinds}
        assert asked <= KINDS_OF_NUMBERS | ASKED.get(name_of(file), set())
    for call in called(file, "getattr", "hasattr"):
        assert ast.unparse(call) == "getattr(self, name)"
        assert name_of(file) == "_protocols.py"
