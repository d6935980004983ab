#!/bin/sh
# Languages that the scorer `tests` can run beside Python: javascript, go, rust; all three, or those that are named.
# From the distribution, into /usr, which a sandbox sees. Does nothing where they are already there.
set -eu

missing=
for language in ${*:-javascript go rust}; do
    case $language in
    javascript) [ -x /usr/bin/node ] || [ -x /usr/local/bin/node ] || missing="$missing nodejs" ;;
    go) [ -x /usr/bin/go ] || [ -x /usr/local/bin/go ] || missing="$missing golang-go" ;;
    rust) [ -x /usr/bin/rustc ] || [ -x /usr/local/bin/rustc ] || missing="$missing rustc gcc libc6-dev" ;;
    *) echo "$language: choose among javascript, go, rust" >&2; exit 1 ;;
    esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "This machine has no apt-get. Install yourself, below /usr: $missing" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Type as root: apt-get install -y $missing" >&2; exit 1; }
    sudo=sudo
fi
echo "installing:$missing" >&2
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
