"""How long the tests themselves wait for a program that gets no processor."""
import os
import subprocess
import sys
import uuid

import harness
import marked
from harness import Started, check, same


def case_a_thread_without_a_processor_is_told_from_one_that_waits_or_runs():
    mark = uuid.uuid4().hex
    threads = {"1": ("R", 5), "2": ("S", 7)}
    seen = []
    find, marked.tasks_of = marked.tasks_of, lambda _: seen.pop(0)
    try:
        for after, told in ((threads, True), ({**threads, "1": ("R", 6)}, False),
                            ({**threads, "1": ("S", 5)}, False), ({"2": ("S", 7)}, False)):
            seen[:] = [threads, after]
            same(marked.unserved(mark, 0), told, f"what is told of {after}")
    finally:
        marked.tasks_of = find
    environment = {**os.environ, marked.MARK: mark}
    for loop in ("import time; time.sleep(60)", "while True: pass"):
        process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{loop}"],
                                   env=environment, stdout=subprocess.PIPE)
        try:
            process.stdout.readline()  # before it the kernel may not show the environment yet
            check(str(process.pid) in marked.tasks_of(mark), "a process is not found")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def case_a_command_without_a_processor_is_waited_for():
    told = [True, True]
    find, harness.unserved = harness.unserved, lambda _: bool(told) and told.pop()
    try:
        started = Started([], wrapper=["sh", "-c", "sleep 1.5; exit 3", "sh"])
        same((started.finish(0.2).code, told), (3, []), "how it ended")
        started = Started([], wrapper=["sh", "-c", "sleep 60", "sh"])
        try:
            started.finish(0.2)
        except AssertionError as hang:
            check("still running" in str(hang), f"another failure: {hang}")
        else:
            check(False, "a command that sleeps counts as one that gets no processor")
    finally:
        harness.unserved = find


if __name__ == "__main__":
    harness.main(globals())
