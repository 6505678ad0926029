#!/usr/bin/env python3
"""Checks what the compiler cannot: who includes whom, where a library may enter, what is banned.

    tests/lint.py                  the rules below, on every text file of the repository
    tests/lint.py --tests BUILD    every test registered in a build folder has a label and a timeout
    tests/lint.py --self           the rules themselves: each one finds what it is there to find
    tests/lint.py --rooms          a table: rooms, their files, whom they include
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOPS = ("base", "kernels", "collectives", "models", "runtime", "launch", "tests", "benchmarks",
        "docs")
LABELS = {"unit", "mpi", "gpu", "slow", "lint", "tidy", "sanitize"}
MAX_LINES = 500
MAX_COLUMNS = 100
DOCUMENT_COLUMNS = 120
DOCUMENT_LINES = {"README.md": 150, "ARCHITECTURE.md": 300}  # others as long as they have to be

# A layer or a room of one, and the others whose headers it may include. An arrow only points down:
# a room also may not include one that includes it, which the order of these rows guarantees.
LOW = {"base", "kernels"}
CORE = LOW | {"collectives/core"}
COLLECTIVES = {f"collectives/{room}" for room in (
    "core", "world", "gpu", "strategies", "compressors", "exchange", "async")}
CONFIGURED = {"runtime/data", "runtime/config", "runtime/optim"}
TRAINED = CONFIGURED | {"runtime/checkpoint", "runtime/control", "runtime/report"}
MAY_INCLUDE = {
    "base": set(),
    "kernels": {"base"},
    "models": LOW,
    "collectives/core": LOW,
    "collectives/world": CORE,
    "collectives/gpu": CORE,
    "collectives/strategies": CORE | {"collectives/gpu"},
    "collectives/compressors": CORE | {"collectives/gpu", "collectives/strategies"},
    "collectives/exchange": COLLECTIVES - {"collectives/world", "collectives/async"} | LOW,
    "collectives/async": CORE,
    "runtime/report": {"base"},
    "runtime/data": CORE,
    "runtime/optim": LOW,
    "runtime/config": LOW | {"models", "runtime/optim"},
    "runtime/checkpoint": LOW | COLLECTIVES,
    "runtime/control": CORE | {"collectives/world", "runtime/config", "runtime/checkpoint"},
    "runtime/trainer": LOW | COLLECTIVES | {"models"} | TRAINED,
    "runtime/measure": LOW | COLLECTIVES | TRAINED | {"models", "runtime/trainer"},
}
MAY_INCLUDE["runtime/timeline"] = LOW | COLLECTIVES | {"runtime/report"}
MAY_INCLUDE["runtime/run"] = set(MAY_INCLUDE)
MAY_INCLUDE["runtime"] = set(MAY_INCLUDE)  # lockstep.h, the public face
MAY_INCLUDE["launch/bench"] = set(MAY_INCLUDE)
MAY_INCLUDE["launch"] = set(MAY_INCLUDE)

# What programs include without a word; all else is in a block of includes below a comment that says
# what for.
FACE = re.compile(r"base/.*|launch/.*|runtime/lockstep\.h")

# A third-party header, or one of ours for a room and its tests, and the only files that may include
# it (tests and benchmarks may, too).
DOORS = {
    r"mpi(-ext)?\.h": r"collectives/(core(/mpi)?|strategies)/(\w+_mpi|mpi_status)\.[ch]|"
                      r"collectives/world/world\.[ch]",
    r"nccl\.h": r"tests/.*",  # collectives/gpu/nccl_api.h declares what we use
    r"(cuda(_\w+)?|cublas\w*|cudnn\w*)\.h": r"kernels/cuda/.*",
    r"nvtx3/.*\.h": r"kernels/cuda/.*",
    r"(oneapi/dnnl/)?dnnl.*\.h": r"kernels/cpu/onednn/.*",
    r"cblas.*\.h": r"kernels/cpu/matmul_blas\.c",
    r"hwloc.*\.h": r"base/system/machine\.c",
    r"yaml\.h": r"runtime/config/config_yaml\.[ch]",
    r"jansson\.h": r"base/json\.[ch]",
    r"zlib\.h": r"runtime/data/formats/idx\.c",
    r"turbojpeg\.h": r"runtime/data/pictures/jpeg\.c",
    r"jpeglib\.h": r"runtime/data/pictures/jpeg_part\.c",
    r"png\.h": r"runtime/data/pictures/png\.c",
    r"zstd\.h": r"runtime/data/records/block\.c",
    r"curl/.*": r"runtime/data/remote/curl_library\.h",
    r"(xxhash|xxh3)\.h": r"(base(/\w+)?|collectives/\w+)/\w+\.[ch]|runtime/checkpoint/manifest\.c|"
                         r"runtime/data/records/\w+\.c|"
                         r"runtime/run/(dataset|plan)/\w+\.c|"
                         r"runtime/trainer/state/replica_check\.c",
    r"cmocka\.h": r"tests/.*",
    r"runtime/trainer/trainer_parts\.h": r"runtime/trainer/.*",  # and tests, which look inside
}

# Calls that are banned, the files that may use them nevertheless, and what to use instead.
BANNED = (
    (r"strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|rand|srand", r"$^",
     "unsafe, or depends on hidden state"),
    (r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup",
     r"base/mem\.c|(tests|benchmarks)/.*", "memory comes from base/mem.h"),
    (r"printf|vprintf|puts|putchar|perror",
     r"base/log\.c|runtime/(report/.*|run/(cli|check|check_memory)\.c|config/config_print\.c)|"
     r"(launch|tests|benchmarks)/.*",
     "base/log.h speaks to people"),
    (r"exit|_exit|_Exit|abort|quick_exit|raise", r"runtime/run/fault_injection\.c|"
     r"base/files/disk\.c|collectives/world/(liveness|start_watch)\.c|(launch|tests|benchmarks)/.*",
     "only a program ends its process"),
    (r"fsync|rename|renameat|symlink|mkdir|rmdir", r"base/files/(disk|cache)\.c|"
     r"(launch|tests|benchmarks)/.*", "faults of files happen in base/files/disk.h"),
    (r"atomic_thread_fence", r"$^", "ThreadSanitizer does not understand fences"),
)

# Put together here, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
# A long address alone on its line, in a comment or not: it cannot be broken.
ADDRESS = re.compile(r"\W*https?://\S+\W*")
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def layer(path):
    """The room that a file, or the name in an #include, belongs to; else its layer."""
    inner = "/".join(path.split("/")[:2])
    return inner if inner in MAY_INCLUDE and path.count("/") > 1 else path.split("/")[0]


