"""Checks of mutants by unit tests: a pytest plugin that runs the collected tests in forks."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testing.mutation import forks
from testing.mutation.mutants import SOURCE, Mutant, apply, functions_of

_TESTS = Path("tests/unit/distributed_input")
_LEAST_SECONDS = 5.0  # time limit of a test, in addition to a multiple of its usual time
_USUAL_TIMES = 4
_WAITING = 3  # forks for one CPU, because the tests wait for most of their time


def check(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with its result. The mutants' modules are in one folder."""
    folder = Path(mutants[0].module).parent
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            with os.fdopen(write, "w") as results:
                status = _run(_TESTS / folder, mutants, jobs, results)
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as lines:
        for line in lines:
            number, result = json.loads(line)
            yield mutants[number], result
    _, status = os.waitpid(pid, 0)
    if status:
        raise ValueError(f"the tests in {_TESTS / folder} failed without a mutant: see above")


def _run(tests: Path, mutants: Sequence[Mutant], jobs: int, results: Any) -> int:
    files = [str(path) for path in sorted(tests.glob("test_*.py"))]
    arguments = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    status = pytest.main([*arguments, *files], plugins=[_Plugin(mutants, jobs, results)])
    sys.stdout.flush()
    return int(status)


class _Plugin:
    """Runs all tests once, and then for each mutant those that call the changed function."""

    def __init__(self, mutants: Sequence[Mutant], jobs: int, results: Any) -> None:
        self._mutants, self._jobs, self._results = mutants, jobs, results
        self._failed = False

    def pytest_sessionstart(self) -> None:
        """Let Hypothesis report the first failure, without a search for a smaller one."""
        from hypothesis import Phase, settings  # after pytest has prepared its import

        phases = (Phase.explicit, Phase.generate)
        parent = settings.get_profile("project")
        settings.register_profile("mutation", parent, phases=phases, database=None)
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Check all mutants instead of running the tests once."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        modules = {one.module for one in self._mutants}
        seconds, callers = self._measure(session.items, modules)
        functions = {module: functions_of(module) for module in modules}

        def is_killed(mutant: Mutant) -> bool:
            plugins = session.config.pluginmanager
            plugins.unregister(plugins.get_plugin("terminalreporter"))
            apply(mutant, functions[mutant.module])
            tests = callers[mutant.module, mutant.function]
            own = f"test_{Path(mutant.module).name}"
            for item in sorted(tests, key=lambda one: (one.path.name != own, seconds[one])):
                forks.limit(_LEAST_SECONDS + _USUAL_TIMES * seconds[item])
                if not self._passes(item):
                    return True
            return False

        numbers = {mutant: number for number, mutant in enumerate(self._mutants)}
        for mutant, result in forks.check_all(self._mutants, is_killed, _WAITING * self._jobs):
            print(json.dumps([numbers[mutant], result]), file=self._results, flush=True)
        return True

    def _passes(self, item: pytest.Item) -> bool:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self._failed

    def _measure(
        self, items: Sequence[pytest.Item], modules: Iterable[str]
    ) -> tuple[dict[pytest.Item, float], dict[tuple[str, int], set[pytest.Item]]]:
        """Return the time of each test, and the tests that call each function of the modules.

        The tests run in a fork, so that the forks for the mutants begin without threads.
        """
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            with os.fdopen(write, "w") as answer:
                json.dump([self._run_test(one, modules) for one in items], answer)
            sys.stdout.flush()
            os._exit(self._failed)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        if os.waitpid(pid, 0)[1]:
            raise pytest.Session.Interrupted("a test fails without a mutant")
        seconds, callers = {}, defaultdict(set)
        for item, (took, called) in zip(items, json.loads(text), strict=True):
            seconds[item] = took
            for module, line in called:
                callers[module, line].add(item)
        return seconds, callers

    def _run_test(
        self, item: pytest.Item, modules: Iterable[str]
    ) -> tuple[float, list[tuple[str, int]]]:
        paths = {str(SOURCE / module): module for module in modules}
        called = set()

        def profile(frame: Any, event: str, _: Any) -> None:
            if event == "call" and frame.f_code.co_filename in paths:
                called.add((paths[frame.f_code.co_filename], frame.f_code.co_firstlineno))

        began = time.monotonic()
        threading.setprofile(profile)
        sys.setprofile(profile)
        self._passes(item)
        sys.setprofile(None)
        threading.setprofile(None)
        return time.monotonic() - began, sorted(called)
