// A plugin on Velero's own framework, for the tests of the plugin host: it does as little as a plugin can, and misbehaves when told to.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	corev1api "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"
)

const marked = "test.plimsoll.dev/"

func main() {
	framework.NewServer().
		BindFlags(pflag.CommandLine).
		RegisterVolumeSnapshotter("test.plimsoll.dev/noop", func(log logrus.FieldLogger) (any, error) { return &snapshotter{log: log}, nil }).
		RegisterBackupItemAction("test.plimsoll.dev/mark", func(log logrus.FieldLogger) (any, error) { return &backupMark{log}, nil }).
		RegisterBackupItemActionV2("test.plimsoll.dev/slow", func(log logrus.FieldLogger) (any, error) { return &backupSlow{log: log}, nil }).
		RegisterRestoreItemAction("test.plimsoll.dev/restore-mark", func(log logrus.FieldLogger) (any, error) { return &restoreMark{log}, nil }).
		RegisterRestoreItemActionV2("test.plimsoll.dev/restore-slow", func(log logrus.FieldLogger) (any, error) { return &restoreSlow{log: log}, nil }).
		RegisterDeleteItemAction("test.plimsoll.dev/delete", func(log logrus.FieldLogger) (any, error) { return &deletion{log}, nil }).
		RegisterItemBlockAction("test.plimsoll.dev/block", func(log logrus.FieldLogger) (any, error) { return &block{}, nil }).
		Serve()
}

// annotate sets an annotation and says what the item asks for with one of its own.
func annotate(item runtime.Unstructured, key, value string) string {
	object, err := meta.Accessor(item)
	if err != nil {
		return ""
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[marked+key] = value
	object.SetAnnotations(annotations)
	return annotations[marked+"ask"]
}

// misbehave does what a test asks for, for all actions alike.
func misbehave(log logrus.FieldLogger, ask string) error {
	log.Infof("asked to %q", ask)
	switch ask {
	case "warn":
		log.Warn("something \x1b[31modd\x1b[0m\nhappened")
	case "error":
		log.Error("something bad happened")
	case "refuse":
		return fmt.Errorf("no \x1b[31mwish\x1b[0m to do that")
	case "panic":
		panic("on purpose")
	case "die":
		log.Error("these are my last words")
		os.Exit(7)
	case "hang":
		select {}
	case "chatter":
		// More than a pipe holds: a host that does not read would block it.
		for i := 0; i < 4000; i++ {
			fmt.Println("output number", i, strings.Repeat("x", 60))
		}
	}
	return nil
}

type backupMark struct{ log logrus.FieldLogger }

func (*backupMark) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "mark=yes"}, nil
}

func (a *backupMark) Execute(item runtime.Unstructured, backup *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	ask := annotate(item, "backup", backup.Name)
	if err := misbehave(a.log, ask); err != nil {
		return nil, nil, err
	}
	object, err := meta.Accessor(item)
	if err != nil {
		return nil, nil, err
	}
	var more []velero.ResourceIdentifier
	if wanted := object.GetAnnotations()[marked+"additional"]; wanted != "" {
		more = append(more, velero.ResourceIdentifier{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespace: object.GetNamespace(), Name: wanted})
	}
	if ask == "large" {
		annotate(item, "large", strings.Repeat("x", 8<<20))
	}
	return item, more, nil
}

// operations are three steps, one for each question, unless their name says otherwise.
type operations struct {
	mutex sync.Mutex
	steps map[string]int64
}

func (o *operations) next(id string) (velero.OperationProgress, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.steps == nil {
		o.steps = map[string]int64{}
	}
	o.steps[id]++
	step := o.steps[id]
	progress := velero.OperationProgress{NCompleted: step * 10, NTotal: 30, OperationUnits: "Bytes", Description: "step " + strconv.FormatInt(step, 10), Started: time.Unix(1700000000, 0), Updated: time.Now()}
	progress.Completed = step >= 3
	switch {
	case strings.HasSuffix(id, "fail"):
		if progress.Completed {
			progress.Err = "it did not work"
		}
	case strings.HasSuffix(id, "backwards"):
		progress.NCompleted = 30 - step*10
	case strings.HasSuffix(id, "beyond"):
		progress.NCompleted = step * 20
	case strings.HasSuffix(id, "gate"):
		// Until the file exists.
		_, err := os.Stat(os.Getenv("VELERO_TEST_GATE"))
		progress.NCompleted, progress.Completed = 10, err == nil
	case strings.HasSuffix(id, "never"):
		progress.NCompleted, progress.Completed = 10, false
		if step > 1000000 {
			progress.Completed, progress.Err = true, "cancelled"
		}
	}
	return progress, nil
}