def code_of(text):
    """The text with comments and strings blanked, line for line; and the lines with // comments."""
    slashes = []

    def blank(match):
        token = match.group()
        if token.startswith("//"):
            slashes.append(text.count("\n", 0, match.start()) + 1)
        if token[0] in "\"'":
            return token[0] + token[0]
        return "\n" * token.count("\n") or " "

    return TOKEN.sub(blank, text), slashes


def project_includes(text):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)


def include_problems(path, text):
    allowed = MAY_INCLUDE.get(layer(path))
    for header in project_includes(text):
        if allowed is not None and layer(header) not in allowed | {layer(path)}:
            yield f"{path}: {layer(path)} may not include {header}"
        folder = header.rpartition("/")[0]
        if header.endswith("_own.h") and path.rpartition("/")[0] != folder:
            yield f"{path}: {header} is {folder}'s own: others include another header of it"
    for header in re.findall(r"^\s*#\s*include\s+[<\"]([^>\"]+)[>\"]", text, re.M):
        for pattern, door in DOORS.items():
            if re.fullmatch(pattern, header) and not re.fullmatch(door, path):
                if not path.startswith(("tests/", "benchmarks/")):
                    yield f"{path}: <{header}> may only be included by {door}"


def face_problems(path, text):
    """What a program includes beyond the face of the library."""
    before, told = "", False
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r'#include "([^"]+)"', line)
        if header:
            told = told or before.endswith("*/")
            if not told and not FACE.fullmatch(header.group(1)):
                yield (f"{path}:{number}: {header.group(1)} is not runtime/lockstep.h: "
                       "a comment above says why")
        told = told and header is not None
        before = line


