#!/usr/bin/env bash
# Compares the exported API of the root module with that of the last tag, and fails
# when a program that compiled with the tag may not compile any more.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
module=github.com/clusternet/syncgate

git rev-parse --git-dir >/dev/null # says so when this is no clone
if ! tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null); then
	echo "apidiff: no tag yet, so there is no released API to compare with"
	exit 0
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tools=$PWD/tools/go.mod
apidiff() { # without the line for each internal package
	"$go" tool -modfile="$tools" apidiff -m "$@" 2> >(grep -v '^Ignoring internal package' >&2)
}

mkdir "$tmp/old"
git archive "$tag" | tar -x -C "$tmp/old"
(cd "$tmp/old" && apidiff -w "$tmp/old.api" "$module")
apidiff -w "$tmp/new.api" "$module"

apidiff "$tmp/old.api" "$tmp/new.api"
if [ -n "$(apidiff -incompatible "$tmp/old.api" "$tmp/new.api")" ]; then
	echo "apidiff: incompatible with $tag; VERSIONING.md says what to do" >&2
	exit 1
fi
echo "apidiff: compatible with $tag"
