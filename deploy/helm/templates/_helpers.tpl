{{- define "placer.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Room is left for the longest suffix, -bridge-metrics. */}}
{{- define "placer.fullname" -}}
{{- $name := include "placer.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- .Values.fullnameOverride | default $full | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "placer.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Labels of the release, by which the ServiceMonitor finds both services. */}}
{{- define "placer.releaseLabels" -}}
app.kubernetes.io/name: {{ include "placer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of (list $ component): what selects its pods. The component is the job's name for Prometheus. */}}
{{- define "placer.selector" -}}
{{ include "placer.releaseLabels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "placer.labels" -}}
{{ include "placer.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{/* The settings of the bridge: those of the reconciler, under its own. */}}
{{- define "placer.bridge.settings" -}}
{{- mergeOverwrite (deepCopy .Values.settings) .Values.bridge.settings | toYaml }}
{{- end }}

{{/* The settings of the console: those of the reconciler, under its own. */}}
{{- define "placer.console.settings" -}}
{{- mergeOverwrite (deepCopy .Values.settings) .Values.console.settings | toYaml }}
{{- end }}

{{/* Of (list secrets settings): the secrets that the settings name. Fails where one is not listed. */}}
{{- define "placer.secrets" -}}
{{- $secrets := index . 0 }}
{{- $files := dict }}
{{- $env := dict }}
{{- range $section := list "kafka" "spark" }}
{{- range $option, $value := dig $section "options" (dict) (index $ 1) }}
{{- $where := printf "settings.%s.options: %s: %v" $section $option $value }}
{{- if hasPrefix "env:" (toString $value) }}
{{- $name := trimPrefix "env:" $value }}
{{- if not (hasKey $secrets.env $name) }}
{{- fail (printf "%s needs secrets.env.%s: {secretName: …, key: …}" $where $name) }}
{{- end }}
{{- $_ := set $env $name (get $secrets.env $name) }}
{{- else if regexMatch "^(file:)?/run/secrets/" (toString $value) }}
{{- $name := regexReplaceAll "^(file:)?/run/secrets/([^/]*).*$" $value "${2}" }}
{{- if not (hasKey $secrets.files $name) }}
{{- fail (printf "%s needs secrets.files.%s: {secretName: …}" $where $name) }}
{{- end }}
{{- $_ := set $files $name (get $secrets.files $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- dict "files" $files "env" $env | toYaml }}
{{- end }}

{{- define "placer.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "placer.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Of (list $ component): where pods are put. */}}
{{- define "placer.scheduling" -}}
{{- $root := index . 0 }}
{{- with $root.Values }}
affinity:
{{- if .affinity }}
  {{- toYaml .affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "placer.selector" $ | nindent 14 }}
{{- end }}
topologySpreadConstraints:
{{- if .topologySpreadConstraints }}
  {{- toYaml .topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "placer.selector" $ | nindent 8 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of (list $ name): the account of a workload. */}}
{{- define "placer.serviceAccount" -}}
{{- with (index . 0).Values.serviceAccount }}
{{- if .create }}{{ index $ 1 }}{{ else }}{{ .name | default "default" }}{{ end }}
{{- end }}
{{- end }}

{{- define "placer.secretVariables" -}}
{{- range $name, $from := .env }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secretName }}, key: {{ $from.key }}}
{{- end }}
{{- end }}

{{- define "placer.secretMounts" -}}
{{- range $name, $_ := .files }}
- {name: secret-{{ $name }}, mountPath: /run/secrets/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "placer.secretVolumes" -}}
{{- range $name, $from := .files }}
- name: secret-{{ $name }}
  secret: {secretName: {{ $from.secretName }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* Of (list $ name component settings): a policy for its pods. */}}
{{- define "placer.networkPolicy" -}}
{{- $root := index . 0 }}
{{- $isConsole := eq (index . 2) "console" }}
{{- $ports := list }}
{{- range splitList "," (index . 3).kafka.bootstrap_servers }}
{{- $ports = append $ports (regexFind "[0-9]+$" (trim .) | int) }}
{{- end }}
{{- with $root.Values.networkPolicy }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ index $ 1 }}
  labels:
    {{- include "placer.labels" (list $root (index $ 2)) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "placer.selector" (list $root (index $ 2)) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports: [{protocol: TCP, port: {{ ternary "http" "metrics" $isConsole }}}]
      {{- with ternary $root.Values.console.from .metricsFrom $isConsole }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with .extraIngress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    - ports:
        {{- range concat $ports .kafkaPorts | uniq }}
        - {protocol: TCP, port: {{ int . }}}
        {{- end }}
      {{- with .kafkaTo }}
      to:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    - ports:
        {{- range .dnsPorts }}
        - {protocol: UDP, port: {{ int . }}}
        - {protocol: TCP, port: {{ int . }}}
        {{- end }}
    {{- with .extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

{{/* Of (list $ name component): a budget for its pods. */}}
{{- define "placer.disruptionBudget" -}}
{{- $root := index . 0 }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "placer.labels" (list $root (index . 2)) | nindent 4 }}
spec:
  maxUnavailable: {{ $root.Values.podDisruptionBudget.maxUnavailable }}
  # One that does not work is in nobody's way.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "placer.selector" (list $root (index . 2)) | nindent 6 }}
{{- end }}

{{/* Of (list $ name component): metrics and probes of its pods. */}}
{{- define "placer.metricsService" -}}
{{- $root := index . 0 }}
apiVersion: v1
kind: Service
metadata:
  name: {{ index . 1 }}-metrics
  labels:
    {{- include "placer.labels" (list $root (index . 2)) | nindent 4 }}
spec:
  # Each pod is asked by itself; one that is not ready says why.
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "placer.selector" (list $root (index . 2)) | nindent 4 }}
  ports:
    - {name: metrics, port: 9464, targetPort: metrics}
{{- end }}

{{/* Of (list $ name component). */}}
{{- define "placer.account" -}}
{{- $root := index . 0 }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "placer.labels" (list $root (index . 2)) | nindent 4 }}
  {{- with $root.Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{/* Of secondsToStart: the three probes where metrics are. */}}
{{- define "placer.probes" -}}
{{- include "placer.probesAt" (list . "metrics" "HTTP") }}
{{- end }}

{{/* Of (list secondsToStart port scheme): the three probes. */}}
{{- define "placer.probesAt" -}}
{{- $at := printf "port: %s" (index . 1) }}
{{- if eq (index . 2) "HTTPS" }}{{ $at = printf "%s, scheme: HTTPS" $at }}{{ end -}}
startupProbe:
  httpGet: {path: /readyz, {{ $at }}}
  periodSeconds: 5
  failureThreshold: {{ div (add (index . 0) 4) 5 }}
livenessProbe:
  httpGet: {path: /livez, {{ $at }}}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, {{ $at }}}
  periodSeconds: 5
{{- end }}

{{/* The files of the bridge. */}}
{{- define "placer.bridge.data" -}}
placer.yaml: |
  {{- include "placer.bridge.settings" . | nindent 2 }}
policies.yaml: |
  {{- toYaml .Values.bridge.policies | nindent 2 }}
{{- end }}

{{/* Where Strimzi's resources are, and what they belong to. */}}
{{- define "placer.strimzi" -}}
{{- with .Values.strimzi.namespace }}
namespace: {{ . }}
{{- end }}
labels:
  strimzi.io/cluster: {{ .Values.strimzi.cluster }}
  {{- include "placer.releaseLabels" . | nindent 2 }}
{{- /* Strimzi deletes a topic together with its resource, and the state is in the topics. */}}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
