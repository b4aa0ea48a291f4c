// The training operator's controller of PyTorchJobs. Its own program also serves webhooks, whose
// certificates it writes to a Secret and reads where a pod mounts that.
package main

import (
	"flag"
	"log"

	"k8s.io/apimachinery/pkg/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	training "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/pytorch"
)

func main() {
	health := flag.String("health-probe-bind-address", ":8081", "The address of health probes.")
	flag.Parse() // controller-runtime defines --kubeconfig
	if err := run(*health); err != nil {
		log.Fatal(err)
	}
}

func run(health string) error {
	ctrl.SetLogger(zap.New())
	// Of the init container that lets workers wait for the master.
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetes.AddToScheme, training.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: health,
	})
	if err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	jobs := pytorch.NewReconciler(manager, common.GenNonGangSchedulerSetupFunc())
	if err := jobs.SetupWithManager(manager, 1); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
