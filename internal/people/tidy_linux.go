package people

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// TidyUp undoes what dead deputies of everybody left, each as that person, while
// no broker runs. It says what was done and what could not be. Of the options
// it needs the directories and the log.
func TidyUp(ctx context.Context, o Options) (did, left []string, err error) {
	if _, err := os.Lstat(filepath.Join(o.State, users)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // there never was one
	}
	b := &Broker{o: o, log: o.Logger, groups: cgroup.Here()}
	if b.places, err = openPlaces(o.State, o.Runtime); err != nil {
		return nil, nil, err
	}
	defer b.places.close()
	all, err := b.places.all()
	if err != nil {
		return nil, nil, err
	}
	for _, who := range all {
		d := newDeputy(b, who)
		m, err := d.tidy(ctx)
		if err != nil {
			left = append(left, fmt.Sprintf("%s: %v", who.Name, err))
			continue
		}
		did, left = append(did, d.named(m.Did)...), append(left, d.named(m.Left)...)
		if len(m.Left) == 0 {
			b.places.end(who)
		}
	}
	return did, left, nil
}

// tidy runs one deputy that only tidies up.
func (d *deputy) tidy(ctx context.Context) (told message, err error) {
	group, hello, err := d.prepare()
	if err != nil {
		return told, err
	}
	defer group.Release()
	cmd, l, err := start(d.who, group, d.log)
	if err != nil {
		return told, err
	}
	defer l.close()
	over := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer over()
	hello.Tidy = true
	if err = l.send(message{Kind: kindHello, Hello: &hello}, nil); err == nil {
		told, _, err = l.reader(false).next()
	}
	_ = cmd.Wait()
	switch {
	case err != nil:
		return told, errors.Join(errors.New("its deputy did not say what it did"), err)
	case told.Kind == kindFailed && told.Problem != nil:
		return told, told.Problem
	case told.Kind != kindTidied:
		return told, fmt.Errorf("its deputy said %q", told.Kind)
	}
	return told, nil
}
