package native

import (
	"os"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

// TestSuiteAsUser0 holds sessions of root to the same contract. The kernel
// asks for the user, and not for a capability, in more places than one thinks
// (the switches of /proc/sys above all), so what differs is named row by row.
func TestSuiteAsUser0(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("wanted user 0, found %d", os.Geteuid())
	}
	kerneltest.Long(t)
	except := map[string]string{
		"chown-root":     "a file of user 0 is given to whom it belongs already",
		"setuid-0":       "it is user 0 already, without what that means elsewhere",
		"setuid-program": "it is user 0 already; set-uid programs change nothing",
		"fd-1":           "files of a process that may not be traced belong to user 0: the numbers can be listed, what they lead to cannot be opened",
	}
	if !engine(t).groups.Has(cgroup.Processes) { // skips where there can be none
		except["fork-bomb"] = "the kernel exempts user 0 from RLIMIT_NPROC, and there is no control group: the engine says that there is no process limit"
	}
	sandboxtest.Test(t, func(t *testing.T) sandbox.Engine { return engine(t) }, sandboxtest.Options{
		Confines: true,
		Identity: &sandbox.Identity{},
		Except:   except,
	})
}
