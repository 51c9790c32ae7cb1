"""Print the branch coverage of each package; fail below the least: ``branches.py FILE --least 95``."""

import argparse
import json
import sys
from pathlib import Path

PACKAGES = {
    "sapo_protocol": "protocol/sapo_protocol/",
    "sapo_verification": "verification/sapo_verification/",
}


def rate(files: dict[str, dict[str, dict[str, int]]], folder: str, what: str) -> float:
    """Return the percentage of a package's branches or lines that ran.

    Args:
        files: the report's files, each with its ``summary``.
        folder: the beginning of the package's paths.
        what: ``branches`` or ``lines``.
    """
    covered, all_of_it = {
        "branches": ("covered_branches", "num_branches"),
        "lines": ("covered_lines", "num_statements"),
    }[what]
    summaries = [file["summary"] for path, file in files.items() if path.startswith(folder)]
    return 100 * sum(s[covered] for s in summaries) / sum(s[all_of_it] for s in summaries)


def main() -> None:
    """Read the report that ``coverage json`` wrote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--least", type=float, required=True, help="percentage of branches")
    arguments = parser.parse_args()
    files = json.loads(arguments.report.read_text(encoding="utf-8"))["files"]
    rates = {package: rate(files, folder, "branches") for package, folder in PACKAGES.items()}
    for package, branches in rates.items():
        lines = rate(files, PACKAGES[package], "lines")
        print(f"{package}: {branches:.1f} % of branches, {lines:.1f} % of lines")
    low = [package for package, branches in rates.items() if branches < arguments.least]
    if low:
        sys.exit(f"error: less than {arguments.least:g} % of the branches ran in {', '.join(low)}")


if __name__ == "__main__":
    main()
