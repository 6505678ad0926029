"""Which lines of the rooms each test executes, found by gcov once, and kept.

The files of the rooms are compiled a second time, counted, into one archive that comes before the
others. Each test then runs once with it.
"""
import bisect
import collections
import concurrent.futures
import hashlib
import json
import os
import queue
import shutil
import subprocess
import time

import tree

COUNTED = ("-O1", "-w", "--coverage")
PATIENCE_S = 120  # a test that takes longer is left out


def digest(root, paths):
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()


class Map:
    """What is known of a tree's tests: seconds, and the lines of files that each executes."""

    def __init__(self, made, work):
        self.made, self.file, self.folder = made, work / "coverage.json", work / "counted"
        library = [made.source / path for path in made.commands if not path.startswith("tests/")]
        headers = [path for path in made.source.rglob("*") if path.suffix in (".h", ".def")
                   and "build" not in path.parts]
        self.stamp = digest(made.source, [*library, *headers])
        self.kept = json.loads(self.file.read_text()) if self.file.exists() else {}
        if self.kept.get("stamp") != self.stamp:
            self.kept = {"stamp": self.stamp, "lines": {}, "tests": {}}

    def make(self, jobs, end):
        """Runs the tests that are not known as they are now, until `end`. Whether all are known."""
        todo = [test for test in self.made.tests() if self.kept["tests"].get(test, {}).get(
            "source") != self.source_of(test)]
        if not todo:
            return True
        self.compile(jobs)
        folders = queue.Queue()
        for number in range(jobs):
            folders.put(self.folder / f"runs-{number}")

        def one(test):
            if time.monotonic() < end:
                folder = folders.get()
                self.kept["tests"][test] = {"source": self.source_of(test),
                                            **self.count(test, folder)}
                folders.put(folder)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(one, test) for test in todo]:
                done.result()
        self.file.write_text(json.dumps(self.kept))
        return time.monotonic() < end

    def source_of(self, test):
        """Changes with a test's own source, not with what it shares with others."""
        program = self.made.programs_of(test)[0]
        return digest(self.made.source, [self.made.source / path for path in self.made.commands
                                         if path.endswith(f"/{program}.c")])

    def compile(self, jobs):
        """The counted archive; an object is made anew where its file has changed."""
        objects, name = self.folder / "objects", self.folder / "stamp"
        if name.exists() and name.read_text() == self.stamp:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        objects.mkdir(parents=True)

        def one(path):
            words = self.made.commands[path]
            at = words.index("-o")
            target = objects / (path.replace("/", "+")[:-2] + ".o")
            tree.well([*words[:at], *COUNTED, "-o", target, *words[at + 2:]], self.made.build)

        paths = [path for path in self.made.commands if tree.in_rooms(path)]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, paths))
        tree.well(["ar", "rcs", self.folder / "libcounted.a", *sorted(objects.glob("*.o"))],
                  self.folder)
        name.write_text(self.stamp)

    def count(self, test, folder):
        """One test: its seconds, and the lines that it executes, by file."""
        objects, programs = self.folder / "objects", folder / "bin"
        shutil.rmtree(folder, ignore_errors=True)
        programs.mkdir(parents=True)
        counts = folder / str(objects)[1:]
        counts.mkdir(parents=True)
        for notes in objects.glob("*.gcno"):
            (counts / notes.name).symlink_to(notes)
        for program in self.made.programs_of(test):
            words = self.made.link_words(program)
            at = words.index("-o")
            words[at + 1] = programs / program
            archive = next(i for i, word in enumerate(words) if str(word).endswith(".a"))
            words[archive:archive] = [self.folder / "libcounted.a", "--coverage"]
            tree.well(words, self.made.build)
        begin = time.monotonic()
        try:
            code = subprocess.run(
                [str(word) for word in self.made.words_of(test, programs, folder / "expected")],
                cwd=self.made.build, capture_output=True, timeout=PATIENCE_S, check=False,
                stdin=subprocess.DEVNULL, env={
                    **os.environ, **tree.SETTINGS, "GCOV_PREFIX": str(folder)}).returncode
        except subprocess.TimeoutExpired:
            code = None
        found = {"seconds": time.monotonic() - begin, "code": code, "lines": self.read(counts)}
        shutil.rmtree(folder)
        return found

    def read(self, counts):
        found, names = {}, sorted(path.name for path in counts.glob("*.gcda"))
        if not names:
            return found
        text = tree.well(["gcov", "--json-format", "--stdout", *names], counts).stdout
        for document in map(json.loads, text.splitlines()):
            for entry in document["files"]:
                path = os.path.relpath(entry["file"], self.made.source)
                if path not in self.made.commands:
                    continue
                hit = collections.Counter()
                for line in entry["lines"]:
                    hit[line["line_number"]] += line["count"]
                self.kept["lines"][path] = sorted(hit)
                found[path] = [line for line in sorted(hit) if hit[line]]
        return found

    def tests_of(self, path, line):
        """The tests that execute a line; what a statement's later lines do is counted at an
        earlier one."""
        lines = self.kept["lines"].get(path, [])
        at = bisect.bisect_right(lines, line) - 1
        if at < 0:
            return []
        return [test for test, row in self.kept["tests"].items()
                if lines[at] in row["lines"].get(path, ())]

    def tests_stamp(self):
        """Changes with the tests."""
        return hashlib.sha256("".join(sorted(row["source"] for row in self.kept["tests"].values())
                                      ).encode()).hexdigest()

    def with_file(self, path):
        return [test for test, row in self.kept["tests"].items() if path in row["lines"]]

    def seconds(self, test):
        return self.kept["tests"][test]["seconds"]

    def table(self):
        """Rows of a table: room, lines, lines that a test executes; and the files that none does.
        """
        rows, bare = collections.defaultdict(collections.Counter), []
        hit = collections.defaultdict(set)
        for row in self.kept["tests"].values():
            for path, lines in row["lines"].items():
                hit[path].update(lines)
        for path in filter(tree.in_rooms, self.made.commands):
            room = next(room for room in tree.ROOMS if path.startswith(room))
            rows[room].update(lines=len(self.kept["lines"].get(path, [])), hit=len(hit[path]))
            if not hit[path]:
                bare.append(path)
        return rows, bare
