"""Put runs side by side: `python -m seqlab.report DIR… [x=task.length hue=model/cell metric=test/accuracy out=FOLDER]`.

The directories are those of runs, of multiruns, or folders of them. One page, `report.html`, has it all: the table of
runs, plots against a setting, learning curves, each run's figures; `report.md` and `report.csv` have the numbers.
"""

import argparse
import os
import sys
from pathlib import Path

from seqlab.analysis.report.report import OPTIONS, make_report
from seqlab.overrides import nearest
from seqlab.types import UserError, require

HELP = {
    "x": "the setting to plot against, by its key or enough of it: x=length, x=model/cell",
    "hue": "the setting that colours tell apart",
    "metric": "what to plot alone, as split/metric",
    "out": "the folder to write to; without it the directory given, or the one that several share",
}


def report(arguments: list[str]) -> list[Path]:
    """Write the report that a command line asks for, and give the paths of its files.

    Raises   UserError for a directory that holds no run, and for a setting or metric that no run has.
    """
    options: dict[str, str] = {}
    directories = []
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if not sign or Path(argument).exists():
            directories.append(Path(argument))
            continue
        require(name in OPTIONS, f"{argument}: there is no option {name}; {nearest(name, OPTIONS)}")
        require(bool(value), f"{argument} has no value: {HELP[name]}.")
        options[name] = value
    require(bool(directories), "Of which runs? Write their directories, or one that holds them.")
    out = Path(options.pop("out", os.path.commonpath([directory.absolute() for directory in directories])))
    return make_report(directories, out, **options)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m seqlab.report",
        description=__doc__,
        epilog="\n".join(["option=value:", *(f"  {f'{name}=…':<12}{told}" for name, told in HELP.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("arguments", nargs="*", metavar="DIR | option=value")
    try:
        paths = report(parser.parse_args().arguments)
    except (UserError, OSError) as error:
        sentence = f"{error.filename}: {error.strerror}." if isinstance(error, OSError) else str(error)
        print(sentence, file=sys.stderr)
        sys.exit(2)
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
