"""--prices: what machine types cost an hour, and which of them to rent.

The file has a line for each type, NAME: DOLLARS, or NAME: {price: DOLLARS, hosts: PATTERN}. It is
the price of one machine, whatever number of ranks it has. A sweep ran on the type that --machine
names, else on the one whose pattern (without one: its name) is like the names of the sweep's hosts.
Other sweeps of the same model, by --with, stand beside it.
"""
import dataclasses
import fnmatch
import re

from sweep.failure import BAD_DATA, CONFIGURATION, NO_INPUT, Failure
from sweep.folder import SCHEMA, read_json
from sweep.table import big, rate

LINE = re.compile(r"""(?P<quote>["']?)(?P<name>[^"'{}:]+)(?P=quote):\s*(?P<rest>\S.*)""")
HOUR_S = 3600


@dataclasses.dataclass
class Machine:
    name: str
    price: float  # dollars an hour, above 0
    hosts: str  # a pattern, as of file names


def price_of(text, where):
    try:
        price = float(text)
    except ValueError:
        price = 0.0
    if not 0.0 < price < 1e9:
        raise Failure(f"{where}: {text.strip()}: no price above 0, in dollars per hour",
                      CONFIGURATION)
    return price


def parse_line(line, where):
    found = LINE.fullmatch(line)
    if found is None:
        raise Failure(f"{where}: expected NAME: DOLLARS, found {line!r}", CONFIGURATION)
    name, rest = found["name"].strip(), found["rest"].strip()
    if not rest.startswith("{"):
        return Machine(name, price_of(rest, where), name)
    pairs = dict(pair for pair in re.findall(r"(\w+):\s*([^,}]+)", rest.strip("{}") + ","))
    unknown = set(pairs) - {"price", "hosts"}
    if unknown or "price" not in pairs:
        raise Failure(f"{where}: {name}: expected {{price: DOLLARS, hosts: PATTERN}}",
                      CONFIGURATION)
    return Machine(name, price_of(pairs["price"], where), pairs.get("hosts", name).strip(" \"'"))


