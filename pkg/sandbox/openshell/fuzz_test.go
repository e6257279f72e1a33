package openshell

import (
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v01"
)

// sentence says what is wrong with a text for people, or "".
func sentence(s string) string {
	switch {
	case len(s) > 4096:
		return "too long"
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "not printable"
	}
	return ""
}

// What a gateway refuses with becomes one sentence, whatever it is.
func FuzzRefusal(f *testing.F) {
	for _, s := range []string{
		"docker bind mounts require enable_bind_mounts = true in [openshell.drivers.docker]", "bind source path does not exist: /tmp/a b\x1b[0m",
		"mount target '/sandbox' is reserved for the workspace", "mount target '", "pull access denied for \u202e", "resource admission is enabled", "allow_driver_config", "run_as_user 0",
	} {
		f.Add("an/image:tag", s)
	}
	c := &client{reg: Registration{Name: "g"}}
	f.Fuzz(func(t *testing.T, image, said string) {
		e := c.recognise(image, said)
		if e == nil {
			return
		}
		for _, text := range []string{e.Sentence, e.Advice} {
			if bad := sentence(text); bad != "" {
				t.Fatalf("%s: %q", bad, text)
			}
		}
		if e.Code == "" || e.Sentence == "" {
			t.Fatalf("%+v", e)
		}
	})
}

// What a gateway says of a sandbox is taken, or not, but never harmful.
func FuzzRecord(f *testing.F) {
	exit := int32(-1)
	for _, phase := range []int32{0, 2, 3, 99} {
		b, err := proto.Marshal(&v00.Sandbox{Metadata: &v00.ObjectMeta{Id: "../x", Name: "n", Labels: map[string]string{"a": "b"}, CreatedAtMs: 1 << 62},
			Status: &v00.SandboxStatus{Phase: v00.SandboxPhase(phase), ExitCode: &exit, Conditions: []*v00.SandboxCondition{{Type: "Ready", Reason: "R\n", Message: strings.Repeat("x\x1b", 1000)}}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	c := &client{reg: Registration{Name: "g"}}
	f.Fuzz(func(t *testing.T, b []byte) {
		var records []Record
		if s := (&v00.Sandbox{}); proto.Unmarshal(b, s) == nil {
			records = append(records, v00Record(s))
		}
		if s := (&v01.Sandbox{}); proto.Unmarshal(b, s) == nil {
			records = append(records, v01Record(s))
		}
		for _, r := range records {
			for _, text := range []string{r.Reason, r.Message, r.Instance} {
				if bad := sentence(text); bad != "" {
					t.Fatalf("%s: %q", bad, text)
				}
			}
			if r.ExitCode < 0 || r.ExitCode > 255 || r.Phase == "" {
				t.Fatalf("%+v", r)
			}
			if c.sane(r, r.Name) == nil && (strings.ContainsAny(r.ID, "/.\x00 ") || r.ID == "") {
				t.Fatalf("the id %q is taken", r.ID)
			}
			if _, err := c.judge(Ref{ID: r.ID}, r); err != nil && sentence(err.Error()) != "" && sentence(r.Name) == "" {
				t.Fatalf("%q", err)
			}
		}
	})
}

func FuzzVersion(f *testing.F) {
	for _, v := range []string{"0.0.111", "0.1.5", "0.0.112-dev.7+g2f7fb6559", "", ".", "0.1.5.6", "+", "-"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		talk, err := choose(Registration{Name: "g"}, word(v))
		if (talk == nil) == (err == nil) {
			t.Fatalf("%v %v", talk, err)
		}
		if err == nil && !strings.HasPrefix(strings.TrimLeft(v, " 0"), ".") {
			return // leading zeros
		}
		if err == nil && talk.generation() != V00 && talk.generation() != V01 {
			t.Fatal(talk.generation())
		}
	})
}
