{{/* What a ServiceMonitor and a PodMonitor say about their endpoint: (list $ settings). */}}
{{- define "plimsoll.endpoint" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
path: /metrics
interval: {{ $root.Values.metrics.scrapeInterval | default "30s" }}
scrapeTimeout: {{ $root.Values.metrics.scrapeTimeout | default "10s" }}
{{- range $field := list "scheme" "tlsConfig" "relabelings" "metricRelabelings" }}
{{- with index $monitor $field }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}
