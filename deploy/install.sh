#!/bin/sh
# Makes a virtual environment with everything in a lock, and the project itself.
# usage: install.sh FOLDER LOCK
#
# The environment comes from uv where there is one, else from a Python's own venv, else from
# Debian's python3-venv, which is installed after saying so. Nothing else of the system changes.
# PYTHON3 names another Python than the first one of the PATH that is new enough.
set -eu

folder=$1
lock=$2

say() { printf 'install: %s\n' "$*"; }

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    names=${PYTHON3:-python3 python3.14 python3.13 python3.12 python3.11}
    for name in $names; do
        if command -v "$name" >/dev/null 2>&1 && "$name" -c "$new_enough" 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    say "Python 3.11 or newer is needed, and none of these is it: $names" >&2
    say "On Debian and Ubuntu:  sudo apt-get install python3" >&2
    exit 1
}

with_uv() {
    say "making $folder with uv"
    UV_PYTHON_DOWNLOADS=never uv venv --quiet --allow-existing --python "$python" "$folder"
    say "installing $(grep -c '==' "$lock") locked packages"
    uv pip sync --quiet --python "$folder/bin/python" --require-hashes "$lock"
    uv pip install --quiet --python "$folder/bin/python" --no-deps --no-build-isolation --editable .
}

with_venv() {
    say "making $folder with $python"
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
    say "installing $(grep -c '==' "$lock") locked packages (a minute or two)"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --require-hashes --requirement "$lock"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --editable .
}

install_debian_venv() {
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    [ "$python" = /usr/bin/python3 ] && package=python3-venv
    if [ "$(id -u)" = 0 ]; then root=''
    elif sudo -n true 2>/dev/null; then root='sudo -n'
    else root=none
    fi
    if [ "$root" = none ] || ! command -v apt-get >/dev/null 2>&1; then
        say "this Python cannot make virtual environments. Type:  sudo apt-get install $package" >&2
        exit 1
    fi
    say "this Python cannot make virtual environments: installing Debian's $package"
    $root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $root apt-get install -qq -y "$package" >/dev/null
}

python=$(find_python)
if command -v uv >/dev/null 2>&1; then
    with_uv
else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_debian_venv
    with_venv
fi

# The pages' assets are built by a node of 20 or newer: the one on the PATH, else a wheel's.
node_is_new_enough() {
    command -v node >/dev/null 2>&1 &&
        node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null
}
if ! node_is_new_enough; then
    say "no node of 20 or newer on the PATH: installing one into $folder"
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$folder/bin/python" --require-hashes -r deploy/locks/web.txt
    else
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            --require-hashes --requirement deploy/locks/web.txt
    fi
fi
say "done"
