package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestDecideAgreesWithAPlainReading judges random policies and requests by the
// words of the documents, without index, preference or precomputed text.
func TestDecideAgreesWithAPlainReading(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var allowed, inspected, raw, pushes int
	for range 3000 {
		layers := make([]Layer, 1+rnd.IntN(3))
		for i := range layers {
			layers[i] = Layer{Name: []string{LayerOrganisation, LayerRepository, LayerCommandLine}[i], Document: randomDocument(rnd)}
		}
		e, err := Compile(layers, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			req := randomRequest(rnd)
			got, want := e.Decide(req), plainly(layers, req)
			if got.Allowed != want.Allowed || got.Inspect != want.Inspect || got.Push != want.Push || got.Raw != want.Raw {
				t.Fatalf("%+v\n got %+v\nwant %+v\nby %+v", req, got, want, e.Show())
			}
			if got.Reason == "" || got.Allowed && got.Rule == "" {
				t.Fatalf("%+v: %+v says too little", req, got)
			}
			if got.Allowed {
				allowed++
			}
			if got.Inspect {
				inspected++
			}
			if got.Raw {
				raw++
			}
			if got.Push || got.Allowed && req.Ref != "" {
				pushes++
			}
		}
	}
	if allowed < 2000 || inspected < 200 || raw < 100 || pushes < 100 {
		t.Errorf("the requests were too dull: %d allowed, %d inspected, %d raw, %d pushes", allowed, inspected, raw, pushes)
	}
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

func randomDocument(rnd *rand.Rand) *Document {
	d := &Document{}
	if rnd.IntN(8) == 0 {
		return d
	}
	d.Network = &Network{}
	for range 1 + rnd.IntN(4) {
		r := randomRule(rnd)
		if rnd.IntN(3) == 0 {
			r.Protocol = "tcp"
		}
		if rnd.IntN(5) == 0 {
			r.Push = []string{pick(rnd, "refs/heads/a", "refs/**", "refs/tags/*")}
		}
		d.Network.Rules = append(d.Network.Rules, r)
	}
	for range rnd.IntN(2) {
		d.Network.Deny = append(d.Network.Deny, randomRule(rnd))
	}
	return d
}

func randomRule(rnd *rand.Rand) (r Rule) {
	for range 1 + rnd.IntN(3) {
		r.Hosts = append(r.Hosts, pick(rnd, "a.example", "b.example", "x.a.example", "*.example", "**.example", "*.a.example", "10.0.0.1"))
	}
	if rnd.IntN(2) == 0 {
		r.Ports = []uint16{pick[uint16](rnd, 80, 443, 5432)}
	}
	if rnd.IntN(3) == 0 {
		r.Methods = []string{pick(rnd, "GET", "POST")}
	}
	if rnd.IntN(4) == 0 {
		r.Paths = []string{pick(rnd, "/a", "/*", "/**", "/a/**")}
	}
	return r
}

func randomRequest(rnd *rand.Rand) Request {
	req := Request{
		Host: pick(rnd, "a.example", "b.example", "c.example", "x.a.example", "y.a.example", "10.0.0.1", "10.0.0.2"),
		Port: pick[uint16](rnd, 80, 443, 5432), TLS: rnd.IntN(2) == 0,
	}
	if rnd.IntN(2) == 0 {
		req.Method, req.Path = pick(rnd, "GET", "POST", "PUT"), pick(rnd, "/a", "/b", "/a/b", "/a/git-receive-pack")
		if strings.HasSuffix(req.Path, "-pack") && rnd.IntN(3) > 0 {
			req.Ref, req.Change = pick(rnd, "refs/heads/a", "refs/heads/b", "refs/tags/a"), pick(rnd, ChangeRewrite, ChangeCreate, ChangeForward, ChangeDelete)
		}
	}
	return req
}

// plainly is the meaning of layers word by word: a request is allowed if and only
// if every layer that speaks of the network allows it and none denies it.
func plainly(layers []Layer, req Request) (d Decision) {
	d.Raw = true
	speaking := 0
	for _, l := range layers {
		n := l.Document.Network
		if n == nil {
			continue
		}
		speaking++
		for _, r := range n.Deny {
			matches, unknown := plainRule(r, req, true)
			if matches && (!unknown || !req.TLS) {
				return Decision{}
			}
			d.Inspect = d.Inspect || matches
		}
		ok, needs, raw := false, true, false
		claimed := slices.ContainsFunc(n.Rules, func(r Rule) bool {
			named, _ := plainRule(Rule{Hosts: r.Hosts, Ports: r.Ports}, req, false)
			return named && len(r.Push) > 0
		})
		pushing := strings.HasSuffix(req.Path, "/git-receive-pack")
		for _, r := range n.Rules {
			matches, unknown := plainRule(r, req, false)
			if claimed && len(r.Push) == 0 {
				unknown = unknown || req.Method == ""
				matches = matches && !pushing
			}
			if pushing && len(r.Push) > 0 && req.Ref != "" {
				matches = matches && plainPush(r, req)
			}
			if !matches || unknown && !req.TLS {
				continue
			}
			ok, needs = true, needs && unknown
			raw = raw || r.Protocol == "tcp" && len(r.Methods)+len(r.Paths)+len(r.Push) == 0
		}
		d.Push = d.Push || claimed && pushing && req.Ref == ""
		if !ok {
			return Decision{}
		}
		d.Inspect, d.Raw = d.Inspect || needs, d.Raw && raw
	}
	if speaking == 0 {
		return Decision{}
	}
	d.Allowed, d.Raw = true, d.Raw && !d.Inspect
	return d
}

// plainPush is what a rule says of one reference.
func plainPush(r Rule, req Request) bool {
	switch r.Push[0] {
	case "refs/heads/a":
		return req.Ref == "refs/heads/a" && (req.Change == ChangeCreate || req.Change == ChangeForward)
	case "refs/tags/*":
		return req.Ref == "refs/tags/a" && req.Change == ChangeCreate
	}
	return req.Change == ChangeCreate || req.Change == ChangeForward && req.Ref != "refs/tags/a"
}

// plainRule also says whether the rule depends on what the request does not show.
func plainRule(r Rule, req Request, deny bool) (matches, unknown bool) {
	host := slices.ContainsFunc(r.Hosts, func(pattern string) bool {
		if rest, ok := strings.CutPrefix(pattern, "**."); ok {
			return strings.HasSuffix(req.Host, "."+rest)
		}
		if rest, ok := strings.CutPrefix(pattern, "*."); ok {
			label, ok := strings.CutSuffix(req.Host, "."+rest)
			return ok && !strings.Contains(label, ".")
		}
		return pattern == req.Host
	})
	ports := r.Ports
	if len(ports) == 0 {
		ports = []uint16{443, 80}
		if deny {
			ports = []uint16{req.Port}
		}
	}
	if !host || !slices.Contains(ports, req.Port) {
		return false, false
	}
	if len(r.Methods)+len(r.Paths)+len(r.Push) == 0 {
		return true, false
	}
	if req.Method == "" {
		return true, true
	}
	path := len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, func(p string) bool {
		segments := strings.Split(req.Path[1:], "/")
		return p == "/**" || p == req.Path || p == "/*" && len(segments) == 1 || p == "/a/**" && strings.HasPrefix(req.Path, "/a/")
	})
	return path && (len(r.Methods) == 0 || slices.Contains(r.Methods, req.Method)), false
}