def read(path):
    """The machine types of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"--prices {path}: {getattr(error, 'strerror', None) or 'not a text'}",
                      NO_INPUT) from error
    machines = {}
    for number, line in enumerate(lines, 1):
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if line and line != "---":
            machine = parse_line(line, f"{path}:{number}")
            if machine.name in machines:
                raise Failure(f"{path}:{number}: {machine.name} stands there twice", CONFIGURATION)
            machines[machine.name] = machine
    if not machines:
        raise Failure(f"--prices {path}: no machine type in it", CONFIGURATION)
    return list(machines.values())


def check_name(machines, name):
    if name is not None and name not in [machine.name for machine in machines]:
        raise Failure(f"--machine {name}: the file of --prices has only "
                      f"{', '.join(machine.name for machine in machines)}", CONFIGURATION)


def machine_of(machines, name, hosts):
    """The type that a sweep ran on, or None."""
    if name is not None:
        return next((machine for machine in machines if machine.name == name), None)
    for machine in machines:
        if hosts and all(fnmatch.fnmatchcase(host, machine.hosts) for host in hosts):
            return machine
    return None


def per_dollar(samples_per_second, price, nodes):
    if samples_per_second is None:
        return None
    return samples_per_second * HOUR_S / (price * max(nodes, 1))


def add_to_points(points, machine):
    """samples_per_dollar, where the run had no price of its own."""
    for point in points:
        if machine is not None and point["samples_per_dollar"] is None:
            point["samples_per_dollar"] = per_dollar(point["samples_per_second"], machine.price,
                                                     len(point["hosts"]))


def read_other(folder, model):
    """sweep.json of another sweep, for --with."""
    path = folder / "sweep.json"
    if not path.exists():
        raise Failure(f"--with {folder}: no sweep.json in it", NO_INPUT)
    sweep = read_json(path)
    if sweep is None or sweep.get("schema") != SCHEMA:
        raise Failure(f"--with {folder}: sweep.json is damaged", BAD_DATA)
    if sweep["identity"]["model"] != model:
        raise Failure(f"--with {folder}: a sweep of another model file: its rates do not compare",
                      CONFIGURATION)
    return sweep


# ---- side by side ----


def hosts_of(curves):
    return sorted({host for curve in curves for place in curve["places"]
                   for host in place["hosts"]})


def best_place(curves, machine):
    """(samples per dollar, place, curve) of the cheapest place, or None. Without sharing nothing
    is trained: `none` is no choice."""
    found = [(per_dollar(place["samples_per_second"], machine.price, len(place["hosts"])), place,
              curve) for curve in curves if curve["strategy"] != "none"
             for place in curve["places"] if place["samples_per_second"] is not None]
    return max(found, key=lambda entry: entry[0], default=None)


def row(machine, curves, measured):
    best = best_place(curves, machine) if curves else None
    if best is None:
        return {"machine": machine.name, "price_per_hour": machine.price, "measured": False,
                "ranks": None, "nodes": None, "samples_per_second": None,
                "samples_per_dollar": None, "setting": None}
    value, place, curve = best
    setting = [curve["strategy"], curve["compressor"], f"batch {place['global_batch']}",
               *(f"{key}={value}" for key, value in curve["set"])]
    return {"machine": machine.name, "price_per_hour": machine.price, "measured": measured,
            "ranks": place["ranks"], "nodes": len(place["hosts"]),
            "samples_per_second": place["samples_per_second"], "samples_per_dollar": value,
            "setting": ", ".join(setting)}


def compare(machines, sweeps):
    """Machine types side by side. sweeps: (name or None, curves) of each. Where no sweep is of a
    type of the file, all types are shown as if they were as fast as the machine measured."""
    measured = {}
    for name, curves in sweeps:
        machine = machine_of(machines, name, hosts_of(curves))
        if machine is not None:
            measured.setdefault(machine.name, []).extend(curves)
    assumed = [] if measured else [curve for _, curves in sweeps for curve in curves]
    rows = [row(machine, measured.get(machine.name, assumed), machine.name in measured)
            for machine in machines]
    rows.sort(key=lambda r: -(r["samples_per_dollar"] or 0.0))
    return {"rows": rows, "assumed": not measured, "rent": advice(rows, not measured)}


def advice(rows, assumed):
    """Which type to rent, in a sentence."""
    known = [r for r in rows if r["samples_per_dollar"] is not None]
    if not known:
        return "which to rent: not known, since no run has finished"
    best = known[0]
    text = (f"rent {best['machine']}: {big(best['samples_per_dollar'])} samples per dollar with "
            f"{best['ranks']} rank{'s' if best['ranks'] > 1 else ''} ({best['setting']})")
    if assumed:
        return (text + ", if all types are as fast as the machine measured here, which is none of "
                "the file; --machine NAME says which it is")
    missing = [r["machine"] for r in rows if r["samples_per_dollar"] is None]
    if len(known) > 1:
        share = best["samples_per_dollar"] / known[1]["samples_per_dollar"] - 1.0
        text += f", {100 * share:.0f} % more than {known[1]['machine']}"
    if missing:
        text += f"; not measured: {', '.join(missing)} (sweep there, and add it by --with)"
    return text


def lines_of(comparison):
    """A table for the terminal."""
    lines = [f"{'machine':<20} {'$/hour':>9} {'ranks':>6} {'nodes':>6} {'samples/s':>11} "
             f"{'samples/$':>13}  measured"]
    for r in comparison["rows"]:
        ranks, nodes = ("-" if r[key] is None else r[key] for key in ("ranks", "nodes"))
        lines.append(f"{r['machine'][:20]:<20} {r['price_per_hour']:>9.4g} {ranks:>6} {nodes:>6} "
                     f"{rate(r['samples_per_second']):>11} {big(r['samples_per_dollar']):>13}  "
                     + ("yes" if r["measured"] else "assumed" if r["ranks"] else "no"))
    return lines
