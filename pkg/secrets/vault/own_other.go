//go:build !unix

package vault

func readOwn(path string) ([]byte, error) {
	return nil, &Error{"whether others may read " + path + " cannot be told on this system", ""}
}