func (o *operations) cancel(id string) error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.steps == nil {
		o.steps = map[string]int64{}
	}
	o.steps[id] = 1000000
	return nil
}

type backupSlow struct {
	log logrus.FieldLogger
	operations
}

var _ biav2.BackupItemAction = &backupSlow{}

func (*backupSlow) Name() string { return "test.plimsoll.dev/slow" }

func (*backupSlow) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "slow"}, nil
}

func (a *backupSlow) Execute(item runtime.Unstructured, backup *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error) {
	object, err := meta.Accessor(item)
	if err != nil {
		return nil, nil, "", nil, err
	}
	id := object.GetName() + "-" + object.GetLabels()["slow"]
	again := velero.ResourceIdentifier{GroupResource: schema.GroupResource{Resource: "configmaps"}, Namespace: object.GetNamespace(), Name: object.GetName()}
	return item, nil, id, []velero.ResourceIdentifier{again}, nil
}

func (a *backupSlow) Progress(id string, _ *velerov1.Backup) (velero.OperationProgress, error) { return a.next(id) }
func (a *backupSlow) Cancel(id string, _ *velerov1.Backup) error                               { return a.cancel(id) }

type restoreMark struct{ log logrus.FieldLogger }

func (*restoreMark) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "mark=yes"}, nil
}

func (a *restoreMark) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	ask := annotate(input.Item, "restore", input.Restore.Name)
	if ask == "skip" {
		return velero.NewRestoreItemActionExecuteOutput(input.Item).WithoutRestore(), nil
	}
	return velero.NewRestoreItemActionExecuteOutput(input.Item), nil
}

type restoreSlow struct {
	log logrus.FieldLogger
	operations
}

var _ riav2.RestoreItemAction = &restoreSlow{}

func (*restoreSlow) Name() string { return "test.plimsoll.dev/restore-slow" }

func (*restoreSlow) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "slow"}, nil
}

func (a *restoreSlow) Execute(input *velero.RestoreItemActionExecuteInput) (*velero.RestoreItemActionExecuteOutput, error) {
	object, err := meta.Accessor(input.Item)
	if err != nil {
		return nil, err
	}
	id := object.GetName() + "-" + object.GetLabels()["slow"]
	return velero.NewRestoreItemActionExecuteOutput(input.Item).WithOperationID(id), nil
}

func (a *restoreSlow) Progress(id string, _ *velerov1.Restore) (velero.OperationProgress, error) { return a.next(id) }
func (a *restoreSlow) Cancel(id string, _ *velerov1.Restore) error                               { return a.cancel(id) }
func (a *restoreSlow) AreAdditionalItemsReady([]velero.ResourceIdentifier, *velerov1.Restore) (bool, error) {
	return true, nil
}

type deletion struct{ log logrus.FieldLogger }

func (*deletion) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}, LabelSelector: "mark=yes"}, nil
}

func (a *deletion) Execute(input *velero.DeleteItemActionExecuteInput) error {
	object, err := meta.Accessor(input.Item)
	if err != nil {
		return err
	}
	a.log.Infof("cleaning up after %s/%s of backup %s", object.GetNamespace(), object.GetName(), input.Backup.Name)
	if object.GetAnnotations()[marked+"ask"] == "keep" {
		return fmt.Errorf("%s is not to be deleted", object.GetName())
	}
	return nil
}

type block struct{}

func (*block) Name() string { return "test.plimsoll.dev/block" }

func (*block) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{"configmaps", "pods"}, LabelSelector: "mark=yes"}, nil
}

