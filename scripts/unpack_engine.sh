#!/usr/bin/env bash
# unpack_engine.sh PARTS FOLDER: an interpreter with vLLM on a host that can fetch nothing. PARTS holds part-*, the pieces of one
# .tar.xz or .tar.gz of site-packages, as they were carried there; FOLDER gets an environment that has these packages first and the host's own
# (torch, and whatever else is installed) behind them. Prints the path of its python; what was unpacked before is used again.
set -euo pipefail

parts=${1:?the folder that holds part-*} folder=${2:?where to unpack them}
base=${PYTHON:-python3}
shopt -s nullglob
pieces=("$parts"/part-*)
[ ${#pieces[@]} -gt 0 ] || { echo "error: $parts holds no part-*: bring the pieces there first." >&2; exit 2; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/.lock"
flock 9

# Of which pieces it was made: others, or more of them, are unpacked anew.
found=$(cksum "${pieces[@]}" | awk '{print $1, $2}')
complete=$folder/.complete
if [ "$(cat "$complete" 2>/dev/null)" != "$found" ]; then
  rm -rf "$folder/packages" "$folder/env" "$complete"
  mkdir "$folder/packages"
  joined=$folder/joined.tar
  cat "${pieces[@]}" >"$joined"
  "$base" - "$joined" "$folder/packages" <<'PYTHON' || { echo "error: ${#pieces[@]} pieces in $parts do not make an archive; is one missing, cut or damaged?" >&2; rm -f "$joined"; exit 2; }
import sys
import tarfile

with tarfile.open(sys.argv[1]) as tar:
    tar.extractall(sys.argv[2], filter="data")
    # The checksum stands at the end, behind what tarfile reads; and a damaged header is an end of the archive to tarfile.
    while tar.fileobj.read(1 << 20):
        pass
PYTHON
  rm "$joined"
  "$base" -m venv --system-site-packages --without-pip "$folder/env"
  python=$folder/env/bin/python
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # Before the host's own packages, of which some may be of another version. Python reads this file twice.
  echo 'import sys; sys.path[:0] = {sys.prefix.removesuffix("env") + "packages"}.difference(sys.path)' >"$site/carried.pth"
  # --system-site-packages means those of the interpreter that a virtual environment was made from. Where python3 is an environment's, its own are added here.
  "$base" -c 'import sys; print(*sys.path, sep="\n")' |
    "$python" -c 'import sys; print(*(line for line in sys.stdin.read().splitlines() if line not in sys.path), sep="\n")' >"$site/host.pth"
  echo "$found" >"$complete"
fi
echo "$folder/env/bin/python"
