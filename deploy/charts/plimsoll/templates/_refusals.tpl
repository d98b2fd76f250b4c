{{/*
Every value of Velero's chart is honoured, refused or reported as unused. Refused are values whose absence would change what is
backed up, where it goes, or who may do it. `fail` names all of them at once. Reported (NOTES.txt) are those that tune what
Plimsoll does in another way.
*/}}

{{/* The flags that a program does not have, of a list of arguments: (list $ program arguments). */}}
{{- define "plimsoll.unknownFlags" -}}
{{- $known := index ((index . 0).Files.Get "files/flags.yaml" | fromYaml) (index . 1) -}}
{{- $unknown := list -}}
{{- range index . 2 -}}
{{- $flag := first (splitList "=" (toString .)) -}}
{{- if and (hasPrefix "--" $flag) (not (has $flag $known)) -}}{{- $unknown = append $unknown $flag -}}{{- end -}}
{{- end -}}
{{ join ", " $unknown }}
{{- end -}}

{{/* The refusals, as YAML: {all: [...]}. */}}
{{- define "plimsoll.refused" -}}
{{- $all := list -}}
{{- $configuration := .Values.configuration -}}
{{- $agent := .Values.nodeAgent -}}
{{- if hasSuffix "velero/velero" .Values.image.repository -}}
{{- $all = append $all "image.repository: this is the image of Velero; set image.repository and image.tag to those of Plimsoll" -}}
{{- end -}}
{{- if .Values.cleanUpCRDs -}}
{{- $all = append $all "cleanUpCRDs: deleting the definitions deletes all backups of the cluster; run `plimsoll uninstall --crds` instead" -}}
{{- end -}}
{{- range $location := $configuration.backupStorageLocation -}}
{{- if and (or .provider .bucket) (not (and .provider .bucket)) -}}
{{- $all = append $all (printf "configuration.backupStorageLocation: location %s needs both provider and bucket" (.name | default "default")) -}}
{{- end -}}
{{- if and .volume (or (ne .provider "directory") (not (hasPrefix "/" (toString .bucket)))) -}}
{{- $all = append $all (printf "configuration.backupStorageLocation: volume of location %s needs provider directory and an absolute path as bucket" (.name | default "default")) -}}
{{- end -}}
{{- end -}}
{{- with $configuration.uploaderType -}}
{{- if not (has . (list "auto" "built-in" "restic" "kopia")) -}}
{{- $all = append $all (printf "configuration.uploaderType: %s is none of auto, built-in, restic and kopia" .) -}}
{{- end -}}
{{- end -}}
{{- if and $configuration.namespace (ne (toString $configuration.namespace) .Release.Namespace) -}}
{{- $all = append $all (printf "configuration.namespace: the server works in the namespace of the release, %s; install the release in %s" .Release.Namespace $configuration.namespace) -}}
{{- end -}}
{{- if and $configuration.defaultVolumesToFsBackup (not .Values.deployNodeAgent) -}}
{{- $all = append $all "configuration.defaultVolumesToFsBackup: this needs the node agents; set deployNodeAgent" -}}
{{- end -}}
{{- with include "plimsoll.unknownFlags" (list $ "server" $configuration.extraArgs) -}}
{{- $all = append $all (printf "configuration.extraArgs: `plimsoll server` does not have %s" .) -}}
{{- end -}}
{{- with include "plimsoll.unknownFlags" (list $ "agent" $agent.extraArgs) -}}
{{- $all = append $all (printf "nodeAgent.extraArgs: `plimsoll agent` does not have %s" .) -}}
{{- end -}}
{{- if $agent.disableHostPath -}}
{{- $all = append $all "nodeAgent.disableHostPath: the agents read the volumes of pods through the kubelet's directory; set deployNodeAgent to false to run none" -}}
{{- end -}}
{{- if and .Values.deployNodeAgent ($agent.podSecurityContext).runAsUser -}}
{{- $all = append $all "nodeAgent.podSecurityContext.runAsUser: the agents restore the owners of files and must be root (0)" -}}
{{- end -}}
{{ toYaml (dict "all" $all) }}
{{- end -}}

{{/* The values that have no effect, as YAML: {all: [...]}. Those with the default of Velero's chart are left out. */}}
{{- define "plimsoll.unused" -}}
{{- $all := list -}}
{{- $configuration := .Values.configuration -}}
{{- $reasons := dict
  "disableInformerCache" "there is no such cache"
  "metricsAddress" "metrics are on port 8086"
  "profilerAddress" "there is no profiler"
  "dataMoverPrepareTimeout" "the timeout is fixed"
  "defaultRepoMaintainFrequency" "there are no maintenance jobs" -}}
{{- range $value, $reason := $reasons -}}
{{- if index $configuration $value -}}
{{- $all = append $all (printf "configuration.%s: %s" $value $reason) -}}
{{- end -}}
{{- end -}}
{{- if eq (toString $configuration.logFormat) "json" -}}
{{- $all = append $all "configuration.logFormat: logs are text" -}}
{{- end -}}
{{- range splitList "," (toString ($configuration.features | default "")) -}}
{{- if not (has . (list "" "EnableCSI")) -}}
{{- $all = append $all (printf "configuration.features: there is no %s (snapshots of CSI drivers need no feature flag)" .) -}}
{{- end -}}
{{- end -}}
{{- $maintenance := $configuration.repositoryMaintenanceJob | default dict -}}
{{- $data := $maintenance.repositoryConfigData | default dict -}}
{{- $hasSettings := or $maintenance.requests $maintenance.limits $maintenance.latestJobsCount $data.repositories -}}
{{- range $key, $_ := omit ($data.global | default dict) "keepLatestMaintenanceJobs" -}}{{- $hasSettings = true -}}{{- end -}}
{{- $isOtherName := not (has ($data.name | default "") (list "" "velero-repo-maintenance")) -}}
{{- if or $hasSettings $isOtherName (not (has (toString (($data.global).keepLatestMaintenanceJobs | default 3)) (list "3"))) -}}
{{- $all = append $all "configuration.repositoryMaintenanceJob: there are no maintenance jobs" -}}
{{- end -}}
{{- if ((.Values.metrics).nodeAgentPodMonitor).enabled -}}
{{- $all = append $all "metrics.nodeAgentPodMonitor: the agents have no metrics; those of the server tell about all transfers" -}}
{{- end -}}
{{- $kubectl := (.Values.kubectl).image | default dict -}}
{{- if or $kubectl.tag $kubectl.digest (not (has ($kubectl.repository | default "") (list "" "registry.k8s.io/kubectl"))) -}}
{{- $all = append $all "kubectl.image: the job for definitions runs the image of Plimsoll" -}}
{{- end -}}
{{- range $value := list "shellCmd" "updateCmd" -}}
{{- if index ($.Values.upgradeCRDsJob | default dict) $value -}}
{{- $all = append $all (printf "upgradeCRDsJob.%s: the job runs `plimsoll crds apply`" $value) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.nodeAgent.pluginVolumePath (ne .Values.nodeAgent.pluginVolumePath "/var/lib/kubelet/plugins") -}}
{{- $all = append $all "nodeAgent.pluginVolumePath: the agents do not read this directory" -}}
{{- end -}}
{{ toYaml (dict "all" $all) }}
{{- end -}}
