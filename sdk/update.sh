#!/usr/bin/env bash
# Makes types/laufwerk.d.ts anew from the sources. Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-types/laufwerk.d.ts}
want=$(node -p 'require("./package.json").devDependencies.typescript')
have=$(node -p 'try { require("./node_modules/typescript/package.json").version } catch { "none" }')
if [ "$have" != "$want" ]; then
  npm ci --ignore-scripts --no-audit --no-fund --silent
fi
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
node_modules/.bin/tsc -p tsconfig.types.json --outFile "$build/emitted.d.ts"
mkdir -p "$(dirname "$out")"
node declarations.mjs "$build/emitted.d.ts" globals.d.ts "$out"
