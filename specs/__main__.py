"""Write `index.json` anew from the documents beside it: `python -m pytest_kernbench.specs`.

The index holds nothing that the documents do not say; a test compares the two. PYTEST_DONT_REWRITE
"""

import sys
from pathlib import Path

from pytest_kernbench.parsing import index_text, read_folder


def main(folder: Path = Path(__file__).parent) -> None:
    documents = read_folder(folder)
    (folder / "index.json").write_text(index_text(documents), encoding="utf-8", newline="\n")
    sys.stdout.write(f"{len(documents)} documents, {sum(len(each.clauses) for each in documents)} clauses indexed\n")


if __name__ == "__main__":
    main()
