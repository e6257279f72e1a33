package policy

import (
	"fmt"
	"strings"
	"testing"
)

// manySource is a policy of n rules of every form.
func manySource(n int) string {
	var b strings.Builder
	b.WriteString(`{"network":{"rules":[`)
	for i := range n {
		form := [...]string{
			`{"name":"rule of host %[1]d","hosts":["host-%[1]d.x.example","other-%[1]d.x.example"]},`,
			`{"hosts":["*.wild-%[1]d.x.example"],"methods":["GET","HEAD"],"paths":["/v1/**","/v2/*/info"]},`,
			`{"hosts":["**.deep-%[1]d.x.example"],"ports":[443,8443]},`,
			`{"hosts":["10.%[2]d.%[3]d.1"],"ports":[5432],"protocol":"tcp"},`,
		}
		k := i % 4
		if i == 500 {
			k = 0
		}
		if i == 501 {
			k = 1
		}
		fmt.Fprint(&b, expandForm(form[k], i))
	}
	b.WriteString(`{"hosts":["*.wild-500.x.example"],"methods":["GET"],"paths":["/v1/**"]}],"deny":[`)
	for i := range n / 10 {
		fmt.Fprintf(&b, `{"hosts":["denied-%d.x.example"]},`, i)
	}
	b.WriteString(`]}}`)
	return b.String()
}

func expandForm(form string, i int) string {
	return strings.NewReplacer("%[1]d", fmt.Sprint(i), "%[2]d", fmt.Sprint(i/256), "%[3]d", fmt.Sprint(i%256)).Replace(form)
}

func many(t testing.TB, n int) *Effective {
	return compile(t, layer(t, LayerOrganisation, `{"network":{"rules":[{"hosts":["**.x.example"]}],"deny":[{"hosts":["gist.x.example"]}]}}`),
		layer(t, LayerRepository, manySource(n)))
}

func BenchmarkDecide(b *testing.B) {
	e := many(b, 1000)
	for _, req := range manyRequests {
		b.Run(req.Host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Decide(req)
			}
		})
	}
}

func BenchmarkParseAndCompile1000(b *testing.B) {
	src := []byte(manySource(1000))
	presets := BuiltinPresets()
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		d, err := Parse("p", src)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Compile([]Layer{{Name: LayerRepository, Document: d}}, nil, presets); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNormalHost(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NormalHost("api.x.example"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNormalPath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NormalPath("/v1/messages/batch"); err != nil {
			b.Fatal(err)
		}
	}
}
