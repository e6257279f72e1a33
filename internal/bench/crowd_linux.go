package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Crowd starts so many sandboxes at once, each checked and with nothing
// running in it, and says what each of them costs while it is idle: of the
// kernel's memory, and of this process' own.
func Crowd(ctx context.Context, n int, engine sandbox.Engine, spec func(id string) (sandbox.Spec, error)) (row Row, memory []Figure, err error) {
	s := starts{engine: engine, spec: spec, dir: os.TempDir()}
	specs := make([]sandbox.Spec, n)
	for i := range specs {
		if specs[i], err = s.spec("crowd-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(i)); err != nil {
			return row, nil, err
		}
	}
	kernel, own := kernelMemory(), ownMemory()
	var mu sync.Mutex
	var took []time.Duration
	var boxes []sandbox.Sandbox
	var ends []func()
	var errs []error
	var all sync.WaitGroup
	for _, one := range specs {
		all.Go(func() {
			begun := clock()
			box, err := engine.Prepare(ctx, one)
			if err == nil {
				end := serveHealth(box.Listener())
				_, err = box.Check(ctx)
				mu.Lock()
				boxes, ends = append(boxes, box), append(ends, end)
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			took, errs = append(took, clock()-begun), append(errs, err)
		})
	}
	all.Wait()
	each := int64(n)
	memory = []Figure{
		{Name: "kernel and helper, each idle sandbox", KiB: (kernelMemory() - kernel) / each},
		{Name: "this process, each idle sandbox", KiB: (ownMemory() - own) / each},
	}
	for i, box := range boxes {
		ends[i]()
		errs = append(errs, box.Remove(ctx))
	}
	row = rowOf(strconv.Itoa(n)+" sandboxes at once, each until checked", "", took)
	return row, memory, errors.Join(errs...)
}

// kernelMemory is what the kernel itself holds, and what the helpers do that
// run here, in KiB. Whatever else the machine does meanwhile is in it.
func kernelMemory() int64 {
	sum := int64(0)
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 1 && (f[0] == "Slab:" || f[0] == "PageTables:" || f[0] == "KernelStack:" || f[0] == "Percpu:") {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += n
		}
	}
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, file := range comms {
		if name, _ := os.ReadFile(file); strings.TrimSpace(string(name)) == "mojoup-child" {
			sum += anonymous(filepath.Dir(file))
		}
	}
	return sum
}

func ownMemory() int64 { return anonymous("/proc/self") }
