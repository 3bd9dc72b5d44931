"""Any program as a model: the prompt on its standard input, the reply on its standard output."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass

from cubridge.llm.failures import checked_text, out_of_time, provider_failed
from cubridge.llm.provider import MAX_REPLY_BYTES, Reply, Request


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
        except (OSError, ValueError) as error:
            raise provider_failed(self.name, f"the program cannot be started ({error})") from error
        try:
            return process.wait(self.timeout)
        except subprocess.TimeoutExpired as error:
            raise out_of_time(self.name, self.timeout) from error
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
