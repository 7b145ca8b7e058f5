#!/bin/bash
# Checks the files of deploy/ without running them: make deploy-check. A step whose tool is absent is skipped, and says so.
#   deploy/check.sh [STEP…]    all steps, or those named
# DEPLOY: another folder to check, as the tests do with broken copies. KUBERNETES_VALIDATE: the program, if it is not on the PATH.
# RENDERED: a folder for the rendered chart, to look at.
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

# values: the chart's values and the example's, by the chart's schema
step_values() {
  "$python" -c 'import jsonschema, yaml' 2>"$work/said" || { skip "no jsonschema here (pip install jsonschema pyyaml)"; return 0; }
  "$python" - "$deploy/helm" <<'PY'
import json, pathlib, sys
import jsonschema, yaml

def merge(base, more):
    if not (isinstance(base, dict) and isinstance(more, dict)):
        return more
    return base | {key: merge(base.get(key), value) for key, value in more.items()}

folder = pathlib.Path(sys.argv[1])
schema = json.loads((folder / "vfl-node" / "values.schema.json").read_text())
jsonschema.Draft7Validator.check_schema(schema)
values = yaml.safe_load((folder / "vfl-node" / "values.yaml").read_text())
example = yaml.safe_load((folder / "example.yaml").read_text())
needed = {"party": "clinic", "settings": {"role": "passive"}, "keys": {"secretName": "keys"}}
wrong = 0
for name, more in (("values.yaml", needed), ("example.yaml", example)):
    for error in jsonschema.Draft7Validator(schema).iter_errors(merge(values, more)):
        print(f"{name}: {'.'.join(map(str, error.path)) or 'top'}: {error.message}")
        wrong = 1
sys.exit(wrong)
PY
}

# render: the chart's templates, by the renderer beside it. Leaves what other steps look at in $rendered
rendered=${RENDERED:-$work/rendered}
renderer=${RENDERER:-$here/../build/deploy/render}
step_render() {
  if [ ! -x "$renderer" ] || [ "$here/helm/render/main.go" -nt "$renderer" ]; then
    have go && [ -d /usr/share/gocode/src/github.com/Masterminds/sprig ] ||
      { skip "no Go with sprig here (Debian: golang-go golang-github-masterminds-sprig-dev)"; return 0; }
    mkdir -p "$(dirname "$renderer")"
    GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$work/go-cache go build -o "$work/render" "$here/helm/render/main.go"
    mv "$work/render" "$renderer"
  fi
  mkdir -p "$rendered"
  printf '%s\n' 'party: lab' 'settings: {role: passive}' 'keys: {secretName: keys, mode: shared}' >"$work/least.yaml"
  "$renderer" "$deploy/helm/vfl-node" lab "$work/least.yaml" >"$rendered/least.yaml"
  "$renderer" "$deploy/helm/vfl-node" clinic "$deploy/helm/example.yaml" >"$rendered/example.yaml"
  local needed
  for needed in party settings keys; do
    grep -v "^$needed:" "$work/least.yaml" >"$work/less.yaml"
    if "$renderer" "$deploy/helm/vfl-node" lab "$work/less.yaml" >"$work/said" 2>&1; then echo "it renders without $needed"; return 1; fi
  done
}

# kubernetes: what was rendered, by the API's schemas; they have none of ServiceMonitor and PrometheusRule
step_kubernetes() {
  have "$kubernetes_validate" || { skip "no kubernetes-validate here (pip install kubernetes-validate, in an environment of its own)"; return 0; }
  [ -d "$rendered" ] || step_render
  [ -d "$rendered" ] || return 0
  local file version
  for file in least example; do
    awk -v RS='---\n' '/\nkind: /{ if ($0 !~ /apiVersion: monitoring\.coreos\.com/) printf "---\n%s", $0 }' \
      "$rendered/$file.yaml" >"$work/$file-core.yaml"
  done
  echo "$(cat "$work"/*-core.yaml | grep -c '^kind: ') objects"
  for version in 1.30 1.34 1.37; do
    "$kubernetes_validate" --strict --quiet -k "$version" "$work/least-core.yaml" "$work/example-core.yaml" || return 1
  done
}

# kustomize: what was rendered is read and put together once more
step_kustomize() {
  have kubectl || { skip "no kubectl here"; return 0; }
  [ -d "$rendered" ] || step_render
  [ -d "$rendered" ] || return 0
  mkdir -p "$work/kustomize"
  cp "$rendered/example.yaml" "$work/kustomize"
  printf 'resources: [example.yaml]\n' >"$work/kustomize/kustomization.yaml"
  kubectl kustomize "$work/kustomize" >"$work/said"
}

# helm: the real one
step_helm() {
  have helm || { skip "no helm here"; return 0; }
  helm lint --strict -f "$deploy/helm/example.yaml" "$deploy/helm/vfl-node"
  helm template clinic "$deploy/helm/vfl-node" -f "$deploy/helm/example.yaml" >"$work/said"
}

steps="systemd values render kubernetes kustomize helm"
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
