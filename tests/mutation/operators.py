"""Mutants of a C source: one small change of one line each, as a slip of the pen would make."""
import dataclasses
import re

# What is no code: comments, texts, characters; and what is only said.
HIDDEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
SAID = re.compile(r"\bDP_(DEBUG|INFO|WARN|ERROR|FAIL\w*)\(")
# Fetches memory early, which changes no result.
FETCHED = re.compile(r"\b\w*prefetch\w*\(")
SIMPLE = r"(?:[\w.\[\]]|->)+"
STATEMENT = re.compile(r"^(\s+)(?!return\b)((?:\(void\))?[\w.\[\]>*-]+(?:->\w+)*\s*"
                       r"(?:\(.*\)|[-+*/|&]?= .+));$")
DECLARED = re.compile(r"^\s+(?:const |static |struct |unsigned |enum |union )|^\s+\w+ \**\w+( =|;)")

# Operator, what it replaces, by what. Operators of two sides have a space at each, by the format.
REPLACED = (
    ("relation", re.compile(r" (<|<=|>|>=|==|!=) "), {
        "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",),
        "!=": ("==",)}),
    ("arithmetic", re.compile(r" (\+|-|\*|/|%) "), {
        "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("/",)}),
    ("logic", re.compile(r" (&&|\|\|) "), {"&&": ("||",), "||": ("&&",)}),
    ("bits", re.compile(r" (&|\||\^|<<|>>) "), {
        "&": ("|",), "|": ("&",), "^": ("|",), "<<": (">>",), ">>": ("<<",)}),
    ("assignment", re.compile(r" (\+=|-=|\*=|\|=|&=) "), {
        "+=": ("-=", "="), "-=": ("+=", "="), "*=": ("=",), "|=": ("=",), "&=": ("=",)}),
    ("step", re.compile(r"(?<=\w)(\+\+|--)"), {"++": ("--",), "--": ("++",)}),
    ("truth", re.compile(r"\b(true|false)\b"), {"true": ("false",), "false": ("true",)}),
    ("jump", re.compile(r"\b(break|continue);"), {"break": ("continue",), "continue": ("break",)}),
)
# Room for a text, which may be longer without any effect.
ROOM = re.compile(r"^\s*(static )?char \w+\[\d+\];$")
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
CONDITION = re.compile(r"\b(if|while) \((.*)\) \{$")
ARGUMENTS = re.compile(rf"\b\w+\((?:.*, )?({SIMPLE}), ({SIMPLE})(?=[,)])")


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str
    line: int  # from 1
    operator: str
    before: str
    after: str

    def diff(self):
        return f"- {self.before.strip()}\n+ {self.after.strip()}"


def masked(text):
    """The text with as many blanks in place of what is no code."""
    return HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def replaced(line, code):
    """(operator, new line) of one line; `code` is the line without what is hidden."""
    for name, pattern, others in REPLACED:
        for match in pattern.finditer(code):
            for other in others[match[1]]:
                yield name, line[:match.start(1)] + other + line[match.end(1):]
    for match in NUMBER.finditer(code):
        for number in {int(match[1]) + 1, int(match[1]) - 1} - {-1}:
            yield "number", line[:match.start(1)] + str(number) + line[match.end(1):]
    for match in CONDITION.finditer(code):
        yield "condition", (line[:match.start(2)] + f"!({line[match.start(2):match.end(2)]})"
                            + line[match.end(2):])
    for match in ARGUMENTS.finditer(code):
        if match[1] != match[2]:
            yield "arguments", (line[:match.start(1)] + match[2] + ", " + match[1]
                                + line[match.end(2):])
    if STATEMENT.match(code) and not DECLARED.match(code):
        yield "statement", re.match(r"\s+", line)[0] + ";"


def mutants_of(path, text):
    """All mutants of a file, in the order of its lines."""
    found = []
    depth = 0
    lines, codes = text.split("\n"), masked(text).split("\n")
    for number, (line, code) in enumerate(zip(lines, codes), 1):
        inside = depth > 0
        depth += code.count("{") - code.count("}")
        if (not inside or code.lstrip().startswith("#") or SAID.search(code) or ROOM.match(code)
                or FETCHED.search(code) or not code.strip()):
            continue
        seen = {line}
        for operator, after in replaced(line, code):
            if after not in seen:
                seen.add(after)
                found.append(Mutant(path, number, operator, line, after))
    return found


def mutated(text, mutant):
    lines = text.split("\n")
    assert lines[mutant.line - 1] == mutant.before
    lines[mutant.line - 1] = mutant.after
    return "\n".join(lines)
