{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* The configuration that a strategy makes, as deploy/overlays/ have it. */ -}}
{{- define "sluice.config" -}}
{{- if .Values.config }}
{{- toYaml .Values.config }}
{{- else -}}
version: v1
flags:
  failOnInitError: false
  {{- if hasPrefix "mig-" .Values.strategy }}
  migStrategy: {{ trimPrefix "mig-" .Values.strategy }}
  {{- end }}
  {{- if not (has .Values.strategy (list "dra" "vm-dra")) }}
  plugin:
    deviceListStrategy: cdi-cri
  {{- end }}
{{- if has .Values.strategy (list "time-sliced" "mps") }}
sharing:
  {{ ternary "mps" "timeSlicing" (eq .Values.strategy "mps") }}:
    resources:
    - name: nvidia.com/gpu
      replicas: {{ .Values.replicas }}
{{- else if eq .Values.strategy "fractional" }}
sharing:
  fractional:
    enabled: true
    slots: {{ .Values.slots }}
{{- else if has .Values.strategy (list "dra" "vm-dra") }}
sharing:
  fractional:
    enabled: true
    memory: {min: 256Mi, step: 1Mi}
    cores: {min: 1, step: 1}
{{- end }}
{{- if has .Values.strategy (list "vm" "vm-dra") }}
vm:
  enabled: true
{{- end }}
{{- end }}
{{- end }}
