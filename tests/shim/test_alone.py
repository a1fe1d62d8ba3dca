"""What enters Hermes' process: small, and nothing but the standard library, zmq and Hermes."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import tokenize
import venv
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "hermes_shim"
FILES = sorted(SHIM.glob("*.py"))
HERMES = {"agent", "gateway", "hermes_cli", "hermes_constants", "hermes_state", "tools"}
MOST = 1_250
INSIDE = {
    "__init__",
    "adapter",
    "chats",
    "controls",
    "files",
    "host",
    "link",
    "questions",
    "waiting",
}
"""What only a gateway loads."""
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    """Lines that are not blank, comment or docstring."""
    source = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def test_size() -> None:
    counted = {path.name: code_lines(path) for path in FILES}
    assert sum(counted.values()) < MOST, counted


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "as a directory plugin the shim has no name of its own"
            names = [] if node.level else [node.module or ""]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            assert top in {"zmq"} | HERMES | sys.stdlib_module_names, name


def test_it_loads_where_nothing_is_installed(tmp_path: Path) -> None:
    """All that a process without a gateway loads, without Hermes and without zmq."""
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    shutil.copytree(SHIM, tmp_path / "plugins" / "loomi")
    names = [path.stem for path in FILES if path.stem not in INSIDE]
    code = "\n".join(
        [
            "import sys",
            f"import plugins.loomi, {', '.join(f'plugins.loomi.{name}' for name in names)}",
            "assert 'zmq' not in sys.modules",
            "assert not plugins.loomi.zmq_ready()",
            "plugins.loomi.facts.observer('pre_tool_call')(args=1)",
        ]
    )
    done = subprocess.run(
        [bare / "bin" / "python", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pyzmq is missing" in done.stderr
    assert "hook pre_tool_call failed: AttributeError" in done.stderr
