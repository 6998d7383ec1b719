{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What every object carries. Selectors do not: they are those of the kustomize overlays, and cannot change. */ -}}
{{- define "sluice.labels" -}}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* "true" or "": whether the agent has a component. Called with (list . NAME STRATEGIES), with blanks between. */ -}}
{{- define "sluice.component" -}}
{{- $root := index . 0 }}
{{- $said := index $root.Values.agent.components (index . 1) | toString }}
{{- if or (eq $said "true") (and (eq $said "auto") (has $root.Values.strategy (splitList " " (index . 2)))) }}true{{ end }}
{{- end }}

{{- define "sluice.mps" }}{{ include "sluice.component" (list . "mps" "mps") }}{{ end }}
{{- define "sluice.fractional" }}{{ include "sluice.component" (list . "fractional" "fractional") }}{{ end }}
{{- define "sluice.dra" }}{{ include "sluice.component" (list . "dra" "dra vm-dra") }}{{ end }}
{{- define "sluice.migManagement" }}{{ include "sluice.component" (list . "migManagement" "dra vm-dra") }}{{ end }}
{{- define "sluice.vm" }}{{ include "sluice.component" (list . "vm" "vm vm-dra") }}{{ end }}

{{- /* none, dra or extender */ -}}
{{- define "sluice.controller" -}}
{{- if ne .Values.controller.mode "auto" }}{{ .Values.controller.mode }}
{{- else if has .Values.strategy (list "dra" "vm-dra") }}dra
{{- else if eq .Values.strategy "fractional" }}extender
{{- else }}none
{{- end }}
{{- end }}

{{- /* "true" or "": a kube-scheduler of our own, with the extender in its configuration. */ -}}
{{- define "sluice.secondScheduler" -}}
{{- if .Values.secondScheduler.enabled }}
{{- if ne (include "sluice.controller" .) "extender" }}{{ fail "secondScheduler.enabled places pods by the extender: set strategy: fractional, or controller.mode: extender" }}{{ end -}}
true
{{- end }}
{{- end }}

{{- define "sluice.configMap" -}}
{{ .Values.configMap | default "sluice-config" }}
{{- end }}

{{- /* A role and who has it. Called with (list . KIND NAME ACCOUNT); KIND is "Cluster" or "". */ -}}
{{- define "sluice.binding" -}}
{{- $root := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}RoleBinding
metadata:
  name: {{ index . 2 }}
  {{- if not (index . 1) }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels: {{- include "sluice.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}Role
  name: {{ index . 2 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 3 }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}
