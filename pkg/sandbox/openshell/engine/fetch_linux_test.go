package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// registry serves one image of the files that an image is looked at for, as
// registries do: its parts by their sums. It lies on loopback, where Docker
// asks for no TLS.
func registry(t *testing.T) (ref string) {
	t.Helper()
	var layer bytes.Buffer
	out := tar.NewWriter(&layer)
	for _, name := range []string{"usr/bin/bash", "usr/bin/sh", "usr/sbin/ip", "usr/sbin/nft"} {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: 1}); err != nil {
			t.Fatal(err)
		}
		_, _ = out.Write([]byte("#"))
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	part := func(kind string, b []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(b))
		parts[digest] = b
		return map[string]any{"mediaType": kind, "size": len(b), "digest": digest}
	}
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const docker = "application/vnd.docker."
	files := part(docker+"image.rootfs.diff.tar", layer.Bytes())
	config := part(docker+"container.image.v1+json", text(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": []any{files["digest"]}},
	}))
	manifest := text(map[string]any{"schemaVersion": 2, "mediaType": docker + "distribution.manifest.v2+json", "config": config, "layers": []any{files}})
	part("", manifest)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := path.Base(r.URL.Path)
		b, ok := parts[asked]
		if asked == "v2" {
			return
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", docker+"distribution.manifest.v2+json")
			if strings.HasSuffix(r.URL.Path, "/fetched/manifests/latest") {
				b, ok = manifest, true
			}
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(b)))
		_, _ = w.Write(b)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://") + "/mojoup/fetched"
}

// TestImagesAreFetchedAndSaidToBe: somebody who waits is told what for.
func TestImagesAreFetchedAndSaidToBe(t *testing.T) {
	t.Parallel()
	docker := gatewaytest.Docker(t)
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ref := registry(t)
	defer func() {
		_, _ = docker.ImageRemove(context.WithoutCancel(t.Context()), ref+":latest", image.RemoveOptions{})
	}()
	var told []string
	ctx := sandbox.Narrate(t.Context(), func(line string) { told = append(told, line) })
	e := &Engine{o: Options{Image: ref + ":latest", Docker: d}}
	e.tidied.Do(func() {})
	var unfit *ImageError
	if _, err := e.image(ctx); !errors.As(err, &unfit) || !strings.Contains(unfit.Hint(), "docker pull "+ref) || len(told) > 0 {
		t.Errorf("an image that is not to be fetched: %v; told %q", err, told)
	}
	e.o.Fetch = true
	if i, err := e.image(ctx); err != nil || !i.HoldsProgram("nft") {
		t.Fatalf("fetched: %v; told %q", err, told)
	}
	if len(told) < 2 || told[0] != "fetching the image "+ref+":latest, which Docker does not have" || !strings.HasPrefix(told[len(told)-1], "fetched the image "+ref) {
		t.Errorf("told %q", told)
	}
	told = nil
	if _, err := e.image(ctx); err != nil || len(told) > 0 {
		t.Errorf("an image that is there: %v; told %q", err, told)
	}
	e.o.Image = ref + "-not:latest"
	if _, err := e.image(ctx); !errors.As(err, &unfit) || !strings.Contains(err.Error(), "could not fetch it") || unfit.Hint() == "" {
		t.Errorf("an image that nobody has: %v", err)
	}
}

func TestWhatAGatewayFetchesIsTold(t *testing.T) {
	var told []string
	ctx := sandbox.Narrate(t.Context(), func(line string) { told = append(told, line) })
	b := &box{e: &Engine{o: Options{Image: "image"}}, log: slog.New(slog.DiscardHandler)}
	tell := b.progress(ctx)
	for _, p := range []openshell.Progress{{Reason: "ImagePresent", Message: "there"}, {Reason: "Pulling", Message: "one", Pull: true}, {Reason: "PullingLayer", Message: "two", Pull: true}} {
		tell(p)
	}
	if len(told) != 1 || told[0] != "the gateway fetches the image image: one" {
		t.Errorf("told %q", told)
	}
}
