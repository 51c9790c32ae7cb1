#!/bin/sh
# Builds the image and lets a node of it found a swarm, train and become healthy; `make container` runs this.
# The commands are those of ../README.md. Everything has a project name of its own, and is removed at the end.
set -eu
cd "$(dirname "$0")"
export COMPOSE_PROJECT_NAME=sapo-check
trap 'docker compose logs --tail 50; docker compose down --volumes --timeout 60' EXIT

docker compose build
docker compose run --rm node keys new /data/key.json --no-passphrase
docker compose run --rm node swarm new /data/swarm
docker compose run --rm node join --identity /data/key.json --data-dir /data/node --steps 1 /data/swarm/manifest.json
docker compose up --detach --wait --wait-timeout 600
docker compose exec node sapo status --data-dir /data/node
docker compose exec node sapo status --healthy --data-dir /data/node
docker compose stop
test "$(docker compose ps --all --format '{{.ExitCode}}' node)" = 143  # drained, not killed
