{{- define "tftraining.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of everything in the release: the release's name, with the chart's where that does not say it already. */}}
{{- define "tftraining.fullname" -}}
{{- $name := include "tftraining.name" . }}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $both .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tftraining.serviceAccount" -}}
{{- default (include "tftraining.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "tftraining.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "tftraining.selector" -}}
app.kubernetes.io/name: {{ include "tftraining.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tftraining.labels" -}}
{{ include "tftraining.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tftraining
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* All that the operator may do in a namespace with jobs: each verb is one that its code uses. */}}
{{- define "tftraining.rules" -}}
- apiGroups: [tftraining.dev]
  resources: [tftrainingjobs]
  verbs: [delete, get, list, watch]
# Patch is for one condition in a status that the operator cannot read, and so must not replace.
- apiGroups: [tftraining.dev]
  resources: [tftrainingjobs/status]
  verbs: [patch, update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, get, list, patch, watch]
# For pods in a queue of Kueue that nobody else can end: it keeps them until they have.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, get, list, patch, watch]
# Only to create: the operator has no way to read a Secret, not even its own.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# For jobs with runPolicy.scheduling.podGroup.
- apiGroups: [scheduling.x-k8s.io, scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [create, delete, patch]
{{- if .Values.networkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, patch]
{{- end }}
# What kubelets say of a pod that they cannot start. Without this its status tells of images, and nothing of volumes.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# Only while a quota holds a job. Without this the job tries again by itself, up to a minute after there is room.
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
{{- end }}
