"""What one library of src calls of another one begins with bp_: other names stay in the folder that defines them (nm)."""
import subprocess
import sys
from pathlib import Path


def symbols(archive):
    """What a library defines, and what it leaves to others."""
    defined, called = set(), set()
    for line in subprocess.run(["nm", "-g", str(archive)], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "TDBRVWC":
            defined.add(words[2])
        elif len(words) == 2 and words[0] == "U":
            called.add(words[1])
    return defined, called - defined


def main(build):
    libraries = {path.name: symbols(path) for path in sorted(Path(build).rglob("libbp_*.a"))}
    if len(libraries) < 10:
        sys.exit(f"no libraries: in {build}")
    home = {name: library for library, (defined, _) in libraries.items() for name in defined if not name.startswith("bp_")}
    found = sorted((name, home[name], library) for library, (_, called) in libraries.items() for name in called if name in home)
    for name, of, by in found:
        print(f"{name} of {of} is called by {by}: begin it with bp_, or keep it in its folder")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(sys.argv[1])
