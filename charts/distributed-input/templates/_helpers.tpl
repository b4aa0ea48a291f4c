{{/* The chart's name, or nameOverride. */}}
{{- define "distributed-input.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* The prefix of all object names: the release's name, and the chart's if it is not part of it. */}}
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

{{/* The name of cluster-scoped objects. It differs between releases. */}}
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

{{/* The full name of an image. Takes [root, image]. */}}
{{- define "distributed-input.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{ printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) }}
{{- end }}
