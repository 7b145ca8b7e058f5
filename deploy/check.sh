#!/bin/bash
# Checks the files of deploy/ without running them: make deploy-check. A step whose tool is absent is skipped, and says so.
#   deploy/check.sh [STEP…]    all steps, or those named
# DEPLOY: another folder to check, as the tests do with broken copies. KUBERNETES_VALIDATE: the program, if it is not on the PATH.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
deploy=${DEPLOY:-$here}
python=${PYTHON:-$here/../.venv/bin/python}
kubernetes_validate=${KUBERNETES_VALIDATE:-kubernetes-validate}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=0 failed=0

skip() { echo "-- skipped: $*"; skipped=$((skipped + 1)); }
have() { command -v "$1" >/dev/null; }

# systemd: the units with their drop-ins; a program that is there stands for the node's
step_systemd() {
  have systemd-analyze || { skip "no systemd-analyze here (Debian: systemd)"; return 0; }
  local units=$work/units unit drop
  mkdir -p "$units/vfl-node@.service.d"
  cp "$deploy"/systemd/*.service "$deploy"/systemd/*.timer "$units"
  sed -i 's#/opt/vfl-node/bin/vfl-node#/bin/true#' "$units"/*.service
  for drop in none "$deploy"/systemd/drop-ins/*.conf; do
    rm -f "$units/vfl-node@.service.d"/*
    [ "$drop" = none ] || cp "$drop" "$units/vfl-node@.service.d/"
    # unknown keys are only said, with exit status 0
    systemd-analyze verify "$units"/*.service "$units"/*.timer >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
    if grep -F "$units" "$work/said"; then return 1; fi
    systemd-analyze security --offline=true --threshold=20 "$units/vfl-node@.service" >"$work/said" || { cat "$work/said"; return 1; }
    echo "vfl-node@.service with $(basename "$drop"): $(tail -1 "$work/said" | sed 's/.*: //')"
  done
  unit="$units/vfl-node-backup@.service"
  systemd-analyze security --offline=true --threshold=20 "$unit" >"$work/said" || { cat "$work/said"; return 1; }
}

steps="systemd"
for step in ${*:-$steps}; do
  echo "== $step"
  # a subshell of its own under set -e, which an if would switch off
  set +e
  (set -e; "step_$step"; exit $((skipped > 0 ? 77 : 0)))
  status=$?
  set -e
  case $status in 0) ;; 77) skipped=$((skipped + 1)) ;; *) echo "-- failed: $step"; failed=$((failed + 1)) ;; esac
done
echo "deploy-check: $failed failed, $skipped skipped"
[ "$failed" = 0 ]
