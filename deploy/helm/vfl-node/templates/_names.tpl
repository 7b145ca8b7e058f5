{{- define "vfl.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "vfl.selector" -}}
app.kubernetes.io/name: vfl-node
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "vfl.labels" -}}
{{ include "vfl.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{- define "vfl.node" -}}
name: {{ required "party: the name of the party is needed" .Values.party | quote }}
role: {{ required "settings.role: active, passive or coordinator is needed" .Values.settings.role | quote }}
listen: 0.0.0.0:7443
http: 0.0.0.0:8080
{{- if .Values.board.tlsSecretName }}
http_tls: {certificate: /board/tls.crt, key: /board/tls.key}
{{- else }}
http_plain: true
{{- end }}
policy: policy.yaml
peers_dir: /state/peers
state_dir: /state/node
tls:
  mode: {{ .Values.keys.mode }}
  ca: /keys/{{ if eq .Values.keys.mode "own" }}authority.crt{{ else }}ca.crt{{ end }}
  certificate: /keys/node.crt
  key: /keys/node.key
{{- with omit .Values.settings "role" }}
{{ toYaml . }}
{{- end }}
{{- end }}
