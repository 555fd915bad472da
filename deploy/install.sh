#!/bin/sh
# Installs into the image's environment with the uv of requirements.lock, and leaves no uv behind.
# Arguments are those of `uv pip install`.
set -eu
environment=/opt/placer/venv
[ -d "$environment" ] || python -m venv --without-pip "$environment"
sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.lock
"$environment/bin/python" -m venv .uv
.uv/bin/pip install --quiet --no-cache-dir --require-hashes -r uv.lock
UV_SYSTEM_CERTS=1 UV_NO_CACHE=1 .uv/bin/uv pip install --quiet --python "$environment" \
  --build-constraints requirements.lock "$@"
rm -r .uv uv.lock
