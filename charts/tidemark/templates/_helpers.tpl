{{- /* Everything that comes from values or the release is quoted: a release may be called 123, a namespace "on". */}}

{{- define "tidemark.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "tidemark.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "tidemark.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "tidemark.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "tidemark.selector" -}}
app.kubernetes.io/name: {{ printf "%s-operator" (include "tidemark.name" .) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "tidemark.commonLabels" -}}
app.kubernetes.io/part-of: tidemark
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "tidemark.labels" -}}
{{ include "tidemark.selector" . }}
app.kubernetes.io/component: operator
{{ include "tidemark.commonLabels" . }}
{{- end }}

{{- /* The name of a CronJob has at most 52 characters. */}}
{{- define "tidemark.inspectionName" -}}
{{- printf "%s-inspection" (include "tidemark.fullname" . | trunc 41 | trimSuffix "-") }}
{{- end }}

{{- /* Not the selector's: the Service must not send anything to the pods of inspections. */}}
{{- define "tidemark.inspectionLabels" -}}
app.kubernetes.io/name: {{ printf "%s-inspection" (include "tidemark.name" .) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: inspection
{{ include "tidemark.commonLabels" . }}
{{- end }}

{{- define "tidemark.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "tidemark.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: got nothing, expected the name of an existing ServiceAccount with serviceAccount.create=false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "tidemark.keySecret" -}}
{{- default (printf "%s-key" (include "tidemark.fullname" .)) .Values.operatorKey.existingSecret }}
{{- end }}

{{- /* What the links of alerts and dashboards begin with: the operator's own pages, through the Service. */}}
{{- define "tidemark.runbookBaseUrl" -}}
{{- default (printf "http://%s.%s:%v/runbooks" (include "tidemark.fullname" .) .Release.Namespace .Values.metrics.service.port) .Values.monitoring.runbookBaseUrl | trimSuffix "/" }}
{{- end }}

{{- /* "true" where a value says so, or leaves it to what the cluster has: (list . value "group/version" ...) */}}
{{- define "tidemark.isWanted" -}}
{{- $root := first . }}
{{- $value := index . 1 }}
{{- if kindIs "bool" $value }}
{{- if $value }}true{{ end }}
{{- else }}
{{- $found := "" }}
{{- range slice . 2 }}
{{- if $root.Capabilities.APIVersions.Has . }}{{ $found = "true" }}{{ end }}
{{- end }}
{{- $found }}
{{- end }}
{{- end }}

{{- /* An image of the block `images`: (list . "engine") */}}
{{- define "tidemark.image" -}}
{{- $root := index . 0 }}
{{- $image := index $root.Values.images (index . 1) }}
{{- $name := $image.repository }}
{{- if $root.Values.images.registry }}
{{- $name = printf "%s/%s" (trimSuffix "/" $root.Values.images.registry) $name }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- /* What every pod of the chart has: pull secrets, the restricted Pod Security level, where it may run. */}}
{{- define "tidemark.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tidemark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
