"""Programs that answer lines, the clock that they run under, and programs that answer once."""
import json
import queue
import subprocess
import tempfile
import threading
import time


class Clock:
    """How long one may wait for an answer: less and less as the time of the whole run goes by."""

    def __init__(self, budget, patience):
        self.end, self.patience = time.monotonic() + budget, patience

    def left(self):
        return self.end - time.monotonic()

    def is_up(self):
        return self.left() <= 0

    def wait(self, times=1):
        # What is asked near the end gets a few seconds still.
        return max(5.0, min(times * self.patience, self.left() + 10.0))


class Program:
    """A process that answers each line by one line of JSON. One that died or was late is started anew when it is next
    woken, unless it has said that what it needs is not installed."""

    def __init__(self, name, command, greets):
        self.name, self.command, self.greets = name, command, greets
        self.process, self.version, self.missing = None, None, None

    def wake(self, timeout):
        """Starts the process if there is none; returns why that failed."""
        if self.missing or (self.process and self.process.poll() is None):
            return self.missing
        self.answers, self.errors = queue.Queue(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, bufsize=1)
        threading.Thread(target=self.listen, args=(self.process, self.answers), daemon=True).start()
        if not self.greets:
            return None
        greeting = self.answer(timeout)
        self.version = greeting.get("version", self.version)
        self.missing = greeting.get("missing")
        if self.missing:
            self.end()
        return self.missing or greeting.get("failed")

    @staticmethod
    def listen(process, answers):
        for line in process.stdout:
            # Some libraries write to stdout as well.
            answer = parsed(line)
            if answer is not None:
                answers.put(answer)
        answers.put(None)

    def answer(self, timeout):
        try:
            answer = self.answers.get(timeout=timeout)
        except queue.Empty:
            self.kill()
            return {"failed": f"no answer within {timeout:.0f} s"}
        if answer is None:
            self.kill()
            return {"failed": f"the program ended: {self.last_words()}"}
        return answer

    def last_words(self):
        self.errors.seek(0)
        words = self.errors.read().decode(errors="replace").strip()
        return words[-400:] or f"exit code {self.process.returncode}"

    def ask(self, line, timeout):
        """The answer to a line; `failed` says why there is none."""
        if self.process is None or self.process.poll() is not None:
            return {"failed": "the program is not running"}
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            # What it wrote before it ended is still to be read.
            pass
        return self.answer(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process and self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                self.kill()


def parsed(line):
    """An object of JSON, if that is what the line is."""
    try:
        answer = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def run(command, timeout, env=None):
    """The last line of a program as data, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {timeout:.0f} s"}
    except OSError as error:
        return {"failed": str(error)}
    answer = parsed((done.stdout.splitlines() or [""])[-1])
    if done.returncode == 0 and answer is not None:
        return answer
    return {"failed": (done.stderr.strip() or f"exit code {done.returncode}")[-600:]}
