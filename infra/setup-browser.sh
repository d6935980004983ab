#!/bin/sh
# A Chromium for the tests of the web page: the one that is there, else Debian's, else the one that Playwright brings
# (Ubuntu has Chromium only as a snap, which a script can't start). Needs the Python environment. The fleet needs none.
set -eu

for name in chromium chromium-browser google-chrome-stable google-chrome; do
    if command -v "$name" >/dev/null && "$name" --version >/dev/null 2>&1; then exit 0; fi
done

sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Type as root: apt-get install -y chromium" >&2; exit 1; }
    sudo=sudo
fi
if [ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ]; then
    echo "installing: chromium" >&2
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
    echo "installing: Chromium for Playwright" >&2
    .venv/bin/python -m playwright install --with-deps chromium >/dev/null
fi
