#!/bin/sh
# Create .venv when missing and install latentlink with the extras given: install.sh STAMP EXTRAS
set -eu
stamp=$1 extras=$2 python=${PYTHON:-python3}
if [ ! -x .venv/bin/python ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "latentlink needs Python 3.11 or newer; set PYTHON=python3.x" >&2
        exit 1
    }
    echo "creating .venv"
    "$python" -m venv .venv
fi
printf 'installing latentlink[%s] and what it needs (first time only, some minutes; log: .venv/install.log) ' "$extras"
.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[$extras]" >.venv/install.log 2>&1 &
job=$!
while kill -0 "$job" 2>/dev/null; do
    printf .
    sleep 2
done
if ! wait "$job"; then
    echo " failed:"
    tail -n 15 .venv/install.log >&2
    exit 1
fi
echo " done"
touch ".venv/$stamp"
