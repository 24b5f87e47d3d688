"""What suites of a method have in common that times it beside others, and judges random problems in great number."""

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torch import Tensor

from fairlayer import FairlayerError, Solution
from measure import milliseconds
from records import Target, figure, markdown_table, write_csv, write_settings

PROBLEMS, FEW, LISTED = 20_000, 300, 50

# A problem: how it is solved, what is to be said of the answer in one line of the tally, and what it is like.
Drawn = tuple[Callable[[], Solution], Callable[[Solution], str], dict[str, Any]]


@dataclass
class Judged:
    """Verdicts on random problems."""

    problems: int
    tally: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, prefix: str) -> int:
        """Problems whose verdict begins like this."""
        return sum(count for verdict, count in self.tally.items() if verdict.startswith(prefix))


def attack(args: Namespace, drawn: Callable[[int, int], Drawn]) -> Judged:
    """Solve random problems, made from a seed and a number, and judge the answers."""
    found = Judged(getattr(args, "problems", None) or (FEW if args.quick else PROBLEMS))
    start = time.perf_counter()
    for number in range(found.problems):
        solve, judge, about = drawn(args.seed, number)
        try:
            verdict = judge(solve())
        except FairlayerError as error:
            verdict = f"failed: {type(error).__name__}"
        found.tally[verdict] += 1
        if verdict.startswith(("broken", "failed")):
            told = {key: str(value) for key, value in about.items()}
            found.failures.append({"number": str(number), "verdict": verdict, **told})
    found.seconds = time.perf_counter() - start
    return found


def cvxpylayers_time(
    problem: Any, parameters: list[Any], y: Any, batches: Iterable[tuple[list[Tensor], Tensor]]
) -> float:
    """Forward + backward of a problem that is built once. batches: its parameters, and the weights of a loss."""
    from cvxpylayers.torch import CvxpyLayer

    layer, times = CvxpyLayer(problem, parameters, [y]), []
    for given, direction in batches:

        def call(given: list[Tensor] = given, direction: Tensor = direction) -> None:
            (layer(*given, solver_args={"solve_method": "Clarabel"})[0] * direction).sum().backward()

        times.append(milliseconds(call)[0])
    return median(times[1:])


def report(args: Namespace, name: str, title: str, timed: list[dict[str, Any]], judged: Judged) -> list[Target]:
    """Write name.csv, .json and .md, the latter without the last column of `timed`; the verdicts that have a limit."""
    columns = list(timed[0])[:-1]
    lines = [[row[c] if isinstance(row[c], int) else figure(row[c]) for c in columns] for row in timed]
    verdicts = dict(sorted(judged.tally.items()))
    told = "\n".join(f"- {verdict}: {count:,}" for verdict, count in verdicts.items())
    text = f"{title}{markdown_table(columns, lines)}\n\n## {judged.problems:,} random problems\n\n{told}\n"
    (args.results / f"{name}.md").write_text(text)
    write_csv(args.results / f"{name}.csv", timed)
    write_settings(
        args.results / f"{name}.json",
        args,
        problems=judged.problems,
        tally=verdicts,
        failures=judged.failures[:LISTED],
        seconds=round(judged.seconds, 1),
    )
    return [
        Target(f"{name}: rows or bounds broken, or outputs outside of what they must be", judged.count("broken"), 0),
        Target(f"{name}: feasible problems left unsolved", judged.count("failed"), 0),
    ]
