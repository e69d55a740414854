"""The command line: fetch data by their names; what cannot be had is told, and the others go on."""

import argparse
import sys

from seqlab.data.fetch import data_sets, fetch
from seqlab.types import UserError


def main() -> None:
    """Fetch the named data sets; exit code 2 if one could not be had."""
    known = data_sets()
    parser = argparse.ArgumentParser(prog="python -m seqlab.data.fetch", description="Fetch data by their names.")
    parser.add_argument("names", nargs="+", choices=list(known), metavar="NAME", help=", ".join(known))
    failed = False
    for name in parser.parse_args().names:
        try:
            fetch(name)
        except (UserError, OSError) as error:
            print(error, file=sys.stderr)
            failed = True
    if failed:
        sys.exit(2)


if __name__ == "__main__":
    main()
