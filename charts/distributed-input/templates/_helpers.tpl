{{/* The name of everything: the release's, with the chart's where that does not say it. */}}
{{- define "distributed-input.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "distributed-input.fullname" -}}
{{- $name := include "distributed-input.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "distributed-input.webhookName" -}}
{{ include "distributed-input.fullname" . }}-webhook
{{- end }}

{{/* The one cluster-wide name that two releases must not share. */}}
{{- define "distributed-input.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "distributed-input.fullname" .) }}
{{- end }}

{{- define "distributed-input.selector" -}}
app.kubernetes.io/name: {{ include "distributed-input.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "distributed-input.labels" -}}
{{ include "distributed-input.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image's full name; takes [root, image]. */}}
{{- define "distributed-input.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{ printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) }}
{{- end }}
