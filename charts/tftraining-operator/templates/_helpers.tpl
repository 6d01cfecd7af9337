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
{{- if and .Values.image.digest (not .Values.image.tag) }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
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
# patch: sets one condition in a status that the operator cannot read, and so must not replace.
- apiGroups: [tftraining.dev]
  resources: [tftrainingjobs/status]
  verbs: [patch, update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, get, list, patch, watch]
# To end pods of a Kueue queue that have no kubelet: Kueue keeps them until they have ended.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, get, list, patch, watch]
# create only: the operator cannot read a Secret, not even those that it creates.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# For jobs with runPolicy.scheduling.podGroup or runPolicy.scheduling.gang.
- apiGroups: [scheduling.x-k8s.io, scheduling.volcano.sh, scheduling.k8s.io]
  resources: [podgroups]
  verbs: [create, delete, patch]
{{- if .Values.networkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, patch]
{{- end }}
# The kubelet's events of a pod that cannot start. Without them the status names problems of images, but not of volumes.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# Only while a quota refuses a job's pods. Without it the operator tries again up to a minute after the quota has room.
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
{{- end }}
