# Read by the set-up scripts: installs the Debian packages named in $missing, if any, and asks for root by sudo.
# $before and $after, where set, are commands that run around it.

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "This machine has no apt-get. Install yourself: $missing. ${otherwise:-}" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Type as root: apt-get install -y $missing" >&2; exit 1; }
    sudo=sudo
fi
echo "installing:$missing" >&2
${before:-:}
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
${after:-:}
