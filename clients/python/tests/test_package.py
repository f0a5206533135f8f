"""The wheel, made of the source distribution, in an empty project; and the types."""

import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

PROJECT = """
import importlib.metadata, pathlib, sys
import idempotency_postgres
from idempotency_postgres import asgi, wsgi, parse_key
assert parse_key('"a"') == "a"
assert pathlib.Path(idempotency_postgres.__file__).is_relative_to(sys.prefix), idempotency_postgres.__file__
assert pathlib.Path(idempotency_postgres.__file__).with_name("py.typed").exists()
assert importlib.metadata.version("idempotency-postgres") == idempotency_postgres.__version__
for optional in ("psycopg", "asyncpg", "sqlalchemy", "fastapi", "starlette", "flask", "django"):
    assert optional not in sys.modules, optional
    try:
        importlib.import_module("idempotency_postgres." + optional)
    except ModuleNotFoundError as error:
        assert error.name.split(".")[0] == optional or optional == "psycopg", error
    else:
        raise AssertionError(optional)
print("works")
"""


def test_wheel_in_an_empty_project(tmp_path):
    sources = tmp_path / "sources"  # setuptools litters where it builds
    shutil.copytree(PACKAGE, sources, ignore=shutil.ignore_patterns(".*", "tests", "example", "build", "*.egg-info"))
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(sources)]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert [file.name for file in tmp_path.glob("*.tar.gz")] == ["idempotency_postgres-1.0.0.tar.gz"]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == "idempotency_postgres-1.0.0-py3-none-any.whl"
    venv.create(tmp_path / "project", with_pip=False)
    python = tmp_path / "project" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    ran = subprocess.run([str(python), "-c", PROJECT], capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "works\n"), ran.stderr


@pytest.mark.parametrize("text, complaint", [
    ("transactionally(db, request, lambda claim: Answer(claim.attempt))", None),
    ("transactionally(db, request, lambda claim: 5)", "incompatible type"),
    ("transactionally(db, request)", "overload"),
    ("claim(Transactional[Connection]).client.execute('SELECT 1')", None),
    ("claim(Transactional[Connection]).client.exceute('SELECT 1')", "has no attribute"),
    ("claim(Leased).step('one', lambda: 1).bit_length()", None),
    ("claim(Leased).client", "has no attribute"),
])  # fmt: skip
def test_types(tmp_path, text, complaint):
    module = tmp_path / "service.py"
    module.write_text(
        "from psycopg import Connection\n"
        "from idempotency_postgres import Answer, Database, Leased, Request, Transactional, claim, transactionally\n"
        f"def call(db: Database[Connection], request: Request) -> None:\n    {text}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path.parent / "mypy"), str(module)],
        capture_output=True, text=True, cwd=PACKAGE,
    )  # fmt: skip
    assert (complaint is None) == (ran.returncode == 0) and (complaint or "") in ran.stdout, ran.stdout
