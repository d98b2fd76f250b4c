// Renders every template of cases.txt with Go's own engine and the sprig that Kanister uses, over params.json, and
// writes what came out to expected.jsonl. Run it with hack/golden-templates after changing the cases.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
)

type StatefulSetParams struct {
	Name                   string
	Namespace              string
	Pods                   []string
	Containers             [][]string
	PersistentVolumeClaims map[string]map[string]string
}

type DeploymentParams StatefulSetParams

type NamespaceParams struct {
	Name      string
	Namespace string
}

type Artifact struct {
	KeyValue      map[string]string `json:"keyValue,omitempty"`
	KopiaSnapshot string            `json:"kopiaSnapshot,omitempty"`
}

type ObjectMeta struct {
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	UID       string            `json:"uid,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

type Secret struct {
	ObjectMeta `json:"metadata,omitempty"`
	Data       map[string][]byte `json:"data,omitempty"`
	Type       string            `json:"type,omitempty"`
}

type ConfigMap struct {
	ObjectMeta `json:"metadata,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
}

type Phase struct {
	Secrets    map[string]Secret
	ConfigMaps map[string]ConfigMap
	Output     map[string]interface{}
}

type Location struct {
	Type     string `json:"type"`
	Bucket   string `json:"bucket,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Region   string `json:"region,omitempty"`
}

type KeyPair struct {
	ID     string
	Secret string
}

type KopiaServerCreds struct {
	Username       string
	ConnectOptions map[string]int
}

type Credential struct {
	Type              string
	KeyPair           *KeyPair
	Secret            *Secret
	KopiaServerSecret *KopiaServerCreds
}

type Profile struct {
	Location      Location
	Credential    Credential
	SkipSSLVerify bool
}

type TemplateParams struct {
	StatefulSet  *StatefulSetParams
	Deployment   *DeploymentParams
	Namespace    *NamespaceParams
	ArtifactsIn  map[string]Artifact
	ConfigMaps   map[string]ConfigMap
	Secrets      map[string]Secret
	Time         string
	Profile      *Profile
	Options      map[string]string
	Object       map[string]interface{}
	Phases       map[string]*Phase
	DeferPhase   *Phase
	CurrentPhase *Phase
}

// Whole numbers of objects are int64, as Kubernetes' own decoder has them.
func typed(value interface{}) interface{} {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		float, _ := value.Float64()
		return float
	case map[string]interface{}:
		for key := range value {
			value[key] = typed(value[key])
		}
	case []interface{}:
		for at := range value {
			value[at] = typed(value[at])
		}
	}
	return value
}

func load(path string) TemplateParams {
	content, err := os.ReadFile(path)
	must(err)
	var params TemplateParams
	must(json.Unmarshal(content, &params))
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var raw map[string]interface{}
	must(decoder.Decode(&raw))
	params.Object = typed(raw["Object"]).(map[string]interface{})
	return params
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

type result struct {
	Template string  `json:"template"`
	Output   *string `json:"output,omitempty"`
	// What fails: parse, exec, or the key that was missing.
	Fails string `json:"fails,omitempty"`
	// Go's own words, for people who compare.
	Error string `json:"error,omitempty"`
}

// A field that the parameters do not have is a missing key to a reader, and to us.
var missing = regexp.MustCompile(`map has no entry for key "([^"]*)"|field (\w+) in type main.TemplateParams`)

func render(source string) (done result) {
	done.Template = source
	functions := sprig.TxtFuncMap()
	parsed, err := template.New("golden").Option("missingkey=error").Funcs(functions).Parse(source)
	if err != nil {
		done.Fails, done.Error = "parse", err.Error()
		return done
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, load("params.json")); err != nil {
		done.Fails, done.Error = "exec", err.Error()
		if found := missing.FindStringSubmatch(err.Error()); found != nil {
			done.Fails = "missing " + found[1] + found[2]
		}
		return done
	}
	text := out.String()
	done.Output = &text
	return done
}

func main() {
	cases, err := os.Open("cases.txt")
	must(err)
	defer cases.Close()
	lines := bufio.NewScanner(cases)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetEscapeHTML(false)
		must(encoder.Encode(render(strings.ReplaceAll(line, "␤", "\n"))))
	}
	must(lines.Err())
	fmt.Fprintln(os.Stderr, "rendered")
}
