"""The curves of a sweep, projected: each from its finished run on the most ranks."""
import dataclasses

from sweep import results
from sweep.failure import Failure
from sweep.project import ledger as ledgers
from sweep.project.main import Projection


@dataclasses.dataclass
class Asked:
    """What Projection reads of the arguments."""
    project: str
    link: object
    node_of: int
    burst: float
    crowd: int
    strategy: list
    mode: str
    settings: tuple = ()


def source_of(curve, points):
    """The point that tells the most; None: none has two ranks or more."""
    own = [point for point in points if results.same_curve(point) == results.same_curve(curve)
           and point["status"] == "finished" and point["ranks"] > 1]
    return max(own, key=lambda point: (point["ranks"], -point["repeat"]), default=None)


def projection_of(curve, points, args, tools, folder):
    """{from, rows, problem}: rows as of --json, or null and what is missing."""
    source = source_of(curve, points)
    if source is None:
        return {"from": None, "rows": None,
                "problem": "no run on two ranks or more has finished"}
    strategy = None if curve["strategy"] == "auto" else [curve["strategy"]]
    asked = Asked(args.project, args.link, args.node_of, args.burst, args.crowd, strategy,
                  curve["mode"])
    try:
        rows, problem = Projection(
            asked, tools, ledgers.read(folder / source["run"])).rows(), None
    except Failure as failure:
        rows, problem = None, str(failure)
    return {"from": source["run"], "rows": rows, "problem": problem}


def project_curves(curves, points, args, tools, folder):
    """Adds `projection` to each curve, null without --project."""
    for curve in curves:
        curve["projection"] = None if args.project is None else projection_of(
            curve, points, args, tools, folder)
