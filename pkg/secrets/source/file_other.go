//go:build !unix

package source

import "github.com/mojoup/mojoup-node/pkg/secrets"

func readFile(path string) (secrets.Value, error) {
	return secrets.Value{}, errorf("", "whether others may read %s cannot be told on this system", path)
}
