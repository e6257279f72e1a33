package gitpush

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	zero  = strings.Repeat("0", 40)
	one   = strings.Repeat("1", 40)
	two   = strings.Repeat("2", 40)
	long1 = strings.Repeat("1", 64)
	long2 = strings.Repeat("2", 64)
)

const usual = "\x00 report-status-v2 side-band-64k quiet object-format=sha1 agent=git/2.39.5"

// lines are packets and the flush behind them.
func lines(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		fmt.Fprintf(&b, "%04x%s", 4+len(p), p)
	}
	return b.String() + "0000"
}

func TestReadTakesWhatGitWrites(t *testing.T) {
	shallow := "shallow " + two + "\n"
	cert := []string{
		"push-cert\x00 report-status side-band-64k push-options", "certificate version 0.1\n", "pusher A <a@a.example> 1 +0000\n", "nonce 1-x\n", "\n",
		zero + " " + one + " refs/heads/a\n", one + " " + two + " refs/heads/b\n", "-----BEGIN PGP SIGNATURE-----\n", "x\n", "-----END PGP SIGNATURE-----\n", "push-cert-end\n",
	}
	for name, c := range map[string]struct {
		text string
		want Request
	}{
		"one command":  {lines(zero + " " + one + " refs/heads/a" + usual), Request{Commands: []Command{{zero, one, "refs/heads/a"}}, report: true, sideBand64k: true}},
		"several":      {lines(zero+" "+one+" refs/heads/a"+usual+"\n", one+" "+zero+" refs/tags/b"), Request{Commands: []Command{{zero, one, "refs/heads/a"}, {one, zero, "refs/tags/b"}}, report: true, sideBand64k: true}},
		"a probe":      {"0000", Request{}},
		"shallow":      {lines(shallow, shallow, zero+" "+one+" refs/heads/a\x00 side-band atomic"), Request{Commands: []Command{{zero, one, "refs/heads/a"}}, sideBand: true}},
		"large digits": {"00" + strings.ToUpper(fmt.Sprintf("%02x", 4+len(zero+" "+one+" refs/heads/a\x00"))) + strings.ToUpper(zero+" "+one) + " refs/heads/a\x000000", Request{Commands: []Command{{zero, one, "refs/heads/a"}}}},
		"sha256":       {lines(long1 + " " + long2 + " refs/heads/a\x00 object-format=sha256"), Request{Commands: []Command{{long1, long2, "refs/heads/a"}}}},
		"options":      {lines(zero+" "+one+" refs/heads/a\x00push-options") + lines("ci.skip\n", "b=c"), Request{Commands: []Command{{zero, one, "refs/heads/a"}}, Options: []string{"ci.skip", "b=c"}, options: true}},
		"no options":   {lines(zero+" "+one+" refs/heads/a\x00push-options") + "0000", Request{Commands: []Command{{zero, one, "refs/heads/a"}}, options: true}},
		"signed":       {lines(cert...) + "0000", Request{Commands: []Command{{zero, one, "refs/heads/a"}, {one, two, "refs/heads/b"}}, report: true, sideBand64k: true, options: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
				in := strings.NewReader(c.text + "PACK and so on")
				got, err := Read(from(in))
				if err != nil {
					t.Fatal(err)
				}
				rest, _ := io.ReadAll(in)
				if string(got.Head) != c.text || string(rest) != "PACK and so on" {
					t.Errorf("head %q, rest %q", got.Head, rest)
				}
				c.want.Head = got.Head
				if diff := cmp.Diff(&c.want, got, cmp.AllowUnexported(Request{}), cmpopts.EquateEmpty()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestReadRefusesWhatCouldBeReadTwice: each of these means one thing to one
// reader and another to some other, or nothing at all.
func TestReadRefusesWhatCouldBeReadTwice(t *testing.T) {
	command := zero + " " + one + " refs/heads/a"
	many := []string{command + usual}
	for i := range maxCommands {
		many = append(many, zero+" "+one+fmt.Sprintf(" refs/heads/%d", i))
	}
	for name, text := range map[string]string{
		"nothing":                          "",
		"no flush":                         strings.TrimSuffix(lines(command+usual), "0000"),
		"cut":                              lines(command + usual)[:40],
		"a delimiter":                      strings.TrimSuffix(lines(command+usual), "0000") + "0001",
		"an end of an answer":              "0002",
		"a length of three":                "0003",
		"an empty packet":                  "0004" + lines(command+usual),
		"no digits":                        "00xz" + command,
		"a signed length":                  "-001" + command,
		"too long a packet":                "fff5" + strings.Repeat("x", 0xfff5),
		"no capabilities":                  lines(command),
		"capabilities twice":               lines(command+usual, command+"b"+usual),
		"capabilities late":                lines(command, command+"b"+usual),
		"short ids":                        lines(zero[1:] + " " + one + " refs/heads/a" + usual),
		"ids of two lengths":               lines(zero + " " + long1 + " refs/heads/a" + usual),
		"ids of another format":            lines(command + "\x00object-format=sha256"),
		"an unknown format":                lines(command + "\x00object-format=md5"),
		"no digits in an id":               lines(zero + " " + strings.Repeat("g", 40) + " refs/heads/a" + usual),
		"two blanks":                       lines(zero + "  " + one + " refs/heads/a" + usual),
		"a tab":                            lines(zero + "\t" + one + " refs/heads/a" + usual),
		"no reference":                     lines(zero + " " + one + " " + usual),
		"nothing to nothing":               lines(zero + " " + zero + " refs/heads/a" + usual),
		"a reference twice":                lines(command+usual, one+" "+two+" refs/heads/a"),
		"a shallow line that names none":   lines("shallow x", command+usual),
		"too many commands":                lines(many...),
		"too long a list":                  lines(append([]string{command + usual}, slices.Repeat([]string{"shallow " + one}, maxHead/50)...)...),
		"options without an end":           lines(command+"\x00push-options") + "0005x",
		"a certificate and commands":       lines("push-cert\x00x", "head\n", "\n", command+"\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n", command),
		"commands and a certificate":       lines(command+usual, "push-cert", "head\n", "\n", command+"\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n"),
		"a certificate without an end":     lines("push-cert\x00x", "head\n", "\n", command+"\n", "-----BEGIN PGP SIGNATURE-----\n"),
		"a certificate without commands":   lines("push-cert\x00x", "head\n", "\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n"),
		"a certificate without signature":  lines("push-cert\x00x", "head\n", "\n", command+"\n", "push-cert-end\n"),
		"a certificate with two":           lines("push-cert\x00x", "head\n", "\n", command+"\n", "-----BEGIN PGP SIGNATURE-----\n", command+"b\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n"),
		"a certificate with a zero byte":   lines("push-cert\x00x", "head\n", "\n", command+"\x00\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n"),
		"a certificate without a head":     lines("push-cert\x00x", command+"\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n"),
		"an empty certificate":             lines("push-cert\x00x", "push-cert-end\n"),
		"a signature in the certificate's": lines("push-cert\x00x", "-----BEGIN PGP SIGNATURE-----\n", "\n", command+"\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n"),
	} {
		if got, err := Read(strings.NewReader(text)); err == nil || got != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := Read(iotest.ErrReader(io.ErrClosedPipe)); err != io.ErrClosedPipe {
		t.Errorf("a broken connection: %v", err)
	}
}

func list(first string, more ...string) string {
	return lines("# service=git-receive-pack\n") + lines(append([]string{first}, more...)...)
}

func TestAdvertisementsAreReadAsTheyPass(t *testing.T) {
	all := func(string) bool { return true }
	for name, c := range map[string]struct {
		text string
		keep func(string) bool
		want map[string]string // nil where it cannot be known
	}{
		"several":          {list(one+" refs/heads/a\x00 report-status", two+" refs/heads/b\n", one+" .have", two+" refs/tags/c"), all, map[string]string{"refs/heads/a": one, "refs/heads/b": two, "refs/tags/c": two}},
		"none":             {list(zero + " capabilities^{}\x00 report-status"), all, map[string]string{}},
		"version 1":        {list("version 1\n", one+" refs/heads/a\x00x", "shallow "+one), all, map[string]string{"refs/heads/a": one}},
		"some":             {list(one+" refs/heads/a\x00x", one+" refs/heads/b"), func(r string) bool { return r == "refs/heads/b" }, map[string]string{"refs/heads/b": one}},
		"sha256":           {list(long1 + " refs/heads/a\x00x"), all, map[string]string{"refs/heads/a": long1}},
		"cut":              {list(one + " refs/heads/a\x00x")[:90], all, nil},
		"another service":  {lines("# service=git-upload-pack\n") + lines(one+" refs/heads/a\x00x"), all, nil},
		"none at all":      {lines(one + " refs/heads/a\x00x"), all, nil},
		"an error":         {lines("# service=git-receive-pack\n") + lines("ERR no"), all, nil},
		"something else":   {"<html>", all, nil},
		"a broken length":  {lines("# service=git-receive-pack\n") + "0003", all, nil},
		"no reference":     {list(one + "\x00x"), all, nil},
		"more than enough": {list(one+" refs/heads/a\x00x", manyRefs()...), all, nil},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			a := &Advertisement{Keep: c.keep}
			for part := range slices.Chunk([]byte(c.text), size) {
				if n, err := a.Write(part); n != len(part) || err != nil {
					t.Fatalf("%s: %d %v", name, n, err)
				}
			}
			got, err := a.References()
			if (err == nil) != (c.want != nil) || err == nil && !maps.Equal(got, c.want) {
				t.Errorf("%s, %d at once: %v %v, want %v", name, size, got, err, c.want)
			}
		}
	}
}

func manyRefs() (out []string) {
	for i := range maxKept {
		out = append(out, one+fmt.Sprintf(" refs/heads/%d", i))
	}
	return out
}

func TestRefusalsAreWhatGitReads(t *testing.T) {
	r := &Request{Commands: []Command{{zero, one, "refs/heads/a"}, {one, two, "refs/heads/b"}}, report: true, sideBand64k: true}
	why := func(c Command) string { return "not " + c.Ref + "\n\x1b" }
	got := string(r.Refusal("be told\n", why))
	report := "000eunpack ok\n0027ng refs/heads/a not refs/heads/a??\n0027ng refs/heads/b not refs/heads/b??\n0000"
	if want := fmt.Sprintf("000d\x02be told\n%04x\x01%s0000", 5+len(report), report); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	r.sideBand64k = false
	if got := string(r.Refusal("x", why)); got != report {
		t.Errorf("without bands: %q", got)
	}
	r.sideBand = true
	for rest := r.Refusal(strings.Repeat("x", 5000), why); len(rest) > 4; {
		n, _ := length(rest[:4])
		if n > 1000 || n < 5 {
			t.Fatalf("a packet of %d", n)
		}
		rest = rest[n:]
	}
	if (&Request{report: true}).CanBeTold() || (&Request{Commands: r.Commands}).CanBeTold() {
		t.Error("who did not ask is told")
	}
}

// FuzzRead: what is taken was read to its end and no further, and reading it
// again gives the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte(lines(zero+" "+one+" refs/heads/a"+usual) + "PACK"))
	f.Add([]byte(lines("shallow "+one, zero+" "+one+" refs/heads/a\x00push-options") + lines("x")))
	f.Add([]byte(lines("push-cert\x00 report-status", "h\n", "\n", zero+" "+one+" refs/heads/a\n", "-----BEGIN PGP SIGNATURE-----\n", "push-cert-end\n")))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Read(bytes.NewReader(text))
		if err != nil {
			if r != nil {
				t.Fatal("a request came with the error")
			}
			return
		}
		if !bytes.HasPrefix(text, r.Head) || len(r.Head) > maxHead || len(r.Commands) > maxCommands {
			t.Fatalf("%d bytes, %d commands", len(r.Head), len(r.Commands))
		}
		again, err := Read(bytes.NewReader(r.Head))
		if err != nil || !slices.Equal(again.Commands, r.Commands) {
			t.Fatalf("%+v\n%+v %v", r, again, err)
		}
		for _, c := range r.Commands {
			// Each stands in the text as it was read.
			if !bytes.Contains(bytes.ToLower(r.Head), []byte(strings.ToLower(c.Old+" "+c.New+" "+c.Ref))) && strings.ToLower(c.Ref) == c.Ref {
				t.Fatalf("%+v is not in %q", c, r.Head)
			}
		}
		_ = r.Refusal("text", func(Command) string { return "why" })
	})
}

// FuzzAdvertisement: in whatever parts it comes, it means the same.
func FuzzAdvertisement(f *testing.F) {
	f.Add([]byte(list(one+" refs/heads/a\x00x", two+" refs/heads/b")), 3)
	f.Add([]byte("0003"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		size = max(1, size)
		a, b := &Advertisement{Keep: func(string) bool { return true }}, &Advertisement{Keep: func(string) bool { return true }}
		_, _ = a.Write(text)
		for part := range slices.Chunk(text, size) {
			_, _ = b.Write(part)
		}
		gotA, errA := a.References()
		gotB, errB := b.References()
		if (errA == nil) != (errB == nil) || errA == nil && !maps.Equal(gotA, gotB) {
			t.Fatalf("%v %v, in parts %v %v", gotA, errA, gotB, errB)
		}
	})
}