// GetRelatedItems are those that the annotation "related" names: resource/name, with commas.
func (*block) GetRelatedItems(item runtime.Unstructured, _ *velerov1.Backup) ([]velero.ResourceIdentifier, error) {
	object, err := meta.Accessor(item)
	if err != nil {
		return nil, err
	}
	related := []velero.ResourceIdentifier{}
	for _, wanted := range strings.Split(object.GetAnnotations()[marked+"related"], ",") {
		if resource, name, is := strings.Cut(wanted, "/"); is {
			related = append(related, velero.ResourceIdentifier{GroupResource: schema.GroupResource{Resource: resource}, Namespace: object.GetNamespace(), Name: name})
		}
	}
	if item.GetObjectKind().GroupVersionKind().Kind == "ConfigMap" && len(related) == 0 {
		related = append(related, velero.ResourceIdentifier{GroupResource: schema.GroupResource{Resource: "configmaps"}, Namespace: object.GetNamespace(), Name: object.GetName() + "-related"})
	}
	return related, nil
}

// snapshotter copies directories below its setting "root"; without one it makes names and nothing else. It misbehaves as its
// setting "ask" says.
type snapshotter struct {
	log    logrus.FieldLogger
	config map[string]string
}

func (s *snapshotter) Init(config map[string]string) error {
	s.config = config
	s.log.Infof("set up with %d settings in namespace %s", len(config), os.Getenv("VELERO_NAMESPACE"))
	return nil
}

// copy copies a directory, if there is a place for it.
func (s *snapshotter) copy(from string, to ...string) (string, error) {
	if s.config["root"] == "" {
		return "", nil
	}
	target := filepath.Join(append([]string{s.config["root"]}, to...)...)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	return target, os.CopyFS(target, os.DirFS(from))
}

func (s *snapshotter) CreateVolumeFromSnapshot(snapshot, kind, _ string, iops *int64) (string, error) {
	if kind != "noop" || iops == nil || *iops != 100 {
		return "", fmt.Errorf("the volume was noop with 100 operations, and is asked for as %q", kind)
	}
	name := "volume-of-" + snapshot
	made, err := s.copy(filepath.Join(s.config["root"], "snapshots", snapshot), "volumes", name+"-"+strconv.Itoa(os.Getpid()))
	if made != "" || err != nil {
		return made, err
	}
	return name, nil
}

func (s *snapshotter) GetVolumeInfo(volume, zone string) (string, *int64, error) {
	iops := int64(100)
	return "noop", &iops, nil
}

func (s *snapshotter) CreateSnapshot(volume, zone string, tags map[string]string) (string, error) {
	s.log.Infof("asked for a snapshot of %s in zone %q with the tags %v", volume, zone, tags)
	if err := misbehave(s.log, s.config["ask"]); err != nil {
		return "", err
	}
	if s.config["root"] == "" {
		return "snap-" + strings.ReplaceAll(volume, "/", "-") + "-" + tags["velero.io/backup"], nil
	}
	// One that is asked for again is another one.
	earlier, _ := os.ReadDir(filepath.Join(s.config["root"], "snapshots"))
	name := fmt.Sprintf("snap-%s-%s-%d", tags["velero.io/pv"], tags["velero.io/backup"], len(earlier))
	_, err := s.copy(volume, "snapshots", name)
	return name, err
}

func (s *snapshotter) DeleteSnapshot(snapshot string) error {
	if s.config["root"] == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.config["root"], "snapshots", snapshot))
}

func (s *snapshotter) GetVolumeID(item runtime.Unstructured) (string, error) {
	var volume corev1api.PersistentVolume
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.UnstructuredContent(), &volume); err != nil {
		return "", err
	}
	switch {
	case volume.Spec.HostPath != nil:
		return volume.Spec.HostPath.Path, nil
	case volume.Spec.Local != nil:
		return volume.Spec.Local.Path, nil
	}
	return "", nil
}

func (s *snapshotter) SetVolumeID(item runtime.Unstructured, id string) (runtime.Unstructured, error) {
	content := item.UnstructuredContent()
	if spec, is := content["spec"].(map[string]any); is {
		kind := "hostPath"
		if spec["local"] != nil {
			kind = "local"
		}
		spec[kind] = map[string]any{"path": id}
	}
	item.SetUnstructuredContent(content)
	return item, nil
}
