//go:build unix

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// Settings that somebody else could have written are not taken: trust =
// "always" would let every repository have what it asks for.
func TestSettingsOfOthersAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		owner int // -1: this process's
		mode  os.FileMode
		says  string
	}{
		"Ours":          {-1, 0o600, ""},
		"Readable":      {-1, 0o644, ""},
		"GroupWritable": {-1, 0o664, "others may write it"},
		"WorldWritable": {-1, 0o602, "others may write it"},
		"OfAnother":     {4711, 0o644, "it belongs to uid 4711, not to uid "},
	} {
		for _, linked := range []bool{false, true} {
			if linked {
				name += "/Linked"
			}
			t.Run(name, func(t *testing.T) {
				if tt.owner >= 0 && os.Geteuid() != 0 {
					t.Skip("wanted: root, to give a file away; found: an ordinary user")
				}
				o := origin(t, "node.roles.sandbox = true\n")
				if err := errors.Join(os.Chown(o.File, tt.owner, -1), os.Chmod(o.File, tt.mode)); err != nil {
					t.Fatal(err)
				}
				if linked {
					link := filepath.Join(t.TempDir(), "node.toml")
					if err := os.Symlink(o.File, link); err != nil {
						t.Fatal(err)
					}
					o.File = link
				}
				c, err := o.Load()
				if tt.says == "" {
					if err != nil || !c.Bool(RolesSandbox) {
						t.Errorf("%v", err)
					}
					return
				}
				wantPlace(t, err, "reading the settings "+o.File+": ", tt.says)
				if h := fault.As(err).Hint; !strings.Contains(h, "chmod") && !strings.Contains(h, "chown") {
					t.Errorf("hint %q", h)
				}
				if _, err := o.Set(RolesSandbox, "false"); err == nil {
					t.Error("it is edited")
				}
			})
		}
	}
}

// A node of an ordinary user takes what root wrote for it, and root takes
// nothing of an ordinary user.
func TestSettingsOfRootAreTaken(t *testing.T) {
	for _, tt := range []struct {
		owner, uid int
		ok         bool
	}{{0, 1000, true}, {1000, 1000, true}, {1001, 1000, false}, {1000, 0, false}} {
		if os.Geteuid() != 0 {
			t.Skip("wanted: root, to give a file away; found: an ordinary user")
		}
		o := origin(t, "")
		if err := os.Chown(o.File, tt.owner, -1); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(o.File)
		if err != nil {
			t.Fatal(err)
		}
		if err := trusted(o.File, info, tt.uid); (err == nil) != tt.ok {
			t.Errorf("of uid %d, to uid %d: %v", tt.owner, tt.uid, err)
		}
	}
}
