#!/bin/sh
# Verifies that each image of ours in a stack is named by its digest, and was signed, with its bill of materials and its provenance, by
# the release workflow:  SIGNER='^https://github\.com/…/release\.yml@refs/tags/v' sh infra/verify-images.sh prod
# Needs cosign, and a Python with '.[infra]'. Images of others (the broker, vLLM) are left out.
set -eu
cd "$(dirname "$0")/.."
stack=$1
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
python -m infra.render --stack "$stack" --out "$rendered" >/dev/null

images=$(grep -rhoE 'image: [^ ]*/ratchet-[^ ]+' "$rendered" | sed 's/image: //' | sort -u)
[ -n "$images" ] || { echo "the stack $stack has no image of ours" >&2; exit 1; }
for image in $images; do
    case $image in
    *@sha256:*) ;;
    *)
        echo "$image is not named by its digest: put those that the release lists into images.digests of Pulumi.$stack.yaml" >&2
        exit 1
        ;;
    esac
    set -- --certificate-identity-regexp "$SIGNER" --certificate-oidc-issuer https://token.actions.githubusercontent.com
    cosign verify "$@" "$image" >/dev/null
    cosign verify-attestation "$@" --type spdxjson "$image" >/dev/null
    cosign verify-attestation "$@" --type slsaprovenance1 "$image" >/dev/null
    echo "verified: $image"
done
