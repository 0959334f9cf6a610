"""The command: `python -m benchmarks.tuning [ITEM ...] [--out DIR] [--workers N | --dask ADDRESS] [--quick]`.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.tuning import depth, issue_cost, mapping, one_shot, ring, tile
from benchmarks.tuning.item import Item, as_table

ITEMS: dict[str, Item] = {
    module.ITEM.name: module.ITEM for module in (depth, mapping, tile, ring, one_shot, issue_cost)
}
SUFFIXES = (".png", ".svg")
NOTE = "structure only, schedule 'model', checkers off: times alone are asked for, and checkers do not change them"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    names = list(ITEMS) if not options.items or "all" in options.items else list(dict.fromkeys(options.items))
    with pool(options.workers, options.dask) as executor:
        print(NOTE)
        for name in names:
            report(ITEMS[name], options.quick, options.out, executor)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description="Sweep what ADR-0060 9 leaves open.")
    made.add_argument("items", nargs="*", type=known, metavar="ITEM", help=f"{', '.join(ITEMS)}, or all (the default)")
    made.add_argument("--out", type=Path, default=Path("tuning"), metavar="DIR", help="where CSV, PNG and SVG go")
    made.add_argument("--quick", action="store_true", help="a few points each, to see that it works")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="N", help="run points in N processes")
    where.add_argument("--dask", metavar="ADDRESS", help="run points on the Dask cluster with that scheduler")
    return made


def known(name: str) -> str:
    if name not in (*ITEMS, "all"):
        raise argparse.ArgumentTypeError(f"no item {name!r}; items are {', '.join(ITEMS)}, or all")
    return name


@contextmanager
def pool(workers: int | None, address: str | None) -> Iterator[Executor | None]:
    """Where points run: here, in processes, or on a cluster whose workers can import `benchmarks`."""
    if workers is not None:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as processes:
            yield processes
    elif address is not None:
        try:
            distributed: Any = importlib.import_module("distributed")
        except ModuleNotFoundError:
            sys.exit("benchmarks.tuning: --dask needs Dask: python -m pip install -e '.[distributed]'")
        with distributed.Client(address) as client, client.get_executor() as cluster:
            yield cluster
    else:
        yield None


def report(item: Item, quick: bool, folder: Path, executor: Executor | None) -> None:
    """Measure an item, print its rows, and write them and their pictures."""
    rows = item.measure(quick, executor, tell=True)
    print(f"\n{item.clause} {item.name}: {item.question}\n\n{as_table(rows)}\n")
    print("\n".join(f"wrote {file}" for file in item.write(rows, folder, SUFFIXES)), flush=True)


if __name__ == "__main__":
    main()