def source_problems(path, text):
    """What holds for C and CUDA sources."""
    code, slashes = code_of(text)
    yield from include_problems(path, text)
    if path.startswith("launch/"):
        yield from face_problems(path, text)
    for number in slashes:
        yield f"{path}:{number}: a // comment; comments are /* */"
    for number, line in enumerate(code.split("\n"), 1):
        for names, allowed, why in BANNED:
            # A letter, dot or arrow before the name makes it another function or a member.
            found = re.search(rf"(?<![\w.>])({names})\s*\(", line)
            if found and not re.fullmatch(allowed, path):
                yield f"{path}:{number}: {found.group(1)}() is banned here: {why}"
        if re.search(r"\bfprintf\s*\(\s*std(out|err)\b", line) and not re.fullmatch(
            BANNED[2][1], path
        ):
            yield f"{path}:{number}: fprintf() to the terminal: {BANNED[2][2]}"
        # What stands in for CUDA's headers has CUDA's names.
        if re.search(r"\btypedef\s+(struct|union)\b", line) and "cuda_on_host/" not in path:
            yield f"{path}:{number}: structs keep their tag, no typedef"
    if path.endswith((".h", ".cuh")):
        yield from header_problems(path, code)
    if path.endswith(".cu"):
        yield from kernel_problems(path, text, code)


def kernel_problems(path, text, code):
    """What holds for files of kernels, which also run where nothing is a GPU."""
    if not re.match(r"/\*(?:(?!\*/).)*\b(?:bytes?|flops)\b", text, re.S | re.I):
        yield f"{path}: the comment on the file says nothing of bytes or FLOPs moved"
    if "<<<" in code:
        yield f"{path}: a launch that is not DP_LAUNCH's"


def header_problems(path, code):
    guard = "DP_" + re.sub(r"\W", "_", path).upper()
    if not re.search(rf"^#ifndef {guard}\n#define {guard}\n", code, re.M):
        yield f"{path}: the header guard is not {guard}"
    for match in re.finditer(r"^(?:static inline )?dp_status\s+(dp_\w+)\s*\(", code, re.M):
        # What words an error for people, or passes it on, always fails: nothing to check.
        if re.search(r"_(fail|trail|refuse|no_memory)$", match.group(1)):
            continue
        number = code.count("\n", 0, match.start()) + 1
        yield f"{path}:{number}: {match.group(1)}() can fail: it must be DP_CHECKED"


def text_problems(path, text):
    """What holds for every file that people wrote."""
    lines = text.count("\n")
    if lines > DOCUMENT_LINES.get(path, lines):
        yield f"{path}: {lines} lines, more than {DOCUMENT_LINES[path]}: move some to docs/"
    if lines > MAX_LINES and not is_long(path):
        yield f"{path}: {lines} lines, more than {MAX_LINES}: it holds two nouns"
    columns = DOCUMENT_COLUMNS if path.endswith(".md") else MAX_COLUMNS
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield f"{path}:{number}: white space at the end of the line"
        if len(line) > columns and not ADDRESS.fullmatch(line) and not is_wide(path, line):
            yield f"{path}:{number}: {len(line)} columns, more than {columns}"
        if not line.isascii():
            yield f"{path}:{number}: not ASCII"
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            yield f"{path}:{number}: half of a merge"
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()}"
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"


def module_of(path):
    """"runtime/trainer/step" for step.h, step.c and step_own.h."""
    return re.sub(r"(_own)?\.\w+$", "", path)


def circles(includes):
    """Sets of modules (a header and its source) that include each other, directly or in a round.
    includes: {file: headers}. Tarjan, "Depth-first search and linear graph algorithms", 1972."""
    graph = {}
    for path, headers in includes.items():
        module = module_of(path)
        to = {module_of(header) for header in headers} - {module}
        graph[module] = graph.get(module, set()) | to
    number, low, stack, found = {}, {}, [], []

    def visit(module):
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def settings_problems(document, script):
    """Open MPI's settings have the values in a document that env.sh gives them."""
    given = dict(re.findall(r"^\s*dp_default (?:OMPI_MCA_)?(\w+) (\S+)$", script, re.M))
    for name, value in re.findall(r"`(?:OMPI_MCA_)?(\w+)=(\w+)`", document):
        if given.get(name, value) != value:
            yield f"{name} is {given[name]} in launch/env.sh, not {value}"


