"""Command lines in forks of one process that has imported torch: real processes, without seconds of start.

One JSON request per line on standard input; for each the process id, then exit status and peak memory.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from mlmfast.cli import main


def warm_up(model: str) -> None:
    """Imports, in the way a run does, all that a run imports; no text, so no thread is started."""
    sys.argv = ["mlmfast", "score", os.devnull, "--quiet", "--workers", "1", "--model", model]
    with suppress(SystemExit):
        main()


def import_all(modules: list[str]) -> None:
    """What runs of other commands import."""
    for module in modules:
        importlib.import_module(module)


def become(request: dict) -> None:
    """Turns this fork into a process started with the request's arguments, folder, environment and files."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.argv = ["mlmfast", *request["args"]]
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for descriptor, (name, flags) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", writing), ("stderr", writing))
    ):
        opened = os.open(request[name], flags | os.O_NOCTTY)
        os.dup2(opened, descriptor)
        os.close(opened)


def run_and_exit() -> NoReturn:
    """The command line, ended without the seconds Python takes to free every module of torch."""
    status = 1
    try:
        main()
        status = 0
    except SystemExit as stopped:
        status = stopped.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve() -> None:
    """Answers requests until their end."""
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            become(json.loads(line))
            run_and_exit()
        print(child, flush=True)
        _, status, usage = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, flush=True)


if __name__ == "__main__":
    model, *modules = sys.argv[1:]
    import_all(modules)
    warm_up(model)
    serve()
