#!/bin/sh
# Installs programs that only the system's package manager provides. They are optional: tests that need
# a missing program are skipped.
set -eu

missing=''
need() { # need PACKAGE COMMAND...: one of the commands is enough
    package=$1
    shift
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 && return
    done
    missing="$missing $package"
}

# Ubuntu's chromium is a stub that needs snap: its users install Chrome or Chromium themselves.
if grep -q '^ID=ubuntu' /etc/os-release; then
    command -v google-chrome >/dev/null 2>&1 || command -v chrome >/dev/null 2>&1 ||
        echo "system: please install Chrome or Chromium; Ubuntu's own package is a stub"
else
    # Needs a fifth of the CPU of the full browser. Its version must equal Chromium's; Chrome includes it.
    need 'chromium chromium-headless-shell' chromium-headless-shell google-chrome chrome
fi
need tigervnc-standalone-server Xvnc
need 'gcc libc6-dev' cc
need postgresql postgres pg_ctlcluster
need redis-server redis-server valkey-server
need spin spin
need curl curl

if [ -z "$missing" ]; then
    echo "system: everything is there"
    exit 0
fi
if [ "$(id -u)" = 0 ]; then root=''; else root=sudo; fi
echo "system: installing$missing"
$root apt-get update -qq
# shellcheck disable=SC2086  # a list of packages
DEBIAN_FRONTEND=noninteractive $root apt-get install -qq -y --no-install-recommends $missing >/dev/null
