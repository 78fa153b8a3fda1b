"""Command lines in forks of one process that has imported torch: real processes, without seconds of start.

One JSON request per line on standard input; for each the process id, then exit status and peak memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import torch  # noqa: F401
from transformers import AutoModelForMaskedLM, BertForMaskedLM  # noqa: F401

import mlmfast.cli.run
import mlmfast.engines.torch_engine
from mlmfast.cli import main


def become(request: dict) -> None:
    """Turns this fork into a process started with the request's arguments, folder, environment and files."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["mlmfast", *request["args"]]
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    flags = (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_TRUNC] * 2)
    for descriptor, (name, flag) in enumerate(zip(("stdin", "stdout", "stderr"), flags, strict=True)):
        opened = os.open(request[name], flag | os.O_NOCTTY)
        os.dup2(opened, descriptor)
        os.close(opened)


def serve() -> None:
    """Answers requests until their end; in a fork, returns as the command line of its request."""
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            become(json.loads(line))
            main()
            return
        print(child, flush=True)
        _, status, usage = os.wait4(child, 0)
        print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, flush=True)


if __name__ == "__main__":
    serve()
