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

{{/* The Secret with the authority that signs authorities of inputs. cert-manager writes it. */}}
{{- define "distributed-input.authoritySecret" -}}
{{ include "distributed-input.fullname" . }}-authority
{{- end }}

{{/* The name of cluster-scoped objects. It differs between releases. */}}
{{- define "distributed-input.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "distributed-input.fullname" .) }}
{{- end }}

{{/* The namespaces to serve, as JSON. Empty: all. */}}
{{- define "distributed-input.namespaces" -}}
{{- concat (ternary (list .Release.Namespace) list .Values.namespaced) (.Values.namespaces | default list) | uniq | toJson -}}
{{- end }}

{{/* The name of the Lease of the operator's class. */}}
{{- define "distributed-input.lease" -}}
distributed-input-operator{{ with .Values.operatorClass }}-{{ . }}{{ end }}
{{- end }}

{{/* The labels of all pods of the release. */}}
{{- define "distributed-input.allPods" -}}
app.kubernetes.io/name: {{ include "distributed-input.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "distributed-input.selector" -}}
{{ include "distributed-input.allPods" . }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "distributed-input.webhookSelector" -}}
{{ include "distributed-input.allPods" . }}
app.kubernetes.io/component: webhook
{{- end }}

{{/* Labels of objects. Takes [root, component], and further labels. Later ones replace earlier ones:
commonLabels, those of the chart, the further ones. */}}
{{- define "distributed-input.componentLabels" -}}
{{- $root := index . 0 -}}
{{- $own := include "distributed-input.allPods" $root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" (index . 1) -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $further := slice . 2 | first | default dict -}}
{{ mergeOverwrite (dict) ($root.Values.commonLabels | default dict) $own $further | toYaml }}
{{- end }}

{{/* Labels of the release's pods. Takes [root, selector]. */}}
{{- define "distributed-input.podLabels" -}}
{{- $root := index . 0 -}}
{{ merge (index . 1 | fromYaml) ($root.Values.podLabels | default dict) ($root.Values.commonLabels | default dict) | toYaml }}
{{- end }}

{{- define "distributed-input.labels" -}}
{{ include "distributed-input.componentLabels" (list . "operator") }}
{{- end }}

{{/* The ServiceAccounts of the operator and of the webhook. */}}
{{- define "distributed-input.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "distributed-input.fullname" .) -}}
{{- end }}

{{- define "distributed-input.webhookServiceAccount" -}}
{{- .Values.webhook.serviceAccount.name | default (include "distributed-input.webhookName" .) -}}
{{- end }}

{{/* The spread of pods over nodes. Takes [root, selector]. */}}
{{- define "distributed-input.topologySpread" -}}
{{- $root := index . 0 -}}
{{- $selector := dict "matchLabels" (index . 1 | fromYaml) -}}
{{- $default := list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- range $root.Values.topologySpreadConstraints | default $default }}
{{- $one := deepCopy . }}
{{- if not (hasKey $one "labelSelector") }}
{{- $_ := set $one "labelSelector" $selector }}
{{- end }}
- {{ toYaml $one | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/* Fields of a pod's spec that the operator and the webhook share. */}}
{{- define "distributed-input.podSpec" -}}
{{- $default := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
securityContext: {{- mergeOverwrite $default (.Values.podSecurityContext | default dict) | toYaml | nindent 2 }}
{{- with .Values.images.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector: {{- merge (deepCopy (.Values.nodeSelector | default dict)) (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Fields of a container that the operator and the webhook share. */}}
{{- define "distributed-input.container" -}}
image: {{ include "distributed-input.image" (list . .Values.images.operator) }}
imagePullPolicy: {{ .Values.images.pullPolicy }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: DISTRIBUTED_INPUT_WORKER_IMAGE
    value: {{ include "distributed-input.image" (list . .Values.images.worker) }}
  - name: DISTRIBUTED_INPUT_SIDECAR_IMAGE
    value: {{ include "distributed-input.image" (list . .Values.images.sidecar) }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
# Imports take seconds. On a busy node, the first response can take a minute.
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- $default := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
securityContext: {{- mergeOverwrite $default (.Values.securityContext | default dict) | toYaml | nindent 2 }}
{{- end }}

{{/* The full name of an image. Takes [root, image]. */}}
{{- define "distributed-input.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $root.Values.images.registry | default "" | trimSuffix "/" -}}
{{- $name := list $registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $name $image.digest }}
{{- else -}}
{{ printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) }}
{{- end -}}
{{- end }}
