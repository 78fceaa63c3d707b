#!/bin/sh
# Renews the lock files. They hold versions and hashes, but no download addresses.
set -eu

lock() {
    name=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
        --no-emit-index-url --no-annotate --no-header "$@" -o "deploy/locks/$name.txt"
}

lock gateway pyproject.toml --extra gateway
lock controller pyproject.toml --extra controller --extra s3
lock web --group pyproject.toml:web
lock dev pyproject.toml --extra gateway --extra controller --extra s3 --group dev \
    --override deploy/locks/left-out.txt
