#!/bin/bash
# Records `make demo` in a new terminal and renders docs/pictures/demo.svg from the recording: docs/pictures/record_demo.sh
#
# The script shortens the paths of the checkout and of the temporary directory, and pauses of more than 1.5 seconds
# (TensorFlow's import).
set -euo pipefail
cd "$(dirname "$0")/../.."
SIZE=100x26
make --silent .venv/installed
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
termtosvg() { .venv/bin/uv tool run --quiet --from termtosvg-ng==1.4.1 termtosvg "$@"; }

# `script` gives termtosvg the terminal that it needs, even if this script has none.
export -f termtosvg
script --quiet --return --command \
  "stty cols ${SIZE%x*} rows ${SIZE#*x}; termtosvg record $folder/cast --screen-geometry $SIZE --command 'make --no-print-directory demo'" \
  /dev/null
grep -q 'Succeeded in' "$folder/cast" || { echo 'the demo did not succeed: no picture was made' >&2; exit 1; }
sed -i -E "s#$PWD/##g; s#/tmp/tmp\.[A-Za-z0-9]+#/tmp/demo#g" "$folder/cast"
termtosvg render "$folder/cast" docs/pictures/demo.svg --template window_frame \
  --min-frame-duration 600 --max-frame-duration 1500 --loop-delay 8000
