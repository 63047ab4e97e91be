{{- /* Made by `make render` from operator/tidemark_operator/permissions.py; do not edit. */}}
{{- define "tidemark.rules.cluster" -}}
# counts the devices of the nodes, to see whether one is free for a rollout
- {apiGroups: [""], resources: ["nodes"], verbs: [list]}
# counts the devices that pods of all namespaces have taken
- {apiGroups: [""], resources: ["pods"], verbs: [list]}
{{- end }}
{{- define "tidemark.rules.operator" -}}
# of two operators only the one that holds the lease works
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: [create, get, update]}
{{- end }}
{{- define "tidemark.rules.services" -}}
# holds the engine's configuration; one that a service names has its precision map
- {apiGroups: [""], resources: ["configmaps"], verbs: [create, delete, get, list, patch, watch]}
# their troubles are told in the service's status
- {apiGroups: [""], resources: ["pods"], verbs: [list, watch]}
# writes the token of the engines' /admin, which pods mount, and never reads it
- {apiGroups: [""], resources: ["secrets"], verbs: [create, patch]}
# engine pods run under an account without any rights
- {apiGroups: [""], resources: ["serviceaccounts"], verbs: [create, delete, get, list, patch, watch]}
# one address for all replicas
- {apiGroups: [""], resources: ["services"], verbs: [create, get, list, patch, watch]}
# remembers good specs, for a rollback
- {apiGroups: ["apps"], resources: ["controllerrevisions"], verbs: [create, delete, get, list, patch, watch]}
# runs the engine pods
- {apiGroups: ["apps"], resources: ["deployments"], verbs: [create, get, list, patch, watch]}
# evaluates what a service quantizes, at times
- {apiGroups: ["batch"], resources: ["cronjobs"], verbs: [create, delete, get, list, patch, watch]}
# tells in the status what the evaluation said
- {apiGroups: ["batch"], resources: ["jobs"], verbs: [list, watch]}
# says what happened to a service, a repetition raises a count; reads why a pod waits for a volume
- {apiGroups: ["events.k8s.io"], resources: ["events"], verbs: [create, list, patch]}
# brings a service's dashboard into Grafana where Grafana's operator is
- {apiGroups: ["grafana.integreatly.org"], resources: ["grafanadashboards"], verbs: [create, delete, get, list, patch, watch]}
# makes Prometheus scrape a service where the Prometheus operator is
- {apiGroups: ["monitoring.coreos.com"], resources: ["podmonitors"], verbs: [create, delete, get, list, patch, watch]}
# brings a service's alerts to Prometheus where the Prometheus operator is
- {apiGroups: ["monitoring.coreos.com"], resources: ["prometheusrules"], verbs: [create, delete, get, list, patch, watch]}
# lets in only those whom the service names
- {apiGroups: ["networking.k8s.io"], resources: ["networkpolicies"], verbs: [create, delete, get, list, patch, watch]}
# keeps a drained node from ending all replicas
- {apiGroups: ["policy"], resources: ["poddisruptionbudgets"], verbs: [create, delete, get, list, patch, watch]}
# the services themselves
- {apiGroups: ["tidemark.dev"], resources: ["inferenceservices"], verbs: [list, watch]}
# owner references that block deletion need it where the cluster checks them (OpenShift)
- {apiGroups: ["tidemark.dev"], resources: ["inferenceservices/finalizers"], verbs: [update]}
# tells how the service is
- {apiGroups: ["tidemark.dev"], resources: ["inferenceservices/status"], verbs: [patch]}
{{- end }}
{{- define "tidemark.inspection.operator" -}}
# keeps the last result in its own ConfigMap
- {apiGroups: [""], resources: ["configmaps"], verbs: [patch], resourceNames: [{{ include "tidemark.inspectionName" . | quote }}]}
# finds the operator's pods, to ask how they are
- {apiGroups: [""], resources: ["pods"], verbs: [list]}
{{- end }}
{{- define "tidemark.inspection.services" -}}
# which configuration the engines should have
- {apiGroups: [""], resources: ["configmaps"], verbs: [get]}
# how they ended, how often, and where they answer
- {apiGroups: [""], resources: ["pods"], verbs: [list]}
# which ConfigMap new pods are given
- {apiGroups: ["apps"], resources: ["deployments"], verbs: [get]}
# the services themselves
- {apiGroups: ["tidemark.dev"], resources: ["inferenceservices"], verbs: [get, list]}
{{- end }}
