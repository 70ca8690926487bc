{{- define "dra.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "dra.fullname" -}}
{{- $name := include "dra.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "dra.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "dra.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "dra.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* By which a workload knows its pods; call with (dict "root" $ "component" "agent"). */}}
{{- define "dra.selector" -}}
{{- if and .root.Values.selectorLabelsOverride (eq .component "agent") }}
{{- toYaml .root.Values.selectorLabelsOverride }}
{{- else -}}
app.kubernetes.io/name: {{ include "dra.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end }}

{{- define "dra.agent" -}}
{{- printf "%s-agent" (include "dra.fullname" .) }}
{{- end }}

{{- define "dra.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "dra.agent" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "dra.webhook" -}}
{{- printf "%s-webhook" (include "dra.fullname" .) }}
{{- end }}

{{- define "dra.webhookAccount" -}}
{{- if .Values.webhook.serviceAccount.create }}
{{- default (include "dra.webhook" .) .Values.webhook.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.webhook.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "dra.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* The newest version of resource.k8s.io that is served, or the one that is asked for: "v1". */}}
{{- define "dra.apiVersion" -}}
{{- if .Values.resourceApiVersion }}
{{- .Values.resourceApiVersion | trimPrefix "resource.k8s.io/" }}
{{- else }}
{{- $served := "" }}
{{- range list "v1beta1" "v1beta2" "v1" }}
{{- if $.Capabilities.APIVersions.Has (printf "resource.k8s.io/%s" .) }}{{ $served = . }}{{ end }}
{{- end }}
{{- $served }}
{{- end }}
{{- end }}

{{- /* Whole GPUs are of the class that has the driver's name; MIG devices of its sister. */}}
{{- define "dra.migClass" -}}
{{- if hasPrefix "gpu." .Values.driverName }}
{{- printf "mig.%s" (trimPrefix "gpu." .Values.driverName) }}
{{- else }}
{{- printf "mig.%s" .Values.driverName }}
{{- end }}
{{- end }}

{{- /* Another DeviceClass of the cluster that offers the same extended resource: pods would get GPUs of the newer class only. */}}
{{- define "dra.extendedResourceOwner" -}}
{{- range (lookup (printf "resource.k8s.io/%s" (include "dra.apiVersion" .)) "DeviceClass" "" "").items }}
{{- if and (eq (default "" .spec.extendedResourceName) $.Values.extendedResource.name) (ne .metadata.name $.Values.driverName) }}
{{- .metadata.name }}
{{- end }}
{{- end }}
{{- end }}

{{- define "dra.extendedResource" -}}
{{- $mode := toString .Values.extendedResource.enabled }}
{{- if eq (include "dra.apiVersion" .) "v1" }}
{{- $supported := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}
{{- if or (eq $mode "true") (and (eq $mode "auto") $supported (not (include "dra.extendedResourceOwner" .))) }}
{{- .Values.extendedResource.name }}
{{- end }}
{{- end }}
{{- end }}

{{- define "dra.kubeletDir" -}}
{{- $registry := .Values.kubeletPlugin.kubeletRegistrarDirectoryPath }}
{{- $plugins := .Values.kubeletPlugin.kubeletPluginsDirectoryPath }}
{{- if $registry }}{{ dir $registry }}{{ else if $plugins }}{{ dir $plugins }}{{ else }}{{ .Values.kubeletDir | trimSuffix "/" }}{{ end }}
{{- end }}

{{- define "dra.simulated" -}}
{{- if or .Values.simulation.machine .Values.simulation.machines }}yes{{ end }}
{{- end }}

{{- define "dra.privileged" -}}
{{- $mode := toString .Values.kubeletPlugin.privileged }}
{{- if or (eq $mode "true") (and (eq $mode "auto") (not (include "dra.simulated" .)) (not .Values.kubeletPlugin.runtimeClassName)) }}yes{{ end }}
{{- end }}

{{- /* Nothing where the endpoint is off. */}}
{{- define "dra.httpPort" -}}
{{- if contains ":" .Values.kubeletPlugin.metrics.gpuHttpEndpoint }}
{{- splitList ":" .Values.kubeletPlugin.metrics.gpuHttpEndpoint | last }}
{{- end }}
{{- end }}

{{- /* A file of manifests/ as a list of objects, under the names of this release: the one place where they are said. */}}
{{- define "dra.manifests" -}}
{{- $text := .root.Files.Get (printf "manifests/%s.yaml" .file) }}
{{- $account := printf "system:serviceaccount:%s:%s" (include "dra.namespace" .root) (include "dra.serviceAccount" .root) }}
{{- $text = $text | replace "system:serviceaccount:dra-driver:dra-driver" $account }}
{{- $text = $text | replace "mig.nvidia.com" (include "dra.migClass" .root) | replace "gpu.nvidia.com" .root.Values.driverName }}
{{- $text = $text | replace "dra-driver-webhook" (include "dra.webhook" .root) | replace "namespace: dra-driver" (printf "namespace: %s" (include "dra.namespace" .root)) }}
{{- $objects := list }}
{{- range splitList "\n---\n" $text }}
{{- $objects = append $objects (fromYaml .) }}
{{- end }}
{{- dict "objects" $objects | toJson }}
{{- end }}

{{- /* Whether an agent labels its Node in this way (`word` of the setting node-labels). */}}
{{- define "dra.nodeLabels" -}}
{{- $words := list (get .root.Values.settings "node-labels") }}
{{- range .root.Values.nodeSettings }}{{ $words = append $words (get (default dict .) "node-labels") }}{{ end }}
{{- if has .word $words }}true{{ end }}
{{- end }}

{{- define "dra.featuresDir" -}}
{{- get .Values.settings "features-dir" | default "/etc/kubernetes/node-feature-discovery/features.d" }}
{{- end }}
