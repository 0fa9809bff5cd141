#!/usr/bin/env bash
# unpack_engine.sh PARTS FOLDER: make an interpreter with vLLM on an offline host. PARTS holds part-*, the
# pieces of one .tar.xz or .tar.gz of site-packages. FOLDER gets an environment with these packages first and
# the host's own (torch and others) behind them. Prints the path of its python; an earlier unpacking is
# reused.
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

# Checksums of the pieces: other or additional ones are unpacked anew.
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
    # The checksum is at the end, after what tarfile reads; and tarfile takes a damaged header for the
    # archive's end.
    while tar.fileobj.read(1 << 20):
        pass
PYTHON
  rm "$joined"
  "$base" -m venv --system-site-packages --without-pip "$folder/env"
  python=$folder/env/bin/python
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # Put before the host's own packages, which may have other versions. Python reads this file twice.
  echo 'import sys; sys.path[:0] = {sys.prefix.removesuffix("env") + "packages"}.difference(sys.path)' >"$site/carried.pth"
  # --system-site-packages refers to the interpreter behind a virtual environment. If python3 is in one, its
  # own packages are added here.
  "$base" -c 'import sys; print(*sys.path, sep="\n")' |
    "$python" -c 'import sys; print(*(line for line in sys.stdin.read().splitlines() if line not in sys.path), sep="\n")' >"$site/host.pth"
  echo "$found" >"$complete"
fi
echo "$folder/env/bin/python"
