#!/usr/bin/env bash
# Type-checks the SDK and what is built on it: its sources, its declarations (current?), its public surface (as designed?),
# consumers that must compile and mistakes that must not. Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

./update.sh "$build/laufwerk.d.ts"
if ! diff -u types/laufwerk.d.ts "$build/laufwerk.d.ts"; then
  echo "sdk/types/laufwerk.d.ts is not what the sources say: run sdk/update.sh and commit it" >&2
  exit 1
fi
tsc=node_modules/.bin/tsc
$tsc -p tsconfig.json
$tsc -p test/consumer/tsconfig.json

# The designed surface, under other module names, beside ours.
sed 's|"@laufwerk/|"designed/|g' test/surface/designed.d.ts > "$build/designed.d.ts"
cp types/laufwerk.d.ts test/surface/equal.ts test/surface/tsconfig.json "$build/"
$tsc -p "$build/tsconfig.json"
node test/surface/names.mjs "$build/designed.d.ts" types/laufwerk.d.ts
echo "sdk: sources, declarations, surface and consumers are as they should be"
