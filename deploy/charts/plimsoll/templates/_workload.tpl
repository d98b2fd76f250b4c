{{/* Server and agents have the same values: those of the server at the top, those of the agents in `nodeAgent`. */}}

{{/*
Merges values into a Deployment or DaemonSet, and gives it as YAML. Arguments: root, object, options (the values of this
workload), args (further arguments), env (further variables).
*/}}
{{- define "plimsoll.workload" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- $options := .options -}}
{{- $pod := $object.spec.template.spec -}}
{{- $metadata := $object.spec.template.metadata -}}
{{- $container := first $pod.containers -}}

{{- /* Metadata. The labels of the selector are not overwritten. */ -}}
{{- $_ := merge $object.metadata.labels (deepCopy ($options.labels | default dict)) -}}
{{- with $options.annotations -}}
{{- $_ := set $object.metadata "annotations" (deepCopy .) -}}
{{- end -}}
{{- $_ := merge $metadata.labels (deepCopy ($options.podLabels | default dict)) -}}
{{- with $root.Values.podAnnotations -}}
{{- $_ := set $metadata "annotations" (mergeOverwrite ($metadata.annotations | default dict) (deepCopy .)) -}}
{{- end -}}

{{- /* The pod. */ -}}
{{- range $field := list "priorityClassName" "runtimeClassName" "dnsPolicy" "dnsConfig" "hostAliases" "affinity" "tolerations" "terminationGracePeriodSeconds" -}}
{{- with index $options $field -}}
{{- $_ := set $pod $field . -}}
{{- end -}}
{{- end -}}
{{- with ($root.Values.priorityClass).create -}}
{{- if not $options.priorityClassName -}}
{{- $_ := set $pod "priorityClassName" ($root.Values.priorityClass.name | default "plimsoll") -}}
{{- end -}}
{{- end -}}
{{- $_ := set $pod "nodeSelector" (mergeOverwrite $pod.nodeSelector (deepCopy ($options.nodeSelector | default dict))) -}}
{{- $_ := set $pod "securityContext" (mergeOverwrite $pod.securityContext (deepCopy ($options.podSecurityContext | default dict))) -}}
{{- with $root.Values.image.imagePullSecrets -}}
{{- $secrets := list -}}
{{- range . -}}{{- $secrets = append $secrets (dict "name" .) -}}{{- end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}

{{- /* The container. */ -}}
{{- $_ := set $container "imagePullPolicy" ($root.Values.image.pullPolicy | default "IfNotPresent") -}}
{{- range $field := list "resources" "resizePolicy" "lifecycle" -}}
{{- with index $options $field -}}
{{- $_ := set $container $field . -}}
{{- end -}}
{{- end -}}
{{- $context := $container.securityContext -}}
{{- /* Kubernetes accepts no limits for a privileged container. */ -}}
{{- if ($options.containerSecurityContext).privileged -}}{{- $context = pick $context "readOnlyRootFilesystem" -}}{{- end -}}
{{- $context = mergeOverwrite $context (deepCopy ($options.containerSecurityContext | default dict)) -}}
{{- $_ := set $container "securityContext" $context -}}
{{- $_ := set $container "args" (concat $container.args .args) -}}
{{- $_ := set $container "env" (concat $container.env .env) -}}
{{- with $root.Values.configuration.uploaderType -}}
{{- range $container.env -}}
{{- if eq .name "PLIMSOLL_UPLOADER_TYPE" -}}{{- $_ := set . "value" $root.Values.configuration.uploaderType -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with $root.Values.credentials.extraSecretRef -}}
{{- $_ := set $container "envFrom" (list (dict "secretRef" (dict "name" .))) -}}
{{- end -}}

{{- /* Volumes: those of directory locations, then the user's. */ -}}
{{- $volumes := $pod.volumes -}}
{{- $mounts := $container.volumeMounts -}}
{{- range $number, $location := (include "plimsoll.backupLocations" $root | fromYaml).all -}}
{{- with $location.volume -}}
{{- $name := ternary "location" (printf "location-%d" $number) (eq $number 0) -}}
{{- $volumes = append $volumes (merge (dict "name" $name) .) -}}
{{- $mounts = append $mounts (dict "name" $name "mountPath" $location.bucket) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $pod "volumes" (concat $volumes ($options.extraVolumes | default list)) -}}
{{- $_ := set $container "volumeMounts" (concat $mounts ($options.extraVolumeMounts | default list)) -}}
{{ toYaml $object }}
{{- end -}}

{{/* The variables that server and agents share, as YAML. */}}
{{- define "plimsoll.env" -}}
{{- $env := .Values.configuration.extraEnvVars | default list -}}
{{- range $key, $_ := .Values.credentials.extraEnvVars -}}
{{- $source := dict "secretKeyRef" (dict "name" (include "plimsoll.secretName" $) "key" $key) -}}
{{- $env = append $env (dict "name" $key "valueFrom" $source) -}}
{{- end -}}
{{ toYaml (dict "all" $env) }}
{{- end -}}

{{/*
A probe: the value, else that of `plimsoll install`, else /healthz on the given port. Velero's values name a port that the pods do
not have, and its metrics: the probe goes to /healthz then, with their times. Arguments: probe, installed, port.
*/}}
{{- define "plimsoll.probe" -}}
{{- $health := dict "path" "/healthz" "port" .port -}}
{{- $probe := .probe | default .installed | default (dict "httpGet" $health "timeoutSeconds" 5 "failureThreshold" 8) -}}
{{- if eq (toString ($probe.httpGet).port) "http-monitoring" -}}
{{- $probe = merge (dict "httpGet" $health) (omit $probe "httpGet") -}}
{{- end -}}
{{ toYaml $probe }}
{{- end -}}
