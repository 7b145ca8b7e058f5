#!/bin/sh
# Checks rules, their cases, and the metrics of a node: make deploy-check. Needs promtool (Debian: prometheus).
# RULES: another folder of rules, as the tests do with broken copies. PYTHON: with vfl-node.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rules=${RULES:-$here}
command -v promtool >/dev/null || { echo "-- skipped: no promtool here (Debian: prometheus)"; exit 0; }
promtool check rules "$rules/vfl.rules.yml"
promtool test rules "$rules/vfl.rules.test.yml"
cd "$here/../.."
"${PYTHON:-.venv/bin/python}" -m tests.metrics_sample | promtool check metrics
echo "metrics: ok"
