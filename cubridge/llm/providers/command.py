"""Any program as a model: the prompt on its standard input, the reply on its standard output."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from cubridge.llm.failures import checked_text, out_of_time, provider_failed, too_long
from cubridge.llm.provider import MAX_REPLY_BYTES, Reply, Request

_LOOK_EVERY = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class CommandProvider:
    """`command` is split as a shell would and run without one. `timeout`: seconds until the program and all that it started
    are killed."""

    command: str
    timeout: float = 600.0

    @property
    def name(self) -> str:
        return f"command:{self.command}"

    def complete(self, request: Request) -> Reply:
        with tempfile.TemporaryFile() as prompt, tempfile.TemporaryFile() as output:
            prompt.write(f"{request.stable}\n\n{request.prompt}".encode())
            prompt.seek(0)
            status = self._run(prompt.fileno(), output.fileno())
            output.seek(0)
            text = output.read(MAX_REPLY_BYTES + 1).decode("utf-8", errors="replace")
        if status < 0:
            raise provider_failed(self.name, f"the program was killed by signal {signal.Signals(-status).name}")
        if status > 0:
            raise provider_failed(self.name, f"the program ended with status {status}")
        return Reply(checked_text(self.name, text), self.name)

    def _run(self, prompt: int, output: int) -> int:
        try:
            arguments = shlex.split(self.command)
            process = subprocess.Popen(arguments, stdin=prompt, stdout=output, start_new_session=True)
        except (OSError, ValueError, IndexError) as error:
            raise provider_failed(self.name, f"the program cannot be started ({error})") from error
        try:
            return self._wait(process, output)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait(self, process: subprocess.Popen[bytes], output: int) -> int:
        """The status of the program. Errors: CU702 once its time is over, CU703 once it has written too much."""
        end = time.monotonic() + self.timeout
        while True:
            left = end - time.monotonic()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(max(0.0, min(_LOOK_EVERY, left)))
            if os.fstat(output).st_size > MAX_REPLY_BYTES:
                raise too_long(self.name)
            if left <= 0:
                raise out_of_time(self.name, self.timeout)