def table_problems(table, script):
    """What the program sets where nobody has is what env.sh does."""
    given = dict(re.findall(r"^\s*dp_default (OMPI_MCA_\w+) (\S+)$", script, re.M))
    for name, value in re.findall(r'\{"(OMPI_MCA_\w+)", "(\w+)"\}', table):
        if given.get(name) != value:
            yield f"{name} is {given.get(name, 'not set')} in launch/env.sh, not {value}"


def is_wide(path, line):
    """Whether a line may be as long as it is: data, drawings, and rows of a document's table."""
    return path.endswith((".json", ".svg")) or (path.endswith(".md") and line.startswith("|"))


def is_long(path):
    """Whether a file may have as many lines as it has: documents, data and drawings."""
    return path.endswith((".md", ".json", ".svg"))


def is_source(path):
    return path.suffix in (".c", ".h", ".cu", ".cuh", ".cpp", ".def")


def repository_texts():
    """(name, text) of every file but those that hold bytes."""
    files = [path for top in (*TOPS, ".ci") for path in sorted((ROOT / top).rglob("*"))]
    for path in files + sorted(ROOT.iterdir()):
        name = path.relative_to(ROOT).as_posix()
        bytes_alone = ".venv/" in name or name.startswith("tests/fuzz/corpus/")
        data = path.read_bytes() if path.is_file() and not bytes_alone else b"\0"
        if b"\0" not in data:
            yield name, data.decode(errors="replace")


def repository_problems():
    seen = 0
    includes = {}
    for name, text in repository_texts():
        seen += 1
        yield from text_problems(name, text)
        if is_source(pathlib.Path(name)):
            yield from source_problems(name, text)
            includes[name] = project_includes(text)
    for circle in circles(includes):
        yield f"a circle of modules: {', '.join(circle)}"
    script = (ROOT / "launch/env.sh").read_text()
    for problem in table_problems((ROOT / "collectives/core/mpi/start_mpi.c").read_text(), script):
        yield f"collectives/core/mpi/start_mpi.c: {problem}"
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for problem in settings_problems(path.read_text(), script):
            yield f"{path.relative_to(ROOT)}: {problem}"
    if seen < 10:
        yield f"only {seen} files found under {ROOT}: the check itself is broken"


def test_problems(build):
    # ctest writes a log where it runs: from a folder of its own, that of the build stays.
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "CTestTestfile.cmake").write_text(f"subdirs([==[{build}]==])\n")
        shown = subprocess.run(
            ["ctest", "--show-only=json-v1"], cwd=here, check=True, capture_output=True
        )
    tests = json.loads(shown.stdout)["tests"]
    if not tests:
        yield f"no test is registered in {build}"
    for test in tests:
        values = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        if not values.get("TIMEOUT"):
            yield f"test {test['name']}: no TIMEOUT"
        if not set(values.get("LABELS", [])) & LABELS:
            yield f"test {test['name']}: none of the labels {', '.join(sorted(LABELS))}"


