"""The core comes into a process once, whoever asks, and says why when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from noalias.native import NativeUnavailable, is_loaded, load, toolchain, try_load
from noalias.native.core import Core
from tests.native.support import Spawn, result

UNRESOLVED = """
void missing_from_every_library();
__attribute__((visibility("default"))) void calls_it() { missing_from_every_library(); }
"""


def test_core_is_one_module_however_often_it_is_loaded(core: Core) -> None:
    assert is_loaded()
    assert load() is core
    assert try_load() is core


def test_core_lies_in_the_cache_under_its_own_name(core: Core) -> None:
    assert Path(core.__file__).name == "noalias_core.so"


@pytest.mark.usefixtures("cache_root")
def test_threads_that_load_at_once_get_one_core_from_one_build(spawn: Spawn) -> None:
    process = spawn("""
        import threading
        from noalias import native
        from noalias.native import build

        builds, cores = [], []
        ensure = build.ensure
        build.ensure = lambda: builds.append(1) or ensure()
        start = threading.Barrier(8)

        def ask():
            start.wait()
            cores.append(native.load())

        assert not native.is_loaded()
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(cores), len({id(core) for core in cores}), len(builds), native.is_loaded())
    """)

    assert result(process) == "8 1 1 True\n"


@pytest.mark.usefixtures("cache_root")
def test_reloading_the_package_keeps_the_core(spawn: Spawn) -> None:
    process = spawn("""
        import importlib
        from noalias.native import loader

        before = loader.load()
        importlib.reload(loader)
        print(loader.load() is before)
    """)

    assert result(process) == "True\n"


@pytest.mark.usefixtures("cache_root")
def test_child_forked_during_a_build_can_load(spawn: Spawn) -> None:
    process = spawn("""
        import os, threading
        from noalias.native import build, load

        building, go = threading.Event(), threading.Event()
        ensure = build.ensure

        def slow():
            building.set()
            go.wait()
            return ensure()

        build.ensure = slow
        thread = threading.Thread(target=load)
        thread.start()
        building.wait()
        child = os.fork()
        if child == 0:
            build.ensure = ensure
            load()
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        go.set()
        thread.join()
    """)

    assert result(process) == "7\n"


@pytest.mark.usefixtures("cache_root")
def test_library_with_an_unresolved_symbol_fails_to_load_and_not_when_called(
    spawn: Spawn, sources: Path
) -> None:
    with (sources / "stub.cpp").open("a") as file:
        file.write(UNRESOLVED)

    process = spawn("""
        import sys
        from noalias import native

        try:
            native.load()
        except native.NativeUnavailable as error:
            print(error.fix, error.log.name, "missing_from_every_library" in str(error))
        print(native.is_loaded(), native.try_load(), "noalias_core" in sys.modules)
    """)

    assert result(process) == "noalias build --force build.log True\nFalse None False\n"


@pytest.mark.usefixtures("cache_root", "sources")
def test_cached_core_loads_without_compiler_ninja_setuptools_and_rich(
    spawn: Spawn, tmp_path: Path
) -> None:
    assert result(spawn("from noalias.native import load; load()")) == ""

    process = spawn(
        """
        import sys
        for name in ("ninja", "rich", "setuptools", "torch.utils.cpp_extension"):
            sys.modules[name] = None
        from noalias.native import load
        print(load().__name__)
        """,
        PATH=str(tmp_path),
    )

    assert result(process) == "noalias_core\n"


def test_error_can_be_sent_to_another_process() -> None:
    import pickle

    error = NativeUnavailable("no reason", fix="do this", log=Path("x.log"))
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is NativeUnavailable
    assert (again.reason, again.fix, again.log) == (error.reason, error.fix, error.log)
    assert str(again) == str(error)


def test_real_sources_are_in_the_package() -> None:
    assert "python_module.cpp" in toolchain.sources()
