"""Every test runs offline and on the CPU; torch must learn of its threads before it is imported."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import contextlib
import multiprocessing
import multiprocessing.spawn
import signal
import sys

import pytest
from hypothesis import settings

from . import quick_python as quick
from .settled import settle
from .tiny import save_tiny_model

# What a user's shell, or a git hook that calls the tests, may have set.
for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
    os.environ.pop(name, None)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
os.environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "commit.gpgsign", "GIT_CONFIG_VALUE_0": "false"}

# No test times anything, so no example has a deadline. On CI the same examples every time; at home new ones.
settings.register_profile("home", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


def pytest_collection_modifyitems(items):
    """Files with long tests first: a worker that meets one last keeps the others waiting."""
    long = {item.path for item in items if item.get_closest_marker("matrix")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish():
    settle()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    """Folder of a tiny Qwen3 model with a byte-level tokenizer and Qwen3's chat template."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-qwen3"
    save_tiny_model(folder)
    return str(folder)


@contextlib.contextmanager
def quick_processes():
    """Whoever starts a Python process, by `sys.executable` or by `multiprocessing`, gets a quick one."""
    before = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(quick.quick_python())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", quick.quick_python())
        yield
    multiprocessing.set_executable(before)


@pytest.fixture
def quick_python():
    """Python processes that are started in this test need not import the libraries ([`~tests.quick_python`])."""
    with quick_processes():
        yield


@pytest.fixture(scope="module")
def quick_python_of_module():
    """The same for fixtures and tests of a module."""
    with quick_processes():
        yield


@pytest.fixture
def heeds_ctrl_c():
    """What a shell starts in the background ignores SIGINT, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def said_once(caplog):
    """What the library's `warning_once` has logged in this test: `said_once(text)` lists the messages that hold it."""
    from transformers.utils import logging

    logging.warning_once.cache_clear()  # of the whole process, and so of earlier tests
    return lambda text: [record.getMessage() for record in caplog.records if text in record.getMessage()]