# For --self: a path, a text, and a part of what must be said about it (None: nothing).
CASES = (
    ("models/x.c", '#include "kernels/ops.h"\n#include "models/layer.h"\n', None),
    ("models/x.c", '#include "collectives/core/group.h"\n', "models may not include"),
    ("collectives/core/x.c", '#include "models/model.h"\n', "collectives/core may not include"),
    ("base/x.c", '#include "kernels/ops.h"\n', "base may not include"),
    ("runtime/data/x.c", '#include "runtime/config/config.h"\n', "runtime/data may not include"),
    ("runtime/report/x.c", '#include "kernels/ops.h"\n', "runtime/report may not include"),
    ("runtime/trainer/x.c", '#include "runtime/data/loader.h"\n', None),
    ("runtime/run/x.c", '#include "launch/x.h"\n', "runtime/run may not include"),
    ("runtime/run/x.c", '#include "models/x_own.h"\n', "x_own.h is models's own"),
    ("tests/x.c", '#include "models/x_own.h"\n', "x_own.h is models's own"),
    ("runtime/x.c", '#include "runtime/run/run.h"\n', None),
    ("runtime/run/x.c", '#include "runtime/lockstep.h"\n', "runtime/run may not include"),
    ("launch/x.c", '#include "base/log.h"\n#include "runtime/lockstep.h"\n', None),
    ("launch/x.c", '#include "runtime/run/run.h"\n', "is not runtime/lockstep.h"),
    ("launch/x.c", '/* Why. */\n#include "models/a.h"\n#include "models/b.h"\n', None),
    ("launch/x.c", '/* Why. */\n#include "models/a.h"\n\n#include "models/b.h"\n',
     "x.c:4: models/b.h is not runtime/lockstep.h"),
    ("models/x.c", '#include "models/x_own.h"\n', None),
    ("runtime/run/x.c", "#include <mpi.h>\n", "<mpi.h> may only"),
    ("collectives/world/world.c", "#include <mpi.h>\n", None),
    ("tests/x.c", '#include <mpi.h>\n#include "base/mem.h"\n', None),
    ("kernels/x.c", "#include <oneapi/dnnl/dnnl.h>\n", "may only"),
    ("kernels/cpu/onednn/conv_onednn.c", "#include <dnnl.h>\n", None),
    ("kernels/cuda/x.c", "#include <cublasLt.h>\n", None),
    ("collectives/strategies/strategy_nccl.c", "#include <cuda_runtime.h>\n", "may only"),
    ("collectives/gpu/nccl_api.h", "#include <nccl.h>\n", "may only"),
    ("base/x.c", "void *p = malloc(3);\n", "malloc() is banned"),
    ("base/x.c", "void *p = dp_malloc(3); a->free(p); a.free(p); /* free(p) */\n", None),
    ("base/x.c", 'int a = printf("x");\n', "printf() is banned"),
    ("base/x.c", 'const char *a = "printf(";\n', None),
    ("base/x.c", 'int a = snprintf(b, 1, "x");\n', None),
    ("base/x.c", "int a = sprintf(b);\n", "sprintf() is banned"),
    ("runtime/x.c", 'int a = fprintf(stderr, "x");\n', "fprintf() to the terminal"),
    ("runtime/x.c", 'int a = fprintf(file, "x");\n', None),
    ("runtime/x.c", "void f(void)\n{\n    exit(1);\n}\n", "exit() is banned"),
    ("runtime/x.c", "void f(void)\n{\n    _exit(1);\n}\n", "_exit() is banned"),
    ("launch/ddp_x.c", "void f(void)\n{\n    exit(1);\n}\n", None),
    ("base/x.c", "int a; // b\n", "a // comment"),
    ("base/x.c", 'const char *a = "http://b";\n', None),
    ("base/x.c", "typedef struct a b;\n", "no typedef"),
    ("base/x.c", "int a; \n", "white space"),
    ("base/x.c", f"int {'a' * (MAX_COLUMNS - 5)};\n", None),
    ("base/x.c", f"int {'a' * (MAX_COLUMNS - 4)};\n", "x.c:1: 101 columns, more than 100"),
    ("base/x.c", f"/* {'a ' * 49}*/\n", "columns"),
    ("docs/x.md", f"{'a ' * 59}aa\n", None),
    ("docs/x.md", f"{'a ' * 60}a\n", "x.md:1: 121 columns, more than 120"),
    ("docs/x.md", f"| {'a ' * 99}|\n", None),
    ("docs/x.md", "a\n" * (MAX_LINES + 1), None),
    ("README.md", "a\n" * 151, "151 lines, more than 150"),
    ("ARCHITECTURE.md", "a\n" * 301, "301 lines, more than 300"),
    ("base/x.c", f"/*\n * https://{'a' * MAX_COLUMNS}\n */\n", None),
    ("base/x.c", f"/* https://{'a' * MAX_COLUMNS} */\n", None),
    ("base/x.c", f"/* As in https://{'a' * MAX_COLUMNS} */\n", "columns"),
    ("base/x.c", "/* \u00e4 */\n", "not ASCII"),
    ("base/x.c", "/* " + "TO" + "DO */\n", "unfinished"),
    ("base/x.c", "int a;", "no newline"),
    ("docs/x.md", "a\n" + ">" * 7 + " main\n", "x.md:2: half of a merge"),
    ("base/x.c", "int a;\n" * (MAX_LINES + 1), "two nouns"),
    ("kernels/cuda/x.cu", "/* x.cu - x. Reads 4 bytes each. */\nint a;\n", None),
    ("kernels/cuda/x.cu", "/* x.cu - x. */\nint a; /* bytes */\n", "nothing of bytes"),
    ("kernels/cuda/x.cu", "/* 2 FLOPs */\nint a = x<<<1, 2>>>();\n", "not DP_LAUNCH's"),
    ("base/x.h", "#ifndef DP_X_H\n#define DP_X_H\n", "header guard"),
    ("base/x.h", "#ifndef DP_BASE_X_H\n#define DP_BASE_X_H\ndp_status dp_x(void);\n", "CHECKED"),
    ("base/x.h", "#ifndef DP_BASE_X_H\n#define DP_BASE_X_H\nDP_CHECKED dp_status dp_x(void);\n",
     None),
)


