#!/bin/sh
# Builds the image of this checkout; IMAGE=name:tag chooses its name, other arguments go to `docker build`.
set -eu
cd "$(dirname "$0")/.."
exec docker build --file docker/Dockerfile --tag "${IMAGE:-mudd:latest}" "$@" .
