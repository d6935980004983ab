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
otherwise="They must lie below /usr, which a sandbox sees."
. "$(dirname "$0")/apt-install.sh"
