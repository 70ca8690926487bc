{{- /* The nodes on which an agent runs: terms of which one must hold. */}}
{{- define "dra.nodes" -}}
{{- if .Values.simulation.machine }}
- matchExpressions:
    {{- include "dra.nodes.real" . | nindent 4 }}
{{- else if .Values.simulation.machines }}
{{- range $node, $_ := .Values.simulation.machines }}
- matchFields:
    - {key: metadata.name, operator: In, values: [{{ $node | quote }}]}
{{- end }}
{{- else }}
{{- range $label, $values := include "dra.nodes.labels" . | fromYaml }}
- matchExpressions:
    {{- include "dra.nodes.real" $ | nindent 4 }}
    {{- if $values }}
    - {key: {{ $label | quote }}, operator: In, values: {{ $values | toJson }}}
    {{- else }}
    - {key: {{ $label | quote }}, operator: Exists}
    {{- end }}
{{- end }}
# No word from NFD: the agent finds out by itself.
- matchExpressions:
    {{- include "dra.nodes.real" . | nindent 4 }}
    - {key: feature.node.kubernetes.io/kernel-version.full, operator: DoesNotExist}
{{- end }}
{{- end }}

{{- /* Nodes with a kernel of their own that the image runs on. */}}
{{- define "dra.nodes.real" -}}
- {key: kubernetes.io/os, operator: In, values: [linux]}
- {key: type, operator: NotIn, values: [virtual-kubelet]}
- {key: eks.amazonaws.com/compute-type, operator: NotIn, values: [fargate]}
{{- end }}

{{- /* By which a node is known to have an NVIDIA GPU. Empty: the label is enough. */}}
{{- define "dra.nodes.labels" -}}
# NFD: vendor 10de alone or with a PCI class, 3D or display controller; Tegra by its processor.
feature.node.kubernetes.io/pci-10de.present: ["true"]
feature.node.kubernetes.io/pci-0302_10de.present: ["true"]
feature.node.kubernetes.io/pci-0300_10de.present: ["true"]
feature.node.kubernetes.io/cpu-model.vendor_id: [NVIDIA]
# GPU feature discovery, GPU Operator
nvidia.com/gpu.present: ["true"]
# GKE, EKS, Karpenter, AKS
cloud.google.com/gke-accelerator: []
k8s.amazonaws.com/accelerator: []
karpenter.k8s.aws/instance-gpu-manufacturer: [nvidia]
eks.amazonaws.com/instance-gpu-manufacturer: [nvidia]
kubernetes.azure.com/accelerator: [nvidia]
{{- end }}