# Also for --self: a document or table, and what must be said about it beside this env.sh.
SCRIPT = "dp_default OMPI_MCA_some_time 3\nif a; then\n    dp_default OMPI_MCA_btl_way none\nfi\n"
DOCUMENTS = (
    ("`OMPI_MCA_some_time=3`, `btl_way=none`, `btl_other=1`, `some_time`", []),
    ("`OMPI_MCA_some_time=2`", ["some_time is 3 in launch/env.sh, not 2"]),
    ("`btl_way=all`", ["btl_way is none in launch/env.sh, not all"]),
)
TABLES = (
    ('{"OMPI_MCA_some_time", "3"}, {"OMPI_MCA_btl_way", "none"}', []),
    ('{"OMPI_MCA_some_time", "2"}', ["OMPI_MCA_some_time is 3 in launch/env.sh, not 2"]),
    ('{"OMPI_MCA_other", "2"}', ["OMPI_MCA_other is not set in launch/env.sh, not 2"]),
)


# The same of circles of modules.
CIRCLES = (
    ({"a/x.c": ["a/x.h", "a/y.h"], "a/x.h": [], "a/y.h": [], "a/y.c": ["a/y.h", "a/z.h"]}, []),
    ({"a/x.h": ["a/y.h"], "a/y.c": ["a/x.h"], "b/z.c": ["a/x.h"]}, [["a/x", "a/y"]]),
)

# And some files of every kind that repository_texts() must find.
TEXTS = {"CMakeLists.txt", "README.md", "base/mem.c", "launch/netlab", "models/lenet.cfg",
         "tests/run", "tests/lint.py", "benchmarks/compare_network", "kernels/cuda/cuda.cmake",
         "docs/configuration.md"}


def self_problems():
    for name in sorted(TEXTS - {name for name, _ in repository_texts()}):
        yield f"{name} is not looked at"
    for includes, expected in CIRCLES:
        if circles(includes) != expected:
            yield f"{includes}: expected the circles {expected}, found {circles(includes)}"
    for check, cases in ((settings_problems, DOCUMENTS), (table_problems, TABLES)):
        for text, expected in cases:
            said = list(check(text, SCRIPT))
            if said != expected:
                yield f"{text}: expected {expected}, found {said}"
    for path, text, part in CASES:
        said = list(text_problems(path, text)) + list(source_problems(path, text))
        if (part is None and said) or (part and not any(part in line for line in said)):
            yield f"{path} with {text[:60]!r}: expected {part!r}, found {said}"


def print_rooms():
    """What stands where, and the arrows that there are, of those that are allowed."""
    files, arrows = {}, {}
    for name, text in repository_texts():
        room = layer(name)
        if room in MAY_INCLUDE and is_source(pathlib.Path(name)):
            files[room] = files.get(room, 0) + 1
            arrows.setdefault(room, set()).update(layer(h) for h in project_includes(text))
    for room in MAY_INCLUDE:
        to = sorted(arrows.get(room, set()) - {room}, key=list(MAY_INCLUDE).index)
        print(f"{room:24} {files.get(room, 0):3} files -> {', '.join(to)}")


def main(arguments):
    if arguments == ["--rooms"]:
        print_rooms()
        return 0
    if arguments[:1] == ["--tests"] and len(arguments) == 2:
        found = list(test_problems(arguments[1]))
    elif arguments == ["--self"]:
        found = list(self_problems())
    elif not arguments:
        found = list(repository_problems())
    else:
        print(__doc__, file=sys.stderr)
        return 64
    print("\n".join(found) if found else "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
