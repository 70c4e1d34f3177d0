package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// object is what of Kubernetes' objects matters here.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	StringData map[string]string `yaml:"stringData"`
	Spec       struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		Selector    map[string]any
		Ports       []struct {
			TargetPort string `yaml:"targetPort"`
		}
		MaxUnavailable       int `yaml:"maxUnavailable"`
		Template             pod
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type pod struct {
	Metadata struct {
		Labels, Annotations map[string]string
	}
	Spec struct {
		ServiceLinks    *bool `yaml:"enableServiceLinks"`
		GraceSeconds    int   `yaml:"terminationGracePeriodSeconds"`
		Affinity        any
		SecurityContext struct {
			RunAsNonRoot bool `yaml:"runAsNonRoot"`
			RunAsUser    int  `yaml:"runAsUser"`
			RunAsGroup   int  `yaml:"runAsGroup"`
			FSGroup      int  `yaml:"fsGroup"`
		} `yaml:"securityContext"`
		Containers []container
	}
}

type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
			FieldRef     struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe   probe `yaml:"startupProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// environ is the environment of a container; secrets come from the objects of its file.
func (c container) environ(t *testing.T, objects []object) (environ []string) {
	t.Helper()
	for _, e := range c.Env {
		value := e.Value
		switch ref := e.ValueFrom; {
		case ref.FieldRef.FieldPath == "metadata.name":
			value = "abide-0"
		case ref.SecretKeyRef.Name != "":
			i := slices.IndexFunc(objects, func(o object) bool { return o.Kind == "Secret" && o.Metadata.Name == ref.SecretKeyRef.Name })
			if i < 0 || objects[i].StringData[ref.SecretKeyRef.Key] == "" {
				t.Fatalf("%s: there is no secret %+v", e.Name, ref.SecretKeyRef)
			}
			value = objects[i].StringData[ref.SecretKeyRef.Key]
		}
		environ = append(environ, e.Name+"="+value)
	}
	return environ
}

func TestKubernetes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			objects := readObjects(t, file)
			kinds := map[string]object{}
			for _, o := range objects {
				kinds[o.Kind] = o
			}
			set, service := kinds["StatefulSet"], kinds["Service"]
			labels := set.Spec.Template.Metadata.Labels
			for what, selector := range map[string]any{
				"the set": set.Spec.Selector["matchLabels"], "the service": service.Spec.Selector, "the budget": kinds["PodDisruptionBudget"].Spec.Selector["matchLabels"],
			} {
				if want, ok := selector.(map[string]any); ok && (len(want) == 0 || want["app"] != labels["app"]) {
					t.Errorf("%s selects %v, and the pods have %v", what, want, labels)
				}
			}
			if set.Spec.ServiceName != service.Metadata.Name {
				t.Errorf("the set's service is %s", set.Spec.ServiceName)
			}
			checkPod(t, objects, set, service)
		})
	}
}

// checkPod holds a pod against the program and the image.
func checkPod(t *testing.T, objects []object, set, service object) {
	t.Helper()
	spec := set.Spec.Template.Spec
	c := spec.Containers[0]
	environ := c.environ(t, objects)
	wouldServe(t, "the pod", environ, c.Args)
	ports := map[string]int{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	want := map[string]string{"http": setting(t, "server.port", environ, c.Args), "metrics": setting(t, "observability.metrics_port", environ, c.Args)}
	for name, port := range want {
		if fmt.Sprint(ports[name]) != port {
			t.Errorf("port %s is %d, the server listens on %s", name, ports[name], port)
		}
	}
	if set.Spec.Template.Metadata.Annotations["prometheus.io/port"] != want["metrics"] {
		t.Errorf("scraped at %v", set.Spec.Template.Metadata.Annotations)
	}
	for what, p := range map[string]struct {
		probe
		path string
	}{"startup": {c.StartupProbe, "/health"}, "readiness": {c.ReadinessProbe, "/ready"}, "liveness": {c.LivenessProbe, "/health"}} {
		if p.HTTPGet.Path != p.path || p.HTTPGet.Port != "http" {
			t.Errorf("%s asks %+v", what, p.HTTPGet)
		}
	}
	if service.Spec.Ports[0].TargetPort != "http" {
		t.Errorf("the service leads to %+v", service.Spec.Ports)
	}
	grace := time.Duration(spec.GraceSeconds-c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if timeout := shutdownTimeout(t, environ, c.Args); grace <= timeout {
		t.Errorf("of the grace %s are left for a stop, which may take %s", grace, timeout)
	}
	safe := c.SecurityContext
	user := fmt.Sprintf("%d:%d", spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup)
	if user != readDockerfile(t).user || !spec.SecurityContext.RunAsNonRoot || safe.AllowPrivilegeEscalation == nil || *safe.AllowPrivilegeEscalation ||
		!safe.ReadOnlyRootFilesystem || !slices.Equal(safe.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("user %s, %+v, %+v", user, spec.SecurityContext, safe)
	}
	if spec.ServiceLinks == nil || *spec.ServiceLinks {
		t.Error("variables of service links begin with ABIDE_ as well, and would be taken for mistakes")
	}
	if set.Spec.Replicas == 1 {
		mounts := map[string]bool{}
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = m.Name == set.Spec.VolumeClaimTemplates[0].Metadata.Name
		}
		if file := setting(t, "storage.sqlite.path", environ, c.Args); !mounts[path.Dir(file)] || spec.SecurityContext.FSGroup != spec.SecurityContext.RunAsGroup {
			t.Errorf("the data file %s is not on one's own volume: %v", file, slices.Collect(maps.Keys(mounts)))
		}
		return
	}
	if setting(t, "server.id", environ, c.Args) != "abide-0" {
		t.Error("the server's id is not the pod's name")
	}
	if !slices.ContainsFunc(objects, func(o object) bool { return o.Kind == "PodDisruptionBudget" && o.Spec.MaxUnavailable == 1 }) || spec.Affinity == nil || grace < 0 {
		t.Error("several servers want a disruption budget, and to be on several nodes")
	}
	if c.Lifecycle.PreStop.Sleep.Seconds == 0 {
		t.Error("without a sleep before the stop, requests reach a server that refuses them")
	}
}
